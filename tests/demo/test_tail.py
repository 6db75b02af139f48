"""The tail: rare queries of every scenario, young during the demo, counted apart from the famous ones."""

from __future__ import annotations

from typing import Any

import pytest
from demo.inside import Inside

from swerve.demo import scenarios, tail
from swerve.demo.corpus import meanings, queries
from swerve.demo.intents import RESULTS, Intents
from swerve.demo.rivals import RIVAL_ARMS
from swerve.demo.scenarios import DAY, Scenario
from swerve.demo.search import Search
from swerve.demo.world import World

NAMES = ["swerve", "bwc", "ucb1", "oracle", "fixed"]
FILE = """
name = "small"
title = "Jaguars"
story = "Cats, and what few people ask for."
begins = 2020-01-01
days = 2
background = 0
tail = 20
[[query]]
text = "jaguar"
per_hour = 6
points = [{ at = 2020-01-01, shares = { animal = 70, car = 20, team = 10 } }]
"""


@pytest.fixture(scope="module")
def search() -> Search:
    return Search()


def played(search: Search, scenario: Scenario, days: float) -> tuple[World, Inside]:
    inside = Inside(spec="ts", grace_seconds=0.0, propensity_draws=0)
    world = World(scenario, client=inside, began=scenario.begins, advance=inside.advance, search=search)
    world.step(world.began + days * DAY)
    return world, inside


def test_they_are_rare_different_and_answered(search: Search) -> None:
    rare = tail.rare()
    assert len({one.text for one in rare}) == tail.COUNT
    assert {one.about for one in rare} == set(queries())
    known = {f"{query} {meaning}" for query in queries() for meaning in meanings(query)} | set(queries())
    assert not known & {one.text for one in rare}  # nobody asks them again, or otherwise
    for one in rare:
        found = search.find(one.text, RESULTS, frozenset())
        assert len(found) == RESULTS, one.text
        assert any(document.meaning == one.meaning and document.query == one.about for document in found), one.text
        assert sum(tail.shares(one).values()) == pytest.approx(1.0)
        assert tail.shares(one)[one.meaning] == tail.WANTED


@pytest.mark.parametrize("name", scenarios.names())
def test_every_scenario_has_a_tail_that_begins_over_time(search: Search, name: str) -> None:
    scenario = scenarios.load(name)
    begins = [story.begins for story in scenario.tail]
    assert begins == sorted(begins) and len(begins) == tail.COUNT
    assert begins.count(0.0) >= tail.COUNT // 6  # some are there in the first minute
    assert 0.5 * scenario.length < begins[-1] <= tail.LAST * scenario.length
    each = sorted((story.per_hour for story in scenario.tail), reverse=True)
    assert each[0] < 5.0 and each[-1] > 0.1  # a few times an hour, to a few times a day
    assert each[0] / each[15] == pytest.approx(16**tail.SLOPE)
    intents = Intents(scenario, search)
    times = {0.0, *(at for story in scenario.queries for at, _ in story.published)}
    for story in scenario.tail:
        assert len({document.id for at in times for document in intents.find(story.query, at)}) <= RIVAL_ARMS


@pytest.mark.usefixtures("uncompiled")
def test_head_and_tail_are_counted_apart(search: Search) -> None:
    scenario = scenarios.read(FILE, "small.toml")
    world, inside = played(search, scenario, 1.2)
    texts = {story.query: story for story in scenario.tail}
    asked = [one["query"] for one in inside.asked if one["query"] in texts]
    found: dict[str, Any] = world.summary()
    assert found["tail"]["impressions"] == len(asked) > 150
    assert found["head"]["impressions"] == sum(one["query"] == "jaguar" for one in inside.asked) > 100
    assert found["impressions"] == found["head"]["impressions"] + found["tail"]["impressions"]
    for name in NAMES:
        clicks = [found[part]["clicks"][name] for part in ("head", "tail")]
        assert min(clicks) > 0
        assert sum(clicks) == sum(found["slots"][name]) == round(found["ctr"][name] * found["impressions"])
    for part in ("head", "tail"):
        clicks, engine = (found[part]["clicks"][name] for name in ("swerve", "fixed"))
        assert found[part]["gained_percent"] == pytest.approx(100.0 * (clicks - engine) / engine, abs=0.006)
    # nobody asks a query before it begins, and a report names those that began last
    first = {query: min(at for at, text, _ in inside.shown if text == query) for query in set(asked)}
    assert all(at >= world.began + texts[query].begins for query, at in first.items())
    begun = [story.query for story in scenario.tail if story.begins <= world.now - world.began]
    assert world.report()["young"] == begun[:-5:-1]
    assert world.report()["tail"] == found["tail"]
    assert set(world.report()["intent"]) == {"jaguar"}  # the page offers the famous ones


@pytest.mark.usefixtures("uncompiled")
def test_without_a_tail_there_are_no_figures_of_it(search: Search) -> None:
    scenario = scenarios.read(FILE.replace("tail = 20", "tail = 0"), "small.toml")
    world, _ = played(search, scenario, 0.25)
    assert scenario.tail == ()
    none = dict.fromkeys(NAMES, 0)
    assert world.summary()["tail"] == {"impressions": 0, "clicks": none, "ctr": none, "gained_percent": None}
    assert world.report()["young"] == []
