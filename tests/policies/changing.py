"""Helpers of the change test's tests: rows with records, plays, and the same rows in the twin's form."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import assume, strategies as st
from twins.change import Arm, Cases

from swerve import Blind, ChangeTest, Never, Swerve
from swerve.core.contract import begin, begin_pool, select
from swerve.core.rng import split
from swerve.core.tables import full_mask, nested, pool_dtype, row_dtype
from swerve.policies.swerve import draws as draws_file, posterior as change
from swerve.policies.swerve.posterior import MOST, begin_change, change_layout, count_click, count_play

SPEC = ChangeTest()
ROOM = 8


def fresh(records, spec=SPEC, room=ROOM):
    """Return a row whose arms have these old (clicks, skips)."""
    row = np.zeros(1, nested(change_layout(room)))[0]
    for arm in range(room):
        change.forget(spec, row, arm)
    for arm, (clicks, skips) in enumerate(records):
        row.old_plays[arm] = clicks + skips
        row.old_total[arm] = clicks
        change.rescale(spec, row, arm)
    return row


def play(row, arm, value, spec=SPEC):
    count_play(spec, row, arm)
    if value > 0.0:
        count_click(spec, row, arm, value)


def arms_of(row, n, spec=SPEC):
    """Return the arms of a row in the twin's form."""
    return [
        Arm(
            (float(row.old_total[arm]), float(row.old_plays[arm] - row.old_total[arm])),
            (float(row.new_total[arm]), float(row.new_plays[arm] - row.new_total[arm])),
            float(row.given[arm]),
            float(row.anyway[arm]),
            float(change.slab(row, arm)),
            spec.a,
            spec.b,
        )
        for arm in range(n)
    ]


def cases_of(row, n, spec=SPEC):
    return Cases(arms_of(row, n, spec), float(row.odds), row.found != 0)


@st.composite
def under_way(draw, most=6):
    """Draw an open test of up to 6 arms: old records, earlier suspicion, new plays in any order, an arm known or not."""
    spec = ChangeTest(a=draw(st.sampled_from([1.0, 0.5, 2.0])), b=draw(st.sampled_from([1.0, 3.0])))
    n = draw(st.integers(1, most))
    row = fresh([(draw(st.integers(0, 40)), draw(st.integers(1, 40))) for _ in range(n)], spec)
    falls, rises = draw(st.floats(0.001, 0.5)), draw(st.floats(0.001, 0.45))
    begin_change(spec, row, False, 0.0, falls, rises, 0.995)
    for arm in range(n):
        row.anyway[arm] = draw(st.sampled_from([0.0, 0.0, 0.01, 0.3]))
        row.given[arm] = 1.0 - (1.0 - row.given[arm]) * (1.0 - row.anyway[arm])
    row.found = draw(st.sampled_from([0, 0, 1]))
    for arm, click in draw(st.lists(st.tuples(st.integers(0, n - 1), st.booleans()), max_size=25)):
        play(row, arm, float(click), spec)
    assume(all(10.0 / MOST < row.factor[arm] < MOST / 10.0 for arm in range(n)))
    return spec, n, row


def drawn_sets(monkeypatch, row, n, draws):
    """Return the sets of changed arms that `select` draws from one state: it samples a changed arm without its old record."""
    policy = Swerve(classifier=Never(), net=Blind())
    table, pools = np.zeros(1, row_dtype(policy, ROOM, 1)), np.zeros(1, pool_dtype(policy, 1))
    begin(policy, table[0], np.uint64(split(3, "sets")))
    begin_pool(policy, pools[0], 1)
    table[0].test = row
    table[0].open, table[0].hasty = 1, 1
    sizes: list[float] = []

    def noted(word, a, b, *scales):
        sizes.append(float(a + b))
        return 0.5, word

    monkeypatch.setattr(draws_file, "beta", noted)
    seen: Counter[frozenset[int]] = Counter()
    for _ in range(draws):
        sizes.clear()
        select(policy, table[0], pools[0], full_mask(n), 0.0)
        seen[frozenset(arm for arm in range(n) if sizes[arm] < row.old_plays[arm])] += 1
    return seen
