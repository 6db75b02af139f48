"""A batch gets the answers that its requests would get one by one, on the short and the long way."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path
from typing import Any

import pytest
from service.running import SMALL

from swerve.service.clock import Clock
from swerve.service.config.load import resolve
from swerve.service.config.toml import Document
from swerve.service.http.bodies import parts_in, ranks_in
from swerve.service.http.schemas import read_rank
from swerve.service.ranking import TOGETHER, Ranking
from swerve.service.runtime import Service
from swerve.service.secrets import Secrets
from swerve.service.turns import Turns
from swerve.serving.entries import Started
from swerve.serving.messages import Asked, Problem, Refused, encode
from swerve.serving.recording import Ranked, lines_of
from swerve.serving.requests import Prepared
from swerve.store import open_store

OFFERS = [[f"doc-{number}" for number in range(start, start + count)] for start, count in ((0, 3), (0, 5), (2, 7), (4, 10))]
#: The signals of docs/prove-it.md: its test has compiled the default policy for them.
NEWS: dict[str, Any] = {"numbers": {"news": "count"}}


def service_at(folder: Path, now: list[float], **more: dict[str, Any]) -> Service:
    folder.mkdir()
    tables = {
        "policy": {"spec": "ts", "arms": 16, "seed": 3},
        "store": {"url": f"sqlite:///{folder}/s.db"},
        "signals": SMALL["signals"],
        "server": {"deadline_ms": 5000.0},  # so that a busy machine makes no difference
        **more,
    }
    config = resolve(Document("test", tables, {}))
    return Service(
        config,
        open_store(config.store.url),
        Secrets((b"k" * 32,), b"q" * 32),
        clock=Clock(wall=lambda: now[0], ticks=lambda: now[0]),
    )


def requests(rng: random.Random, count: int) -> list[dict[str, Any]]:
    """Return requests: repeated queries, mostly with the same candidates, sessions with several queries, and a few invalid ones."""
    out = []
    for _ in range(count):
        number = rng.randrange(6)
        changed = rng.random() < 0.05
        asked: dict[str, Any] = {"query": f"q{number}", "candidates": rng.choice(OFFERS) if changed else OFFERS[number % 4]}
        if rng.random() < 0.5:
            asked["session"] = f"s{rng.randrange(4)}"
        if rng.random() < 0.5:
            asked["signals"] = {"news": rng.randrange(5)}
        if rng.random() < 0.02:
            asked |= rng.choice([{"session": ""}, {"signals": {"nobody": 1.0}}, {"candidates": []}])
        out.append(asked)
    return out


def unusual(rng: random.Random, count: int) -> list[dict[str, Any]]:
    """Return requests as above, with all that they may have: scores, dates, slots, parts, texts that are not ASCII, escapes."""
    out = []
    for asked in requests(rng, count):
        if (number := int(asked["query"][1:])) == 3:
            asked["candidates"] = [{"id": name, "score": 9.5 - at} for at, name in enumerate(OFFERS[1])]
        elif number == 4:
            asked["candidates"] = [{"score": 1, "id": "é"}, "b", {"id": "id", "published_at": "2026-01-02T03:04:05Z"}, "a:c"]
        elif number == 5:
            asked["candidates"] = ["tab\t", *OFFERS[0]]
        if rng.random() < 0.1:
            asked |= rng.choice([{"slots": 2}, {"slots": None}, {"locale": "en"}, {"query": f"Q{number}"}, {"session": "söze"}])
        if rng.random() < 0.1:
            asked["signals"] = {"news": rng.choice([None, 0.1, 1e-7, 123456789.25, -3])}
        out.append(asked)
    return out


async def both_ways(
    folder: Path, rounds: int, size: int, made: Any = requests, **more: dict[str, Any]
) -> tuple[Service, Service, int]:
    """Send the same requests singly to one service and in batches to another; return how many batches took the short way."""
    now = [1.7e9]
    singly, together = service_at(folder / "one", now, **more), service_at(folder / "many", now, **more)
    together.ranker.life = together.tokens.life = singly.ranker.life  # tokens contain the store's life
    await singly.start(whole=True)
    await together.start(whole=True)
    rng, quick = random.Random(1), 0
    for _ in range(rounds):
        now[0] += rng.choice([5.0, 60.0, 100.0])
        asked = made(rng, size)
        expected: list[Any] = []
        for one in asked:
            try:
                expected.append(await singly.ranking.rank_one(read_rank(json.dumps(one).encode())))
            except Refused as refused:
                expected.append(Problem(refused.error))
        body = json.dumps(asked, ensure_ascii=rng.random() < 0.5).encode()
        read = together.batching.ready(body, len(asked))
        quick += read is not None
        if read is not None:
            said = together.batching.at_once(read)
        else:
            said = await together.batching.answer(await parts_in(body, together.batching, Turns()), Turns())
        assert said == encode(expected)
        assert b'"degraded":true' not in said
    return singly, together, quick


def test_a_batch_is_its_requests_one_after_the_other(tmp_path: Path):
    async def play() -> None:
        singly, together, quick = await both_ways(tmp_path, rounds=150, size=12)
        assert 15 < quick < 135  # some batches took the short way, some did not
        for key, place in singly.ranker.rows.places.items():
            other = together.ranker.rows.places[key]
            assert place.record.tobytes() == other.record.tobytes()
            assert place.names() == other.names()
        for name in ("decisions", "explored", "cache_hits", "new_queries"):
            assert getattr(singly.metrics, name).value == getattr(together.metrics, name).value, name
        assert await singly.stop()
        assert await together.stop()

    asyncio.run(play())


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"policy": {"arms": 16, "seed": 3, "propensity_draws": 0}, "feedback": {"steady_seconds": 0.0}, "signals": NEWS},
        {
            "policy": {"arms": 16, "seed": 3, "propensity_draws": 20},
            "evaluation": {"swaps": 0.3},
            "feedback": {"evidence_per_session": 2},
            "signals": NEWS,
        },
    ],
    ids=["ts", "swerve, nothing steady", "swerve, with swaps"],
)
def test_so_is_a_batch_of_unusual_requests(tmp_path: Path, more: dict[str, Any]):
    async def play() -> None:
        singly, together, _ = await both_ways(tmp_path, rounds=100, size=12, made=unusual, **more)
        for key, place in singly.ranker.rows.places.items():
            other = together.ranker.rows.places[key]
            assert place.record.tobytes() == other.record.tobytes()
            assert place.names() == other.names()
        for name in ("decisions", "explored", "cache_hits", "new_queries", "shown_again"):
            assert getattr(singly.metrics, name).value == getattr(together.metrics, name).value, name
        assert await singly.stop()
        assert await together.stop()

    asyncio.run(play())


def test_an_empty_batch_is_answered_with_nothing(tmp_path: Path):
    async def play() -> None:
        service = service_at(tmp_path / "one", [1.7e9])
        await service.start(whole=True)
        assert await service.ranking.rank([]) == []
        assert service.batching.at_once(service.batching.ready(b" [ ] ", 10)) == b"[]"
        assert await service.batching.answer(await parts_in(b"[]", service.batching, Turns()), Turns()) == b"[]"
        assert await service.stop()

    asyncio.run(play())


def test_who_looks_on_is_told_and_what_is_recorded_is_all_of_it(tmp_path: Path):
    """An observer is called with each ranking of a batch; a recording contains all of them."""

    async def play() -> None:
        service = service_at(tmp_path / "one", [1.7e9], store={"url": f"sqlite:///{tmp_path}/one/s.db", "journal_days": 30})
        await service.start(whole=True)
        seen: list[str] = []
        service.ranking.watched = {service.ranker.key_of("q"): lambda ranking, explored, prepared: seen.append(ranking[0])}
        body = json.dumps([{"query": "q", "candidates": ["a", "b"]}, {"query": "r", "candidates": ["a", "b"]}] * 3).encode()
        for _ in range(3):
            answers = await service.ranking.rank(await ranks_in(body, service.config.limits, Turns()))
            assert seen[-3:] == [answers[at].ranking[0] for at in (0, 2, 4)]  # type: ignore[union-attr]
        assert len(seen) == 9
        assert await service.stop()
        assert [type(line) for _, line in lines_of(tmp_path / "one" / "s.db.journal")] == [Started] + 18 * [Ranked]

    asyncio.run(play())


def asked(query: str, candidates: list[str]) -> Asked:
    return read_rank(json.dumps({"query": query, "candidates": candidates}).encode())


def test_the_short_way_takes_batches_that_repeat_what_their_rows_were_asked(tmp_path: Path):
    """Everything else would have to be decoded, which holds the event loop: it takes the long way, and is noted when it repeats."""

    async def play() -> None:
        service = service_at(tmp_path / "one", [1.7e9])
        await service.start(whole=True)
        batching = service.batching

        def body(*entries: tuple[str, list[str]]) -> bytes:
            return json.dumps([{"query": query, "candidates": candidates} for query, candidates in entries]).encode()

        known, other = [(f"q{number}", OFFERS[1]) for number in range(3)], ("q0", OFFERS[2])
        assert batching.ready(body(*known), 10) is None  # rows that are not in memory
        await batching.answer(await parts_in(body(*known), batching, Turns()), Turns())
        assert batching.ready(body(*known), 2) is None
        assert batching.ready(body(*known, other), 10) is None
        hits, made = service.metrics.cache_hits.value, service.metrics.decisions.value
        read = batching.ready(body(*known), 10)
        assert read is not None
        assert (service.metrics.cache_hits.value, service.metrics.decisions.value) == (hits, made)  # nothing has changed
        assert batching.at_once(read).count(b'"degraded":false') == 3
        assert (service.metrics.cache_hits.value, service.metrics.decisions.value) == (hits + 3, made + 3)
        assert service.ranking.at_once(asked(*other)) is not None  # a single request with other candidates,
        assert batching.ready(body(*known), 10) is None  # which the row has been asked now
        assert await service.stop()

    asyncio.run(play())


def test_a_defect_gives_the_given_order_to_who_has_no_answer_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Defects of the loader, and of what writes the answers; metrics count each answer correctly."""

    async def play() -> None:
        service = service_at(tmp_path / "one", [1.7e9], store={"url": f"sqlite:///{tmp_path}/one/s.db", "journal_days": 30})
        await service.start(whole=True)
        three = [asked(f"q{number}", ["a", "b"]) for number in range(3)]
        await service.ranking.rank(three)
        before, answered = service.metrics.decisions.value, Ranking._answer

        def defective(self: Ranking, request: Prepared, *more: Any) -> Any:
            if request.text == "q1":
                raise OSError("no space left on device")
            return answered(self, request, *more)

        with monkeypatch.context() as patch:
            patch.setattr(Ranking, "_answer", defective)
            for answers in (await service.ranking.rank(three), await service.ranking.rank(three)):
                assert [(answer.degraded, sorted(answer.ranking)) for answer in answers] == [
                    (False, ["a", "b"]), (True, ["a", "b"]), (True, ["a", "b"]),
                ]  # fmt: skip
            assert (await service.ranking.rank_one(three[1])).degraded
        assert service.metrics.decisions.value == before + 2
        assert service.metrics.degraded("internal").value == 5

        def broken(*_: Any) -> Any:
            raise RuntimeError("out of luck")

        with monkeypatch.context() as patch:
            patch.setattr(service.loader, "held", broken)
            assert (await service.ranking.rank_one(asked("new", ["a", "b"]))).ranking == ["a", "b"]
            answers = await service.ranking.rank([three[0], asked("new", ["b", "a"]), asked("", ["a"])])
            assert [answer.code if isinstance(answer, Refused) else answer.ranking for answer in answers][1:] == [
                ["b", "a"],
                "empty",
            ]
        assert service.metrics.degraded("internal").value == 8
        assert await service.stop()

    asyncio.run(play())


