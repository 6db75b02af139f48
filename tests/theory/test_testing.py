"""Lengths of a test and intervals on the gaps, against the inequalities they come from."""

import doctest
import itertools
import math

import numpy as np
import pytest

from swerve.core.errors import SpecError
from swerve.theory import testing
from swerve.theory.testing import gap_interval, proof_length, resolution, rough_interval


def test_doctests():
    failed, attempted = doctest.testmod(testing)
    assert failed == 0 and attempted > 0


def test_length_is_the_smallest_whole_number():
    for n, shift, horizon, c in itertools.product((2, 5), (0.1, 0.3), (2, 30_000), (1.0, 4.0)):
        length = testing.test_length(n, shift, horizon, c)
        assert length - 1 < c * n / shift**2 * math.log(horizon) <= length


def test_proof_length_is_what_the_notes_say():
    assert proof_length(5, 0.3, 30_000) == pytest.approx(5e7, rel=0.1)
    assert proof_length(5, 0.3, 30_000) > 20_000 * testing.test_length(5, 0.3, 30_000)


@pytest.mark.parametrize("horizon", [10**9, 10**12])
def test_proof_length_meets_theorem3(horizon):
    """δ(L) ≤ ε/4 whenever L fits into the horizon, and the margin is small."""
    for n, shift in itertools.product((2, 5), (0.3, 0.9)):
        length = proof_length(n, shift, horizon)
        assert length <= horizon
        assert resolution(length, n, horizon) <= shift / 4
        assert resolution(length // 2, n, horizon) > shift / 4


def test_constant_adds_up():
    """The five lines of the docstring, with d0 = 1 and Δ(u) left out."""
    radius_now = math.sqrt(8 * 2)  # n_t(v*) ≥ t/(2n)
    radius_last = 2 * radius_now
    best = 7 * radius_last
    other = 5 / 4 * best / 5
    assert (radius_now, radius_last, best, other) == (4, 8, 56, 14)
    assert best + radius_now + other == testing.PROOF
    assert math.log(32) / math.log(16) == pytest.approx(5 / 4)  # the largest growth of the logarithm from s ≥ t/2 to t


def test_interval_is_exactly_the_inequality():
    """Solved by search: of all gaps on a fine grid, the interval holds those that satisfy |Δ − Δ_t| < Δ/4 + δ."""
    grid = np.linspace(0, 1, 2_001)
    for estimate, delta in itertools.product(np.linspace(-0.3, 1, 27), (0.001, 0.05, 0.2, 1.0)):
        low, high = gap_interval(float(estimate), delta)
        assert 0 <= low <= high <= 1
        possible = grid[np.abs(grid - estimate) < grid / 4 + delta]
        if len(possible):
            assert low - 1e-12 <= possible.min() <= low + 1e-3
            assert high - 1e-3 <= possible.max() <= high + 1e-12
        else:
            assert high - low < 1e-3


def test_remark_is_implied_by_the_interval():
    for estimate, delta in itertools.product(np.linspace(-1, 1, 81), np.geomspace(1e-4, 2, 60)):
        low, high = gap_interval(float(estimate), float(delta))
        rough_low, rough_high = rough_interval(float(estimate), float(delta))
        assert rough_low <= low + 1e-12 and high <= rough_high + 1e-12


def test_remark_as_printed():
    """Δ ≤ 2Δ_t ≤ 5Δ or Δ ≤ 4δ, for every gap and every estimate that Theorem 2 allows."""
    for gap, delta in itertools.product(np.linspace(0, 1, 41), (0.01, 0.1, 0.3)):
        for part in np.linspace(-0.999, 0.999, 21):
            estimate = gap + part * (gap / 4 + delta)
            if delta < estimate / 2:
                assert gap <= 2 * estimate <= 5 * gap
            else:
                assert gap <= 4 * delta


def test_theorem3_from_theorem2():
    """δ ≤ ε/4 puts optimal arms at or below ε/4 and ε-suboptimal ones above ε/2."""
    eps = 0.4
    for part in np.linspace(-0.999, 0.999, 41):
        assert part * (eps / 4) <= eps / 4
        for gap in np.linspace(eps, 1, 13):
            assert gap + part * (gap / 4 + eps / 4) > eps / 2
    # By the interval: an estimate at the threshold of G⁻ excludes a gap of ε; an estimate above the threshold of G⁺ excludes 0.
    assert gap_interval(eps / 2, eps / 4)[1] == pytest.approx(eps)
    assert gap_interval(eps / 4, eps / 4)[0] == 0 < gap_interval(eps / 4 + 1e-9, eps / 4)[0]


def test_resolution_shrinks():
    values = [resolution(t, 5, 1_000) for t in (32, 100, 1_000, 10**5)]
    assert values == sorted(values, reverse=True)
    assert resolution(100, 20, 1_000) == pytest.approx(2 * resolution(100, 5, 1_000))


@pytest.mark.parametrize(
    "call",
    [
        lambda: testing.test_length(5, 0.0, 100),
        lambda: testing.test_length(5, 0.3, 1),
        lambda: testing.test_length(5, 0.3, 100, c=0),
        lambda: proof_length(5, 1.0, 100),
        lambda: resolution(10, 2, 21),
        lambda: resolution(0, 2, 100),
        lambda: gap_interval(2.0, 0.1),
        lambda: rough_interval(0.1, -1.0),
    ],
)
def test_refusals(call):
    with pytest.raises(SpecError, match="must be"):
        call()
