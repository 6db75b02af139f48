"""Scenarios: the files match the records, and a mistake in a file gives a one-line error."""

from __future__ import annotations

import csv
import datetime
import os
from pathlib import Path

import pytest

from swerve.core.errors import SwerveError
from swerve.demo import scenarios
from swerve.demo.corpus import queries
from swerve.demo.scenarios import DAY, Scenario, Story

REAL = os.environ.get("SWERVE_DATA")
SHIFTING = ("hurricane", "independence-day", "tomato", "storm")
STORMS = ("harvey", "irma", "jose", "maria")
GOOD = """
name = "small"
title = "Small"
story = "Little happens. Then more."
begins = 2020-01-01
days = 4
background = 0
[[query]]
text = "jaguar"
per_hour = 10
points = [
  { at = 2020-01-01, shares = { animal = 0.6, car = 0.4 } },
  { at = 2020-01-02T06:00:00Z, shares = { animal = 20, car = 80 }, volume = 3, news = 9 },
  { at = 2020-01-03, volume = 2 },
]
"""


def day_of(story: Story, begins: float, year: int, month: int, day: int) -> dict[str, float]:
    """Return the shares of a day."""
    at = datetime.datetime(year, month, day, tzinfo=datetime.UTC).timestamp() - begins
    return next(point.shares for point in story.points if point.at == at)


def among_storms(shares: dict[str, float]) -> dict[str, float]:
    total = sum(shares[storm] for storm in STORMS)
    return {storm: shares[storm] / total for storm in STORMS}


def test_all_scenarios_are_there() -> None:
    assert scenarios.names() == ("hurricane", "independence-day", "tomato", "storm", "quiet")
    for name in scenarios.names():
        scenario = scenarios.load(name)
        assert scenario.name == name
        assert scenario.title and len(scenario.story) > 40
        # background traffic: every ambiguous query of the corpus is asked
        assert {story.query for story in scenario.queries} == set(queries())
        for story in scenario.queries:
            for point in story.points:
                assert sum(point.shares.values()) == pytest.approx(1.0)


@pytest.mark.parametrize("name", scenarios.names())
def test_traffic_at_rest_is_as_stated(name: str) -> None:
    """60 to 90 impressions per hour: a thousand simulated minutes per second are then about 1,250 impressions per second."""
    scenario = scenarios.load(name)
    assert 60.0 <= sum(story.per_hour * story.points[0].volume for story in scenario.queries) <= 90.0


@pytest.mark.parametrize("name", SHIFTING)
def test_shifts_come_with_bursts(name: str) -> None:
    first = scenarios.load(name).queries[0]
    assert first.points[0].volume == 1.0
    assert 3.0 <= max(point.volume for point in first.points) <= 6.0
    assert max(point.news for point in first.points) >= 15.0


def test_hurricane_says_what_is_on_record() -> None:
    scenario = scenarios.load("hurricane")
    story, begins = scenario.queries[0], scenario.begins
    assert datetime.datetime.fromtimestamp(begins, datetime.UTC).date() == datetime.date(2017, 8, 21)
    assert scenario.days == 36
    assert among_storms(day_of(story, begins, 2017, 9, 5))["irma"] == pytest.approx(0.93, abs=0.015)
    assert among_storms(day_of(story, begins, 2017, 9, 20))["maria"] == pytest.approx(0.83, abs=0.015)
    leaders = [max(point.shares, key=lambda meaning: point.shares[meaning]) for point in story.points]
    expected = ["general"] * 3 + ["harvey"] * 8 + ["irma"] * 14 + ["jose"] * 2 + ["maria"] * 9
    assert leaders == expected


@pytest.mark.skipif(not REAL, reason="SWERVE_DATA does not name the folder of the real records")
def test_hurricane_agrees_with_the_record() -> None:
    rows = list(csv.reader((Path(str(REAL)) / "hurricane_2017" / "google_trends.csv").read_text().splitlines()))
    columns = [next(i for i, title in enumerate(rows[0]) if storm.capitalize() in title) for storm in STORMS]
    recorded = {row[0]: [float(row[column]) for column in columns] for row in rows[1:]}
    scenario = scenarios.load("hurricane")
    compared = 0
    for point in scenario.queries[0].points:
        day = datetime.datetime.fromtimestamp(scenario.begins + point.at, datetime.UTC).date().isoformat()
        interest = recorded[day]
        if sum(interest) > 0:
            shares = among_storms(point.shares)
            for storm, value in zip(STORMS, interest, strict=True):
                # whole percent of all users; on the quietest days a third of them mean no storm
                assert shares[storm] == pytest.approx(value / sum(interest), abs=0.025), (day, storm)
                compared += 1
    assert compared == 4 * 34


