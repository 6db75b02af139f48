"""Workloads by name: each matches its description, can be drawn and played, and takes its fraction."""

from __future__ import annotations

import pytest
from twins import hurricane

from swerve import Hurricane, Shifts, SwerveError, Thompson, simulate
from swerve.environments import PAGES, RECORDED, WORKLOADS, workload, world

SMALL = {"queries": 10, "impressions": 60_000}
SYNTHETIC = [name for name in WORKLOADS if name not in RECORDED and name not in PAGES]


def test_every_workload_that_was_asked_for_is_there():
    kinds = ["clear", "mixed", "low", "uniform"]
    others = ["drifting", "correlated", "wide", "zipf", "gradual", "leading", "late", "bursts", "recurring", "adversarial"]
    others += ["clear-missing", "mixed-missing", "clear-extreme", "mixed-extreme"]
    assert [*kinds, *(f"{kind}-noisy" for kind in kinds), *others] == SYNTHETIC
    assert list(RECORDED) == ["hurricane", "hurricane-10k", "hurricane-100k", "hurricane-1m"]


@pytest.mark.parametrize("name", SYNTHETIC)
def test_every_workload_is_drawn_and_played(name):
    smaller = SMALL if name != "gradual" else {**SMALL, "events_high": 4}  # ten glides need more than 6,000 rounds
    spec = workload(name, 0.5, **{**smaller, "events_low": 1})
    results = simulate(Thompson(), spec, runs=1, points=1)
    drawn = world(spec, 0)
    assert drawn.k > 0
    assert results.count("events").tolist() == [drawn.k]
    assert results.regret[0] > 0.0


@pytest.mark.parametrize("name", SYNTHETIC)
@pytest.mark.parametrize(("fraction", "shifting"), [(0.0, 0), (0.1, 1), (0.5, 5)])
def test_the_fraction_sets_how_many_queries_shift(name, fraction, shifting):
    instance = world(workload(name, fraction, **SMALL, features=40, glide_rounds=0), 3)
    assert (instance.events > 0).sum() == shifting


@pytest.mark.parametrize("kind", ["clear", "mixed", "low", "uniform"])
def test_noisy_adds_silent_events_and_spurious_rounds_and_nothing_else(kind):
    plain, noisy = (vars(workload(name, 0.25)) for name in (kind, f"{kind}-noisy"))
    assert {name: value for name, value in noisy.items() if value != plain[name]} == {"silent_share": 0.05, "spurious_share": 0.001}


def test_clear_is_the_default_and_every_other_workload_differs():
    assert workload("clear") == Shifts()
    specs = [workload(name) for name in SYNTHETIC]
    assert all(one != other for number, one in enumerate(specs) for other in specs[:number])


def test_sizes_of_recorded_workloads():
    sizes = {name: workload(name).impressions for name in RECORDED}
    assert sizes == {"hurricane": 100_000, "hurricane-10k": 10_000, "hurricane-100k": 100_000, "hurricane-1m": 1_000_000}


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_workloads_take_no_fraction(name, tmp_path, monkeypatch):
    monkeypatch.setenv("SWERVE_DATA", str(hurricane.write(tmp_path)))
    specs = {workload(name, fraction, impressions=500) for fraction in (None, 0.0, 0.5)}
    assert specs == {Hurricane(impressions=500)}
    assert world(specs.pop(), 0).k > 0


def test_changes_win_over_the_workload():
    assert workload("zipf", 0.2, results=3, shifting_share=0.7) == Shifts(order="zipf", results=3, shifting_share=0.7)


def test_a_name_that_nobody_knows_is_refused_with_the_nearest():
    with pytest.raises(
        SwerveError, match=r"unknown workload 'mixed-nosy'; did you mean 'mixed-noisy'\? \(known: clear, .*hurricane-1m\)"
    ):
        workload("mixed-nosy")
