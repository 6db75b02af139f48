"""Events with weights in a service: kinds and windows of the configuration, observed rankings, batches, restarts and replays."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest
from service.test_ranking import service_at

from swerve.cli.config import as_toml
from swerve.service.config.load import ConfigError, load, load_traced, resolve
from swerve.service.config.settings import settings_in, windows_of
from swerve.service.config.toml import Document
from swerve.service.http.schemas import read_rank
from swerve.service.runtime import Service
from swerve.service.turns import Turns
from swerve.serving.messages import Event, FeedbackRequest, FeedbackResponse, ObserveRequest, RankRequest, Refused, encode
from swerve.serving.outcomes import decode
from swerve.serving.recording import Answered, lines_of
from swerve.serving.replay import Replay

PAGE = ["a", "b", "c", "d"]
KINDS: dict[str, Any] = {
    "window_seconds": 600.0,
    "events": {
        "click": {"weight": 0.25},
        "cart": {"weight": 0.5, "window_seconds": 60.0},
        "purchase": {"window_seconds": 86_400.0},
    },
}


async def ranked(service: Service, query: str = "q", **more: Any) -> Any:
    answer = await service.ranking.rank_one(read_rank(encode(RankRequest(query, list(PAGE), **more))))
    assert answer.decision is not None
    return answer


def live(folder: Path, play: Any, **more: Any) -> None:
    """Run `play` with a service that has these kinds, and the time."""

    async def run() -> None:
        now = [1.7e9]
        service = service_at(folder, now, feedback=KINDS, **more)
        await service.start(whole=True)
        await play(service, now)
        assert await service.stop()

    asyncio.run(run())


def test_each_kind_has_its_window_and_what_comes_after_it_is_named(tmp_path: Path):
    async def play(service: Service, now: list[float]) -> None:
        async def send(*kinds: str, **more: Any) -> FeedbackResponse:
            events = [Event(kind, position=1, id=f"{kind} {now[0]}") for kind in kinds]
            return await service.feedback.one(FeedbackRequest(answer.decision, events, **more))

        answer = await ranked(service)
        number = service.ranker.life.id << 40 | service.ranker.issued
        now[0] += 61.0
        assert await send("cart") == FeedbackResponse("expired", ["cart"])
        assert service.committer.used.get(number) == 0  # nothing is counted
        assert await send("cart", "click") == FeedbackResponse("learned", ["cart"])
        assert decode(service.committer.used.get(number)).reward() == 0.25
        assert await send("click", "cart", shown=answer.ranking) == FeedbackResponse("learned", ["cart"])
        now[0] += 600.0
        assert await send("cart", "click") == FeedbackResponse("expired", ["cart", "click"])
        assert await send("cart", shown=answer.ranking) == FeedbackResponse("learned", ["cart"])
        # of a batch each entry is answered for itself, and what is late takes no other entry with it
        entries = [
            FeedbackRequest(answer.decision, [Event(kind, position=1)]) for kind in ("cart", "purchase", "click", "purchase")
        ]
        said = await service.feedback.many(entries, Turns())
        assert said == [
            FeedbackResponse("expired", ["cart"]), FeedbackResponse("learned"), FeedbackResponse("expired", ["click"]),
            FeedbackResponse("learned"),
        ]  # fmt: skip
        assert decode(service.committer.used.get(number)).reward() == 1.0
        now[0] += 86_400.0
        assert await send("purchase") == FeedbackResponse("expired")
        assert encode(FeedbackResponse("learned")) == b'{"status":"learned"}'

    live(tmp_path / "s", play)


def test_unknown_kinds_are_refused_and_an_observed_ranking_is_not_counted_for_one(tmp_path: Path):
    async def play(service: Service, now: list[float]) -> None:
        answer = await ranked(service)
        for act in (
            lambda: service.feedback.one(FeedbackRequest(answer.decision, [Event("click", "a"), Event("view", "a")])),
            lambda: service.observing.one(ObserveRequest("q", list(PAGE), [Event("click", "a"), Event("view", "a")])),
        ):
            with pytest.raises(Refused) as caught:
                await act()
            assert (caught.value.status, caught.value.code, caught.value.field) == (422, "unknown_event", "events[1].kind")
            assert "it knows cart, click, purchase" in caught.value.message
        assert (await service.inspection.explain("q", {})).requests == 1
        said = await service.observing.one(ObserveRequest("q", list(PAGE), [Event("purchase", "a"), Event("cart", "b")]))
        assert said.status == "learned"
        assert decode(service.committer.used.get(service.ranker.life.id << 40 | service.ranker.issued)).reward() == 1.5

    live(tmp_path / "s", play)


def test_events_of_before_a_restart_add_up_with_those_after_it_and_a_replay_gives_the_same_bytes(tmp_path: Path):
    recording = tmp_path / "s" / "s.db.journal"
    records: dict[bytes, bytes] = {}

    async def play() -> None:
        rng, now, open_ones = random.Random(3), [1.7e9], []
        more: dict[str, Any] = {
            "feedback": KINDS,
            "store": {"url": f"sqlite:///{tmp_path}/s/s.db", "journal_days": 30},
            "policy": {"spec": "ts", "arms": 16, "seed": 3},
        }
        service = service_at(tmp_path / "s", now, **more)
        config, secrets = service.config, None
        for _ in range(2):
            await service.start(whole=True)
            for _ in range(150):
                now[0] += 2.0
                open_ones.append(await ranked(service, rng.choice("pqr"), slots=3, session=f"s{rng.randrange(40)}"))
                for _ in range(rng.randrange(3)):
                    events = [
                        Event(rng.choice(["click", "cart", "purchase"]), position=rng.randint(1, 4), value=rng.choice([1.0, 0.3]))
                        for _ in range(rng.randint(1, 3))
                    ]
                    await service.feedback.one(FeedbackRequest(rng.choice(open_ones[-40:]).decision, events))
            records.update((place.key, place.record.tobytes()) for place in service.ranker.rows)
            assert await service.stop()
            if secrets is None:
                from swerve.service.clock import Clock
                from swerve.service.secrets import Secrets
                from swerve.store import open_store

                secrets = Secrets((b"k" * 32,), b"q" * 32)
                clock = Clock(wall=lambda: now[0], ticks=lambda: now[0])
                service = Service(config, open_store(config.store.url), secrets, clock=clock)

    asyncio.run(play())
    replay = Replay(recording, lambda tables: settings_in(str(recording), tables))
    counts = replay.run()
    assert counts.same == counts.requests > 200
    assert {place.key: place.record.tobytes() for place in replay.ranker.rows} == records
    kinds = {(event.kind, event.value) for _, line in lines_of(recording) if isinstance(line, Answered) for event in line.events}
    assert kinds >= {("cart", 0.3), ("purchase", 1.0), ("click", 1.0)}


def test_kinds_in_a_configuration(tmp_path: Path):
    path = tmp_path / "swerve.toml"
    path.write_text(
        "[feedback]\nwindow_seconds = 100\n[feedback.events.cart]\nweight = 0.3\n[feedback.events.buy]\nwindow_seconds = 9\n"
    )
    config = load(path)
    assert windows_of(config) == {"click": 100.0, "cart": 100.0, "buy": 9.0}
    again = tmp_path / "again.toml"
    again.write_text(as_toml(*load_traced(path)))
    assert load(again).feedback == config.feedback
    assert windows_of(resolve(Document("", {}, {}))) == {"click": 1800.0}
    path.write_text("[feedback.events.cart]\nweight = 0\n[feedback.events.'a b']\n[feedback.events.dwell]\nwait = 3\n")
    with pytest.raises(ConfigError) as caught:
        load(path)
    told = "\n".join(caught.value.lines())
    assert "feedback.events.cart.weight = 0 is not allowed; it must be a number in (0, 1]" in told
    assert "the name 'a b' in feedback.events must be a name" in told
    assert "unknown key feedback.events.dwell.wait" in told
