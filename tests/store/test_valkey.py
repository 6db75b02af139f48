"""The Valkey engine: its log, its lease, the settings that it needs, and what is left of what was deleted."""

from __future__ import annotations

import shutil
import subprocess
import threading
import time
from pathlib import Path

import pytest
import valkeys
from store.rows import key, row
from valkeys import ValkeyServer

from swerve.core.errors import SwerveError
from swerve.store import Batch, Damaged, Entries, Fenced, InUse, StoreError, open_store
from swerve.store.urls import store_exists

pytestmark = pytest.mark.engines


@pytest.fixture
def url() -> str:
    valkeys.needed()
    return valkeys.shared().url()


@pytest.fixture
def store(url):
    opened = open_store(url)
    yield opened
    opened.close()


@pytest.fixture
def server(tmp_path):
    """A server of this test alone, which it may change."""
    valkeys.needed()
    made = ValkeyServer(tmp_path / "server").start()
    yield made
    made.kill()


@pytest.fixture
def plain():
    """A connection of another program to the shared server."""
    valkeys.needed()
    with valkeys.shared().client() as client:
        yield client


def prefix_of(url: str) -> str:
    return url.partition("prefix=")[2]


def kind(call, *args) -> str:
    with pytest.raises(StoreError) as caught:
        call(*args)
    return caught.value.kind


def one(text: str = "x", anew: bool = False) -> Entries:
    return Entries(text.encode(), 1, anew)


# --- the address ---


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("valkey:///0", "the host is missing"),
        ("valkey://host/one", "the database must be a number"),
        ("valkey://host:port/0", "the port must be a number"),
        ("valkey://host/0?prefix=a:b", "the prefix must have letters"),
        ("valkey://host/0?suffix=a", "there is no option 'suffix'"),
        ("valkey://me:secret#@host/0", "it has a #"),
    ],
)
def test_an_address_that_is_wrong_is_refused_without_its_password(url, words):
    with pytest.raises(SwerveError, match=words) as caught:
        open_store(url)
    assert "secret" not in str(caught.value)


def test_nobody_at_the_address(tmp_path):
    with pytest.raises(StoreError, match="cannot be reached") as caught:
        open_store(f"valkey://127.0.0.1:{valkeys.free_port()}")
    assert caught.value.kind == "gone"


def test_an_encrypted_connection_checks_the_certificate_of_the_server(tmp_path, monkeypatch):
    valkeys.needed()
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    key_file, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1",
         "-keyout", str(key_file), "-out", str(certificate), "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"],
        check=True, capture_output=True,
    )  # fmt: skip
    port = valkeys.free_port()
    tls = {"tls_port": str(port), "tls_cert_file": str(certificate), "tls_key_file": str(key_file), "tls_auth_clients": "no"}
    server = ValkeyServer(tmp_path / "server", **tls).start()
    try:
        url = f"valkeys://127.0.0.1:{port}"
        with pytest.raises(StoreError, match="CERTIFICATE_VERIFY_FAILED") as caught:
            open_store(url)
        assert caught.value.kind == "gone"
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        store = open_store(url)
        assert store.append([one()], 1.0) == 1
        store.close()
    finally:
        server.kill()


def test_stores_of_one_server_share_nothing(url, store, plain):
    other_url = valkeys.shared().url()
    assert not store_exists(other_url)
    other = open_store(other_url)
    assert store_exists(other_url)
    store.checkpoint(Batch([row(1)], [(7, 1)], {"g": b"x"}))
    store.append([one()], 1.0)
    assert other.load([key(1)]) == [None] and other.outcomes([7]) == {} and other.groups() == {} and other.end == 0
    other.close()
    assert {name.partition(b":")[0].decode() for name in plain.scan_iter()} >= {prefix_of(url), prefix_of(other_url)}


def test_a_new_store_is_made_only_where_none_is(url):
    open_store(url).close()
    with pytest.raises(SwerveError, match="is one already"):
        open_store(url, new=True)


def test_a_store_of_a_newer_version_is_refused(url, plain):
    open_store(url).close()
    plain.hset(f"{prefix_of(url)}:meta", "form", 2)
    with pytest.raises(SwerveError, match="use a newer Swerve"):
        open_store(url)


# --- owners ---


def test_a_second_owner_is_refused_with_a_line_that_names_the_first(url, store):
    started = time.monotonic()
    with pytest.raises(InUse, match=r"is in use by process \d+ on .*; stop that process, use another store") as caught:
        open_store(url)
    assert "\n" not in str(caught.value)
    assert time.monotonic() - started < 5.0


