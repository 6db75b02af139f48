"""Shifts in logs: the evidence is an e-value, quiet logs stay quiet, and a shift is found with its facts."""

from __future__ import annotations

import math

import numpy as np
import pytest

from swerve.detectors.split import log_bayes
from swerve.evaluate import shifts
from swerve.evaluate.history import BINS, CLICKED, EXAMINED, LISTED, Histories, History, examination
from swerve.evaluate.lists import Shown


def log_of(rng, shares, lists, query="q", order=("a", "b", "c"), start=0.0, step=60.0, signals=None):
    """Lists whose users want one result, by `shares`, and click it if they look at its position."""
    for number in range(lists):
        wanted = order[rng.choice(len(order), p=shares)]
        position = list(order).index(wanted) + 1
        clicks = [position] if rng.random() < examination(position) else []
        yield Shown(start + number * step, query, list(order), clicks, signals=signals)


def test_the_evidence_is_the_detectors_bayes_factor_divided_by_its_mean():
    for n, s, m in [(10, 3, 4), (25, 25, 1), (40, 0, 20), (300, 120, 77), (31, 30, 30)]:
        low, high = max(0, s - (n - m)), min(m, s)
        mean = 0.0
        for r in range(low, high + 1):
            chance = math.comb(m, r) * math.comb(n - m, s - r) / math.comb(n, s)
            value = float(shifts.log_evidence(*np.array([[n], [s], [m], [r]], float))[0])
            divisor = (n + 1) * (high - low + 1) / ((m + 1) * (n - m + 1))
            assert value == pytest.approx(log_bayes(n, s, m, r) - math.log(divisor), abs=1e-9)
            mean += chance * math.exp(value)
        assert mean == pytest.approx(1.0, abs=1e-9), (n, s, m)


def test_logarithms_of_factorials():
    numbers = np.array([0, 1, 5, 63, 64, 65, 1000, 10**7], float)
    assert shifts.log_factorial(numbers) == pytest.approx([math.lgamma(k + 1) for k in numbers], rel=1e-12)


def test_bins_keep_all_counts_and_stay_few():
    rng = np.random.default_rng(1)
    entries = list(log_of(rng, [0.5, 0.3, 0.2], 3000))
    history = History()
    for entry in entries:
        history.add(entry)
    bins, table = history.all_bins(), history.table()
    assert len(bins) <= BINS
    assert sum(each.lists for each in bins) == history.lists == 3000
    assert sum(each.clicked for each in bins) == sum(bool(entry.clicks) for entry in entries)
    assert table[:, :, LISTED].sum(axis=0).tolist() == [3000.0] * 3
    clicks = [sum(position in entry.clicks for entry in entries) for position in (1, 2, 3)]
    assert table[:, :, CLICKED].sum(axis=0).tolist() == clicks
    assert table[:, :, EXAMINED].sum(axis=0) == pytest.approx([3000 * examination(k) for k in (1, 2, 3)], rel=1e-5)
    assert [each.first for each in bins] == sorted(each.first for each in bins)


def test_rare_queries_are_forgotten_and_counted():
    histories = Histories(most=10)
    for number in range(40):
        for _ in range(3 if number < 5 else 1):
            histories.add(Shown(0.0, f"q{number}", ["a"], [1]))
    assert len(histories) <= 10
    assert {f"q{number}" for number in range(5)} <= set(histories.by_query)
    assert len(histories) + histories.forgotten == 40


def test_quiet_logs_raise_alarms_as_rarely_as_stated():
    """Of 200 logs of 20 unchanged queries at most 5 % may list any; more than 18 of 200 has a probability below 1 %."""
    rng = np.random.default_rng(7)
    wrong = 0
    for _ in range(200):
        loud = False
        for _ in range(20):
            n, results = int(rng.integers(30, 400)), int(rng.integers(2, 6))
            hits = rng.multinomial(1, rng.dirichlet(np.ones(results)), size=n).astype(float)
            edges = np.linspace(0, n, min(n, 32) + 1).astype(int)[:-1]
            binned, sizes = np.add.reduceat(hits, edges), np.add.reduceat(np.ones(n), edges)
            loud |= shifts.split_of(sizes, binned)[0] >= math.log(20 / shifts.FALSE_ALARMS)
        wrong += loud
    assert wrong <= 18


