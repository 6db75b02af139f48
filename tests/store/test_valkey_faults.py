"""Faults of a real Valkey server: it is killed, paused, its file is cut, it is full, it has replicas; its owner is paused."""

from __future__ import annotations

import itertools
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest
import valkeys
from store.rows import key, row
from valkeys import ValkeyServer

from swerve.store import Batch, Entries, Fenced, StoreError, open_store

pytestmark = [pytest.mark.engines, pytest.mark.slow]

ROOT = Path(__file__).parents[2]


@pytest.fixture
def server(tmp_path):
    valkeys.needed()
    made = ValkeyServer(tmp_path / "server").start()
    yield made
    made.kill()


def entry(number: int) -> Entries:
    return Entries(number.to_bytes(8, "little"), 1)


def read(store, start: int = 0) -> list[int]:
    """Return the entries of the log, whose content is their number."""
    found = []
    for block in store.tail(start):
        some = [int.from_bytes(block.content[at : at + 8], "little") for at in range(0, len(block.content), 8)]
        assert some == list(range(block.first, block.end))
        found += some
    return found


def until_open(store, patience: float = 20.0) -> bool:
    """Open a store again, as soon as its server answers."""
    until = time.monotonic() + patience
    while True:
        try:
            return store.reopen()
        except StoreError as error:
            if error.kind not in ("gone", "io", "slow") or time.monotonic() > until:
                raise
            time.sleep(0.05)


def test_a_server_that_is_killed_in_the_middle_of_appends_loses_nothing(server):
    """Two threads write while the server is killed again and again: entries come once, in their order, and rows are whole."""
    store, dice = open_store(server.url()), random.Random(1)
    stop, failed, acknowledged, sent, written = threading.Event(), threading.Event(), [0], itertools.count(), [0]

    def append() -> None:
        while not stop.is_set():
            entries = [entry(next(sent)) for _ in range(dice.randint(1, 20))]
            while not stop.is_set():
                try:
                    acknowledged[0] = store.append(entries, 1.0)
                    break
                except StoreError:
                    entries = []  # they wait in the store
                    failed.set()
                    time.sleep(0.02)

    def write() -> None:
        version = 0
        while not stop.is_set():
            version += 1
            while not stop.is_set():
                try:
                    store.checkpoint(Batch([row(number, version) for number in range(20)], [(version, 1)]))
                    written[0] = version
                    break
                except StoreError:
                    time.sleep(0.02)

    threads = [threading.Thread(target=append), threading.Thread(target=write)]
    for thread in threads:
        thread.start()
    for _ in range(8):
        time.sleep(0.2 + dice.random() / 2)
        failed.clear()
        server.kill()
        assert failed.wait(10.0)
        server.start()
        assert until_open(store) is True
        before = acknowledged[0]
        until = time.monotonic() + 10.0
        while acknowledged[0] == before:
            assert time.monotonic() < until
            time.sleep(0.01)
    stop.set()
    for thread in threads:
        thread.join()
    end = store.append([], 1.0)
    assert end >= acknowledged[0] > 100
    store.close()
    store = open_store(str(store.address))
    assert read(store) == list(range(end))
    versions = {found.version for found in store.load([key(number) for number in range(20)])}
    assert len(versions) == 1 and versions.pop() >= written[0] > 10
    assert store.outcomes(list(range(1, written[0] + 1))) == dict.fromkeys(range(1, written[0] + 1), 1)
    store.close()


def test_a_file_of_the_server_that_is_cut_is_noticed_while_the_service_lives(server):
    """With `aof-load-truncated yes`, which is the default, the server starts with what is left."""
    store = open_store(server.url())
    for number in range(50):
        store.append([entry(number)], 1.0)
    server.kill()
    path = server.last_file()
    os.truncate(path, path.stat().st_size - 5)
    server.start()
    with pytest.raises(
        StoreError, match="has lost what it had acknowledged: its log ends with entry 49, and 50 were there"
    ) as caught:
        store.reopen()
    assert caught.value.kind == "gone"
    for call in (lambda: store.append([entry(50)], 1.0), lambda: store.load([key(1)]), lambda: store.checkpoint(Batch([row(1)]))):
        with pytest.raises(StoreError, match="has lost what it had acknowledged"):
            call()
    store.close()
    again = open_store(str(store.address))  # whoever starts again accepts what is there
    assert read(again) == list(range(49))
    assert again.append([entry(49)], 1.0) == 50
    again.close()


def test_whoever_accepts_losses_goes_on_with_what_is_there(server):
    store = open_store(server.url(), may_lose_clicks=True)
    for number in range(10):
        store.append([entry(number)], 1.0)
    server.kill()
    path = server.last_file()
    os.truncate(path, path.stat().st_size - 5)
    server.start()
    assert store.reopen() is False
    assert (store.end, store.epoch) == (9, 2)
    assert store.append([entry(9)], 1.0) == 10
    store.close()


