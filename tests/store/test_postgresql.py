"""The PostgreSQL engine against real servers: what it refuses, damage, the bound, deletion."""

from __future__ import annotations

import os
import subprocess
import threading
import time

import postgres
import pytest
from store.on_postgresql import entries, entry, kind, opened, server, until, url  # noqa: F401 - fixtures
from store.rows import key, newer, row

from swerve.core.errors import SwerveError
from swerve.store import Batch, Damaged, Fenced, StoreError, open_store

pytestmark = pytest.mark.engines


# ------------------------------------------------------------------ what is refused


@pytest.mark.parametrize("setting", ["fsync", "full_page_writes"])
def test_a_server_that_a_crash_can_rob_is_refused(server, setting):
    server.ask(f"ALTER SYSTEM SET {setting} = off")
    server.ask("SELECT pg_reload_conf()")
    time.sleep(0.3)
    with pytest.raises(SwerveError, match=rf"the server has {setting} = off, .*; set {setting} = on$"):
        open_store(server.url())
    server.ask(f"ALTER SYSTEM RESET {setting}")
    server.ask("SELECT pg_reload_conf()")
    time.sleep(0.3)
    open_store(server.url()).close()


@pytest.mark.parametrize("level", ["off", "local", "remote_write", "on", "remote_apply"])
def test_sessions_wait_for_the_disk_whatever_the_servers_default_is(server, level):
    server.ask(f"ALTER SYSTEM SET synchronous_commit = {level}")
    server.ask("SELECT pg_reload_conf()")
    time.sleep(0.3)
    with opened(server.url()) as store:
        for link in (store._log, store._writer, store._keeper.link):
            with link.using() as connection:
                found = connection.execute("SHOW synchronous_commit").fetchone()
            assert found == ("remote_apply" if level == "remote_apply" else "on",)


