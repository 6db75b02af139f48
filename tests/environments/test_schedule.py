"""Schedules: the order in which queries are asked."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy import stats

from swerve import SwerveError
from swerve.environments.schedule import arrange, shuffle, traffic_shares


@given(st.integers(1, 60), st.integers(0, 5000), st.sampled_from(["sequential", "uniform", "zipf"]), st.floats(0, 3))
def test_shares_add_up_and_leave_nobody_out(queries, more, order, exponent):
    shares = traffic_shares(queries, queries + more, order, exponent)
    assert shares.sum() == queries + more
    assert shares.min() >= 1
    assert (np.diff(shares) <= 0).all() or order != "zipf"
    if order != "zipf":
        assert shares.max() - shares.min() <= 1


def test_zipf_shares_follow_the_rank():
    shares = traffic_shares(100, 1_000_100, "zipf", 1.0)
    weights = 1 / np.arange(1, 101)
    np.testing.assert_allclose(shares - 1, weights / weights.sum() * 1_000_000, atol=1)


def test_fewer_impressions_than_queries_are_refused():
    with pytest.raises(SwerveError, match=r"impressions = 3 .* 5 queries"):
        traffic_shares(5, 3, "uniform", 1.0)


def test_sequential_means_one_after_the_other():
    assert arrange(np.array([3, 1, 2]), "sequential", 0).tolist() == [0, 0, 0, 1, 2, 2]


@pytest.mark.parametrize("order", ["uniform", "zipf"])
def test_shuffled_orders_keep_every_share_and_depend_on_the_seed(order):
    shares = np.array([400, 200, 100])
    schedule = arrange(shares, order, 1)
    assert np.bincount(schedule).tolist() == shares.tolist()
    assert schedule.tobytes() == arrange(shares, order, 1).tobytes()
    assert schedule.tobytes() != arrange(shares, order, 2).tobytes()
    first_half = np.bincount(schedule[:350], minlength=3)
    assert stats.chisquare(first_half, shares / 2).pvalue > 0.001


def test_shuffle_gives_every_permutation_alike():
    counts = {}
    for word in range(6000):
        items = np.arange(3)
        shuffle.bind()(items, np.uint64(word * 0x9E3779B97F4A7C15 % 2**64))
        counts[tuple(items.tolist())] = counts.get(tuple(items.tolist()), 0) + 1
    assert len(counts) == 6
    assert stats.chisquare(list(counts.values())).pvalue > 0.001


def test_compiled_shuffle_equals_the_plain_one():
    one, two = np.arange(50), np.arange(50)
    shuffle.bind()(one, np.uint64(12345))
    shuffle.plain(two, np.uint64(12345))
    assert one.tolist() == two.tolist()


def test_an_unknown_order_is_refused():
    with pytest.raises(SwerveError, match=r"order = 'random' .* sequential, uniform, zipf"):
        arrange(np.array([1]), "random", 0)