def test_the_store_of_an_owner_who_is_gone_is_taken_when_its_lease_ends(url, plain):
    first = open_store(url)
    first._beating.close()  # as after SIGKILL: nobody renews the lease, and nobody gives it up
    plain.pexpire(f"{prefix_of(url)}:lease", 500)
    second = open_store(url)
    assert second.epoch == first.epoch + 1
    for call in (lambda: first.append([one()], 1.0), lambda: first.checkpoint(Batch([row(1)])), first.probe):
        with pytest.raises(Fenced, match=f"has an owner of epoch {second.epoch}, and this process has epoch {first.epoch}"):
            call()
    assert second.end == 0 and second.count() == 0
    assert kind(first.reopen) == "conflict"  # another process owns it
    second.close()
    assert first.reopen() is False  # it is ours again, and not as we left it
    assert first.epoch == 3
    assert first.append([], 1.0) == 0  # what waited was for the store of before
    first.close()


def test_a_process_that_waits_is_told_who_owns_the_store_and_takes_it(url, store):
    told, opened = [], []
    thread = threading.Thread(target=lambda: opened.append(open_store(url, waiting=told.append)))
    thread.start()
    while not told:
        time.sleep(0.05)
    store.close()
    thread.join(20.0)
    assert len(told) == 1 and "is in use by process" in told[0]
    assert opened[0].epoch == 2
    opened[0].close()


# --- settings ---


@pytest.mark.parametrize(
    ("name", "value"),
    [("appendonly", "no"), ("appendfsync", "everysec"), ("no-appendfsync-on-rewrite", "yes"), ("maxmemory-policy", "allkeys-lru")],
)
def test_a_server_that_may_lose_clicks_is_refused_unless_that_is_accepted(server, name, value):
    with server.client() as client:
        client.config_set(name, value)
    with pytest.raises(StoreError, match=f"it has {name} {value}; it needs {name} .*store.may_lose_clicks = true accepts that"):
        open_store(server.url("x"))
    store = open_store(server.url("x"), may_lose_clicks=True)
    assert store.append([one()], 1.0) == 1
    store.scrub(lambda content: b"-", 2.0)
    store.close()


def test_a_setting_that_is_changed_later_is_noticed(server):
    store = open_store(server.url())
    assert store.append([one()], 1.0) == 1
    with server.client() as client:
        client.config_set("appendfsync", "no")
        time.sleep(3.0)  # it is looked at every two seconds
        with pytest.raises(StoreError, match="appendfsync no") as caught:
            store.append([one()], 1.0)
        assert caught.value.kind == "io"
        assert kind(store.reopen) == "io"
        assert kind(store.checkpoint, Batch([row(1)])) == "io"
        client.config_set("appendfsync", "always")
    assert store.reopen()
    end = store.append([one()], 1.0)
    assert [block.end for block in store.tail()][-1] == end
    store.close()


def test_where_settings_cannot_be_read_the_server_is_refused(server):
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "shop", "on", ">pass", "~*", "&*", "+@all", "-config")
    url = server.url("x").replace("://", "://shop:pass@")
    with pytest.raises(StoreError, match="CONFIG is forbidden") as caught:
        open_store(url)
    assert "pass@" not in str(caught.value)
    store = open_store(url, may_lose_clicks=True)
    store.checkpoint(Batch([row(1)]))
    assert store.erase([key(1)], [], lambda found: None, {}) == (1, {})
    store.close()
    with pytest.raises(StoreError, match="refuses the user or the password"):
        open_store(url.replace("pass@", "wrong@"))


def test_a_user_with_the_permissions_of_the_docs_can_do_everything(server):
    """docs/operations.md has this line."""
    rules = "on >pass ~shop:* +@all -@dangerous +info +config|get +bgrewriteaof +bgsave"
    assert rules.replace(">pass", ">PASSWORD") in (Path(__file__).parents[2] / "docs/operations.md").read_text()
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "swerve", *rules.split())
        client.config_set("save", "3600 1")
    store = open_store(server.url("shop").replace("://", "://swerve:pass@"))
    store.begin_life()
    store.claim(b"one")
    store.add_layout("layout")
    store.append([one("a", anew=True), one("b", anew=True)], 1.0)
    store.checkpoint(Batch([row(1), row(2, shifted=5.0)], [(7, 1)], {"g": b"x"}, begin=1))
    store.erase([key(1)], [key(2)], lambda found: found, {})
    store.scrub(lambda content: b"-" * len(content), 2.0)
    assert store.shrink(10.0, lambda block: True) == 1
    assert store.expire(30_000, 8) == (1, 1)
    assert store.scan("traffic", 1) == store.scan("shifted", 1) == store.least(1) == store.naming(b"x")[0] == store.page()[0] == []
    store.probe()
    assert store.reopen()
    store.close()
    store = open_store(server.url("shop").replace("://", "://swerve:pass@"), new_log=True)
    store.close()


