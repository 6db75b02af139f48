"""The world: the same users for any length of steps, a service that follows them, shifts by hand and changes of scenario."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from demo.inside import Inside
from service.running import running

import swerve
from swerve.core.errors import SwerveError
from swerve.demo import scenarios
from swerve.demo.corpus import documents, queries
from swerve.demo.intents import HOUR, RESULTS, Intents, rhythm
from swerve.demo.rivals import RIVAL_ARMS
from swerve.demo.scenarios import DAY, Scenario
from swerve.demo.search import Search
from swerve.demo.world import BATCH_IMPRESSIONS, BATCH_SPAN, THINK_SECONDS, World

NAMES = ["swerve", "bwc", "ucb1", "oracle", "fixed"]
FILE = """
name = "{name}"
title = "Jaguars"
story = "Cats, then cars. It happens."
begins = 2020-01-01
days = {days}
background = 0
[[query]]
text = "jaguar"
per_hour = {per_hour}
points = [
  {{ at = 2020-01-01, shares = {{ animal = 70, car = 20, team = 10 }} }},
  {{ at = 2020-01-02T12:00:00Z, shares = {{ animal = 10, car = 80, team = 10 }}, volume = 3, news = 20 }},
]
[[query]]
text = "mercury"
per_hour = 2
points = [{{ at = 2020-01-01, shares = {{ planet = 60, metal = 40 }} }}]
"""
uncompiled = pytest.mark.usefixtures("uncompiled")


def small(days: float = 3, per_hour: float = 6, name: str = "small") -> Scenario:
    return scenarios.read(FILE.format(days=days, per_hour=per_hour, name=name), f"{name}.toml")


@pytest.fixture(scope="module")
def search() -> Search:
    return Search()


def begun(search: Search, scenario: Scenario | None = None, seed: int = 0, **policy: Any) -> tuple[World, Inside]:
    """Return a world in front of a ranker with Thompson sampling or another policy."""
    inside = Inside(**{"spec": "ts", "grace_seconds": 0.0, "propensity_draws": 0, **policy})
    scenario = scenario or small()
    return World(scenario, seed=seed, client=inside, began=scenario.begins, advance=inside.advance, search=search), inside


def about(inside: Inside) -> list[tuple[str, str | None, float]]:
    """Return query, session and news of the requests for ambiguous queries."""
    known = set(queries())
    return [(one["query"], one["session"], (one["signals"] or {})["news"]) for one in inside.asked if one["query"] in known]


@uncompiled
def test_the_users_are_the_same_whatever_the_steps(search: Search) -> None:
    (coarse, one), (fine, two) = begun(search), begun(search)
    end = coarse.began + DAY
    assert coarse.step(end) == sum(fine.step(coarse.began + k * 800.0) for k in range(1, 109)) > 100
    assert fine.now == coarse.now == end
    assert about(one) == about(two)
    # so the rivals, which learn user by user, end in the same state
    for name in NAMES[1:]:
        assert coarse.tallies.lines[name] == fine.tallies.lines[name], name


@uncompiled
def test_the_seed_decides(search: Search) -> None:
    def played(seed: int) -> tuple[dict[str, Any], list[Any]]:
        world, inside = begun(search, seed=seed)
        world.step(world.began + 0.5 * DAY)
        return {key: value for key, value in world.summary().items() if key not in ("seconds", "speed", "seed")}, about(inside)

    assert played(1) == played(1)
    assert played(1)[1] != played(2)[1]


@uncompiled
def test_traffic_is_as_the_scenario_says(search: Search) -> None:
    world, inside = begun(search)
    calm = world.step(world.began + DAY)
    asked = about(inside)
    assert abs(calm - 8 * 24) < 4 * (8 * 24) ** 0.5
    assert abs(sum(query == "jaguar" for query, _, _ in asked) / calm - 0.75) < 0.15
    assert len({session for _, session, _ in asked}) == calm
    world.step(world.began + 1.5 * DAY)
    count = len(about(inside))
    burst = world.step(world.began + 2 * DAY)
    expected = sum(20 * rhythm(world.began + (36.5 + hour) * HOUR) for hour in range(12))
    assert abs(burst - expected) < 4 * expected**0.5
    news = [news for query, _, news in about(inside)[count:] if query == "jaguar"]
    assert 15.0 < sum(news) / len(news) < 25.0


@uncompiled
def test_time_is_told_in_order_and_batches_are_short(search: Search) -> None:
    world, inside = begun(search)
    sizes: list[int] = []
    rank_many = inside.rank_many

    def ranked(requests: Any) -> Any:
        sizes.append(len(requests))
        return rank_many(requests)

    inside.rank_many = ranked  # type: ignore[method-assign]
    world.step(world.began + DAY)
    assert inside.times == sorted(set(inside.times))
    assert 3 < max(sizes) <= BATCH_IMPRESSIONS
    assert max(b - a for a, b in itertools.pairwise(inside.times)) <= BATCH_SPAN + HOUR  # a batch, and the wait for the next user
    assert inside.times[-1] <= world.now + THINK_SECONDS
    # steps of a second: the clock is ahead by at most the time to click
    for k in range(1, 600):
        world.step(world.began + DAY + k)
        assert inside.now <= world.now + THINK_SECONDS


@uncompiled
def test_who_finds_nothing_says_what_they_mean(search: Search) -> None:
    world, inside = begun(search)
    world.step(world.began + DAY)
    known = set(queries())
    sessions = {one["session"]: one["query"] for one in inside.asked if one["query"] in known}
    again = [one for one in inside.asked if one["query"] not in known]
    assert 0.05 * len(sessions) < len(again) < 0.35 * len(sessions)
    for one in again:
        query = sessions[one["session"]]
        assert one["query"].startswith(f"{query} ")
        assert one["query"].removeprefix(f"{query} ") in {"animal", "car", "team", "planet", "metal"}
    # the service noticed that these sessions asked another query
    place = inside.ranker.rows.get(inside.ranker.key_of("jaguar"))
    assert place is not None
    senses = place.record.senses
    assert float(senses.past_hits[1]) + int(senses.bucket_answers[1]) + int(senses.bucket_answers[3]) > 5


@uncompiled
def test_sums_are_those_of_the_service(search: Search) -> None:
    world, inside = begun(search)
    played = world.step(world.began + DAY)
    summary = world.summary()
    assert summary["impressions"] == played == len(about(inside))
    clicks = shown = 0
    for query in ("jaguar", "mercury"):
        place = inside.ranker.rows.get(inside.ranker.key_of(query))
        assert place is not None
        clicks += int(place.record.ledger.clicks.sum())
        shown += int(place.record.ledger.plays.sum())
    assert shown == played * RESULTS  # a play for each result of a page
    assert clicks == world.tallies.lines["swerve"].clicks <= len(inside.clicked)  # those who ask again click elsewhere
    assert world.tallies.lines["swerve"].tops < world.tallies.lines["swerve"].clicks
    # the fixed ranking's regret is not random: the same loss in every impression of a query
    views = {query: world.intents.view(query, 0.0) for query in ("jaguar", "mercury")}
    lost = {query: view.pages.best - view.pages.chance([one.id for one in view.offer]) for query, view in views.items()}
    assert world.tallies.lines["fixed"].regret == pytest.approx(sum(lost[query] for query, _, _ in about(inside)))


@uncompiled
def test_the_service_follows_a_shift(search: Search) -> None:
    """With the service's default policy, the newly wanted result is on top within 300 impressions."""
    world, inside = begun(search, small(per_hour=12), spec="swerve", grace_seconds=10.0)
    world.step(world.began + 1.9 * DAY)
    summary = world.summary()
    (event,) = summary["events"]
    assert (event["query"], event["from"], event["to"]) == ("jaguar", "animal", "car")
    assert event["at"] == world.began + 1.5 * DAY
    meant = {document.id: document.meaning for document in documents()}
    tops = [meant[top] for at, query, top in inside.shown if query == "jaguar" and at >= event["at"]]
    # there are three documents about cars; finding the best takes longer
    assert tops[:20].count("animal") >= 10
    assert tops[300:400].count("car") >= 80
    assert summary["alarms"] >= 1
    assert summary["regret"]["swerve"] < summary["regret"]["ucb1"]