def test_asynchronous_standbys_are_refused_unless_they_are_accepted(server):
    standby = server.standby("second")
    try:
        until(lambda: server.ask("SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'") == [(1,)])
        url = server.url()
        with pytest.raises(SwerveError, match=r"its standbys are asynchronous.*synchronous_standby_names.*may_lose_clicks = true$"):
            open_store(url)
        with pytest.raises(SwerveError, match="the server is a standby; name the primary"):
            open_store(standby.url())
        open_store(url, may_lose_clicks=True).close()
        server.ask("ALTER SYSTEM SET synchronous_standby_names = 'second'")
        server.ask("SELECT pg_reload_conf()")
        until(lambda: server.ask("SELECT sync_state FROM pg_stat_replication") == [("sync",)])
        with opened(url) as store:
            assert store.append([entry(0)], 1.0) == 1
        # a wait for the standby that somebody ends is no acknowledgement
        with opened(url) as store:
            standby.pause()
            trouble = []
            thread = threading.Thread(target=lambda: trouble.append(kind(store.append, [entry(1)], 2.0)))
            thread.start()
            until(lambda: server.ask("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")[0][0] > 0)
            server.ask("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
            thread.join(20.0)
            assert trouble == ["io"] and store.end == 1
            standby.resume()
            assert store.append([], 3.0) == 2
            assert entries(store) == [b"\0" * 8, b"\0" * 7 + b"\1"]
    finally:
        standby.resume()
        standby.remove()


def test_a_server_that_is_not_there_is_named_without_its_password():
    url = f"postgresql://me:secret@127.0.0.1:{postgres.free_port()}/search"
    with pytest.raises(StoreError, match=r"me:\*\*\*@127.0.0.1") as caught:
        open_store(url)
    assert caught.value.kind == "gone" and "secret" not in str(caught.value)


def test_tables_of_another_program_are_left_alone(url):
    schema = url.rpartition("=")[2]
    postgres.shared().ask(f"CREATE SCHEMA {schema}; CREATE TABLE {schema}.rows(theirs int)")
    with pytest.raises(SwerveError, match="has tables of another program; name another"):
        open_store(url)
    assert postgres.shared().ask(f"SELECT count(*) FROM {schema}.rows") == [(0,)]


def test_a_store_of_a_newer_version_is_refused(url):
    open_store(url).close()
    postgres.shared().ask(f"UPDATE {url.rpartition('=')[2]}.store SET form = 99")
    with pytest.raises(SwerveError, match=r"has form 99, .*use a newer Swerve"):
        open_store(url)


def test_a_store_that_has_vanished_is_not_begun_anew(url):
    schema = url.rpartition("=")[2]
    with opened(url) as store:
        store.append([entry(0)], 1.0)
        postgres.shared().ask(f"DROP SCHEMA {schema} CASCADE")
        assert kind(store.append, [entry(1)], 2.0) == "gone"
        assert kind(store.reopen) == "gone"
    with pytest.raises(SwerveError, match=r"is missing, but its secrets are there.*--new-store"):
        open_store(url, begin=False)
    open_store(url, new=True, begin=False).close()
    with pytest.raises(SwerveError, match=r"a new store was asked for, and .* is one already"):
        open_store(url, new=True)


# ------------------------------------------------------------------ damage, bounds, deletion


def test_a_damaged_row_is_named_and_the_others_are_read(url):
    schema = url.rpartition("=")[2]
    with opened(url) as store:
        store.checkpoint(Batch([row(1), row(2)]))
        postgres.shared().ask(f"UPDATE {schema}.rows SET names = 'other' WHERE key = '\\x{key(1).hex()}'")
        first, second = store.load([key(1), key(2)])
        assert isinstance(first, Damaged) and first.version == 1 and second == row(2)
        assert store.scan("traffic", 5) == [row(2)]
        store.checkpoint(Batch([row(1, 2)]))
        assert store.load([key(1)]) == [row(1, 2)]


@pytest.mark.parametrize(
    "damage", ["UPDATE {}.blocks SET content = content || 'x' WHERE first = 1", "DELETE FROM {}.blocks WHERE first = 1"]
)
def test_a_log_with_damage_inside_is_refused(url, damage):
    with opened(url) as store:
        for number in range(3):
            store.append([entry(number)], 1.0)
        postgres.shared().ask(damage.format(url.rpartition("=")[2]))
        assert kind(lambda: list(store.tail())) == "corrupt"


def test_a_log_that_lacks_its_end_is_refused_and_can_be_given_up(url):
    with opened(url) as store:
        store.append([entry(0)], 1.0)
        store.append([entry(1)], 1.0)
    postgres.shared().ask(f"DELETE FROM {url.rpartition('=')[2]}.blocks WHERE first = 1")
    with pytest.raises(StoreError, match=r"its log ends with entry 1, but had reached 2.*--new-log"):
        open_store(url)
    with opened(url, new_log=True) as store:
        assert (store.begin, store.end, list(store.tail())) == (2, 2, [])
        assert store.append([entry(2)], 2.0) == 3


def test_a_server_that_has_lost_acknowledged_entries_is_refused_while_the_service_runs(url):
    schema = url.rpartition("=")[2]
    with opened(url) as store:
        store.append([entry(0)], 1.0)
        store.append([entry(1)], 2.0)
        postgres.shared().ask(f'DELETE FROM {schema}.blocks WHERE first = 1; UPDATE {schema}.logs SET "end" = 1')
        with pytest.raises(StoreError, match=r"the server has entries up to 1 .* and 2 were acknowledged"):
            store.reopen()
    with opened(url, may_lose_clicks=True) as store:
        assert store.append([entry(1)], 2.0) == 2
        postgres.shared().ask(f'DELETE FROM {schema}.blocks WHERE first = 1; UPDATE {schema}.logs SET "end" = 1')
        assert store.reopen() is False
        assert store.end == 1


def test_a_store_at_its_bound_loses_what_is_worth_least(url):
    with opened(url, most=1 << 20) as store:
        for start in range(0, 600, 100):
            store.checkpoint(Batch([row(n, day=20_000 + n, level=1, size=2200) for n in range(start, start + 100)]))
            for _ in range(20):
                size = store.size()
                if not size.surplus:
                    break
                store.forget(store.least(min(size.surplus, 64)))
            assert not size.surplus
        assert store.size().data <= 1 << 20
        left = [found is not None for found in store.load([key(n) for n in range(600)])]
        assert store.count() == sum(left) and left == sorted(left)  # the oldest went
        assert store.size().data > 0.8 * (1 << 20)
        schema = url.rpartition("=")[2]
        postgres.shared().ask(f"VACUUM FULL {schema}.rows")
        ((size,),) = postgres.shared().ask(f"SELECT pg_total_relation_size('{schema}.rows')")
        assert 0.7 < store.size().data / size < 1.3


def test_statements_find_their_index(url):
    with opened(url) as store:
        store.checkpoint(
            Batch([row(n, day=20_000 + n, level=n % 7, shifted=float(n % 3)) for n in range(3000)], [(n, 1) for n in range(3000)])
        )
        with store._writer.using() as connection:
            connection.execute("ANALYZE")
            for statement, index in (
                ("SELECT key FROM rows ORDER BY day + 8 * level LIMIT 5", "rows_worth"),
                ("SELECT id FROM rows ORDER BY level DESC, id DESC LIMIT 5", "rows_level"),
                ("SELECT id FROM rows WHERE shifted > 0 ORDER BY shifted DESC, id DESC LIMIT 5", "rows_shifted"),
                ("SELECT id FROM rows WHERE day < 20003 ORDER BY day LIMIT 5", "rows_day"),
                (f"SELECT record FROM rows WHERE key = ANY(ARRAY['\\x{key(1).hex()}'::bytea])", "rows_key"),
                ("SELECT id FROM used WHERE id < 5 ORDER BY id LIMIT 5", "used_pkey"),
            ):
                plan = " ".join(line for (line,) in connection.execute(f"EXPLAIN {statement}"))
                assert index in plan and "Seq Scan" not in plan, plan


def test_a_row_that_changes_moves_no_index(url):
    """A new version lies beside the old one, in the same page, as long as what is indexed stays."""
    with opened(url) as store:
        rows = [row(n, size=1400) for n in range(50)]
        for _ in range(20):
            store.checkpoint(Batch(rows))
            rows = [newer(one) for one in rows]
        table = f"schemaname = '{url.rpartition('=')[2]}' AND relname = 'rows'"
        statement = f"SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE {table}"
        until(lambda: postgres.shared().ask(statement)[0][0] >= 950)
        ((updated, hot),) = postgres.shared().ask(statement)
        assert hot > 0.5 * updated


def test_what_was_deleted_is_in_no_version_of_a_row(url):
    with opened(url) as store:
        store.checkpoint(Batch([row(1), row(2)]))
        gone, versions = store.erase([key(1)], [key(2)], lambda one: newer(one, names=b"others"), {"audit": b"x"})
        assert gone == 1 and versions == {key(2): store.epoch}
        assert store.load([key(1)]) == [None] and store.load([key(2)])[0].names == b"others"
        assert store.groups()["audit", "0"] == b"x" and store.count() == 1
        statement = f"SELECT n_dead_tup FROM pg_stat_user_tables WHERE schemaname = '{url.rpartition('=')[2]}' AND relname = 'rows'"
        until(lambda: postgres.shared().ask(statement) == [(0,)])


@pytest.mark.slow
def test_a_disk_without_room_refuses_rows_and_takes_them_again(server):
    """The tables lie on a small disk of their own; the server's log does not, without which it would end."""
    disk = server.folder / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=12m,mode=0777", "none", str(disk)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("a small disk needs the right to mount one")
    try:
        folder = disk / "tables"
        folder.mkdir()
        if os.getuid() == 0:
            os.chown(folder, postgres.user()["user"], postgres.user()["group"])
        server.ask(f"CREATE TABLESPACE small LOCATION '{folder}'")
        server.ask("ALTER ROLE swerve SET default_tablespace = 'small'")
        with opened(server.url()) as store:
            store.checkpoint(Batch([row(n, size=2200) for n in range(100)]))
            caught = ""
            for start in range(100, 6000, 100):
                try:
                    store.checkpoint(Batch([row(n, size=2200) for n in range(start, start + 100)]))
                except StoreError as error:
                    caught = error.kind
                    break
            assert caught == "full" and store.count() == start
            assert store.load([key(99), key(start)]) == [row(99, size=2200), None]
            subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True)
            store.probe()
            store.checkpoint(Batch([row(n, size=2200) for n in range(start, start + 100)]))
            assert store.count() == start + 100
            assert store.append([entry(0)], 1.0) == 1
    finally:
        server.kill()
        subprocess.run(["umount", "-l", str(disk)], check=True)


def test_an_unknown_error_keeps_its_state(url):
    """What no table of kinds names is told as the server says it."""
    with (
        opened(url) as store,
        pytest.raises(StoreError, match=r"division by zero \(22012\)") as caught,
        store._writing() as connection,
    ):
        connection.execute("SELECT 1/0")
    assert caught.value.kind == "io"


def test_fenced_names_the_store(url):
    with opened(url) as store, pytest.raises(Fenced, match=r"postgresql://swerve@.* has an owner of epoch"):
        store.checkpoint(Batch(epoch=store.epoch + 5))