def test_a_full_server_takes_nothing_and_goes_on_when_there_is_room(server):
    store = open_store(server.url())
    store.checkpoint(Batch([row(i) for i in range(50)]))
    with server.client() as client:
        client.config_set("maxmemory", "1mb")
        assert kind(store.append, [one("a")], 1.0) == "full"
        assert kind(store.checkpoint, Batch([row(1, 2), row(99)], [(7, 1)], {"g": b"x"})) == "full"
        assert kind(store.probe) == "full"
        assert store.load([key(1), key(99)]) == [row(1), None] and store.groups() == {} and store.outcomes([7]) == {}
        assert store.forget([key(i) for i in range(10)]) == 10  # makes room, so it is permitted
        client.config_set("maxmemory", "0")
    store.probe()
    assert store.append([one("b")], 1.0) == 2
    assert [block.content for block in store.tail()] == [b"a", b"b"]
    store.close()


# --- the log ---


def test_a_block_whose_reply_was_lost_is_appended_once(store):
    """The server has the block, and its reply never came."""
    send, lost = store._log.run_owned, []

    def without_reply(*words):
        found = send(*words)
        if not lost:
            lost.append(found)
            store._log.drop()
            raise StoreError("io", "the connection was lost", uncertain=True)
        return found

    store._log.run_owned = without_reply
    assert kind(store.append, [one("a"), one("b")], 1.0) == "io"
    assert store.end == 0 and lost
    assert store.reopen()
    assert store.append([one("c")], 2.0) == 3
    assert [(block.first, block.content) for block in store.tail()] == [(0, b"ab"), (2, b"c")]


def test_a_block_that_never_arrived_is_appended_with_the_next_call(store):
    send = store._log.run_owned

    def lost(*words):
        store._log.run_owned = send
        raise StoreError("io", "the connection was lost", uncertain=True)

    store._log.run_owned = lost
    assert kind(store.append, [one("a")], 1.0) == "io"
    assert store.append([one("b")], 2.0) == 2
    assert [block.content for block in store.tail()] == [b"a", b"b"]


def test_a_generation_can_be_announced_before_its_entries(url, store, plain):
    store.append([one("a"), Entries(b"", 0, anew=True)], 1.0)
    assert store.append([Entries(b"", 0, anew=True)], 1.0) == 1
    assert store.append([one("b"), one("c"), one("d", anew=True)], 1.0) == 4
    assert [(block.first, block.content) for block in store.tail()] == [(0, b"a"), (1, b"bc"), (3, b"d")]
    assert plain.zrange(f"{prefix_of(url)}:begins:0", 0, -1) == [b"1", b"3"]


def test_threads_that_connect_again_while_others_write_find_nothing_lost(store):
    """What is compared with the server is what was known before it was asked."""
    stop, trouble = threading.Event(), []

    def read() -> None:
        while not stop.is_set():
            store._reader.drop()
            try:
                store.load([key(1)])
            except StoreError as error:
                trouble.append(error)

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    for number in range(300):
        store.append([one()], 1.0)
        store.checkpoint(Batch([row(number)]))
    stop.set()
    for thread in threads:
        thread.join()
    assert not trouble


def test_a_block_that_is_not_what_was_written_is_refused(url, store, plain):
    for text in "abc":
        store.append([one(text)], 1.0)
    name = f"{prefix_of(url)}:log:0"
    middle = plain.zrange(name, 1, 1)[0]
    plain.zrem(name, middle)
    with pytest.raises(StoreError, match="entries 1 to 2 are missing") as caught:
        list(store.tail())
    assert caught.value.kind == "corrupt"
    plain.zadd(name, {middle[:64] + b"X" + middle[65:]: 1})
    with pytest.raises(StoreError, match="a block fails its checksum"):
        list(store.tail())


def test_a_log_without_its_end_is_refused_and_can_be_begun_anew(url, plain):
    store = open_store(url)
    for text in "abc":
        store.append([one(text)], 1.0)
    store.checkpoint(Batch([row(1)]))
    store.close()
    plain.zremrangebyscore(f"{prefix_of(url)}:log:0", 2, 2)
    with pytest.raises(StoreError, match=r"its last block ends with entry 2, and the log with 3.*--new-log") as caught:
        open_store(url)
    assert caught.value.kind == "corrupt"
    store = open_store(url, new_log=True)
    assert (store.begin, store.end, list(store.tail())) == (3, 3, [])
    assert store.load([key(1)]) == [row(1)]
    assert store.append([one("d")], 2.0) == 4
    assert [(block.first, block.content) for block in store.tail()] == [(3, b"d")]
    store.close()


