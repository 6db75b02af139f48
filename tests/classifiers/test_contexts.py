"""Quantile boxes of several workers absorb each other's contexts."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from swerve import QuantileBox
from swerve.classifiers.contexts import RECENT
from swerve.core import engine
from swerve.core.contract import absorb, begin_contribution, clear, contribute, heed, merge
from swerve.core.spec import pack
from swerve.core.tables import contribution_dtype, pool_dtype

D = 2


class Box:
    """A box, and what it has contributed and taken up."""

    def __init__(self, spec=None):
        self.spec = spec or QuantileBox(warmup_contexts=20)
        self.params, dtype = pack(self.spec), contribution_dtype(self.spec, D)
        self.pools, self.own, self.known = np.zeros(2, pool_dtype(self.spec, D)), np.zeros(1, dtype), np.zeros(1, dtype)
        engine.begin_pools.plain(self.params, self.pools, D)
        begin_contribution(self.spec, self.own[0], D)

    def meet(self, x, how=absorb):
        how(self.spec, self.pools[0], self.pools[1], np.array(x))
        contribute(self.spec, self.own[0], self.pools[1])
        merge(self.spec, self.pools[0], self.pools[1])
        clear(self.spec, self.pools[1])

    def take_up(self, other):
        theirs = other.own.copy()
        new = engine.novel_one.plain(self.params, theirs, self.known)
        if new:
            engine.take_up_one.plain(self.params, self.pools, 0, 1, theirs, self.known)
        return theirs if new else None

    def sides(self):
        return self.pools[0].low[:D].tolist() + self.pools[0].high[:D].tolist()


def contexts(count, seed, scale=1.0):
    return (scale * np.random.default_rng(seed).random((count, D))).tolist()


@given(st.lists(st.tuples(*[st.one_of(st.floats(-5.0, 5.0), st.just(math.nan))] * D), max_size=60))
@settings(max_examples=40, deadline=None)
def test_who_absorbs_all_of_anothers_contexts_has_its_bytes(xs):
    one, other = Box(), Box()
    for number, x in enumerate(xs):
        if not all(map(math.isnan, x)):
            one.meet(x)
        if number % 40 == 39:
            other.take_up(one)
    other.take_up(one)
    assert other.pools[:1].tobytes() == one.pools[:1].tobytes()
    assert other.take_up(one) is None


def test_of_more_contexts_than_a_message_has_the_last_are_absorbed():
    one, other = Box(), Box()
    for x in contexts(3 * RECENT + 7, 1):
        one.meet(x)
    other.take_up(one)
    assert other.pools[0].seen == RECENT
    last = Box()
    for x in contexts(3 * RECENT + 7, 1)[-RECENT:]:
        last.meet(x)
    assert other.sides() == last.sides()
    one.meet([0.5, 0.5])
    news = other.take_up(one)
    assert np.count_nonzero(news["contexts"]) == D, "what is known is not in the entry"
    assert other.pools[0].seen == RECENT + 1


def test_boxes_that_have_begun_apart_come_together():
    """Workers whose queries have other contexts follow the mixture of both."""
    one, other, whole = Box(), Box(), Box()
    for number, (x, y) in enumerate(zip(contexts(3000, 1), contexts(3000, 2, scale=3.0), strict=True)):
        one.meet(x)
        other.meet(y)
        whole.meet(x)
        whole.meet(y)
        if number % 50 == 49 and number > 300:
            one.take_up(other)
            other.take_up(one)
    np.testing.assert_allclose(one.sides(), other.sides(), atol=0.12)
    np.testing.assert_allclose(one.sides(), whole.sides(), atol=0.25)


def test_alarms_that_repeat_are_known_to_all_as_codes():
    one, other = Box(), Box()
    for x in contexts(400, 1):
        one.meet(x)
    for _ in range(40):
        one.meet([9.0, 0.5], heed)
    assert one.own[0].heeded.sum() == 2, "from then on it is a code, and no alarm"
    for x in contexts(100, 2):
        other.meet(x)
    assert engine.predict_one.plain(other.params, other.pools, 0, 1, np.array([9.0, 0.5])) == 1
    other.take_up(one)
    assert engine.predict_one.plain(other.params, other.pools, 0, 1, np.array([9.0, 0.5])) == 0
    assert engine.predict_one.plain(other.params, other.pools, 0, 1, np.array([8.0, 0.5])) == 1


@pytest.mark.parametrize("count", [0, 5, RECENT, RECENT + 5])
def test_a_worker_that_has_lost_its_last_contexts_is_not_heard_twice(count):
    one, other, lost = Box(), Box(), Box()
    for x in contexts(RECENT + 20, 1):
        one.meet(x)
    other.take_up(one)
    for x in contexts(count, 1):
        lost.meet(x)
    before = other.pools.tobytes()
    other.take_up(lost)
    assert other.pools.tobytes() == before
