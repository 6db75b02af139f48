"""The GLR test against brute force over the same splits, its false alarms and its delay."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st
from twins.detectors import GLR as Twin
from twins.kl_ucb import kl
from twins.streams import check_watch, stream

from swerve import GLR, Watcher
from swerve.detectors.glr import gain, surely_below


@pytest.mark.parametrize(("delta", "every", "levels"), [(0.1, 1, 9), (0.5, 3, 5), (0.01, 5, 12)])
@pytest.mark.parametrize("fractions", [False, True])
def test_equals_the_twin_play_by_play(delta, every, levels, fractions):
    alarms = check_watch(Watcher(GLR(delta, every, levels), arms=2), Twin(2, delta, every, levels), 900, 2, fractions)
    assert alarms > 2


@given(st.integers(2, 400), st.data())
def test_the_statistic_is_the_published_sum_of_divergences(n, data):
    m = data.draw(st.integers(1, n - 1))
    before, after = data.draw(st.integers(0, n - m)), data.draw(st.integers(0, m))
    mu = (before + after) / n
    expected = (n - m) * kl(before / (n - m), mu) + m * kl(after / m, mu)
    assert gain(n, float(before + after), m, float(after)) == pytest.approx(expected, abs=1e-9)


@given(st.integers(2, 400), st.data(), st.floats(0.01, 30.0))
def test_the_screen_lets_no_alarm_slip(n, data, bar):
    m = data.draw(st.integers(1, n - 1))
    r = data.draw(st.integers(0, m))
    s = r + data.draw(st.integers(0, n - m))
    if surely_below(n, float(s), m, float(r), bar):
        assert gain(n, float(s), m, float(r)) <= bar + 1e-9


def test_the_screen_saves_nearly_all_logarithms_while_nothing_changes():
    values = stream(3, (5000, 0.4))
    passed = total = 0
    for n in range(10, 5000, 10):
        for m in (2**k for k in range(12) if 2**k < n):
            total += 1
            bar = math.log(n**1.5 / 0.005)
            passed += not surely_below(n, values[:n].sum(), m, values[n - m : n].sum(), bar)
    assert passed < 0.01 * total


@pytest.mark.parametrize("chance", [0.05, 0.5, 0.9])
def test_false_alarms_are_rarer_than_delta(chance):
    """δ = 0.05 bounds the probability of any false alarm in a stream that never changes."""
    alarmed = sum(bool(Watcher(GLR(delta=0.05)).run(stream(seed, (3000, chance)))) for seed in range(200))
    assert alarmed <= 0.05 * 200


@pytest.mark.parametrize(("before", "after"), [(0.8, 0.3), (0.2, 0.6), (0.9, 0.7)])
def test_the_delay_is_of_the_order_that_is_proved(before, after):
    """Besson et al.: after u plays, P(change undetected) is at most exp(−2 τu/(τ+u) (Δ − …)²); the grid halves u."""
    tau, delta = 2000, 0.01

    def missed(u):
        rate = tau * u / (tau + u)
        room = abs(before - after) - math.sqrt(math.log((tau + u) ** 1.5 / delta) / (2 * rate))
        return math.exp(-2 * rate * max(0.0, room) ** 2)

    enough = 2 * next(u for u in range(1, 5000) if missed(u) < 1e-3)
    for seed in range(50):
        alarms = Watcher(GLR(delta=delta)).run(stream(seed, (tau, before), (enough, after)))
        assert any(tau < alarm for alarm in alarms), f"seed {seed}: {alarms}"


def test_the_grid_costs_less_than_half_again_of_the_delay_of_all_splits():
    def full(values, start, delta):
        sums = np.concatenate([[0.0], np.cumsum(values)])
        for n in range(start + 1, len(values) + 1):
            s = np.arange(max(1, n - 300), n)
            mu, left, right = sums[n] / n, sums[s] / s, (sums[n] - sums[s]) / (n - s)
            divergence = np.vectorize(kl)
            if (s * divergence(left, mu) + (n - s) * divergence(right, mu) > math.log(n**1.5 / delta)).any():
                return n
        raise AssertionError("the change was never detected")

    ratio = []
    for seed in range(15):
        values = stream(seed, (1000 + 37 * seed, 0.8), (200, 0.3))
        change = 1000 + 37 * seed
        ours = next(t for t in Watcher(GLR(delta=0.01)).run(values) if t > change)
        ratio.append((ours - change) / (full(values, change, 0.01) - change))
    assert 1.0 <= np.mean(ratio) < 1.5


def test_published_tuning():
    assert GLR.tuned(9_999).delta == pytest.approx(0.01)
    assert GLR.tuned(30_000).delta == pytest.approx(GLR().delta, rel=1e-3)
    assert 0.0 < GLR.tuned(1).delta < 1.0


def test_ten_million_plays_of_one_arm():
    watcher = Watcher(GLR(check_every=7))
    values = np.tile([1.0, 0.0, 1.0, 1.0], 2_500_000)
    assert watcher.run(values) == []
    assert watcher.table[0].total[0] == 7_500_000.0
    assert len(watcher.run(np.zeros(100))) == 1
