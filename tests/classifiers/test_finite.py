"""SafeCl over a finite class, against its definition."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from twins.finite import Finite as Twin

from swerve import Finite, Learner, Matrix, SwerveError
from swerve.classifiers.finite import concepts, value
from swerve.core.contract import domain
from swerve.core.spec import Spec, pack

CONTEXTS = 5
# one shape for all examples: the table's shape is part of the compiled type
TABLES = st.lists(st.tuples(*[st.sampled_from([-1, 0, 1])] * CONTEXTS), min_size=6, max_size=6).map(tuple)
ASKED = st.lists(st.integers(0, CONTEXTS - 1), max_size=8)


def taught(table, false):
    learner = Learner(Finite(Matrix(table)), d=1)
    for x in false:
        learner.learn([x])
    return learner


@settings(max_examples=60)
@given(TABLES, ASKED)
def test_equals_the_definition(table, false):
    learner, twin = taught(table, []), Twin(table)
    for x in [*false, None]:
        assert [learner.predict([y]) for y in range(CONTEXTS)] == [twin.predict([y]) for y in range(CONTEXTS)]
        if x is not None:
            learner.learn([x])
            twin.learn([x])


@settings(max_examples=60)
@given(TABLES, st.data())
def test_with_correct_labels_no_event_is_missed_and_false_alarms_are_bounded(table, data):
    truth = data.draw(st.sampled_from(table))
    emitted = [x for x in range(CONTEXTS) if truth[x] != 0]  # null is never emitted
    learner = taught(table, [])
    false_alarms = 0
    for x in data.draw(st.lists(st.sampled_from(emitted), max_size=30)) if emitted else []:
        positive = learner.predict([x])
        assert positive or truth[x] == -1
        if positive and truth[x] == -1:
            learner.learn([x])
            false_alarms += 1
    # each false alarm excludes a concept that called it an event, and never the true one
    assert false_alarms <= len(table) - 1


@settings(max_examples=60)
@given(TABLES, ASKED, ASKED, ASKED)
def test_merge_laws_hold_to_the_byte_and_stale_never_misses(table, one, two, three):
    false = (one, two, three)
    states = [taught(table, x) for x in false]
    orders = set()
    for order in itertools.permutations(states):
        out = order[0].copy()
        out.merge(order[1])
        out.merge(order[2])
        out.merge(order[1])
        orders.add(out.pools[0].tobytes())
    assert len(orders) == 1
    assert taught(table, [*one, *two, *three]).pools[0].tobytes() in orders
    stale, fresh = taught(table, false[0]), taught(table, false[0] + false[1])
    assert all(stale.predict([x]) or not fresh.predict([x]) for x in range(CONTEXTS))


def test_tabulate_makes_the_matrix_of_predicates():
    def above(edge):
        return lambda x: 1 if x >= edge + 0.1 else -1 if x <= edge else None

    matrix = Matrix.tabulate([above(0.2), above(0.6)], [0.1, 0.25, 0.5, 0.65, 0.9])
    assert matrix.table == ((-1, 0, 1, 1, 1), (-1, -1, -1, 0, 1))


class Intervals(Spec):
    """A user's class: concept i is positive on values beyond i/10."""

    edges: int = 9


@concepts.register(Intervals)
def _(spec):
    return spec.edges


@value.register(Intervals)
def _(spec, i, x):
    return 1 if x[0] > (i + 1) / 10 else -1


@domain.register(Intervals)
def _(spec, pool, x):
    return 0.0 <= x[0] <= 1.0


def test_a_class_of_ones_own_in_two_verbs():
    learner = Learner(Finite(Intervals()), d=1)
    assert learner.predict([0.15])
    learner.learn([0.55])
    assert [learner.predict([x]) for x in (0.15, 0.55, 0.65)] == [False, False, True]
    assert np.asarray(learner.pools[0].ruled_out).tolist() == [1, 1, 1, 1, 1, 0, 0, 0, 0]


@pytest.mark.parametrize("table", [(), ((),)])
def test_an_empty_class_is_refused(table):
    with pytest.raises(ValueError, match="Matrix: table"):
        Matrix(table)


def test_a_context_without_features_has_no_number():
    assert not domain(pack(Matrix(((1, -1),)))[0], None, np.zeros(0))


def test_a_missing_number_is_silent_and_other_features_do_not_matter():
    safe = Learner(Finite(Matrix(((1, -1, -1), (-1, 1, -1)))), d=2)
    before = safe.pools.tobytes()
    assert not safe.predict([math.nan, 0.0])
    safe.learn([math.nan, 0.0])
    assert safe.pools.tobytes() == before
    assert safe.predict([0.0, math.nan])
    safe.learn([0.0, math.nan])
    assert not safe.predict([0.0, math.nan])
    with pytest.raises(SwerveError, match="outside the domain"):
        safe.predict([0.5, math.nan])
