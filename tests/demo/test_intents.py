"""Intents: shares over time, changes of the best document, and shifts by hand."""

from __future__ import annotations

import datetime
from collections.abc import Container

import pytest

from swerve.core.errors import SwerveError
from swerve.demo import scenarios
from swerve.demo.corpus import Document
from swerve.demo.intents import HOUR, RESULTS, SHIFT_FACTOR, SHIFT_SECONDS, SHIFT_SHARE, SLICE_SECONDS, Intents, rhythm
from swerve.demo.scenarios import DAY
from swerve.demo.search import Search

SMALL = """
name = "small"
title = "Small"
story = "Little happens. Then more."
begins = 2020-01-01
days = 4
background = 0
[[query]]
text = "jaguar"
per_hour = 10
between = "{between}"
points = [
  {{ at = 2020-01-01, shares = {{ animal = 0.8, car = 0.2 }}, volume = 1, news = 2 }},
  {{ at = 2020-01-03, shares = {{ animal = 0.2, car = 0.8 }}, volume = 3, news = 12 }},
]
"""


@pytest.fixture(scope="module")
def search() -> Search:
    return Search()


def small(search: Search, between: str = "step") -> Intents:
    return Intents(scenarios.read(SMALL.format(between=between), "small.toml"), search)


def test_the_hurricanes_follow_each_other(search: Search) -> None:
    scenario = scenarios.load("hurricane")
    intents = Intents(scenario, search)
    events = intents.events("hurricane")
    days = [datetime.datetime.fromtimestamp(scenario.begins + event.at, datetime.UTC).date() for event in events]
    assert [(day.month, day.day) for day in days] == [(8, 24), (9, 1), (9, 15), (9, 17)]
    assert [event.after.meaning for event in events] == ["harvey", "irma", "jose", "maria"]
    assert [event.before for event in events[1:]] == [event.after for event in events[:-1]]
    for story in scenario.queries[1:]:
        assert intents.events(story.query) == []


@pytest.mark.parametrize(
    ("name", "query", "meanings"),
    [
        ("independence-day", "independence day", ["sequel", "holiday", "film"]),
        ("tomato", "tomato", ["recall", "recipe"]),
    ],
)
def test_the_other_stories(search: Search, name: str, query: str, meanings: list[str]) -> None:
    intents = Intents(scenarios.load(name), search)
    assert [event.after.meaning for event in intents.events(query)] == meanings


def test_a_storm_is_many_shifts_at_once_and_quiet_is_none(search: Search) -> None:
    storm = Intents(scenarios.load("storm"), search)
    first = [intents[0].at for query in storm.stories if (intents := storm.events(query))]
    assert len(first) == 12
    assert max(first) - min(first) <= 6 * HOUR
    quiet = Intents(scenarios.load("quiet"), search)
    assert [event for query in quiet.stories for event in quiet.events(query)] == []


def test_every_event_is_worth_following(search: Search) -> None:
    """From the event on, the old leader is less than nine tenths as good; otherwise following the event could not be measured."""
    for name in scenarios.names():
        intents = Intents(scenarios.load(name), search)
        for query in intents.stories:
            for event in intents.events(query):
                chances = intents.view(query, event.at).chances
                assert chances.get(event.before.id, 0.0) < 0.9 * chances[event.after.id], (name, event)


def test_the_best_of_each_meaning_that_leads_is_on_offer(search: Search) -> None:
    for name in scenarios.names():
        intents = Intents(scenarios.load(name), search)
        for story in intents.scenario.queries:
            for point in story.points:
                wanted = max(point.shares, key=lambda meaning: point.shares[meaning])
                view = intents.view(story.query, point.at)
                assert view.leader.meaning == wanted, (name, story.query, point)
                assert 8 <= len(view.offer) <= RESULTS
                assert all(one.published is None or one.published in intents.known(point.at) for one in view.offer)