def shifted(moves_after=None, quiet=30):
    rng = np.random.default_rng(3)
    histories = Histories()
    entries = [
        *log_of(rng, [0.7, 0.2, 0.1], 600, "storm", signals={"news": 0.1}),
        *log_of(rng, [0.1, 0.1, 0.8], 600, "storm", start=36_000.0, step=20.0, signals={"news": 0.9}),
    ]
    if moves_after is not None:
        entries[600 + moves_after :] = log_of(
            rng, [0.8, 0.1, 0.1], 600 - moves_after, "storm", ("c", "a", "b"), 36_000.0 + 20.0 * moves_after, 20.0, {"news": 0.9}
        )
    for number in range(quiet):
        entries += log_of(rng, [0.6, 0.2, 0.2], 100, f"quiet {number}")
    for entry in entries:
        histories.add(entry)
    histories.add(Shown(0.0, "rare", ["a"], [1]))
    return shifts.find(histories)


def test_a_shift_is_found_with_its_time_shares_volume_and_signals():
    found = shifted()
    assert (found.tested, found.too_few) == (31, 1)
    assert [shift.query for shift in found.shifts] == ["storm"]
    (shift,) = found.shifts
    assert 34_000 < shift.after < shift.until < 37_000
    assert (shift.risen, shift.fallen) == ("c", "a")
    assert shift.chance < 1e-9
    first = next(share for share in shift.shares if share.result == "c")
    seen = [examination(position) for position in (1, 2, 3)]
    assert first.before == pytest.approx(0.1 * seen[2] / np.dot([0.7, 0.2, 0.1], seen), abs=0.06)
    assert first.after == pytest.approx(0.8 * seen[2] / np.dot([0.1, 0.1, 0.8], seen), abs=0.06)
    assert shift.volume_after / shift.volume_before == pytest.approx(3.0, rel=0.2)
    assert shift.signals["news"] == pytest.approx((0.1, 0.9), abs=0.05)
    assert not shift.moved


def test_clicks_lost_while_the_ranking_lags():
    """The ranking keeps c at position 3: swapped with the top, c gains 1 − 0.71 of its wishes 0.8, and a loses that of 0.1."""
    forever, soon = shifted().shifts[0], shifted(moves_after=300).shifts[0]
    expected = 600 * (examination(1) - examination(3)) * (0.8 - 0.1)
    assert forever.caught_up is None
    assert forever.lost == pytest.approx(expected, rel=0.15)
    assert soon.caught_up == pytest.approx(36_000 + 300 * 20, abs=1000)
    assert soon.lost == pytest.approx(expected / 2, rel=0.25)
    assert not soon.moved


def test_a_shift_with_which_the_ranking_moved_is_marked():
    at_once = shifted(moves_after=0).shifts[0]
    assert at_once.moved
    assert at_once.lost < 3.0  # only the bin that the change divides


def test_a_rise_and_a_fall_are_two_shifts():
    rng = np.random.default_rng(5)
    histories = Histories()
    for part, shares in enumerate(([0.8, 0.1, 0.1], [0.1, 0.1, 0.8], [0.8, 0.1, 0.1])):
        for entry in log_of(rng, shares, 500, start=part * 30_000.0):
            histories.add(entry)
    found = sorted(shifts.find(histories).shifts, key=lambda shift: shift.after)
    assert [(shift.risen, round(shift.until / 30_000)) for shift in found] == [("c", 1), ("a", 2)]


def test_logs_without_times_are_tested_too():
    histories = Histories()
    rng = np.random.default_rng(6)
    for shares in ([0.9, 0.05, 0.05], [0.05, 0.05, 0.9]):
        for entry in log_of(rng, shares, 200):
            entry.time = math.nan
            histories.add(entry)
    (shift,) = shifts.find(histories).shifts
    assert shift.after is shift.until is shift.volume_before is None
