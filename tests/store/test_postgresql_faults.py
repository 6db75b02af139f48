"""Owners of stores in PostgreSQL, and faults of connections and of real servers."""

from __future__ import annotations

import os
import re
import signal
import socket
import threading
import time

import postgres
import pytest
from store.on_postgresql import (  # noqa: F401 - fixtures
    Owner,
    cable,
    entries,
    entry,
    expected,
    healed,
    kind,
    opened,
    server,
    through,
    until,
    url,
)
from store.rows import key, newer, row

from swerve.store import Batch, InUse, Store, StoreError, open_store
from swerve.store.postgresql_link import CONNECT_SECONDS

pytestmark = pytest.mark.engines


# ------------------------------------------------------------------ owners


def test_a_second_owner_is_refused_and_a_waiting_one_takes_over(url):
    told: list[str] = []
    first = open_store(url)
    first.append([entry(0)], 1.0)
    with pytest.raises(InUse, match=rf"is in use by process {os.getpid()} on \S+ since .* UTC; stop that process"):
        open_store(url)
    taken: list[Store] = []
    thread = threading.Thread(target=lambda: taken.append(open_store(url, waiting=told.append)))
    thread.start()
    until(lambda: bool(told))
    assert re.search(rf"is in use by process {os.getpid()} on ", told[0]) and not taken
    assert first.append([entry(1)], 2.0) == 2
    first.close()
    thread.join(20.0)
    (second,) = taken
    assert (second.end, second.epoch, len(told)) == (2, first.epoch + 1, 1)
    second.close()


def test_an_owner_that_is_killed_makes_room_at_once(url):
    owner = Owner(url)
    assert owner.ask("append") == "1"
    owner.end()
    with opened(url) as store:
        assert entries(store) == [b"\0" * 8]


def test_an_owner_that_was_paused_comes_back_to_nothing(url, monkeypatch):
    """Its sessions stay, and say nothing: who waits ends the one that holds the lock, and the others are refused by the epoch."""
    monkeypatch.setattr("swerve.store.postgresql_owner.DEAD_SECONDS", 2.0)
    owner = Owner(url)
    try:
        assert owner.ask("append") == "1"
        with pytest.raises(InUse):
            open_store(url)
        owner.process.send_signal(signal.SIGSTOP)
        with opened(url, waiting=lambda who: None) as store:
            assert store.append([entry(100)], 2.0) == 2
            owner.process.send_signal(signal.SIGCONT)
            assert owner.ask("append") == "Fenced conflict"
            assert owner.ask("checkpoint") == "Fenced conflict"
            time.sleep(2.5)  # its keeper has looked, and does not want the lock back
            assert store.append([entry(101)], 3.0) == 3
            assert [int.from_bytes(one, "big") for one in entries(store)] == [0, 100, 101]
            assert store.outcomes([7]) == {}
    finally:
        owner.end()


def test_an_owner_that_was_paused_inside_a_checkpoint_holds_nobody_up(url, monkeypatch):
    """The server ends its transaction, which has locked the row of the owner."""
    monkeypatch.setattr("swerve.store.postgresql_owner.DEAD_SECONDS", 1.0)
    owner = Owner(url)
    try:
        assert owner.ask("stop") == "inside"
        owner.process.send_signal(signal.SIGSTOP)
        with opened(url, waiting=lambda who: None) as store:
            assert store.append([entry(0)], 2.0) == 1
            owner.process.send_signal(signal.SIGCONT)
            assert owner.ask("go on") == "StoreError gone"
            assert owner.ask("append") == "Fenced conflict"
    finally:
        owner.end()


def test_a_role_without_rights_is_enough(server):
    """It owns a schema, and nothing else."""
    server.ask("CREATE ROLE shop LOGIN; CREATE SCHEMA shop AUTHORIZATION shop; REVOKE CREATE ON DATABASE postgres FROM PUBLIC")
    url = server.url("shop").replace("//swerve@", "//shop@")
    with opened(url) as store:
        store.checkpoint(Batch([row(1)]))
        assert store.append([entry(0)], 1.0) == 1
        with pytest.raises(InUse, match=f"process {os.getpid()} on"):
            open_store(url)
        store.erase([key(1)], [], lambda one: None, {})
    with pytest.raises(StoreError, match="permission denied"):
        open_store(server.url("other").replace("//swerve@", "//shop@"))


def test_a_live_owner_is_not_taken_for_dead(url, monkeypatch):
    monkeypatch.setattr("swerve.store.postgresql_owner.DEAD_SECONDS", 2.5)
    with opened(url) as store:
        taken: list[Store] = []
        thread = threading.Thread(target=lambda: taken.append(open_store(url, waiting=lambda who: None)), daemon=True)
        thread.start()
        time.sleep(6.0)
        assert not taken and store.append([entry(0)], 1.0) == 1
    thread.join(20.0)
    taken[0].close()


def test_an_owner_whose_session_was_ended_takes_the_lock_again(url):
    with opened(url) as store:
        postgres.shared().ask(f"SELECT pg_terminate_backend({store._keeper._pid})")
        until(lambda: store._keeper.link.is_open and locks() > 0)
        with pytest.raises(InUse):
            open_store(url)
        assert store.append([entry(0)], 1.0) == 1