def test_steps_and_lines(search: Search) -> None:
    steps, lines = small(search), small(search, "linear")
    for at, share in ((0.0, 0.2), (DAY, 0.2), (2 * DAY - 1, 0.2), (2 * DAY, 0.8), (3 * DAY, 0.8)):
        assert steps.view("jaguar", at).shares["car"] == pytest.approx(share)
    for at, share in ((0.0, 0.2), (DAY, 0.5), (1.5 * DAY, 0.65), (2 * DAY, 0.8), (3 * DAY, 0.8)):
        view = lines.view("jaguar", at)
        assert view.shares["car"] == pytest.approx(share)
        assert sum(view.shares.values()) == pytest.approx(1.0)
    assert [steps.rate("jaguar", at) for at in (0.0, DAY, 2 * DAY)] == pytest.approx([10.0, 10.0, 30.0])
    assert [lines.rate("jaguar", at) for at in (0.0, DAY, 2 * DAY)] == pytest.approx([10.0, 20.0, 30.0])
    assert [lines.news("jaguar", at) for at in (0.0, DAY, 2 * DAY)] == pytest.approx([2.0, 7.0, 12.0])
    assert [event.at for event in steps.events("jaguar")] == [2 * DAY]
    (event,) = lines.events("jaguar")
    assert abs(event.at - DAY) <= SLICE_SECONDS
    assert (event.before.id, event.after.id) == ("jaguar-animal", "jaguar-car")


def test_a_view_is_kept_until_something_changes(search: Search) -> None:
    intents = small(search)
    assert intents.view("jaguar", 0.0) is intents.view("jaguar", DAY)
    assert intents.view("jaguar", DAY) is not intents.view("jaguar", 2 * DAY)


def test_the_search_engine_is_asked_once_for_each_set_of_keys() -> None:
    class Counting(Search):
        asked = 0

        def find(self, text: str, limit: int = 10, known: Container[str] | None = None) -> list[Document]:
            self.asked += 1
            return super().find(text, limit, known)

    search = Counting()
    intents = Intents(scenarios.load("hurricane"), search)
    intents.events("hurricane")
    assert search.asked == 5  # nothing published, then four storms, one by one


def test_a_shift_by_hand(search: Search) -> None:
    intents = small(search)
    calm = intents.rate("jaguar", 0.0), intents.news("jaguar", 0.0)
    others = intents.others("jaguar", HOUR)
    assert "animal" not in others
    assert {"car", "team", "console", "jet"} <= set(others)
    intents.shift("jaguar", "team", HOUR)
    view = intents.view("jaguar", HOUR)
    assert view.leader.meaning == "team"
    assert view.shares["team"] == SHIFT_SHARE
    assert view.shares["animal"] == pytest.approx(4.0 * view.shares["car"])  # the old proportion
    assert sum(view.shares.values()) == pytest.approx(1.0)
    assert intents.view("jaguar", 1.5 * HOUR) is view
    assert intents.rate("jaguar", HOUR) == pytest.approx(SHIFT_FACTOR * calm[0])
    assert intents.news("jaguar", HOUR) > 5.0 * calm[1]
    assert intents.rate("jaguar", HOUR + 2 * SHIFT_SECONDS) == pytest.approx(calm[0])
    assert intents.news("jaguar", HOUR + 2 * SHIFT_SECONDS) == pytest.approx(calm[1])
    assert intents.view("jaguar", HOUR + 2 * SHIFT_SECONDS).leader.meaning == "team"  # the burst fades, the lead stays
    intents.shift("jaguar", "animal", 30 * HOUR)  # back, by hand
    assert intents.view("jaguar", 30 * HOUR).leader.meaning == "animal"
    # the scenario itself is unchanged
    assert [event.at for event in intents.events("jaguar")] == [2 * DAY]


def test_the_story_goes_on_after_a_shift_by_hand(search: Search) -> None:
    intents = small(search)
    intents.shift("jaguar", "team", HOUR)
    assert intents.view("jaguar", 2 * DAY - 1).leader.meaning == "team"
    assert intents.view("jaguar", 2 * DAY).shares["car"] == pytest.approx(0.8)
    assert intents.rate("jaguar", 2 * DAY) == pytest.approx(30.0)


def test_what_cannot_be_shifted(search: Search) -> None:
    intents = small(search)
    with pytest.raises(SwerveError, match=r"^'animal' cannot take the lead of 'jaguar'; these can: "):
        intents.shift("jaguar", "animal", 0.0)
    with pytest.raises(SwerveError, match=r"^'jagua' is no query of small; there are jaguar; did you mean 'jaguar'\?$"):
        intents.shift("jagua", "car", 0.0)
    # a storm without a name has no documents
    hurricane = Intents(scenarios.load("hurricane"), search)
    assert set(hurricane.others("hurricane", 0.0)) == {"cocktail", "team"}


def test_the_day_has_a_rhythm_that_averages_one() -> None:
    midnight = 1_500_000_000.0 // DAY * DAY
    hours = [rhythm(midnight + hour * HOUR) for hour in range(24)]
    assert sum(hours) / 24 == pytest.approx(1.0)
    assert hours.index(max(hours)) == 15
    assert max(hours) == pytest.approx(3.0 * min(hours))