def test_what_is_decided_in_one_go_is_bounded_by_the_candidates_that_may_be_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Replacing all candidates of a row takes more than a millisecond: several such rows in one turn would hold the event loop."""

    async def play() -> None:
        service = service_at(tmp_path / "one", [1.7e9])
        await service.start(whole=True)
        read: list[int] = []
        rank = service.ranker.rank

        def noted(requests: Any, now: float) -> Any:
            read.append(sum(len(prepared.candidates or ()) for _, prepared in requests))
            return rank(requests, now)

        monkeypatch.setattr(service.ranker, "rank", noted)
        for offer in ("first", "second"):
            batch = [asked(f"q{number}", [f"{offer} {place}" for place in range(16)]) for number in range(60)]
            assert not any(answer.degraded for answer in await service.ranking.rank(batch))  # type: ignore[union-attr]
        assert sum(read) == 2 * 60 * 16
        assert max(read) <= TOGETHER + 16
        assert await service.stop()

    asyncio.run(play())


def test_rows_of_a_batch_do_not_make_room_for_each_other(tmp_path: Path):
    """Rows of a batch that are in memory stay while the others are loaded, however old they are."""

    async def play() -> None:
        now = [1.7e9]
        service = service_at(tmp_path / "one", now, store={"url": f"sqlite:///{tmp_path}/one/s.db", "flush_seconds": 0.05})
        await service.start(whole=True)
        service.ranker.rows.budget = 200_000
        old = asked("old", ["a", "b"])
        await service.ranking.rank_one(old)
        number = 0
        while service.ranker.rows.used < 195_000:  # memory fills, and "old" is the next row to leave
            await service.ranking.rank_one(asked(f"q{number}", ["a", "b"]))
            number += 1
        now[0] += 60.0  # so that the rows are written
        while service.ranker.unwritten or any(place.dirty or place.pinned for place in service.ranker.rows):
            await asyncio.sleep(0.01)
        answers = await service.ranking.rank([*(asked(f"new {n}", ["a", "b"]) for n in range(10)), old])
        assert [answer.degraded for answer in answers] == [False] * 11  # type: ignore[union-attr]
        assert service.metrics.cache_misses.value == number + 11  # "old" was in memory
        assert await service.stop()

    asyncio.run(play())
