"""The service's time never goes back: wall clocks that jump, or that are behind the store's last time."""

from __future__ import annotations

import asyncio
import logging
import shutil
import struct
import threading
import time

import pytest

from swerve.service.clock import Clock
from swerve.service.config.load import Config, Policy, Signals, Store
from swerve.service.http.schemas import read_rank
from swerve.service.runtime import Service
from swerve.service.secrets import Secrets
from swerve.serving.messages import Event, FeedbackRequest, RankRequest, encode
from swerve.store import Batch, open_store

HOUR = 3600.0
WINDOW = 1800.0  # `feedback.window_seconds`
SECRETS = Secrets((b"t" * 32,), b"q" * 32)
CANDIDATES = ["a", "b", "c"]


class Hands:
    """A wall clock and a monotonic clock that the test sets."""

    def __init__(self, wall: float = 1.8e9, ticks: float = 50.0) -> None:
        self.wall, self.ticks = wall, ticks

    def clock(self, earliest: float = 0.0) -> Clock:
        return Clock(earliest, wall=lambda: self.wall, ticks=lambda: self.ticks)

    def go(self, seconds: float) -> None:
        self.wall += seconds
        self.ticks += seconds


@pytest.fixture
def hands():
    return Hands()


def test_a_wall_clock_that_jumps_back_is_not_followed(hands, caplog):
    caplog.set_level(logging.WARNING, "swerve.service")
    clock = hands.clock()
    start = clock.now()
    hands.wall -= HOUR
    for _ in range(3):
        hands.go(1.0)
        clock.check()
    assert clock.now() == start + 3.0
    assert clock.behind == HOUR
    assert [record.getMessage() for record in caplog.records] == ["the wall clock is 3600 s behind: the service keeps its own time"]


def test_a_wall_clock_that_jumps_ahead_is_followed(hands, caplog):
    caplog.set_level(logging.WARNING, "swerve.service")
    clock = hands.clock()
    start = clock.now()
    hands.wall += HOUR
    hands.go(1.0)
    assert clock.now() == start + 1.0
    clock.check()
    assert clock.now() == start + HOUR + 1.0
    assert clock.behind == 0.0
    hands.wall -= HOUR  # then back
    clock.check()
    assert clock.now() == start + HOUR + 1.0
    assert len(caplog.records) == 2


def test_a_start_is_no_earlier_than_what_the_store_has_seen(hands):
    assert hands.clock(earliest=hands.wall + HOUR).now() == hands.wall + HOUR
    assert hands.clock(earliest=hands.wall - HOUR).now() == hands.wall


def over(folder, hands: Hands | None = None) -> Service:
    config = Config(
        store=Store(url=f"sqlite:///{folder}/swerve.db", cache_mb=4),
        policy=Policy(spec="ts", arms=8),
        signals=Signals(numbers={"news": "count", "given": "raw"}),  # as in the other tests, so that it is compiled once
    )
    clock = hands.clock() if hands is not None else None
    return Service(config, open_store(config.store.url), SECRETS, clock=clock)


async def ranked(service: Service, query: str = "q"):
    answer = await service.ranking.rank_one(read_rank(encode(RankRequest(query, CANDIDATES))))
    assert not answer.degraded
    return answer


def test_the_service_goes_on_through_a_jump_back_of_an_hour(tmp_path, hands):
    """Decisions from before and after the jump are credited, and their window ends on time."""

    async def live() -> None:
        service = over(tmp_path, hands)
        await service.start(whole=True)
        early = await ranked(service)
        unused = await ranked(service)
        hands.wall -= HOUR
        hands.go(2.0)
        service.clock.check()
        late = await ranked(service)
        for answer in (early, late, early):
            assert (await service.feedback.one(FeedbackRequest(answer.decision, [Event("click", position=1)]))).status == "learned"
        for number in range(50):
            hands.go(30.0)
            await ranked(service, f"new {number}")  # the permits for new queries flow as before
        state = await service.inspection.explain("q", {})
        assert state.seen - state.created == 2.0
        assert sum(arm.clicks for arm in state.arms) == 2
        assert state.signals.pop("given") is None  # a raw number that no request had
        assert all(0.0 <= value <= 1.0 for value in state.signals.values())
        hands.go(301.0)  # half an hour has passed, whatever the wall says
        assert (await service.feedback.one(FeedbackRequest(unused.decision, [Event("click", position=1)]))).status == "expired"
        assert sum(arm.clicks for arm in (await service.inspection.explain("q", {})).arms) == 2
        assert await service.stop()

    asyncio.run(live())


