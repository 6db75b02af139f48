"""Another number of workers: every row is in exactly one share afterwards, whatever crashed on the way."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from service.crewed import crewed, free_ports
from service.running import SMALL, running

from swerve.core.errors import SwerveError
from swerve.service import dividing
from swerve.service.config.load import Config, resolve
from swerve.service.config.toml import Document
from swerve.service.dividing import Dividing, rows_of
from swerve.service.http.schemas import read_rank
from swerve.service.runtime import Service
from swerve.service.secrets import Secrets
from swerve.serving.keys import Keys
from swerve.serving.messages import Event, FeedbackRequest, RankRequest, encode
from swerve.serving.migration import is_rival
from swerve.serving.place import PACK, Names
from swerve.serving.tokens import NUMBER_BITS
from swerve.store import open_store
from swerve.store.protocol import Batch, Row
from swerve.store.shares import Share, others_of, partition_of, share_path
from swerve.store.sqlite import SQLiteStore

SECRETS = Secrets((b"t" * 32,), b"q" * 32)
KEYS = Keys(SECRETS.query_key, None)
#: Queries with a record for a control arm's policy: beside their own, and alone.
BOTH, ALONE = 3, 2


class Crash(BaseException):
    """The process is gone."""


def filled(path: Path, queries: int = 40) -> dict[bytes, bytes]:
    """Make a store of one share with rows, outcomes and shared records; return the records by key."""
    store = SQLiteStore(path, new=True)
    store.claim(SECRETS.fingerprint())
    layouts = [store.add_layout(f"layout {number}") for number in range(2)]
    rows = []
    for number in range(queries):
        key = KEYS.of(f"query {number}")
        rows.append(Row(key, 1, layouts[number % 2], 20_000, 3, 0.0, f"record {number}".encode() * 9, PACK.encode(Names(["a"]))))
    for number in range(BOTH + ALONE):
        key = KEYS.rival(KEYS.of(f"query {number if number < BOTH else number + queries}"))
        names = PACK.encode(Names(["a"], None, None, True))
        rows.append(Row(key, 1, layouts[0], 20_000, 3, 0.0, f"rival {number}".encode() * 9, names))
    life = store.begin_life()
    used = [(life.id << NUMBER_BITS | number, 5 + number) for number in range(7)]
    store.checkpoint(Batch(rows, used, {"rules": b"{}", "clock": bytes(8)}, epoch=store.epoch))
    store.close()
    return {row.key: row.record for row in rows}


def divide(path: Path, count: int) -> int:
    store = SQLiteStore(path)
    try:
        return Dividing(Config(), store, SECRETS, count).run()
    finally:
        store.close()


def shares(path: Path, count: int) -> Iterator[SQLiteStore]:
    """Yield the shares, open."""
    for number in range(count):
        store = SQLiteStore(share_path(path, Share(number, count)))
        assert store.share == Share(number, count)
        yield store
        store.close()


def check(path: Path, count: int, records: dict[bytes, bytes]) -> None:
    """Check that the store has every row once, where its query is, and all outcomes and records everywhere."""
    found: dict[bytes, bytes] = {}
    alone: dict[bytes, set[int]] = {}
    ids = set()
    for store in shares(path, count):
        layouts = store.layouts()
        ids.add(store.store)
        plain = {row.key for row in rows_of(store) if not is_rival(row)}
        for row in rows_of(store):
            homes = {KEYS.rival(key): key for key in plain}
            if is_rival(row) and row.key not in homes:
                alone.setdefault(row.key, set()).add(store.share.number)
                assert row.record == records[row.key]
                continue
            assert row.key not in found
            found[row.key] = row.record
            assert partition_of(homes.get(row.key, row.key)) % count == store.share.number
            number = row.record.split()[1][:2].decode().rstrip("r")
            assert layouts[row.layout] == f"layout {int(number) % 2 if row.record.startswith(b'record') else 0}"
        assert store.groups()["rules", "0"] == b"{}"
        marks = store.lives()
        outcomes = {(marks[number >> NUMBER_BITS], number & 0xFF): outcome for number, outcome in store.used().items()}
        assert sorted(number for _, number in outcomes) == list(range(7))
        assert all(outcome == 5 + number for (_, number), outcome in outcomes.items())
    assert len(ids) == 1
    assert found | {key: records[key] for key in alone} == records
    assert len(alone) == ALONE and all(where == set(range(count)) for where in alone.values())
    assert set(others_of(path)) == {Share(number, count) for number in range(1, count)}


def test_rows_outcomes_and_records_move_with_the_number_of_workers(tmp_path):
    path = tmp_path / "swerve.db"
    records = filled(path)
    for count in (4, 3, 1, 2):
        assert divide(path, count) > 0
        check(path, count, records)
        assert divide(path, count) == 0
        check(path, count, records)


def crashing(monkeypatch: pytest.MonkeyPatch, at: int) -> Callable[[], int]:
    """Let the process crash before the n-th step that writes; return a function that counts the steps."""
    steps = 0

    def step(work):
        def stepping(*args, **named):
            nonlocal steps
            if steps == at:
                raise Crash
            steps += 1
            return work(*args, **named)

        return stepping

    for name in ("checkpoint", "become", "forget", "add_layout", "life_id", "claim"):
        monkeypatch.setattr(SQLiteStore, name, step(getattr(SQLiteStore, name)))
    monkeypatch.setattr(dividing, "remove", step(dividing.remove))
    return lambda: steps


def crash_everywhere(tmp_path, monkeypatch, before: int, count: int, every: int = 1) -> int:
    origin = tmp_path / "origin"
    origin.mkdir()
    records = filled(origin / "swerve.db")
    divide(origin / "swerve.db", before)
    at, crashes = 0, 0
    while True:
        folder = tmp_path / f"crash-{before}-{count}-{at}"
        shutil.copytree(origin, folder)
        path = folder / "swerve.db"
        with monkeypatch.context() as patch:
            crashing(patch, at)
            try:
                divide(path, count)
                return crashes
            except Crash:
                crashes += 1
        again = (count, before)[at % 2]  # the operator may think better of it
        divide(path, again)
        check(path, again, records)
        shutil.rmtree(folder)
        at += every


def test_a_crash_on_the_way_loses_nothing(tmp_path, monkeypatch):
    assert crash_everywhere(tmp_path, monkeypatch, 2, 3, every=5) > 5


@pytest.mark.slow
@pytest.mark.parametrize(("before", "count"), [(1, 3), (3, 1), (2, 3), (4, 2)])
def test_a_crash_at_any_step_loses_nothing(tmp_path, monkeypatch, before, count):
    assert crash_everywhere(tmp_path, monkeypatch, before, count) > 15


def test_a_damaged_store_is_not_divided(tmp_path):
    path = tmp_path / "swerve.db"
    records = filled(path)
    divide(path, 2)
    other = share_path(path, Share(1, 2))
    with sqlite3.connect(other) as connection:
        connection.execute("UPDATE rows SET crc = crc + 1 WHERE id = 3")
    connection.close()
    with pytest.raises(SwerveError, match=r"is damaged.*not divided"):
        divide(path, 3)
    with sqlite3.connect(other) as connection:
        connection.execute("UPDATE rows SET crc = crc - 1 WHERE id = 3")
    connection.close()
    divide(path, 3)
    check(path, 3, records)


def test_shares_that_are_missing_or_do_not_belong_are_named(tmp_path):
    path = tmp_path / "swerve.db"
    filled(path)
    divide(path, 2)
    other = share_path(path, Share(1, 2))
    kept = other.with_name("kept")
    other.rename(kept)
    for count in (2, 3):
        with pytest.raises(SwerveError, match=r"swerve.db.1-of-2 is missing, share 1 of 2"):
            divide(path, count)
    kept.rename(other)
    shutil.copy(other, share_path(path, Share(1, 5)))
    with pytest.raises(SwerveError, match=r"1-of-5 lies beside .*share 0 of 2"):
        divide(path, 2)


def test_a_service_goes_on_with_another_number_of_workers(tmp_path):
    queries = [f"moved {number}" for number in range(12)]
    with running(tmp_path) as service:
        client = service.client()
        first = {query: client.rank(query, ["a", "b", "c"]).json for query in queries}
        later = {query: client.rank(query, ["a", "b", "c"]).json for query in queries}
        for query in queries:
            assert client.feedback(first[query]["decision"], "b").json == {"status": "learned"}
        assert service.stop() == 0
        for workers in (3, 2, 1):
            service.configure({"server": {"workers": workers, "worker_ports": free_ports(workers) if workers > 1 else 0}})
            client = service.start().client()
            for query in queries:
                assert client.feedback(first[query]["decision"], "b").json == {"status": "learned"}  # known: it counts once
            for query in queries[workers - 1 :: 3]:
                assert client.feedback(later[query]["decision"], "c").json == {"status": "learned"}
            service.kill()  # nothing is written behind: the next start has the logs of all shares
        client = service.start().client()
        assert [client.clicks(query) for query in queries] == [{"b": 1, "c": 1}] * 12
        assert {path.name for path in service.state.glob("*of*")} == set()


def test_a_file_that_is_one_share_is_not_served_as_a_whole(tmp_path):
    with crewed(tmp_path, 2) as crew:
        crew.service.stop()
        crew.service.configure({"store": {"url": f"sqlite:///{crew.service.database}.1-of-2"}})
        (crew.service.state / "swerve.db.1-of-2.secrets").write_bytes((crew.service.state / "swerve.db.secrets").read_bytes())
        (crew.service.state / "swerve.db.1-of-2.secrets").chmod(0o600)
        with pytest.raises(AssertionError, match="share 1 of 2"):
            crew.service.start()
        crew.service.kill()


def test_a_decision_of_the_control_arms_policy_does_not_outlive_another_number_of_shares(tmp_path, uncompiled):
    """Its key does not tell where its record is now: its clicks must not begin another one."""

    async def play() -> None:
        changes = {"name": "rivals", "treated": 0.5, "control": "ucb1"}
        made = {**SMALL, "experiment": changes, "store": {"url": f"sqlite:///{tmp_path}/swerve.db"}}
        config = resolve(Document("test", made, {}))
        service = Service(config, open_store(config.store.url), SECRETS)
        await service.start(whole=True)
        service.tokens.live_in(Share(0, 2))
        tokens: dict[str | None, list[str]] = {}
        for number in range(40):
            request = RankRequest("q", ["a", "b"], session=f"s{number}")
            answer = await service.ranking.rank_one(read_rank(encode(request)))
            assert answer.decision is not None
            tokens.setdefault(answer.arm, []).append(answer.decision)

        async def told(arm: str) -> str:
            answer = await service.feedback.one(FeedbackRequest(tokens[arm].pop(), [Event("click", position=1)]))
            return answer.status

        assert await told("control") != "expired"
        service.tokens.live_in(Share(0, 3))
        rows = len(service.ranker.rows)
        assert await told("control") == "expired"
        assert await told("treated") != "expired"
        assert len(service.ranker.rows) == rows
        assert await service.stop()

    asyncio.run(play())