@uncompiled
def test_a_shift_by_hand(search: Search) -> None:
    world, inside = begun(search, small(per_hour=12))
    world.step(world.began + 6 * HOUR)
    calm = world.step(world.began + 9 * HOUR)
    meaning = world.shift("jaguar")
    assert meaning != "animal"
    count = len(about(inside))
    burst = world.step(world.began + 12 * HOUR)
    assert burst > 2 * calm
    (event,) = world.report()["events"]
    assert event["at"] == world.began + 9 * HOUR
    assert event["to"] == meaning
    assert world.report()["best"]["jaguar"] == event["to_id"]
    assert world.report()["intent"]["jaguar"][meaning] == 0.75
    news = [news for query, _, news in about(inside)[count:] if query == "jaguar"]
    assert min(news) >= 5.0
    assert world.shift() != meaning  # the scenario's first query, and a meaning that does not lead now


@uncompiled
def test_another_scenario_begins_now(search: Search) -> None:
    world, inside = begun(search, small(per_hour=4))
    world.step(world.began + 1.6 * DAY)
    before, now, requests = world.tallies, world.now, len(inside.asked)
    assert world.report()["best"]["jaguar"] == "jaguar-car"
    world.switch(small(name="again"))
    report = world.report()
    assert (report["scenario"], report["began"], report["now"], report["impressions"]) == ("again", now, now, 0)
    assert report["day"] == "1 Jan 2020"
    assert world.tallies is not before
    world.step(now + 6 * HOUR)
    # cats lead again, which is an event; the service remembers its earlier clicks
    assert [event["to_id"] for event in world.report()["events"]] == ["jaguar-animal"]
    place = inside.ranker.rows.get(inside.ranker.key_of("jaguar"))
    assert place is not None
    assert int(place.record.ledger.requests) > requests * 0.5
    assert inside.times == sorted(set(inside.times))


