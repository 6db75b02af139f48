"""A row that has grown from 8 arms to 16: every policy of the catalogue continues as if it had always had room for 16."""

from __future__ import annotations

import random

import numpy as np
import pytest

from swerve import Swerve, Told
from swerve.core.contract import ALARM, LABEL_FALSE, LABEL_TRUE, begin, begin_pool, starts
from swerve.core.engine import credit, decide
from swerve.core.rng import split
from swerve.core.spec import pack
from swerve.core.tables import full_mask, pool_dtype, row_dtype
from swerve.policies.catalog import POLICIES, Problem
from swerve.policies.patient import Patient
from swerve.store.layouts import copy_fields

SMALL, LARGE, D = 8, 16, 2
BEFORE, AFTER = 210, 60  # BWC has ended its first test by then

#: Policies that keep the given order, or move results by one slot at a time: they do not try new results at the end on top.
FROM_THE_TOP = ("given", "bubble", "oracle-bubble")
MADE = {name: maker(Problem(SMALL, BEFORE + AFTER)) for name, maker in POLICIES.items()}
TESTING = Swerve(classifier=Told(), verdict_after=20, revise_until=60, min_test_rounds=5)  # tests open and end within these rounds
MADE |= {"testing": TESTING, "patient": Patient(TESTING, click_wait=4.0)}


class Query:
    """One query's row of a given capacity, with kernels run by Python."""

    def __init__(self, policy, arms):
        self.spec, self.seen = pack(policy)[0], []
        self.table = np.zeros(1, row_dtype(policy, arms, D))
        self.pools = np.zeros(2, pool_dtype(policy, D))
        begin(self.spec, self.table[0], np.uint64(split(4, "grown")))
        for pool in self.pools:
            begin_pool(self.spec, pool, D)

    @property
    def row(self):
        return self.table[0]

    def round(self, t, dice, offered):
        """Play a round whose context, click and late click depend on the round alone, so that two queries can be compared."""
        x = np.array([dice.random(), dice.random()])
        told, luck = int(t % 60 == 30), dice.random()
        arm, report = decide(self.spec, self.row, self.pools, 0, 1, x, told, np.int64(full_mask(offered)), float(t))
        assert 0 <= arm < offered
        if luck < (0.1 + 0.08 * ((arm + t // 130) % offered)):
            credit(self.spec, self.row, arm, self.row.generation[arm], starts(self.spec, self.row), 1.0, float(t), float(t))
        self.seen.append((int(arm), int(report), *words_of(self.table)))


def words_of(table):
    """Return every random stream of a row, in nested records too."""
    found = []
    for name in table.dtype.names:
        if table.dtype[name].names:
            found += words_of(table[name])
        elif name == "rng":
            found.append(int(table[name][0]))
    return found


def lived(policy, arms, grow_after):
    """Play a query before and after its 8 arms become 10."""
    query, dice = Query(policy, arms), random.Random(6)
    for t in range(BEFORE + AFTER):
        if t == BEFORE and grow_after:
            grown = Query(policy, LARGE)
            copy_fields(query.row, grown.row)
            grown.pools, grown.seen = query.pools, query.seen
            query = grown
        query.round(t, dice, SMALL if t < BEFORE else SMALL + 2)
    return query


@pytest.mark.parametrize("name", list(MADE))
def test_a_grown_row_decides_as_one_that_was_large_all_along(name):
    always, grown = lived(MADE[name], LARGE, False), lived(MADE[name], SMALL, True)
    assert grown.seen == always.seen
    assert grown.table.tobytes() == always.table.tobytes()
    assert grown.pools.tobytes() == always.pools.tobytes()
    if name not in FROM_THE_TOP:
        assert {arm for arm, *_ in grown.seen[BEFORE:]} & {SMALL, SMALL + 1}  # the new results were tried


@pytest.mark.parametrize("name", ["testing", "patient"])
def test_those_rounds_have_tests_and_verdicts_on_both_sides_of_the_growth(name):
    reports = [report for _, report, *_ in lived(MADE[name], SMALL, True).seen]
    for part in (reports[:BEFORE], reports[BEFORE:]):
        assert any(report & ALARM for report in part)
        assert any(report & (LABEL_TRUE | LABEL_FALSE) for report in part)
