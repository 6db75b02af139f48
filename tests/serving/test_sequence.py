"""Confidence sequences: they hold at every look together, and narrow as fast as they should."""

from __future__ import annotations

import numpy as np
import pytest

from swerve.serving.sequence import COSTS, STAKES, bound, log_wealth, more_until


def test_the_inequality_that_makes_wealth_a_supermartingale():
    """exp(λz − ψ(λ)z²) ≤ 1 + λz for z ≥ −1, on a fine grid up to the largest step."""
    z = np.linspace(-1.0, 1.0, 20_001)[:, None]
    assert np.all(np.exp(STAKES * z - COSTS * z * z) <= 1.0 + STAKES * z + 1e-12)


def test_no_stake_wins_more_than_half_of_the_squared_total_over_the_squares():
    """`Lift` spares itself the sum over stakes below that."""
    total, squares = np.meshgrid(np.geomspace(0.01, 1e4, 60), np.geomspace(0.01, 1e6, 60))
    assert np.all(log_wealth(total, squares) <= total * total / (2.0 * squares) + 1e-9)


@pytest.mark.parametrize("error", [0.025, 0.001])
def test_the_bound_is_where_the_wealth_reaches_it(error):
    squares = np.geomspace(0.01, 1e7, 50)
    at = bound(squares, error)
    assert np.allclose(log_wealth(at, squares), -np.log(error), atol=1e-6)
    assert np.all(log_wealth(at * 0.999, squares) < -np.log(error))


def test_it_is_not_much_wider_than_a_single_look_allows():
    """At most 2.1 times the width of a normal interval for one look: the price of all the others."""
    squares = np.geomspace(100, 1e6, 30)
    assert np.all(bound(squares, 0.025) < 2.1 * 1.96 * np.sqrt(squares))


def test_how_long_until_it_is_decided():
    """At the present effect: a sequence that goes on in the same way decides there, and not earlier."""
    more = more_until(20.0, 100.0, 0.025)
    assert more is not None
    assert log_wealth(20.0 * (1 + more), 100.0 * (1 + more)) >= -np.log(0.025)
    assert log_wealth(20.0 * (1 + 0.97 * more), 100.0 * (1 + 0.97 * more)) < -np.log(0.025)
    assert more_until(-20.0, 100.0, 0.025) == more
    assert more_until(0.001, 100.0, 0.025) is None
