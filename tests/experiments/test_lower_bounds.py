"""Theorems 5 and 6 as experiments: the instances, the worst of them, and the fitted exponents."""

from __future__ import annotations

import math

import numpy as np
import pytest

from swerve.core.spec import walk
from swerve.environments import world
from swerve.experiments.lower_bounds import FAMILIES, HORIZONS, Growth, jobs, run
from swerve.simulate import simulate

SMALL = (2000, 8000)


def power(exponent, horizons=(100, 1000, 10_000), noise=0.0):
    means = tuple(3.0 * t**exponent * (1 + noise * (-1) ** i) for i, t in enumerate(horizons))
    return Growth("made-up", "ucb1", horizons, means, (0.0,) * len(horizons), 1)


@pytest.mark.parametrize("exponent", [0.0, 1 / 3, 0.5, 1.0])
def test_the_exponent_of_a_power_law(exponent):
    assert power(exponent).exponent == pytest.approx(exponent, abs=1e-9)
    shaken = power(exponent, horizons=(100, 1000, 10_000, 100_000), noise=0.1).exponent
    assert 1e-3 < abs(shaken - exponent) < 0.05


def test_a_logarithm_has_a_small_exponent_and_one_point_has_none():
    horizons = HORIZONS
    log = Growth("made-up", "bwc", horizons, tuple(math.log(t) for t in horizons), (0.0,) * 5, 1)
    assert 0.0 < log.exponent < 0.1
    assert math.isnan(power(0.5, horizons=(100,)).exponent)


def test_rows_have_the_keys_of_every_other_experiment(made_up):
    rows = list(power(0.5).as_rows())
    assert [row["setting"] for row in rows] == [100, 1000, 10_000]
    assert rows[0] == {
        "experiment": "lower-bounds/made-up",
        "setting": 100,
        "policy": "ucb1",
        "mean": pytest.approx(30.0),
        "sd": 0.0,
        "runs": 1,
        "paper": None,
        "ratio": None,
    }
    assert list(rows[0]) == list(made_up("fractions", 0.5, "bwc", [1.0]).as_row())


def test_families_are_those_of_the_two_theorems():
    assert [family.name for family in FAMILIES] == ["single-event", "many-phases", "false-positives"]
    assert HORIZONS[0] == 10_000
    assert HORIZONS[-1] == 1_000_000
    assert np.allclose(np.diff(np.log10(HORIZONS)), 0.5, atol=1e-4)


def test_instances_are_the_one_without_an_event_and_some_with_one():
    single, many, false = FAMILIES
    assert [spec.instance for spec in single.instances(10_000)] == [0, 2, 26, 51, 76, 100]
    assert [world(spec, 0).k for spec in single.instances(10_000)] == [0, 1, 1, 1, 1, 1]
    assert [world(spec, 0).k for spec in many.instances(10_000)] == [4]
    assert [spec.instance for spec in false.instances(10_000)] == [0, 2, 4, 5, 6, 8]


def test_policies_have_the_length_that_the_theory_asks_for_and_the_shift_is_there():
    for family in FAMILIES:
        for instance in family.instances(100_000):
            drawn = world(instance, 0)
            assert drawn.shift >= family.shift - 1e-9
            bwc = family.policies(100_000, drawn.arms)["bwc"]
            lengths = [part.length for part in walk(bwc) if hasattr(part, "length")]
            assert lengths == [min(math.ceil(4 * drawn.arms / family.shift**2 * math.log(100_000)), 50_000)]


def test_the_worst_instance_counts():
    growths = {(g.family, g.policy): g for g in run(runs=2, horizons=SMALL, seed=1)}
    assert set(growths) == {(f.name, p) for f in FAMILIES for p in ("ucb1", "bwc", "ora")}
    single = FAMILIES[0]
    for place, horizon in enumerate(SMALL):
        means = []
        for instance in single.instances(horizon):
            spec = single.policies(horizon, 2)["ucb1"]
            means.append(simulate(spec, instance, runs=2, seed=1, points=1).regret.mean())
        assert growths["single-event", "ucb1"].means[place] == max(means)
        assert max(means) > min(means)


def test_small_horizons_have_these_figures():
    growths = {(g.family, g.policy): g.means for g in run(runs=2, horizons=SMALL, seed=1)}
    assert growths["single-event", "ucb1"] == pytest.approx((53.8, 219.2))
    assert growths["single-event", "bwc"] == pytest.approx((84.8, 156.6))
    assert growths["many-phases", "ora"] == pytest.approx((279.4, 475.6))
    assert growths["false-positives", "bwc"] == pytest.approx((44.505341, 150.112635))


def test_jobs_cover_every_family_horizon_instance_and_policy():
    listed = jobs((10_000,))
    assert len(listed) == 3 * (6 + 1 + 6)
    assert {(family.name, name) for family, _, name, *_ in listed} == {
        (f.name, p) for f in FAMILIES for p in ("ucb1", "bwc", "ora")
    }