def test_quiet_is_quiet() -> None:
    for story in scenarios.load("quiet").queries:
        assert len(story.points) == 1
        assert not story.published


def small(text: str = GOOD) -> Scenario:
    return scenarios.read(text, "small.toml")


def test_points_leave_out_what_stays() -> None:
    scenario = small()
    (story,) = scenario.queries
    assert scenario.length == 4 * DAY
    assert [point.at for point in story.points] == [0.0, 1.25 * DAY, 2 * DAY]
    assert [point.volume for point in story.points] == [1.0, 3.0, 2.0]
    assert [point.news for point in story.points] == [1.0, 9.0, 9.0]
    assert story.points[1].shares == story.points[2].shares
    assert story.points[1].shares["car"] == pytest.approx(0.8)
    assert story.points[1].shares["jet"] == 0.0


def test_what_is_published_when() -> None:
    scenario = scenarios.load("hurricane")
    assert scenario.known(0.0) == frozenset()
    assert scenario.known(2 * DAY - 1) == frozenset()
    assert scenario.known(2 * DAY) == {"harvey"}
    assert scenario.known(scenario.length) == set(STORMS)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('name = "small"', 'name = "large"', r"^small.toml: name = 'large' is not allowed; it must be that of the file$"),
        ("days = 4", "days = 0", r"^small.toml: Expected `float` > 0.*days"),
        ("days = 4", "weeks = 1", r"^small.toml: .*`weeks`"),
        ("days = 4", "days = ", r"^small.toml: Invalid value"),
        ('text = "jaguar"', 'text = "jagua"', r"query 'jagua' is not in the corpus; did you mean 'jaguar'\?$"),
        ("car = 0.4", "cat = 0.4", r"query 'jaguar', 2020-01-01: nothing in the corpus means 'cat'; there is animal, car,"),
        ("car = 0.4", "car = 0.3", r"query 'jaguar', 2020-01-01: shares sum to 0.9; they must sum to 1, or to 100$"),
        ("car = 0.4", "car = -0.4", r"^small.toml: Expected `float` >= 0"),
        ("at = 2020-01-01,", "at = 2020-01-01T01:00:00Z,", r"the first point is at .*; it must be when the scenario begins$"),
        ("at = 2020-01-03", "at = 2020-01-02", r"the point at 2020-01-02 must come after the one before"),
        ("at = 2020-01-03", "at = 2020-01-05", r"before the scenario's end$"),
        ("at = 2020-01-03", "at = 3", r"3 is no time; it must be like 2017-08-21 or 2017-08-21T18:00:00Z$"),
        ("begins = 2020-01-01", "begins = true", r"^small.toml: True is no time"),
        ("volume = 2", 'publish = ["nothing"]', r"nothing in the corpus waits for 'nothing' to be published$"),
        ("shares = { animal = 0.6, car = 0.4 }", "volume = 1", r"query 'jaguar': the first point must have shares$"),
        ("per_hour = 10", "per_hour = 0", r"^small.toml: Expected `float` > 0"),
    ],
)
def test_a_mistake_is_said(old: str, new: str, message: str) -> None:
    assert old in GOOD
    with pytest.raises(SwerveError, match=message):
        small(GOOD.replace(old, new, 1))


def test_a_query_twice_or_none_at_all() -> None:
    head, _, query = GOOD.partition("[[query]]")
    with pytest.raises(SwerveError, match=r"each query may be there once$"):
        small(f"{GOOD}[[query]]{query}")
    with pytest.raises(SwerveError, match="the scenario has no queries"):
        small(head)


def test_an_unknown_scenario() -> None:
    with pytest.raises(SwerveError, match=r"^there is no scenario 'huricane'; .*; did you mean 'hurricane'\?$"):
        scenarios.load("huricane")
