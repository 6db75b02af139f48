"""Posterior odds of a change against the whole history, its screen, its false alarms and its delay."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy.special import betaln, gammaln
from twins.detectors import forecast
from twins.kl_ucb import kl
from twins.split import Split as Twin, log_factor
from twins.streams import check_watch, stream

from swerve import GLR, Split, SwerveError, Watcher
from swerve.core.contract import evict, evidence, onset, watch
from swerve.core.engine import Entry
from swerve.detectors.counts import take_in
from swerve.detectors.glr import gain, surely_below
from swerve.detectors.split import HIGH, LEAST_BAR, LEAST_ODDS, LOW, log_bayes, log_bayes_bound


@Entry
def suspect(params, table, values, bonus, out):
    """Add plays until the evidence with the bonus is positive; return their number, and write the finding to `out`."""
    for i in range(len(values)):
        take_in(table[0], 0, values[i])
        score, plays, total = evidence(params[0], table[0], 0, bonus)
        if score > 0.0:
            out[0], out[1], out[2] = score, plays, total
            return i + 1
    return -1


def found(values, bonus=0.0, detector=None):
    """Return the number of plays until the alarm (−1: none), and the evidence with its suffix."""
    watcher = Watcher(detector or Split())
    out = np.zeros(3)
    return suspect.bind(watcher.detector)(watcher.params, watcher.table, values, float(bonus), out), *out.tolist()


@pytest.mark.parametrize(("hazard", "odds", "levels", "often"), [(0.01, 1.0, 9, 4), (0.05, 3.0, 5, 1), (0.001, 0.3, 12, 16)])
def test_equals_the_twin_play_by_play(hazard, odds, levels, often):
    watcher, twin = Watcher(Split(hazard, odds, levels, often), arms=2), Twin(2, hazard, odds, levels, often)
    assert check_watch(watcher, twin, 900, 2) > 2


@pytest.mark.parametrize("bonus", [0.0, 4.0, 12.0])
def test_evidence_and_onset_equal_the_twins(bonus):
    """Over a record that never restarts, with or without an alarm: the twin has no screen."""
    detector, twin = Split(1e-4, 1.0, 8, 4), Twin(1, 1e-4, 1.0, 8, 4)
    row = Watcher(detector).table[0]
    positive = 0
    for n, value in enumerate(stream(4, (300, 0.7), (120, 0.2), (200, 0.5)).tolist()):
        watch(detector, row, 0, value)
        twin.watch(0, value)
        score, plays, total = evidence(detector, row, 0, bonus)
        expected = twin.evidence(0, bonus)
        assert score == pytest.approx(expected[0], abs=1e-9), f"play {n}"
        assert (plays, total) == expected[1:], f"play {n}"
        assert onset(detector, row, 0) == twin.onset(0), f"play {n}"
        positive += score > 0.0
    assert 10 < positive < 620


def test_the_bayes_factor_is_that_of_two_forecasters_against_one():
    values = stream(1, (40, 0.8), (15, 0.2)).tolist()
    for m in (4, 15, 31):
        before, after = values[:-m], values[-m:]
        exact = math.log(forecast(after) * forecast(before) / forecast(values))
        assert log_bayes(55, sum(values), m, sum(after)) == pytest.approx(exact, abs=1e-10)
        assert log_factor(before, after) == pytest.approx(exact, abs=1e-10)


@pytest.mark.parametrize("n", [10**5, 10**7, 10**8])
def test_a_long_record_costs_no_digits_that_matter(n):
    """The evidence is a difference of three terms of about n ln n: at 10⁸ plays it is accurate to 10⁻⁵."""
    for m, r in ((4, 0), (64, 10), (4000, 2600)):
        s = 0.7 * n
        exact = betaln(1 + r, 1 + m - r)  # the other factor is a product of m ratios of the two integrals
        ratios = np.log1p(s - r + np.arange(r)).sum() + np.log1p(n - m - s + r + np.arange(m - r)).sum()
        exact -= ratios - np.log1p(n - m + 1 + np.arange(m)).sum()
        assert log_bayes(n, s, m, float(r)) == pytest.approx(exact, abs=1e-5)


def test_no_bayes_factor_is_above_the_likelihood_ratio():
    """So the screen, a bound on the ratio, hides no alarm. Checks every split of every record of up to 36 clicks."""
    closest = -math.inf
    for n in range(2, 37):
        for m in range(1, n):
            for r, q in itertools.product(range(m + 1), range(n - m + 1)):
                closest = max(closest, log_bayes(n, float(r + q), m, float(r)) - gain(n, float(r + q), m, float(r)))
    assert closest == pytest.approx(math.log(5 / 6), abs=1e-9)  # two plays of four, one click before and one after


def test_the_gamma_function_lies_between_the_two_forms_of_stirling():
    x = np.logspace(-9, 3, 100_001)  # beyond, rounding decides: x + 1/6 is the limit
    inside = np.exp(2.0 * (gammaln(1.0 + x) + x - x * np.log(x))) / (2.0 * math.pi) - x
    assert inside.min() > LOW
    assert inside.max() < HIGH


def above_bound(n: float, s: float, m: float, r: float) -> float:
    g, k = log_bayes_bound(n, s, m, r)
    return log_bayes(n, s, m, r) - (g - 0.5 * math.log(k))


def test_no_bayes_factor_is_above_its_bound():
    """Checks every split of every record of up to 30 clicks, also where nothing was played before."""
    closest = -math.inf
    for n in range(1, 31):
        for m in range(1, n + 1):
            for r, q in itertools.product(range(m + 1), range(n - m + 1)):
                closest = max(closest, above_bound(float(n), float(r + q), float(m), float(r)))
    assert -0.05 < closest <= 0.0


@given(st.integers(1, 10**6), st.data())
def test_no_bayes_factor_of_fractional_rewards_is_above_its_bound(n, data):
    m = data.draw(st.integers(1, n))
    r = data.draw(st.floats(0.0, m))
    s = r + data.draw(st.floats(0.0, n - m))
    assert above_bound(float(n), s, float(m), r) <= 1e-6


@given(st.integers(5, 10**6), st.data(), st.floats(0.01, 20.0))
def test_the_screen_lets_no_alarm_slip(n, data, bar):
    m = data.draw(st.integers(4, min(n - 1, 4095)))
    r = data.draw(st.floats(0.0, m))
    s = r + data.draw(st.floats(0.0, n - m))
    assert log_bayes(n, s, m, r) <= gain(n, s, m, r) + 1e-6
    if surely_below(n, s, m, r, bar):
        assert log_bayes(n, s, m, r) <= bar + 1e-6


@given(st.integers(5, 10**6), st.data(), st.floats(1e-9, 1e-2), st.floats(0.0, 5.9))
def test_the_screen_without_a_logarithm_passes_nothing_that_the_other_one_stops(n, data, hazard, bonus):
    m = data.draw(st.integers(4, min(n - 1, 4095)))
    r = data.draw(st.floats(0.0, m))
    s = r + data.draw(st.floats(0.0, n - m))
    if LEAST_ODDS * hazard * m < 1.0 and surely_below(n, s, m, r, LEAST_BAR - bonus):
        bar = math.log(1.0 / hazard / m) - bonus
        assert bar > 0.0
        assert surely_below(n, s, m, r, bar)


def test_the_least_bar_is_below_its_logarithm_however_products_are_rounded():
    assert math.log(LEAST_ODDS) > LEAST_BAR + 1e-3


@pytest.mark.parametrize("chance", [0.05, 0.5, 0.9])
def test_false_alarms_are_rarer_than_the_hazard(chance):
    """3 million plays without a change, 30,000 per stream; a hazard of 10⁻⁶ would expect 3 changes in them."""
    assert sum(len(Watcher(Split()).run(stream(seed, (30_000, chance)))) for seed in range(100)) <= 3


@pytest.mark.parametrize(("before", "after"), [(0.9, 0.3), (0.75, 0.2), (0.75, 0.5), (0.6, 0.4), (0.3, 0.1), (0.2, 0.6)])
def test_the_delay_is_the_evidence_asked_for_over_the_evidence_per_play(before, after):
    """ln(1 / hazard) / kl(after, before) plays, within a third; and sooner than the GLR on the same streams."""
    ours, glr = [], []
    for seed in range(60):
        values = stream(seed, (5000, before), (3000, after))
        ours.append(next(t for t in Watcher(Split()).run(values) if t > 5000) - 5000)
        glr.append(next(t for t in Watcher(GLR()).run(values) if t > 5000) - 5000)
    expected = -math.log(Split().hazard) / kl(after, before)
    assert 0.7 * expected <= np.mean(ours) <= 1.4 * expected
    assert np.mean(ours) < np.mean(glr)


def test_a_bonus_lowers_the_bar():
    delays = {bonus: [] for bonus in (0.0, 2.0, 5.0)}
    for seed in range(40):
        values = stream(seed, (2000, 0.75), (2000, 0.4))
        for bonus, seen in delays.items():
            plays, score, _, _ = found(values, bonus)
            assert score > 0.0
            seen.append(plays)
    assert np.mean(delays[5.0]) < np.mean(delays[2.0]) < np.mean(delays[0.0])
    assert all(late >= early for late, early in zip(delays[0.0], delays[2.0], strict=True))


def test_a_bonus_counts_in_full():
    values = stream(0, (2000, 0.75), (2000, 0.4))
    plays, score, m, r = found(values)
    row = Watcher(Split()).table[0]
    for value in values[:plays]:
        take_in(row, 0, value)
    assert evidence(Split(), row, 0, 3.0) == (pytest.approx(score + 3.0), m, r)
    assert evidence(Split(), row, 0, -score - 1e-6) == (0.0, 0, 0.0)


def test_a_bonus_is_a_higher_hazard():
    """A bonus of ln 100 is a hazard a hundred times as high."""
    for seed in range(10):
        values = stream(seed, (1000, 0.6), (1000, 0.3))
        assert found(values, math.log(100.0))[0] == found(values, 0.0, Split(hazard=1e-4))[0]


def test_the_onset_is_about_where_the_change_was():
    guesses = []
    for seed in range(40):
        row = Watcher(Split()).table[0]
        for value in stream(seed, (2000 + 37 * seed, 0.75), (100, 0.25)):
            take_in(row, 0, value)
        guesses.append(onset(Split(), row, 0)[0])
    assert 50 <= np.median(guesses) <= 200  # suffixes of 64 to 127 plays, or their neighbours
    assert sum(32 <= guess <= 255 for guess in guesses) >= 38


def test_a_short_record_is_its_own_onset():
    row = Watcher(Split()).table[0]
    for n in range(4):
        assert onset(Split(), row, 0) == (n, float(n))
        take_in(row, 0, 1.0)
    evict(Split(), row, 0)
    assert onset(Split(), row, 0) == (0, 0.0)


def test_ten_million_plays_of_one_arm():
    watcher = Watcher(Split())
    assert watcher.run(np.tile([1.0, 0.0, 1.0, 1.0], 2_500_000)) == []
    assert watcher.table[0].total[0] == 7_500_000.0
    assert len(watcher.run(np.zeros(30))) == 1


@pytest.mark.parametrize(
    ("named", "words"),
    [
        ({"suffix_levels": 2}, r"in \[3, 19\]"),
        ({"suffix_levels": 20}, r"in \[3, 19\]"),
        ({"checks_per_doubling": 3}, "a power of 2"),
        ({"hazard": 1.0}, r"in \(0, 1\)"),
    ],
)
def test_what_could_not_work_is_refused(named, words):
    with pytest.raises(SwerveError, match=words):
        Split(**named)
