"""Damaged pages: queries with a record on one get the given order, the others are served; a restored backup is used at once."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys

import forking
import pytest
from service.running import Running, running, until

from swerve.store.schema import PAGE_BYTES

CANDIDATES = ["a", "b", "c", "d"]
TABLE_LEAF = 0x0D
MANY = 40


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A service whose rows are in the database itself, not in its log."""
    with running(tmp_path_factory.mktemp("damage")) as service:
        client = service.client()
        for number in range(MANY):
            answer = client.rank(f"query {number}", CANDIDATES).json
            assert client.feedback(answer["decision"], answer["ranking"][0]).status == 200
        assert service.stop() == 0
        secrets = json.loads(service.database.with_name("swerve.db.secrets").read_text())
        query_key = bytes.fromhex(secrets["query_key"])
        service.keys = {n: hashlib.blake2b(f"query {n}".encode(), key=query_key, digest_size=16).digest() for n in range(MANY)}
        shutil.copy(service.database, service.folder / "good.db")
        yield service.start()


def page_of(service: Running, number: int) -> int:
    """Return the offset of the page with this query's record."""
    data = service.database.read_bytes()
    at = -1
    while True:
        at = data.index(service.keys[number], at + 1)
        start = at // PAGE_BYTES * PAGE_BYTES
        if data[start] == TABLE_LEAF and start:
            return start


def on_page(service: Running, start: int) -> set[int]:
    """Return the queries whose records are on the page or begin there."""
    page = service.database.read_bytes()[start : start + PAGE_BYTES]
    return {number for number, key in service.keys.items() if key in page}


def spoil(service: Running, start: int) -> None:
    """Overwrite a page under a running service."""
    file = os.open(service.database, os.O_WRONLY)
    try:
        os.pwrite(file, b"\xa5" * PAGE_BYTES, start)
        os.fsync(file)
    finally:
        os.close(file)


def test_a_page_damaged_while_running_concerns_its_rows_only(served):
    client = served.client()
    # query 3 is in memory and has an open decision; its neighbours on the page are only in the store
    answer = client.rank("query 3", CANDIDATES).json
    start = page_of(served, 3)
    hit = on_page(served, start)
    assert 3 in hit and len(hit) < 12
    spoil(served, start)
    other = client.rank("query 39", CANDIDATES).json
    assert 39 not in hit and not other["degraded"]
    # the click is in the log, and stays there and in memory until the page can be written again
    assert client.feedback(answer["decision"], answer["ranking"][0]).json == {"status": "learned"}
    until(lambda: "its page is damaged" in served.stderr())
    clicks = client.clicks("query 3")
    assert sum(clicks.values()) == 2
    for start_again in (served.kill, served.stop):
        start_again()
        client = served.start().client()
        assert client.clicks("query 3") == clicks
        assert not client.rank("query 3", CANDIDATES).json["degraded"]
    other = client.rank("query 39", CANDIDATES).json
    # the other queries are served and written
    until(lambda: client.call("GET", "/readyz").status == 200)
    assert client.feedback(other["decision"], other["ranking"][0]).json == {"status": "learned"}
    for number in set(range(MANY)) - hit:
        ranked = client.rank(f"query {number}", CANDIDATES)
        assert ranked.status == 200 and not ranked.json["degraded"], number
        assert client.feedback(ranked.json["decision"], ranked.json["ranking"][0]).status == 200
    for number in hit - {3}:
        ranked = client.rank(f"query {number}", CANDIDATES)
        assert (ranked.status, ranked.json["degraded"], ranked.json["ranking"]) == (200, True, CANDIDATES)
        assert ranked.seconds < 0.5
        assert client.query(f"query {number}").status in (404, 503)
    assert client.call("GET", "/readyz").status == 200
    assert client.rank("a query that is new", CANDIDATES).json["degraded"] is False
    assert client.call("GET", "/v1/queries").status in (200, 503)


def test_a_backup_put_in_place_is_taken_up_without_a_restart(served):
    client = served.client()
    before = client.rank("query 30", CANDIDATES).json
    spare = served.state / "spare.db"
    shutil.copy(served.folder / "good.db", spare)
    spare.chmod(0o600)
    os.replace(spare, served.database)
    # the first write notices; from then on the store has the backup's state, and an earlier token counts once and does no harm
    until(lambda: client.feedback(before["decision"], before["ranking"][0]).status == 200)
    assert client.feedback(before["decision"], before["ranking"][0]).status == 200
    assert sum(client.clicks("query 30").values()) == 2
    assert sum(client.clicks("query 39").values()) == 1  # later clicks are not in the backup
    answer = client.rank("query 3", CANDIDATES).json  # its page is intact again
    assert not answer["degraded"]
    assert client.feedback(answer["decision"], answer["ranking"][0]).json == {"status": "learned"}
    assert sum(client.clicks("query 3").values()) == 2
    assert client.call("GET", "/readyz").status == 200


def test_a_page_damaged_before_the_start_concerns_its_rows_only(served):
    assert served.stop() == 0
    start = page_of(served, 10)
    hit = on_page(served, start)
    spoil(served, start)
    client = served.start().client()
    assert client.call("GET", "/readyz").status == 200
    for number in range(MANY):
        ranked = client.rank(f"query {number}", CANDIDATES)
        assert (ranked.status, ranked.json["degraded"]) == (200, number in hit)
        if number not in hit:
            assert client.feedback(ranked.json["decision"], ranked.json["ranking"][0]).json == {"status": "learned"}
    assert client.call("GET", "/readyz").status == 200


def test_a_file_that_cannot_be_read_at_all_is_refused_at_the_start(served):
    served.kill()
    spoil(served, 0)
    for log in ("-wal", "-shm"):
        served.database.with_name(f"swerve.db{log}").unlink(missing_ok=True)
    command = [sys.executable, "-m", "swerve", "serve", "--config", str(served.file)]
    done = forking.run(*command)
    assert done.returncode == 2
    assert "restore a backup" in done.stderr and "Traceback" not in done.stderr
    assert str(served.database) in done.stderr