def test_finished_blocks_are_put_together_and_read_as_before(url, store, plain):
    for number in range(200):
        store.append([one(f"entry {number:04}", anew=number in (0, 150))], float(number))
    store.append([one("last", anew=True)], 300.0)
    store.checkpoint(Batch(begin=200))
    before = plain.zcard(f"{prefix_of(url)}:log:0")
    assert store.shrink(-1.0, lambda block: block.first in (0, 150, 200)) == 0
    assert before == 201 and plain.zcard(f"{prefix_of(url)}:log:0") == 3
    blocks = list(store.tail(0))
    assert [(block.first, block.end) for block in blocks] == [(0, 150), (150, 200), (200, 201)]
    assert b"".join(block.content for block in blocks[:2]) == b"".join(b"entry %04d" % number for number in range(200))
    store.scrub(lambda content: content.replace(b"entry 0007", b"----------"), 1.0)
    assert next(store.tail(0)).content[70:80] == b"----------"
    assert store.shrink(150.5, lambda block: block.first in (0, 150, 200)) == 1
    assert next(store.tail(150)).first == 150
    assert kind(lambda: list(store.tail(1))) == "gone"


# --- rows ---


def test_a_damaged_row_is_named_and_replaced(url, store, plain):
    store.checkpoint(Batch([row(1), row(2, level=5)], groups={"g": b"pooled"}))
    name = f"{prefix_of(url)}:rows"
    value = plain.hget(name, key(2))
    plain.hset(name, key(2), b"\x09" + value[1:-1] + b"?")  # another level, and another byte at the end
    plain.hset(f"{prefix_of(url)}:groups", "g\x000", b"1234pooled")
    good, bad = store.load([key(1), key(2)])
    assert good == row(1) and isinstance(bad, Damaged) and bad.key == key(2) and bad.version == 1
    assert isinstance(store.groups()["g", "0"], Damaged)
    assert [found.key for found in store.scan("traffic", 5)] == [key(1)]
    assert sum(isinstance(found, Damaged) for found in store.page()[0]) == 1
    store.checkpoint(Batch([row(2, 2, level=4)], groups={"g": b"again"}))
    assert store.load([key(2)]) == [row(2, 2, level=4)] and store.groups() == {("g", "0"): b"again"}
    assert [found.key for found in store.scan("traffic", 5)] == [key(2), key(1)]
    assert store.least(5) == [key(1), key(2)]
    plain.hset(name, key(2), b"")
    assert isinstance(store.load([key(2)])[0], Damaged)
    assert store.forget([key(2)]) == 1
    assert [found.key for found in store.scan("traffic", 5)] == [key(1)]


def test_the_bound_says_how_many_rows_to_remove(url):
    store = open_store(url, most=400_000)
    store.checkpoint(Batch([row(i, size=2000, day=20_000 + i % 7) for i in range(400)]))
    size = store.size()
    assert size.over and size.data > 400_000 and 0 < size.surplus < 400
    store.forget(store.least(size.surplus))
    assert store.size().surplus == 0 and store.size().data <= 400_000
    left = {found.day for found in store.scan("traffic", 500)}
    assert max(left) == 20_006 and min(left) > 20_000
    store.close()


def test_names_are_found_and_pages_have_every_row(store):
    store.checkpoint(Batch([row(i) for i in range(1234)]))
    found, after = [], 0
    while after is not None:
        some, after = store.naming(b"names of 77", after or 0)
        found += some
    assert set(found) == {key(77), *(key(770 + i) for i in range(10))}
    rows, after = [], 0
    while after is not None:
        some, after = store.page(after or 0)
        rows += some
    assert sorted(one.key for one in rows) == sorted(key(i) for i in range(1234))


# --- deletion for good ---


def test_nothing_that_was_deleted_is_left_in_the_servers_files(server):
    with server.client() as client:
        client.config_set("save", "3600 1")
    store = open_store(server.url())
    store.append([Entries(b"secret-in-the-log", 1)], 1.0)
    store.checkpoint(Batch([row(1)], groups={"g": b"secret-group"}))
    kept = row(2)
    kept.names, kept.record = b"secret-name", b"secret-record" * 200
    store.checkpoint(Batch([kept]))
    with server.client() as client:
        client.bgsave()
    time.sleep(0.3)
    assert count(server, b"secret") > 0

    def without(found):
        found.names, found.record = b"-", b"-"
        return found

    gone, versions = store.erase([key(1)], [key(2)], without, {"g": b"-"})
    assert (gone, versions) == (1, {key(2): store.epoch})
    store.scrub(lambda content: content.replace(b"secret", b"------"), 2.0)
    until = time.monotonic() + 5.0  # the server removes files that it has replaced in a thread of its own
    while count(server, b"secret") and time.monotonic() < until:
        time.sleep(0.05)
    assert count(server, b"secret") == 0
    assert store.load([key(1)]) == [None] and store.load([key(2)])[0].names == b"-"
    store.close()


def count(server, needle: bytes) -> int:
    return sum(path.read_bytes().count(needle) for path in server.folder.rglob("*") if path.is_file())
