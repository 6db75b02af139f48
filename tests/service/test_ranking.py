"""A batch gives what its requests would have got one after the other, whatever way each of them takes."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path
from typing import Any

from service.running import SMALL

from swerve.service.clock import Clock
from swerve.service.config.load import resolve
from swerve.service.config.toml import Document
from swerve.service.http.bodies import ranks_in
from swerve.service.http.schemas import read_rank
from swerve.service.runtime import Service
from swerve.service.secrets import Secrets
from swerve.service.turns import Turns
from swerve.serving.messages import RankResponse, Refused, encode
from swerve.store import open_store

OFFERS = [[f"doc-{number}" for number in range(start, start + count)] for start, count in ((0, 3), (0, 5), (2, 7), (4, 10))]


def service_at(folder: Path, now: list[float], **more: dict[str, Any]) -> Service:
    folder.mkdir()
    tables = {
        "policy": {"spec": "ts", "arms": 16, "seed": 3},
        "store": {"url": f"sqlite:///{folder}/s.db"},
        "signals": SMALL["signals"],
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
    """Queries that repeat, mostly with the candidates they had before, sessions that go on to other queries, a few bad ones."""
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


async def both_ways(folder: Path, rounds: int, size: int, **more: dict[str, Any]) -> tuple[Service, Service, int]:
    """The same requests singly to one service, in batches to another; how many batches were plain from end to end."""
    now = [1.7e9]
    singly, together = service_at(folder / "one", now, **more), service_at(folder / "many", now, **more)
    together.ranker.life = together.tokens.life = singly.ranker.life  # tokens tell stores apart
    await singly.start()
    await together.start()
    rng, quick = random.Random(1), 0
    at_once = together.batches.at_once

    def counted(entries: Any) -> Any:
        nonlocal quick
        answers = at_once(entries)
        quick += answers is not None
        return answers

    together.batches.at_once = counted  # type: ignore[method-assign]
    for _ in range(rounds):
        now[0] += 60.0
        asked = requests(rng, size)
        expected: list[Any] = []
        for one in asked:
            try:
                expected.append(await singly.rank(read_rank(json.dumps(one).encode())))
            except Refused as refused:
                expected.append(refused.code)
        answers = await together.batches.rank(await ranks_in(json.dumps(asked).encode(), together.config.limits, Turns()))
        got = [answer.code if isinstance(answer, Refused) else answer for answer in answers]
        assert got == expected
        assert not any(answer.degraded for answer in got if isinstance(answer, RankResponse))
        assert encode(answers[:0]) == b"[]"
    return singly, together, quick


def test_a_batch_is_its_requests_one_after_the_other(tmp_path: Path):
    async def play() -> None:
        singly, together, quick = await both_ways(tmp_path, rounds=150, size=12)
        assert 15 < quick < 135  # some batches were plain, some were not
        for key, place in singly.ranker.rows.places.items():
            other = together.ranker.rows.places[key]
            assert place.record.tobytes() == other.record.tobytes()
            assert place.names() == other.names()
        for name in ("decisions", "explored", "cache_hits", "new_queries"):
            assert getattr(singly.metrics, name).value == getattr(together.metrics, name).value, name
        assert await singly.stop()
        assert await together.stop()

    asyncio.run(play())


def test_an_empty_batch_is_answered_with_nothing(tmp_path: Path):
    async def play() -> None:
        service = service_at(tmp_path / "one", [1.7e9])
        await service.start()
        assert await service.batches.rank([]) == []
        assert await service.stop()

    asyncio.run(play())


def test_what_is_watched_or_recorded_takes_the_usual_way(tmp_path: Path):
    """Who looks on is told of each ranking of a batch; a recording holds all of them."""

    async def play() -> None:
        service = service_at(tmp_path / "one", [1.7e9], log={"record": str(tmp_path / "requests.jsonl")})
        await service.start()
        seen: list[str] = []
        service.watched = {service.ranker.key_of("q"): lambda ranking: seen.append(ranking[0])}
        body = json.dumps([{"query": "q", "candidates": ["a", "b"]}, {"query": "r", "candidates": ["a", "b"]}] * 3).encode()
        for _ in range(3):
            answers = await service.batches.rank(await ranks_in(body, service.config.limits, Turns()))
            assert seen[-3:] == [answers[at].ranking[0] for at in (0, 2, 4)]  # type: ignore[union-attr]
        assert len(seen) == 9
        assert await service.stop()
        assert len((tmp_path / "requests.jsonl").read_text().splitlines()) == 1 + 18

    asyncio.run(play())
