"""Stores that are restored, moved, deleted or shared: decision ids never collide, and every acknowledged click is stored."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import forking
import pytest
from service.running import SMALL, Gone, Http, Running, running, until

from swerve.service.availability import Unavailable
from swerve.service.config.load import resolve
from swerve.service.config.toml import Document
from swerve.service.http.schemas import read_rank
from swerve.service.recovering import settle
from swerve.service.runtime import Service
from swerve.service.secrets import Secrets
from swerve.serving.messages import Event, FeedbackRequest
from swerve.store import StoreError, open_store
from swerve.store.backup import backup as copied

CANDIDATES = ["a", "b", "c", "d"]


def decided(client: Http, query: str) -> tuple[str, str]:
    answer = client.rank(query, CANDIDATES).json
    assert not answer["degraded"], answer
    return answer["decision"], answer["ranking"][0]


def backup(service: Running, name: str) -> Path:
    copy = service.folder / name
    command = [sys.executable, "-m", "swerve", "backup", f"sqlite:///{service.database}", str(copy)]
    forking.run(*command).check_returncode()
    return copy


def in_place_of(service: Running, copy: Path) -> None:
    """Restore a backup while the service is stopped, as docs/store.md says."""
    for suffix in ("-wal", "-shm"):
        Path(f"{service.database}{suffix}").unlink(missing_ok=True)
    shutil.copy(copy, service.database)


def clicks_of(client: Http, query: str, number: int) -> dict[str, int]:
    """Rank and click a query several times; every click must be learned. Return the clicks by candidate."""
    counts: Counter[str] = Counter()
    for _ in range(number):
        token, top = decided(client, query)
        assert client.feedback(token, top).json == {"status": "learned"}
        counts[top] += 1
    return dict(counts)


@pytest.mark.slow
def test_clicks_on_rankings_of_before_a_restore_take_no_number_of_later_ones(tmp_path):
    with running(tmp_path) as service:
        client = service.client()
        decided(client, "restored")
        copy = backup(service, "copy.db")
        service.stop()
        client = service.start().client()
        old = [decided(client, "restored") for _ in range(10)]  # from a life that the backup does not know
        service.stop()
        in_place_of(service, copy)
        client = service.start().client()
        new = [decided(client, "restored") for _ in range(10)]
        expected: Counter[str] = Counter()
        for token, top in old:
            answers = [client.feedback(token, top).json["status"] for _ in range(2)]
            assert answers[0] == answers[1] in ("learned", "late")
            expected[top] += 1
        for token, top in new:
            assert client.feedback(token, top).json["status"] in ("learned", "late")
            expected[top] += 1
        assert client.clicks("restored") == dict(expected)
        service.kill()
        client = service.start().client()
        for token, top in old + new:  # each was used, and a repeat is recognised
            assert client.feedback(token, top).status == 200
        assert client.clicks("restored") == dict(expected)


def test_a_deleted_database_is_begun_anew_by_the_operator_alone_and_old_tokens_do_it_no_harm(tmp_path):
    with running(tmp_path) as service:
        client = service.client()
        old = [decided(client, "deleted") for _ in range(5)]
        service.stop()
        service.database.unlink()
        ended = forking.run(*service.command, "--config", str(service.file))
        assert ended.returncode != 0
        assert "there has been one" in ended.stderr or "its secrets are there" in ended.stderr
        assert "--new-store" in ended.stderr
        assert not service.database.exists()
        client = service.start("--new-store").client()
        new = [decided(client, "deleted") for _ in range(5)]
        for token, top in old:
            refused = client.feedback(token, top)
            assert (refused.status, refused.json["error"]["code"]) == (403, "foreign")
        for token, top in new:
            assert client.feedback(token, top).json == {"status": "learned"}
        assert client.clicks("deleted") == dict(Counter(top for _, top in new))


def test_two_services_that_share_keys_do_not_take_each_others_numbers(tmp_path):
    with running(tmp_path / "one") as one, contextlib.ExitStack() as stack:
        two = Running(tmp_path / "two")
        shutil.copy(f"{one.database}.secrets", f"{two.database}.secrets")
        stack.callback(two.kill)
        first, second = one.client(), two.start("--new-store").client()
        stack.callback(second.close)
        theirs, ours = [decided(first, "shared") for _ in range(10)], [decided(second, "shared") for _ in range(10)]
        for token, top in theirs:  # sent to the wrong service
            refused = second.feedback(token, top)
            assert (refused.status, refused.json["error"]["code"]) == (403, "foreign")
        for client, decisions in ((second, ours), (first, theirs)):
            for token, top in decisions:
                assert client.feedback(token, top).json == {"status": "learned"}
            assert client.clicks("shared") == dict(Counter(top for _, top in decisions))


def test_a_database_that_is_moved_away_for_a_moment_and_put_back(tmp_path):
    """Its log stays. The service creates no new file, and loses no acknowledged click."""
    with running(tmp_path) as service:
        client = service.client()
        expected = clicks_of(client, "moved", 20)
        waiting, top = decided(client, "moved")
        away = service.database.with_name("elsewhere.db")
        service.database.rename(away)
        until(lambda: client.feedback(waiting, top).status == 503)
        until(lambda: client.call("GET", "/readyz").status == 503)
        time.sleep(1.0)
        assert client.call("GET", "/readyz").json["reason"] == "store gone"
        assert client.rank("moved", CANDIDATES).json["degraded"]
        assert not service.database.exists()
        away.rename(service.database)
        until(lambda: client.call("GET", "/readyz").status == 200)
        assert client.feedback(waiting, top).json == {"status": "learned"}
        expected[top] = expected.get(top, 0) + 1
        assert client.clicks("moved") == expected
        service.kill()
        assert service.start().client().clicks("moved") == expected


@pytest.mark.slow
def test_a_click_sent_after_a_live_restore_is_in_the_restored_store_or_not_acknowledged(tmp_path):
    """Several times, a backup is renamed over the database while clicks come from several connections."""
    with running(tmp_path, {"store": {"flush_seconds": 0.05}}) as service:
        client = service.client()
        decided(client, "before")
        copy = backup(service, "copy.db")
        for swap in range(6):
            query, acknowledged, stop = f"after {swap}", Counter[str](), threading.Event()
            swapped = threading.Event()

            def work(query: str = query, counts: Counter[str] = acknowledged, stop: threading.Event = stop) -> None:
                mine = service.client()
                with contextlib.suppress(Gone):
                    while not stop.is_set():
                        # `swapped` is read before sending: earlier rankings belong to the earlier store
                        after = swapped.is_set()  # noqa: B023 - the loop waits for its threads
                        answer = mine.rank(query if after else "before", CANDIDATES).json
                        if answer["degraded"]:
                            continue
                        if mine.feedback(answer["decision"], answer["ranking"][0]).status == 200 and after:
                            counts[answer["ranking"][0]] += 1

            threads = [threading.Thread(target=work) for _ in range(3)]
            for thread in threads:
                thread.start()
            time.sleep(0.3)
            part = service.database.with_name("part.db")
            shutil.copy(copy, part)
            part.rename(service.database)
            swapped.set()
            time.sleep(0.7)
            until(lambda counts=acknowledged: bool(counts))
            stop.set()
            for thread in threads:
                thread.join()
            until(lambda: client.call("GET", "/readyz").status == 200)
            found = client.query(query)
            kept = {arm["id"]: arm["clicks"] for arm in found.json.get("arms", []) if arm["clicks"]}
            assert sum(acknowledged.values()) > 0
            assert kept == dict(acknowledged), f"swap {swap}"


def test_who_waits_while_another_store_is_found_is_not_told_that_it_is_written(tmp_path):
    """The reader notices first that the file was replaced, while feedback waits for the next group."""
    config = resolve(Document("test", {**SMALL, "store": {"url": f"sqlite:///{tmp_path}/swerve.db"}}, {}))

    async def play() -> None:
        service = Service(config, open_store(config.store.url), Secrets((b"k" * 32,), b"q" * 32))
        await service.start(whole=True)
        asked = read_rank(b'{"query": "q", "candidates": ["a", "b"]}')
        await service.ranking.rank_one(asked)
        copied(Path(tmp_path / "swerve.db"), tmp_path / "copy.db", settle=settle)
        answer = await service.ranking.rank_one(asked)
        (tmp_path / "copy.db").rename(tmp_path / "swerve.db")
        waiting = asyncio.ensure_future(service.feedback.one(FeedbackRequest(answer.decision, [Event("click", answer.ranking[0])])))
        await asyncio.sleep(0)  # it is counted, and waits
        service.committer.suspect(StoreError("gone", "as the loader says when a read fails"))
        with pytest.raises(Unavailable):
            await asyncio.wait_for(waiting, 5.0)
        assert service.availability.away is None  # the other store is served
        again = await service.feedback.one(FeedbackRequest(answer.decision, [Event("click", answer.ranking[0])]))
        assert again.status in ("learned", "late")
        state = await service.inspection.explain("q", {})
        assert sum(arm.clicks for arm in state.arms) == 1
        assert await service.stop()

    asyncio.run(play())


def test_a_defect_while_a_group_is_put_together_leaves_nobody_unanswered(tmp_path, monkeypatch):
    config = resolve(Document("test", {**SMALL, "store": {"url": f"sqlite:///{tmp_path}/swerve.db"}}, {}))

    async def play() -> None:
        service = Service(config, open_store(config.store.url), Secrets((b"k" * 32,), b"q" * 32))
        await service.start(whole=True)
        answer = await service.ranking.rank_one(read_rank(b'{"query": "q", "candidates": ["a", "b"]}'))
        notes = service.committer.notes
        take = notes.take
        monkeypatch.setattr(notes, "take", None)
        with pytest.raises(Unavailable):
            await asyncio.wait_for(service.feedback.one(FeedbackRequest(answer.decision, [])), 5.0)
        monkeypatch.setattr(notes, "take", take)
        again = await poll(lambda: service.feedback.one(FeedbackRequest(answer.decision, [])))
        assert again.status in ("learned", "late")
        assert await service.stop()

    async def poll(call):
        for _ in range(100):
            with contextlib.suppress(Unavailable):
                return await call()
            await asyncio.sleep(0.05)
        raise AssertionError("the feedback was never taken")

    asyncio.run(play())


def test_a_store_with_queries_and_without_its_secrets_does_not_start(tmp_path):
    secrets = Path(f"{tmp_path}/state/swerve.db.secrets")
    with running(tmp_path) as service:
        expected = clicks_of(service.client(), "known", 3)
        service.stop()
        kept = secrets.read_bytes()

        def refused() -> str:
            ended = forking.run(*service.command, "--config", str(service.file))
            assert ended.returncode != 0
            return ended.stderr

        secrets.unlink()
        assert "their secrets" in refused() and "restore the file" in refused()
        assert not secrets.exists()
        with running(tmp_path / "other") as other:
            other.client()
        shutil.copy(tmp_path / "other/state/swerve.db.secrets", secrets)
        assert "are stored under other secrets" in refused()
        secrets.write_bytes(kept)
        assert service.start().client().clicks("known") == expected


@pytest.mark.parametrize("known", ["plumless", "popular-page"])
def test_no_id_can_be_found_that_passes_for_another(client, known):
    """CRC-32 of 24 bits was one that anybody could invert; a click on an id that was not on offer is a click on nothing."""
    twin = {"plumless": "buckeroo"}.get(known, "other")  # the classical pair of texts with one CRC-32
    answer = client.rank(f"stolen {known}", [known]).json
    assert client.feedback(answer["decision"], twin).json == {"status": "ignored"}
    assert client.clicks(f"stolen {known}") == {}
