"""Testability measured: how often the guess is wrong, for tests of several lengths."""

from __future__ import annotations

import pytest
from testability import wrong_guesses

pytestmark = pytest.mark.slow

RUNS = 10_000


@pytest.mark.parametrize("family", ["edge", "uniform"])
def test_at_most_one_wrong_guess_in_ten_thousand(family):
    assert wrong_guesses(4.0, RUNS, family) <= 1
    assert wrong_guesses(8.0, RUNS, family) <= 1


@pytest.mark.parametrize("family", ["edge", "uniform", "tied"])
def test_longer_tests_fail_less(family):
    failures = [wrong_guesses(c, RUNS, family) for c in (0.5, 1.0, 2.0, 4.0, 8.0)]
    assert failures == sorted(failures, reverse=True)
    assert failures[0] > 50


def test_several_best_arms_need_longer_tests():
    """c = 4 was measured with one best arm. Three equal arms share the plays, and still differ by ε/4 in a few percent."""
    at_four, at_eight = (wrong_guesses(c, RUNS, "tied") for c in (4.0, 8.0))
    assert 0.01 * RUNS < at_four < 0.05 * RUNS
    assert at_eight < 0.01 * RUNS
