"""KL-UCB against a twin that searches by bisection."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, strategies as st
from twins import kl_ucb as twins
from twins.duel import check_duel
from twins.oracle import Plain

from swerve import KLUCB, Fleet
from swerve.bandits.kl_ucb import divergence, own_share, upper_bound


@pytest.mark.parametrize("c", [0.0, 3.0])
@pytest.mark.parametrize("ways", [{}, {"changing": True, "evictions": 0.02}, {"delay": 5}])
def test_equals_the_twin_round_by_round(c, ways):
    twin = type("Bandit", (Plain,), {"evict": lambda self, arm: self.bandit.evict(arm)})(twins.KLUCB(4, c))
    check_duel(Fleet(KLUCB(c), queries=1, arms=4), twin, 200, seed=2, **ways)


@given(st.floats(0, 1), st.floats(1e-6, 1 - 1e-6))
def test_divergence_is_that_of_two_coins(p, q):
    assert divergence(p, own_share(p), q) == pytest.approx(twins.kl(p, q), rel=1e-6, abs=1e-9)


@given(st.integers(1, 10**6).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), st.floats(1e-3, 20))
def test_upper_bound_is_the_root(counts, log_t):
    clicks, plays = counts
    mu, level = clicks / plays, log_t / plays
    bound = upper_bound(mu, own_share(mu), level)
    assert bound == pytest.approx(twins.upper(mu, level), abs=1e-7)
    assert mu <= bound <= 1.0


def test_no_doubt_no_bonus():
    assert upper_bound(1.0, own_share(1.0), 0.5) == 1.0
    assert upper_bound(0.3, own_share(0.3), 0.0) == pytest.approx(0.3, abs=1e-9)
    assert upper_bound(0.0, own_share(0.0), math.log(2)) == pytest.approx(0.5, abs=1e-9)  # kl(0, q) = −ln(1 − q)
