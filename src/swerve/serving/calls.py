"""The compiled entry point of rankings, and all entry points for one policy and one capacity.

Tests: tests/serving/test_ranker.py, tests/serving/test_pages.py, tests/service/test_same_kernels.py.
"""

from __future__ import annotations

from swerve.core.engine import Entry
from swerve.core.spec import Spec
from swerve.serving.feedback_kernel import respond_one
from swerve.serving.kernels import begin_row, decide_many, left_one, shift_one, vacate_one
from swerve.serving.people_kernels import FROM_ELSEWHERE, SPENT_APART, after, before

#: What `rank_many` does: everything; or it goes on after the caller has done what was left to do.
BEGIN, GO_ON = 0, 1


@Entry
def rank_many(
    params, senses, table, words, fixed, pools, owns, seasons, work, people, columns, moves, rows, shelf, steady, stage, asks,
    orders, facts, now, draws,
):  # fmt: skip
    """Decide requests whose rows lie on one shelf, in order, with what their sessions have done before, and note what they were
    shown. Return how many were decided, from the first on; what is left to do, see `before`; and whether pages teach more than
    `after` can note.

    If something is left to do before they can be decided, none is: the caller does it, and calls again with these requests and
    `GO_ON`. `people` see `before`, `columns` are those of the shelf, which has the number `shelf` and `rows` rows; for the others
    see `decide_many`. Arguments are few, because each costs time in a call from Python.
    """
    count, todo = len(asks), 0
    if stage == BEGIN:
        count, todo = before(people[0], columns, rows, shelf, steady, asks, facts, moves, now)
        if count == 0 or todo & (FROM_ELSEWHERE | SPENT_APART):
            return count, todo, 0
    asks = asks[:count]
    decide_many(params[0], senses[0], table, words, fixed, pools, owns, seasons, work, asks, orders, facts, now, draws)
    return count, todo, after(people[0], columns, asks, orders, facts, moves, now)


class Calls:
    """The entry points, compiled for one policy and one capacity."""

    def __init__(self, policy: Spec, senses: Spec, arms: int) -> None:
        variant = f"-{arms}"
        self.begin = begin_row.bind(policy, senses, variant=variant)
        self.rank = rank_many.bind(policy, senses, variant=variant)
        self.respond = respond_one.bind(policy, senses, variant=variant)
        self.left = left_one.bind(senses, variant=variant)
        self.shift = shift_one.bind(policy, variant=variant)
        self.vacate = vacate_one.bind(policy, variant=variant)