def locks() -> int:
    ((count,),) = postgres.shared().ask("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted")
    return int(count)


def test_reopen_after_another_owner_came_and_went_is_another_store(url):
    with opened(url) as store:
        store.append([entry(0)], 1.0)
        store._keeper.link.close()  # as for a session that was cut off
        store._keeper._ends.set()
        with opened(url) as other:
            other.append([entry(100)], 2.0)
            assert kind(store.append, [entry(1)], 3.0) == "conflict"
            assert kind(store.reopen) == "conflict"
        assert store.reopen() is False
        assert (store.epoch, store.append([entry(2)], 4.0)) == (other.epoch + 1, 3)
        assert [int.from_bytes(one, "big") for one in entries(store)] == [0, 100, 2]  # what was refused is forgotten


def test_a_reopening_that_breaks_off_is_told_when_it_succeeds(server):
    """The store is owned anew, and then a connection is refused: the caller must hear of it from the next attempt."""
    server.ask("CREATE ROLE shop LOGIN; CREATE SCHEMA shop AUTHORIZATION shop")
    url = server.url("shop").replace("//swerve@", "//shop@")
    with opened(url) as store:
        store.append([entry(0)], 1.0)
        store._keeper.close()
        with opened(url) as other:
            other.append([entry(100)], 2.0)
        assert kind(store.append, [entry(1)], 3.0) == "conflict"
        store._unlinked()
        server.ask("ALTER ROLE shop CONNECTION LIMIT 2")
        assert kind(store.reopen) == "gone"  # too many connections
        assert kind(store.append, [entry(2)], 4.0) == "gone"
        server.ask("ALTER ROLE shop CONNECTION LIMIT -1")
        assert store.reopen() is False
        assert store.append([entry(3)], 5.0) == 3
        assert [int.from_bytes(one, "big") for one in entries(store)] == [0, 100, 3]  # nothing of before
        assert store.reopen() is True


def test_reopening_keeps_the_lock(url):
    with opened(url) as store:
        pid = store._keeper._pid
        postgres.shared().ask(f"SELECT pg_terminate_backend({backend(store._reader)})")
        assert kind(store.load, [key(1)]) == "gone"
        assert store.reopen() is True and store._keeper._pid == pid
        assert store.load([key(1)]) == [None]


def backend(link) -> int:
    with link.using() as connection:
        return connection.info.backend_pid


# ------------------------------------------------------------------ faults of connections and of the server


@pytest.mark.parametrize("arrives", [True, False])
def test_an_append_whose_end_is_not_known_happens_once(url, cable, arrives):
    """The connection breaks after the server has carried out the append and before it says so; or before it hears of it."""
    with opened(through(cable, url)) as store:
        for number in range(5):
            store.append([entry(number)], 1.0)
        cable.mute, cable.deaf = arrives, not arrives
        trouble: list[str] = []
        thread = threading.Thread(target=lambda: trouble.append(kind(store.append, [entry(5)], 2.0)))
        thread.start()
        table = f"{url.rpartition('=')[2]}.blocks"
        if arrives:
            until(lambda: postgres.shared().ask(f"SELECT count(*) FROM {table}") == [(6,)])
        else:
            time.sleep(0.5)
        cable.cut()
        thread.join(20.0)
        assert trouble == ["gone"] and store.end == 5
        cable.mute = cable.deaf = False
        assert kind(store.append, [entry(6)], 3.0) == "gone"  # it waits too
        assert store.reopen() is True
        assert store.append([entry(7)], 4.0) == 8
        assert [int.from_bytes(one, "big") for one in entries(store)] == list(range(8))
        assert postgres.shared().ask(f"SELECT count(*) FROM {table}") == [(7,)]  # the fifth, and then what waited in one block


def test_a_server_that_does_not_answer_ends_every_call(url, cable, monkeypatch):
    for name in ("READ", "APPEND", "WRITE"):
        monkeypatch.setattr(f"swerve.store.postgresql_opened.{name}_SECONDS", 0.5)
    with opened(through(cable, url)) as store:
        store.checkpoint(Batch([row(1)]))
        cable.mute = True
        for call in (
            lambda: store.load([key(1)]),
            lambda: store.append([entry(0)], 1.0),
            lambda: store.checkpoint(Batch([newer(row(1))])),
        ):
            started = time.monotonic()
            assert kind(call) == "slow"
            assert time.monotonic() - started < 4.0
            assert kind(call) == "gone"  # what became of the statement is not known: the connection is given up
        cable.cut()
        cable.mute = False
        assert store.reopen() is True
        assert store.load([key(1)])[0] in (row(1), newer(row(1)))
        assert store.append([], 2.0) == 2 and len(entries(store)) == 2  # each call had one


