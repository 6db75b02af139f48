"""Helper of the tests of bandits for result pages: a query's row, played page by page with uncompiled kernels."""

from __future__ import annotations

import numpy as np

from swerve.core import engine
from swerve.core.contract import evict, restart, settle
from swerve.core.pages import NOT_LEARNT, order, present, respond
from swerve.core.rng import split
from swerve.core.spec import pack
from swerve.core.tables import pool_dtype, row_dtype


class Desk:
    """One query under a policy for result pages. `page` begins a round; `click` reports the clicked slots of the last page."""

    def __init__(self, policy, arms, slots, seed=1):
        self.policy, self.arms = policy, arms
        self.params = pack(policy)
        self.spec = self.params[0]
        self.table = np.zeros(1, row_dtype(policy, arms, 0))
        self.pools = np.zeros(2, pool_dtype(policy, 0))
        engine.begin_rows.plain(self.params, self.table, np.array([split(seed, "policy", 0)], np.uint64))
        engine.begin_pools.plain(self.params, self.pools, 0)
        self.slots, self.number = np.zeros(slots, np.int64), 0
        self.before = 0

    @property
    def row(self):
        return self.table[0]

    def settle(self):
        return settle(self.spec, self.row, self.pools[0], self.pools[1], 0.0)

    def page(self, given=None):
        self.settle()
        self.number += 1
        self.before = 0
        offered = np.arange(self.arms) if given is None else np.array(given)
        filled = order(self.spec, self.row, self.pools[0], offered, self.slots, 0.0)
        self.seen = present(self.spec, self.row, self.pools[0], self.slots[:filled], self.number, 0.0)
        return self.slots[:filled].tolist()

    def show(self, arms):
        """Show this page instead of the policy's own."""
        self.settle()
        self.number += 1
        self.before = 0
        self.slots[: len(arms)] = arms
        self.seen = present(self.spec, self.row, self.pools[0], self.slots[: len(arms)], self.number, 0.0)

    def click(self, *slots, number=None):
        after = self.before | sum(1 << slot for slot in slots)
        found = respond(
            self.spec,
            self.row,
            self.pools[0],
            self.slots,
            self.seen,
            self.before,
            self.slots,
            after,
            number or self.number,
            0.0,
            0.0,
        )
        self.before = after
        return found != NOT_LEARNT

    def evict(self, arm):
        evict(self.spec, self.row, arm)

    def restart(self):
        restart(self.spec, self.row)

    @property
    def bytes(self):
        return self.table.tobytes()