@uncompiled
def test_the_end(search: Search) -> None:
    world, _ = begun(search, small(days=2, per_hour=2))
    played = world.step(world.ends + 10 * DAY)
    assert world.ended
    assert world.now == world.ends == world.began + 2 * DAY
    assert played == world.summary()["impressions"]
    assert world.step(world.ends + 20 * DAY) == 0
    assert world.report()["day"] == "2 Jan 2020"
    with pytest.raises(SwerveError, match="small is over"):
        world.shift("jaguar")
    world.switch(small(name="again"))
    assert not world.ended
    assert world.step(world.now + HOUR) > 0


@uncompiled
def test_reports_can_be_sent(search: Search) -> None:
    world, _ = begun(search)
    assert world.report()["ctr"] == dict.fromkeys(NAMES, 0.0)
    assert world.summary()["speed"] is None
    world.step(world.began + 1.6 * DAY)
    report, summary = json.loads(json.dumps(world.report())), json.loads(json.dumps(world.summary()))
    assert list(report) == [
        "scenario", "title", "now", "began", "ends", "day", "ended", "impressions", "held_out", "regret", "ctr", "slots", "head",
        "tail",
        "events", "intent", "best", "adapt", "young",
    ]  # fmt: skip
    assert report["day"] == "2 Jan 2020"
    for sums in (report["regret"], report["ctr"], summary["regret"], summary["ctr"], summary["ctr_top"]):
        assert list(sums) == NAMES
    assert report["adapt"] == [{key: event[key] for key in ("query", "at", "impressions")} for event in summary["events"]]
    assert summary["ctr"]["swerve"] > summary["ctr_top"]["swerve"]
    assert summary["days"] == 1.6


def test_rivals_have_room_for_everything_that_is_found(search: Search) -> None:
    for query in queries():
        found = set()
        for name in scenarios.names():
            intents = Intents(scenarios.load(name), search)
            for at in {0.0, *(at for story in intents.scenario.queries for at, _ in story.published)}:
                found |= {document.id for document in intents.find(query, at)}
        assert RESULTS <= len(found) <= RIVAL_ARMS, (query, len(found))


@uncompiled
def test_a_real_service(tmp_path: Path, search: Search) -> None:
    """Over HTTP, with a service in a separate process: its counts equal the world's."""
    with running(tmp_path, {"policy": {"spec": "ts", "arms": 16}}) as service:
        with swerve.Client(f"http://127.0.0.1:{service.port}", timeout=10.0, feedback_timeout=10.0) as client:
            scenario = small()
            world = World(scenario, client=client, began=scenario.begins, search=search)
            world.step(world.began + DAY)
            assert world.tallies.degraded == 0
            assert world.tallies.impressions > 100
            states = [client.state(query) for query in ("jaguar", "mercury")]
        assert sum(state.requests for state in states) == world.tallies.impressions
        line = world.tallies.lines["swerve"]
        assert sum(arm.clicks for state in states for arm in state.arms) == line.clicks > line.tops  # wherever they are