def test_a_checkpoint_that_the_server_has_lost_is_noticed(server):
    store = open_store(server.url())
    store.append([entry(0)], 1.0)
    store.checkpoint(Batch([row(1)]))
    store.checkpoint(Batch([row(1, 2)]))
    server.kill()
    path = server.last_file()
    os.truncate(path, path.stat().st_size - 5)
    server.start()
    with pytest.raises(StoreError, match="1 later writes are missing"):
        store.reopen()
    store.close()


def test_a_server_that_comes_back_empty_is_no_store(server):
    store = open_store(server.url())
    store.append([entry(0)], 1.0)
    server.kill()
    (server.folder / "appendonlydir").rename(server.folder / "elsewhere")
    server.start()
    with pytest.raises(StoreError, match="is not there any more; bring the server's files back") as caught:
        store.reopen()
    assert caught.value.kind == "gone"
    with pytest.raises(StoreError, match="is not there any more"):
        store.append([entry(1)], 1.0)
    store.close()


def test_a_paused_server_is_slow_and_goes_on_where_it_was(server):
    store = open_store(server.url())
    store.append([entry(0)], 1.0)
    server.send(signal.SIGSTOP)
    started = time.monotonic()
    for call in (lambda: store.append([entry(1)], 1.0), lambda: store.load([key(1)])):
        with pytest.raises(StoreError) as caught:
            call()
        assert caught.value.kind == "slow"
    assert time.monotonic() - started < 6.0
    server.send(signal.SIGCONT)
    assert store.append([entry(2)], 1.0) == 3
    assert read(store) == [0, 1, 2]
    store.close()


#: An owner in a process of its own: appends until it fails, and says how far it came.
OWNER = textwrap.dedent(
    """
    import sys
    from swerve.store import Batch, Entries, StoreError, open_store
    from store.rows import row
    store = open_store(sys.argv[1])
    print("open", flush=True)
    number = 0
    try:
        while True:
            store.append([Entries(number.to_bytes(8, "little"), 1)], 1.0)
            number += 1
            print(number, flush=True)
    except StoreError as error:
        print("error", error.kind, type(error).__name__, flush=True)
    try:
        store.checkpoint(Batch([row(1)]))
    except StoreError as error:
        print("error", error.kind, type(error).__name__, flush=True)
    """
)


def test_an_owner_that_was_paused_while_its_lease_was_taken_writes_nothing(server):
    url = server.url()
    env = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'tests'}"}
    child = subprocess.Popen([sys.executable, "-c", OWNER, url], env=env, stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None and child.stdout.readline() == "open\n"
        while int(child.stdout.readline()) < 20:
            pass
        child.send_signal(signal.SIGSTOP)
        second = open_store(url)  # when the lease has expired, by the server's clock
        end, entries = second.end, read(second)
        assert entries == list(range(end))
        child.send_signal(signal.SIGCONT)
        *numbers, first_error, second_error = child.stdout.read().split("\n")[:-1]
        assert first_error == second_error == f"error conflict {Fenced.__name__}"
        assert max(map(int, numbers), default=0) <= end
        assert second.append([entry(end)], 2.0) == end + 1
        assert read(second) == list(range(end + 1)) and second.load([key(1)]) == [None]
        second.close()
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


def test_replicas_have_what_was_acknowledged_before_it_counts(server, tmp_path):
    """With WAITAOF, a replica whose disk does not answer makes appends fail; without it, a server with replicas is refused."""
    store = open_store(server.url())
    assert store.append([entry(0)], 1.0) == 1
    store.close()
    other = ValkeyServer(tmp_path / "replica", replicaof=f"127.0.0.1 {server.port}").start()
    try:
        with server.client() as client:
            while client.info("replication").get("slave0", {}).get("state") != "online":
                time.sleep(0.05)
            version = client.info("server")["redis_version"]  # Valkey says one too
        if tuple(map(int, version.split(".")[:2])) < (7, 2):
            with pytest.raises(StoreError, match="it has 1 replicas and no WAITAOF"):
                open_store(str(store.address))
            return
        store = open_store(str(store.address))
        assert store.append([entry(1)], 1.0) == 2
        store.checkpoint(Batch([row(1)]))
        with other.client() as client:
            assert client.zcard(f"{store.address.keys}log:0") == 2 and client.hlen(f"{store.address.keys}rows") == 1
        other.send(signal.SIGSTOP)
        with pytest.raises(StoreError, match="0 of 1 replicas have written to their disks") as caught:
            store.append([entry(2)], 1.0)
        assert caught.value.kind == "slow" and store.end == 2
        with pytest.raises(StoreError, match="0 of 1 replicas"):  # what is there already is waited for again
            store.append([], 1.0)
        other.send(signal.SIGCONT)
        assert store.append([entry(3)], 1.0) == 4
        assert read(store) == [0, 1, 2, 3]
        with pytest.raises(StoreError, match="is a replica: name the primary"):
            open_store(str(store.address).replace(str(server.port), str(other.port)))
        server.kill()  # failover: the replica is promoted, and the address leads to it
        with other.client() as client:
            client.execute_command("REPLICAOF", "NO", "ONE")
        promoted = open_store(str(store.address).replace(str(server.port), str(other.port)))
        assert read(promoted) == [0, 1, 2, 3]
        promoted.close()
        store.close()
    finally:
        other.kill()
