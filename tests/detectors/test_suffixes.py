"""Geometric suffixes against sums over the whole history."""

from __future__ import annotations

import numpy as np
import pytest
from twins.detectors import marks

from swerve import GLR, SwerveError, Watcher
from swerve.core.spec import record_dtype
from swerve.detectors.suffixes import MOST_LEVELS, due, forget, length_of, push, suffix, suffix_layout

LEVELS = 7


def replay(values, levels=LEVELS):
    """Return every level's suffix after each play: (plays, total)."""
    row = np.zeros(1, record_dtype([("other", "i8"), *suffix_layout(3, levels)]))[0]
    total = 0.0
    for n, value in enumerate(values):
        push(row, 1, n, total)
        total += value
        yield [suffix(row, 1, k, n + 1, total) for k in range(levels)]
    assert not row.marks[0].any()
    assert not row.marks[2].any()


@pytest.mark.parametrize("kind", ["clicks", "any"])
def test_each_level_is_a_suffix_of_the_length_it_promises(kind):
    dice = np.random.default_rng(1)
    values = dice.random(400) if kind == "any" else (dice.random(400) < 0.4).astype(float)
    for n, levels in enumerate(replay(values), start=1):
        places = marks(n, LEVELS)
        for k, (length, earned) in enumerate(levels):
            assert length == n - places[k] == length_of(k, n)
            assert length == n if n <= 2**k else 2**k <= length < 2 ** (k + 1)
            exact = values[n - length : n].sum()
            assert earned == exact if kind == "clicks" else abs(earned - exact) <= 1 / 4096


def test_a_suffix_earns_no_more_than_its_plays():
    """A late click may belong to a play before the suffix, but an average must not exceed 1."""
    row = np.zeros(1, record_dtype(suffix_layout(1, 3)))[0]
    for n in range(9):
        push(row, 0, n, 0.0)
    assert suffix(row, 0, 1, 9, 9.0) == (2, 2.0)


def test_forgetting_starts_over():
    row = np.zeros(1, record_dtype(suffix_layout(2, 4)))[0]
    for arm in (0, 1):
        for n in range(30):
            push(row, arm, n, float(n))
    forget(row, 1)
    assert row.marks[0].any()
    assert not row.marks[1].any()


def test_long_suffixes_are_due_less_often_and_never_without_the_shorter_ones():
    for every in (1, 3, 5, 50):
        for n in range(every, 4000, every):
            seen = [bool(due(k, n, every)) for k in range(12)]
            assert seen == sorted(seen, reverse=True)
    assert sum(due(11, n, 1) for n in range(1, 4097)) == 4096 // 256
    assert sum(due(11, n, 5) for n in range(5, 5 * 4096 + 1, 5)) == 5 * 4096 // 256


def test_counts_are_exact_at_a_hundred_million_plays():
    """The marks store totals modulo 2^20; differences must be right beyond that."""
    watcher = Watcher(GLR(check_every=10**6))
    row, before, clicks = watcher.table[0], 100_000_000, 60_000_000.0
    row.plays[0], row.total[0] = before, clicks
    for k in range(12):
        row.marks[0, k] = int(clicks * 4096) % 2**32
    values = (np.random.default_rng(2).random(20_000) < 0.7).astype(float)
    watcher.run(values)
    n, s = int(row.plays[0]), float(row.total[0])
    assert (n, s) == (before + 20_000, clicks + values.sum())
    for k in range(12):
        length, earned = suffix(row, 0, k, n, s)
        assert 2**k <= length < 2 ** (k + 1)
        assert earned == values[-length:].sum()


def test_too_many_levels_are_refused():
    with pytest.raises(SwerveError, match="levels = 20"):
        suffix_layout(2, MOST_LEVELS + 1)
    with pytest.raises(SwerveError, match="levels"):
        GLR(suffix_levels=MOST_LEVELS + 1)