def test_a_server_that_hangs_takes_its_time_out_once_and_not_from_each_connection(url):
    """It is the first of several, and takes connections without answering them."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as deaf:
        hanging = f"127.0.0.1:{deaf.getsockname()[1]}"
        began = time.monotonic()
        with opened(url.replace("@", f"@{hanging},", 1)) as store:  # five connections
            assert store.append([entry(0)], 1.0) == 1
        assert 2.0 < time.monotonic() - began < 2 * CONNECT_SECONDS


def test_reads_and_appends_do_not_wait_for_a_checkpoint(url):
    with opened(url) as store:
        store.checkpoint(Batch([row(1)]))
        with store._writing() as connection:
            store._write(connection, [newer(row(1))], [(1, 1)], {"group": b"x"})
            started = time.monotonic()
            assert store.load([key(1)]) == [row(1)]
            assert store.append([entry(0)], 1.0) == 1
            assert store.outcomes([1]) == {} and store.groups() == {}
            assert time.monotonic() - started < 1.0
        assert store.load([key(1)]) == [newer(row(1))]


@pytest.mark.slow
def test_kill_9_of_the_server_loses_and_doubles_nothing_that_was_acknowledged(server):
    """Appends and checkpoints from two threads, five kills in the middle."""
    url, end, version = server.url(), threading.Event(), 0
    with opened(url) as store:
        sent, acknowledged, written, unexpected = 0, 0, [0], list[BaseException]()
        healing = threading.Lock()

        def heal() -> None:
            with healing:
                while not end.is_set():
                    try:
                        assert store.reopen() is True
                        return
                    except StoreError:
                        time.sleep(0.05)

        def appends() -> None:
            nonlocal sent, acknowledged
            try:
                while not end.is_set():
                    some = [entry(sent + more) for more in range(3)]
                    sent += 3
                    while not end.is_set():
                        try:
                            acknowledged = store.append(some, 1.0)
                            break
                        except StoreError as error:
                            some = expected(error)
                            heal()
            except BaseException as error:
                unexpected.append(error)

        def checkpoints() -> None:
            nonlocal version
            try:
                while not end.is_set():
                    version += 1
                    try:
                        store.checkpoint(Batch([row(n, version) for n in range(5)], [(version, version)]))
                        written.append(version)
                    except StoreError as error:
                        expected(error)
                        heal()
            except BaseException as error:
                unexpected.append(error)

        threads = [threading.Thread(target=work) for work in (appends, checkpoints)]
        for thread in threads:
            thread.start()
        for _ in range(5):
            before = acknowledged
            until(lambda before=before: acknowledged > before + 60)
            server.kill()
            time.sleep(0.2)
            server.start()
        before = acknowledged
        until(lambda: acknowledged > before + 60)
        end.set()
        for thread in threads:
            thread.join(30.0)
        assert not unexpected, unexpected
        heal_until = time.monotonic() + 10
        while store.append([], 2.0) < acknowledged:
            assert time.monotonic() < heal_until
        found = [int.from_bytes(one, "big") for one in entries(store)]
        assert found == list(range(len(found))) and acknowledged <= len(found) <= sent
        versions = {one.version for one in store.load([key(n) for n in range(5)])}
        assert len(versions) == 1 and versions.pop() >= written[-1]
        assert store.outcomes(written[1:]) == {number: number for number in written[1:]}


@pytest.mark.slow
def test_a_paused_server_makes_appends_wait_and_nothing_else(server, monkeypatch):
    monkeypatch.setattr("swerve.store.postgresql_opened.APPEND_SECONDS", 1.0)
    with opened(server.url()) as store:
        store.append([entry(0)], 1.0)
        server.pause()
        try:
            started = time.monotonic()
            assert kind(store.append, [entry(1)], 2.0) == "slow"
            assert time.monotonic() - started < 5.0
            assert kind(store.reopen) in ("slow", "gone")
        finally:
            server.resume()
        until(lambda: healed(store))
        assert store.append([entry(2)], 3.0) == 3
        assert [int.from_bytes(one, "big") for one in entries(store)] == [0, 1, 2]


@pytest.mark.slow
def test_who_takes_over_waits_for_the_last_append_of_the_owner_before(server):
    """It waits for a standby of the server that is away, longer than any time-out; then it counts."""
    second = server.standby("second")
    try:
        server.ask("ALTER SYSTEM SET synchronous_standby_names = 'second'")
        server.ask("SELECT pg_reload_conf()")
        until(lambda: server.ask("SELECT sync_state FROM pg_stat_replication") == [("sync",)])
        url, told, taken = server.url(), list[str](), list[Store]()
        owner = Owner(url)
        try:
            assert owner.ask("append") == "1"
            second.pause()
            print("append", file=owner.process.stdin, flush=True)
            until(lambda: server.ask("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'") == [(1,)])
        finally:
            owner.end()
        thread = threading.Thread(target=lambda: taken.append(open_store(url, waiting=told.append)))
        thread.start()
        until(lambda: any("(55P03)" in words for words in told), 40.0)  # it has waited for the row once, and goes on to wait
        assert not taken
        second.resume()
        thread.join(30.0)
        (store,) = taken
        assert (store.end, [int.from_bytes(one, "big") for one in entries(store)]) == (2, [0, 1])
        store.close()
    finally:
        second.resume()
        second.remove()