def test_after_a_restart_with_the_clock_an_hour_back_time_goes_on(tmp_path):
    """The store's last time is one hour ahead of this machine's clock."""
    ahead = time.time() + HOUR

    async def first() -> str:
        service = over(tmp_path, Hands(wall=ahead))
        await service.start(whole=True)
        token = (await ranked(service)).decision
        assert token is not None
        assert await service.stop()
        return token

    async def second(token: str) -> None:
        service = over(tmp_path)
        await service.start(whole=True)
        assert 0.0 <= service.clock.now() - ahead < 60.0
        before = (await service.inspection.explain("q", {})).seen
        again = await ranked(service)
        assert (await service.inspection.explain("q", {})).seen >= before
        for decision in (token, again.decision):
            assert (await service.feedback.one(FeedbackRequest(decision, [Event("click", "a")]))).status == "learned"
        assert await service.stop()

    asyncio.run(second(asyncio.run(first())))


def test_the_time_is_written_with_the_rest(tmp_path, hands):
    """The time is durable without an orderly stop, so it survives a kill."""

    async def live() -> None:
        service = over(tmp_path, hands)
        await service.start(whole=True)
        hands.go(100.0)
        answer = await ranked(service)
        await service.feedback.one(FeedbackRequest(answer.decision, []))
        *_, block = service.store.tail()
        assert block.time == hands.wall
        await service.stop()

    asyncio.run(live())


def test_a_clock_that_cannot_be_right_is_not_taken_from_the_store(tmp_path):
    """An absurd time in a record must not keep the service from starting."""
    store = open_store(f"sqlite:///{tmp_path}/swerve.db")
    store.checkpoint(Batch(groups={"clock": struct.pack("<d", float("nan"))}))
    store.close()

    async def live() -> None:
        service = over(tmp_path)
        await service.start(whole=True)
        await ranked(service)
        assert abs(service.clock.now() - time.time()) < 60.0
        await service.stop()

    asyncio.run(live())


async def told(service: Service, token: str) -> str:
    """Click on the first result of a decision; return the answer."""
    return (await service.feedback.one(FeedbackRequest(token, [Event("click", position=1)]))).status


async def clicks(service: Service) -> int:
    return sum(arm.clicks for arm in (await service.inspection.explain("q", {})).arms)


async def tidied(service: Service) -> None:
    """Return when the housekeeping that is due is done."""

    async def nothing() -> None:
        pass

    for _ in range(2):  # the second begins after the housekeeping that follows the first
        await service.committer.aside(nothing)


def test_a_repeat_that_waits_while_the_clock_jumps_is_not_counted_again(tmp_path, hands):
    """It came inside the window. While its row is read the clock jumps, and the decision's outcome is dropped with its window."""
    asked, go = threading.Event(), threading.Event()

    async def live() -> None:
        service = over(tmp_path, hands)
        await service.start(whole=True)
        token = (await ranked(service)).decision
        assert token is not None
        assert await told(service, token) == "learned"
        await service.committer.aside(service.committer.rows.write_all)
        (place,) = service.ranker.rows
        service.ranker.rows.drop(place)
        load = service.store.load

        def waits(keys):
            asked.set()
            go.wait(30.0)
            return load(keys)

        service.store.load = waits
        repeat = asyncio.ensure_future(told(service, token))
        await asyncio.to_thread(asked.wait, 30.0)
        hands.wall += 48.0 * HOUR
        service.clock.check()
        await tidied(service)
        go.set()
        assert await repeat == "expired"
        assert await clicks(service) == 1
        assert await service.stop()

    asyncio.run(live())


@pytest.mark.parametrize("ahead", [30.0, 48.0 * HOUR])
def test_a_restore_that_sets_time_back_counts_no_click_of_the_time_that_was_twice(tmp_path, ahead):
    """The machine's clock is ahead, then right again; a backup of before is restored, and clicks come on rankings of after."""
    wall, store, copy = 1.8e9, tmp_path / "swerve.db", tmp_path / "copy.db"

    async def make(at: float) -> str:
        service = over(tmp_path, Hands(wall=at))
        await service.start(whole=True)
        token = (await ranked(service)).decision
        assert token is not None
        assert await service.stop()
        return token

    async def later(token: str) -> None:
        hands, near = Hands(wall=wall), ahead < HOUR
        service = over(tmp_path, hands)
        await service.start(whole=True)
        await ranked(service)
        first = await told(service, token)
        assert first in (("learned", "late") if near else ("expired",))
        assert await service.stop()
        service = over(tmp_path, hands)  # so that the store alone knows of the click
        await service.start(whole=True)
        for seconds in (10.0, WINDOW, 15.0):  # the last: beyond the window of this start, and not of the decision
            hands.go(seconds)
            await tidied(service)
            assert await told(service, token) == first
            assert await clicks(service) == near
        hands.go(10.0)
        assert await told(service, token) == "expired"
        assert await service.stop()

    asyncio.run(make(wall))
    shutil.copy(store, copy)
    token = asyncio.run(make(wall + ahead))
    shutil.copy(copy, store)
    asyncio.run(later(token))
