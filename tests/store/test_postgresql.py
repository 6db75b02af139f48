"""The PostgreSQL engine against real servers: what it refuses, who owns a store, faults, damage."""

from __future__ import annotations

import contextlib
import os
import re
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import postgres
import pytest
from store.rows import key, newer, row

from swerve.core.errors import SwerveError
from swerve.store import Batch, Damaged, Entries, Fenced, InUse, Store, StoreError, open_store

pytestmark = pytest.mark.engines


@pytest.fixture
def url(tmp_path) -> str:
    return postgres.fresh(tmp_path)


@pytest.fixture
def server() -> Iterator[postgres.Postgres]:
    """A server of the test's own, which it may break."""
    postgres.needed()
    made = postgres.Postgres().made()
    yield made
    made.remove()


@contextlib.contextmanager
def opened(url: str, **more: object) -> Iterator[Store]:
    store = open_store(url, **more)  # type: ignore[arg-type]
    try:
        yield store
    finally:
        store.close()


def entries(store: Store, start: int | None = None) -> list[bytes]:
    """Return the entries of the log, which have eight bytes each."""
    return [block.content[at : at + 8] for block in store.tail(start) for at in range(0, len(block.content), 8)]


def entry(number: int) -> Entries:
    return Entries(number.to_bytes(8, "big"), 1)


def kind(call, *arguments) -> str:
    with pytest.raises(StoreError) as caught:
        call(*arguments)
    return caught.value.kind


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
    assert re.match(rf"process {os.getpid()} on ", told[0]) and not taken
    assert first.append([entry(1)], 2.0) == 2
    first.close()
    thread.join(20.0)
    (second,) = taken
    assert (second.end, second.epoch, len(told)) == (2, first.epoch + 1, 1)
    second.close()


OWNER = """
import sys
from swerve.store import Batch, Entries, open_store
store = open_store(sys.argv[1])
number = store.end
print("owner", flush=True)
for line in sys.stdin:
    try:
        if line.startswith("stop"):
            with store._writing() as connection:
                print("inside", flush=True)
                sys.stdin.readline()
            print("written", flush=True)
        elif line.startswith("append"):
            number = store.append([Entries(number.to_bytes(8, "big"), 1)], 1.0)
            print(number, flush=True)
        else:
            store.checkpoint(Batch(used=[(7, 7)]))
            print("written", flush=True)
    except Exception as error:
        print(type(error).__name__, getattr(error, "kind", ""), flush=True)
"""


class Owner:
    """Another process that owns a store."""

    def __init__(self, url: str) -> None:
        env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
        self.process = subprocess.Popen(
            [sys.executable, "-c", OWNER, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
        )
        assert self.line() == "owner"

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def ask(self, what: str) -> str:
        assert self.process.stdin is not None
        print(what, file=self.process.stdin, flush=True)
        return self.line()

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        for file in (self.process.stdin, self.process.stdout):
            assert file is not None
            file.close()


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


class Cable:
    """A cable to a server that can be cut, before what is said arrives or before the answer does."""

    def __init__(self, port: int) -> None:
        self.to = port
        self.deaf = self.mute = False  # whether what the client, or the server, says is swallowed
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.port = self.listening.getsockname()[1]
        self.pairs: list[tuple[socket.socket, socket.socket]] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self.listening.accept()
                far = socket.create_connection(("127.0.0.1", self.to))
                self.pairs.append((near, far))
                threading.Thread(target=self._carry, args=(near, far), daemon=True).start()

    def _carry(self, near: socket.socket, far: socket.socket) -> None:
        with contextlib.suppress(OSError), selectors.DefaultSelector() as ready:
            ready.register(near, selectors.EVENT_READ, far)
            ready.register(far, selectors.EVENT_READ, near)
            while True:
                for found, _ in ready.select():
                    said = found.fileobj.recv(65536)
                    if not said:
                        self._cut(near, far)
                        return
                    if not (self.deaf if found.fileobj is near else self.mute):
                        found.data.sendall(said)

    @staticmethod
    def _cut(*ends: socket.socket) -> None:
        for end in ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def cut(self) -> None:
        for pair in self.pairs:
            self._cut(*pair)
        self.pairs.clear()

    def close(self) -> None:
        self.listening.close()
        self.cut()


@pytest.fixture
def cable(url) -> Iterator[Cable]:
    made = Cable(postgres.shared().port)
    yield made
    made.close()


def through(cable: Cable, url: str) -> str:
    return re.sub(r":\d+/", f":{cable.port}/", url)


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


def expected(error: StoreError) -> list[Entries]:
    """Raise an error that is not due to a server that was killed; return nothing more to append."""
    if error.kind not in ("gone", "io", "slow"):
        raise error
    return []


def healed(store: Store) -> bool:
    with contextlib.suppress(StoreError):
        return store.reopen()
    return False


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
    with pytest.raises(StoreError, match=r"its log ends with entry 1, and there were 2.*--new-log"):
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


def until(what, patience: float = 30.0) -> None:
    ends = time.monotonic() + patience
    while not what():
        assert time.monotonic() < ends, "not within the patience"
        time.sleep(0.02)


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
