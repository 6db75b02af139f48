"""Whole scenarios with the service's default policy, compiled: it follows shifts, and raises few alarms without shifts."""

from __future__ import annotations

from statistics import median
from typing import Any

import pytest
from demo.inside import Inside

from swerve.demo import scenarios
from swerve.demo.world import World

pytestmark = pytest.mark.slow


def played(name: str, seed: int = 0, days: float = 1000.0) -> dict[str, Any]:
    """Return the summary of the first days of a scenario, by default of all."""
    scenario, inside = scenarios.load(name), Inside(seed=seed + 1)
    world = World(scenario, seed=seed, client=inside, began=scenario.begins, advance=inside.advance)
    world.step(scenario.begins + days * scenarios.DAY)
    return world.summary()


@pytest.mark.parametrize("name", ["hurricane", "independence-day", "tomato", "storm"])
def test_where_intent_shifts_swerve_is_near_the_oracle_and_far_from_the_others(name: str) -> None:
    """Regret; the first run had, on `hurricane`: Swerve 1,832, oracle 1,752, UCB1 6,384, BWC 6,724, fixed 21,354.

    The oracle is no lower bound: it starts over at each event, and forgets records that are still right.
    """
    summary = played(name)
    regret = summary["regret"]
    assert regret["swerve"] < 1.5 * regret["oracle"]
    assert regret["swerve"] < 0.6 * min(regret["bwc"], regret["ucb1"])
    assert max(regret["bwc"], regret["ucb1"]) < regret["fixed"]
    assert summary["ctr_gained"]["points"] > 4.0
    assert summary["false_alarms"] < 0.5 * summary["alarms"]


def test_a_storm_of_shifts_is_followed() -> None:
    events = played("storm")["events"]
    took = [event["impressions"] for event in events if event["impressions"] is not None]
    assert len(events) == 22
    assert len(took) >= 20
    assert median(took) <= 300


def test_the_hurricanes_are_followed() -> None:
    events = played("hurricane")["events"]
    assert [event["to"] for event in events] == ["harvey", "irma", "jose", "maria"]
    took = [event["impressions"] for event in events]
    assert None not in (took[0], took[1], took[3])
    # Jose is an exception: for two days 40 % of the users meant it, and 30 % still meant Irma
    assert took[0] <= 300
    assert took[1] <= 1500


def test_nothing_is_made_of_nothing() -> None:
    """Three times two weeks of fifteen queries: only a few alarms."""
    summaries = [played("quiet", seed) for seed in range(3)]
    assert [summary["events"] for summary in summaries] == [[], [], []]
    assert sum(summary["false_alarms"] for summary in summaries) <= 6


def test_the_first_evening_is_as_quiet_as_the_others() -> None:
    """The usual range of a signal is then known from two hundred requests: what lies a little beyond it is no alarm.

    Seven false alarms when the sides had the same margin from the beginning.
    """
    summaries = [played("quiet", seed, days=2.0) for seed in range(24)]
    assert sum(summary["false_alarms"] for summary in summaries) <= 2
