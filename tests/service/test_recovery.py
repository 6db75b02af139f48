"""Recovery: what the log has beyond the rows is played into the store, to the bytes that the service had."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from service.running import SMALL

from swerve.service import recovering
from swerve.service.config.load import resolve
from swerve.service.config.toml import Document
from swerve.service.http.schemas import read_rank
from swerve.service.recovering import recover
from swerve.service.runtime import Service
from swerve.service.secrets import Secrets
from swerve.serving.messages import Event, FeedbackRequest, RankRequest, encode
from swerve.serving.migration import Layouts
from swerve.store import open_store
from swerve.store.sqlite import SQLiteStore

SECRETS = Secrets((b"k" * 32,), b"q" * 32)


def over(folder: Path, **tables: dict[str, Any]) -> Service:
    """A service that writes no row by itself."""
    made = {**SMALL, "store": {"url": f"sqlite:///{folder}/swerve.db", "flush_seconds": 60.0}, **tables}
    config = resolve(Document("test", made, {}))
    return Service(config, open_store(config.store.url), SECRETS)


async def traffic(service: Service, requests: int, seed: int, names: int = 12) -> list[tuple[str, str]]:
    """Rank and click; return the clicks that were acknowledged, by query and result."""
    rng, clicked = random.Random(seed), []
    for number in range(requests):
        query = f"query {rng.randrange(names)}"
        offer = [f"{query}/{arm}" for arm in rng.sample(range(8), rng.randint(2, 6))]
        session = f"s{rng.randrange(5)}" if rng.random() < 0.6 else None
        answer = await service.ranking.rank_one(read_rank(encode(RankRequest(query, offer, session=session))))
        assert not answer.degraded and answer.decision is not None
        if rng.random() < 0.6:
            told = await service.feedback.one(FeedbackRequest(answer.decision, [Event("click", answer.ranking[0])]))
            assert told.status in ("learned", "late", "ignored")
            clicked.append((query, answer.ranking[0]))
        if number % 40 == 39:
            await service.inspection.shift(query, {})
    return clicked


def state(service: Service) -> dict[Any, bytes]:
    found: dict[Any, bytes] = {place.key: place.record.tobytes() + place.names() for place in service.ranker.rows}
    return found | {name: record for name, record in service.ranker.shared(0.0).items() if name != "clock"}


async def crash(service: Service) -> None:
    """End without a last word, as `kill -9` does."""
    await service.committer._append(service.committer._next)  # what is written down is in the log
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    await asyncio.sleep(0.05)
    service.store.close()


def stored(store: SQLiteStore, service: Service) -> dict[Any, bytes]:
    """Return what a store has, as `state` does."""
    found: dict[Any, bytes] = {}
    layouts = Layouts(store, service.ranker)
    after: int | None = 0
    while after is not None:
        rows, after = store.page(after)
        found |= {row.key: layouts.view(row).tobytes() + row.names for row in rows}  # type: ignore[union-attr]
    return found | {
        name: record for (name, _), record in store.groups().items() if name in service.ranker.shared(0.0) and name != "clock"
    }


@pytest.mark.parametrize("memory", [64 << 20, 24 << 10], ids=["in memory", "in little memory"])
def test_a_crash_ends_in_the_bytes_that_the_service_had(tmp_path, monkeypatch, memory):
    """With room for four queries, rows leave memory while the log is played, and come back."""
    monkeypatch.setattr(recovering, "LEAST_MEMORY", memory)
    before: dict[Any, bytes] = {}
    services: list[Service] = []

    async def live() -> None:
        service = over(tmp_path)
        services.append(service)
        await service.start(whole=True)
        await traffic(service, 60, seed=1)
        await service.committer.aside(service.committer.rows.write_all)  # rows of the middle, and an earlier begin
        await traffic(service, 60, seed=2)
        before.update(state(service))
        await crash(service)

    asyncio.run(live())
    left: list[Any] = []
    leave = recovering.Player.leave  # type: ignore[attr-defined]
    monkeypatch.setattr(recovering.Player, "leave", lambda self, place: (left.append(place.key), leave(self, place)))  # type: ignore[attr-defined]
    monkeypatch.setattr(recovering.Recovery, "_settings", small(recovering.Recovery._settings, memory))
    store = open_store(f"sqlite:///{tmp_path}/swerve.db")
    assert isinstance(store, SQLiteStore)
    done = recover(store)
    assert done.others == 0
    assert 60 <= done.decisions <= 120
    assert bool(left) is (memory < 1 << 20)
    assert store.begin == store.end
    assert stored(store, services[0]) == before
    assert recover(store).entries == 0
    store.close()


def small(settings: Any, memory: int) -> Any:
    return lambda self, started: settings(self, started)._replace(budget=memory)


def test_the_outcome_of_each_decision_is_recovered(tmp_path):
    tokens: list[tuple[str, str]] = []

    async def first() -> None:
        service = over(tmp_path)
        await service.start(whole=True)
        for _ in range(20):
            answer = await service.ranking.rank_one(read_rank(encode(RankRequest("q", ["a", "b", "c"]))))
            assert answer.decision is not None
            await service.feedback.one(FeedbackRequest(answer.decision, [Event("click", answer.ranking[0])]))
            tokens.append((answer.decision, answer.ranking[0]))
        await crash(service)

    async def second() -> None:
        service = over(tmp_path)
        await service.start(whole=True)
        for token, top in tokens:  # repeats, all of them
            assert (await service.feedback.one(FeedbackRequest(token, [Event("click", top)]))).status == "learned"
        counted = await service.inspection.explain("q", {})
        assert sum(arm.clicks for arm in counted.arms) == 20
        assert await service.stop()

    asyncio.run(first())
    asyncio.run(second())


@pytest.mark.parametrize("tables", [{"policy": {"spec": "ucb1", "arms": 16}}, {"signals": {}}], ids=["policy", "signals"])
def test_after_another_configuration_every_click_is_there(tmp_path, tables):
    """The log is played under the configuration under which it was written; then the new one takes the rows over."""
    clicks: list[tuple[str, str]] = []

    async def first() -> None:
        service = over(tmp_path)
        await service.start(whole=True)
        clicks.extend(await traffic(service, 80, seed=3))
        await crash(service)

    async def second() -> None:
        service = over(tmp_path, **tables)
        await service.start(whole=True)
        for query in {query for query, _ in clicks}:
            counted = {arm.id: arm.clicks for arm in (await service.inspection.explain(query, {})).arms if arm.clicks}
            assert counted == {name: clicks.count((query, name)) for name in {name for other, name in clicks if other == query}}
        assert await service.stop()

    asyncio.run(first())
    asyncio.run(second())


def test_a_log_of_another_layout_is_played_and_every_click_counts(tmp_path, monkeypatch):
    """As after an upgrade: the records in the log lack a field that records have now."""
    clicks: list[tuple[str, str]] = []

    async def first() -> None:
        service = over(tmp_path)
        await service.start(whole=True)
        await traffic(service, 40, seed=4)
        await service.committer.aside(service.committer.rows.write_all)
        service.committer.rows.begin_generation()  # rows are in the log whole, in the layout of then
        clicks.extend(await traffic(service, 40, seed=5))
        await crash(service)

    asyncio.run(first())
    played = recovering.Player._started  # type: ignore[attr-defined]

    def older(self: Any, goes_on: int, body: bytes) -> None:
        played(self, goes_on, body)
        assert self.started is not None
        self.started.layouts = {name: text.replace('["named",', '["named_before",') for name, text in self.started.layouts.items()}

    monkeypatch.setattr(recovering.Player, "_started", older)  # type: ignore[attr-defined]
    store = open_store(f"sqlite:///{tmp_path}/swerve.db")
    done = recover(store)
    assert done.feedback >= len(clicks)
    store.close()

    async def second() -> None:
        service = over(tmp_path)
        await service.start(whole=True)
        for query, name in set(clicks):
            counted = {arm.id: arm.clicks for arm in (await service.inspection.explain(query, {})).arms}
            assert counted[name] >= clicks.count((query, name))
        assert await service.stop()

    asyncio.run(second())


def test_rows_are_written_behind_and_a_stop_leaves_nothing_to_play(tmp_path):
    async def live() -> None:
        service = over(tmp_path)
        await service.start(whole=True)
        await traffic(service, 30, seed=6)
        assert service.store.count() == 0  # the log alone has them
        assert service.metrics.behind.ask() > 60
        assert await service.stop()
        store = open_store(f"sqlite:///{tmp_path}/swerve.db")
        assert store.begin == store.end and store.count() == len(service.ranker.rows)
        kept = {place.key: np.array(place.record).tobytes() for place in service.ranker.rows}
        layouts = Layouts(store, service.ranker)
        assert {row.key: layouts.view(row).tobytes() for row in store.load(list(kept))} == kept  # type: ignore[union-attr]
        store.close()

    asyncio.run(live())
