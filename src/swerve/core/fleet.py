"""A fleet: one policy at work on many queries, from Python."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from swerve.core import engine, rng
from swerve.core.contract import select
from swerve.core.errors import SwerveError
from swerve.core.spec import Spec, pack
from swerve.core.tables import full_mask, pool_dtype, row_dtype


class Decision(NamedTuple):
    """What was decided, to be handed back with the reward: the arm, and the phase in which it was chosen."""

    arm: int
    phase: int


@functools.lru_cache(4096)
def decision_of(code: int) -> Decision:
    """The decision behind an engine's code. Few differ, and one that is known is found faster than made."""
    return Decision(code & 63, code >> 6)


class Decisions(NamedTuple):
    """Many decisions: `arms[k]` and `phases[k]` belong together."""

    arms: NDArray[np.int64]
    phases: NDArray[np.int64]


def groups_of(pooling: str | int | ArrayLike, queries: int) -> NDArray[np.int64]:
    """Which group each query learns with: `"shared"` (one for all), `"query"` (each its own), a number of groups, or a list.

    >>> groups_of("shared", 3).tolist(), groups_of("query", 3).tolist(), groups_of(2, 3).tolist()
    ([0, 0, 0], [0, 1, 2], [0, 1, 0])
    """
    numbers = np.arange(queries, dtype=np.int64)
    if isinstance(pooling, str):
        if pooling == "shared":
            return numbers * 0
        if pooling == "query":
            return numbers
        if not pooling.isdigit():
            raise SwerveError(f"pooling = {pooling!r} is not allowed; pooling must be 'shared', 'query' or a number of groups")
        pooling = int(pooling)
    if isinstance(pooling, int):
        if pooling < 1:
            raise SwerveError(f"pooling = {pooling} is not allowed; a number of groups must be ≥ 1")
        return numbers % pooling
    groups = np.asarray(pooling, dtype=np.int64)
    if groups.shape != (queries,) or (queries and groups.min() < 0):
        raise SwerveError(f"pooling must give each of the {queries} queries a group number ≥ 0, not {groups.shape} numbers")
    return groups


class Fleet:
    """`queries` bandits under one policy, their state in one table, what they learn together in the pools.

    >>> from swerve import UCB1
    >>> fleet = Fleet(UCB1(), queries=2, arms=3)
    >>> decision = fleet.select(0)
    >>> fleet.reward(0, decision)
    True
    """

    def __init__(
        self,
        policy: Spec,
        *,
        queries: int,
        arms: int,
        features: int = 0,
        pooling: str | int | ArrayLike = "shared",
        seed: int = 0,
    ) -> None:
        if not isinstance(policy, Spec) or not select.knows(policy):
            raise SwerveError(f"policy = {policy!r} is not allowed; a policy must be able to select, such as UCB1()")
        for name, value, least in (("queries", queries, 1), ("arms", arms, 1), ("features", features, 0)):
            if value < least:
                raise SwerveError(f"{name} = {value} is not allowed; {name} must be ≥ {least}")
        self.policy, self.queries, self.arms, self.features, self.seed = policy, queries, arms, features, seed
        self.params = pack(policy)
        self.table = np.zeros(queries, row_dtype(policy, arms, features))
        self.groups = groups_of(pooling, queries)
        self.writer = int(self.groups.max()) + 1  # this fleet's delta is the row after the groups
        self.pools = np.zeros(self.writer + 1, pool_dtype(policy, features))
        self.available = full_mask(arms)
        self._quiet = np.zeros(features)
        words = np.array([rng.split(seed, "policy", i) for i in range(queries)], np.uint64)
        engine.begin_rows.fitting(queries, policy)(self.params, self.table, words)
        engine.begin_pools.fitting(len(self.pools), policy)(self.params, self.pools, features)
        self._select_one = engine.select_one.bind(policy)
        self._update_one = engine.update_one.bind(policy)
        self._step_one = engine.step_one.bind(policy)
        self._select_many = engine.select_many.bind(policy)
        self._update_many = engine.update_many.bind(policy)
        self._group_of: list[int] = self.groups.tolist()  # plain numbers: an array's element costs 0.1 µs more in a call

    # ------------------------------------------------------------------ one decision at a time
    def select(
        self,
        query: int,
        x: ArrayLike | None = None,
        *,
        available: int | None = None,
        told: bool = False,
        now: float = 0.0,
    ) -> Decision:
        """Decide for `query` and count the arm as shown. `x` is the context, `available` the mask of the arms on offer."""
        code = self._select_one(
            self.params,
            self.table,
            query if 0 <= query < self.queries else self._no_query(query),
            self.pools,
            self._group_of[query],
            self.writer,
            self._quiet if x is None else self._context(x),
            1 if told else 0,
            self.available if available is None else self._offer(available),
            now + 0.0,
        )
        if code < 0:
            self._refused(code, x)
        return decision_of(code)

    def reward(self, query: int, decision: Decision, value: float = 1.0, *, now: float = 0.0) -> bool:
        """A decision earned `value`. False when its phase is over or its arm evicted: then it is not learnt."""
        if not 0 <= query < self.queries:
            self._no_query(query)
        arm, phase = decision
        if not 0 <= arm < self.arms:
            self._no_arm(arm)
        if not 0.0 <= value <= 1.0:
            self._no_reward(value)
        return bool(self._update_one(self.params, self.table, query, arm, phase, value + 0.0, now + 0.0))

    def step(
        self,
        query: int,
        decision: Decision,
        value: float,
        x: ArrayLike | None = None,
        *,
        available: int | None = None,
        told: bool = False,
        now: float = 0.0,
    ) -> Decision:
        """`reward` for the decision before and `select` for the next, in one call."""
        arm, phase = decision
        if not 0 <= arm < self.arms:
            self._no_arm(arm)
        if not 0.0 <= value <= 1.0:
            self._no_reward(value)
        code = self._step_one(
            self.params,
            self.table,
            query if 0 <= query < self.queries else self._no_query(query),
            self.pools,
            self._group_of[query],
            self.writer,
            arm,
            phase,
            value + 0.0,
            self._quiet if x is None else self._context(x),
            1 if told else 0,
            self.available if available is None else self._offer(available),
            now + 0.0,
        )
        if code < 0:
            self._refused(code, x)
        return decision_of(code)

    # ------------------------------------------------------------------ many at a time
    def select_many(
        self,
        rows: NDArray[np.int64],
        xs: ArrayLike | None = None,
        *,
        available: ArrayLike | None = None,
        told: ArrayLike | None = None,
        now: ArrayLike | float = 0.0,
    ) -> Decisions:
        """Decide for each of `rows`, in order (a query may stand there twice)."""
        rows = self._rows(rows)
        count = len(rows)
        contexts = np.zeros((count, self.features)) if xs is None else np.ascontiguousarray(xs, dtype=np.float64)
        if contexts.shape != (count, self.features):
            raise SwerveError(f"xs has shape {contexts.shape}; it must be {(count, self.features)}: one context per row")
        offers = np.full(count, self.available, np.int64) if available is None else self._offers(available, count)
        decisions = np.zeros(count, np.int64)
        done = self._select_many(
            self.params,
            self.table,
            rows,
            self.pools,
            self.groups,
            self.writer,
            contexts,
            np.zeros(count, np.int64) if told is None else self._column("told", told, count).astype(np.int64),
            offers,
            np.broadcast_to(np.asarray(now, np.float64), (count,)).copy(),
            decisions,
        )
        if done < count:
            self._refused(int(decisions[done]), contexts[done])
        return Decisions(decisions & 63, decisions >> 6)

    def update_many(self, rows: NDArray[np.int64], decisions: Decisions, values: ArrayLike, *, now: ArrayLike | float = 0.0) -> int:
        """Rewards for many decisions, in order; returns how many were learnt (the others belong to phases that are over)."""
        rows = self._rows(rows)
        values = np.ascontiguousarray(values, dtype=np.float64)
        for name, column in (("arms", decisions.arms), ("phases", decisions.phases), ("values", values)):
            self._column(name, column, len(rows))
        if len(rows) and not ((values >= 0.0) & (values <= 1.0)).all():
            self._no_reward(values[~((values >= 0.0) & (values <= 1.0))][0])
        if len(rows) and (decisions.arms.min() < 0 or decisions.arms.max() >= self.arms):
            self._no_arm(int(decisions.arms.min() if decisions.arms.min() < 0 else decisions.arms.max()))
        times = np.broadcast_to(np.asarray(now, np.float64), (len(rows),)).copy()
        learnt = self._update_many(self.params, self.table, rows, decisions.arms, decisions.phases, values, times)
        return int(learnt)

    # ------------------------------------------------------------------ the rest
    def restart(self, query: int) -> None:
        """Start `query` over by hand."""
        engine.restart_one.bind(self.policy)(self.params, self.table, self._rows([query])[0])

    def evict(self, query: int, arm: int) -> None:
        """Forget an arm of `query`, so that another result can take its place."""
        if not 0 <= arm < self.arms:
            self._no_arm(arm)
        engine.evict_one.bind(self.policy)(self.params, self.table, self._rows([query])[0], arm)

    # ------------------------------------------------------------------ at the door
    def _rows(self, rows: ArrayLike) -> NDArray[np.int64]:
        out = np.ascontiguousarray(rows, dtype=np.int64)
        if out.size and (out.min() < 0 or out.max() >= self.queries):
            raise SwerveError(f"query must be in [0, {self.queries - 1}], not {out.min()} … {out.max()}")
        return out

    def _no_query(self, query: int) -> int:
        raise SwerveError(f"query = {query} is not allowed; query must be in [0, {self.queries - 1}]")

    def _no_reward(self, value: float) -> None:
        raise SwerveError(f"value = {value} is not allowed; a reward must be in [0, 1]")

    def _no_arm(self, arm: int) -> int:
        raise SwerveError(f"arm = {arm} is not allowed; arm must be in [0, {self.arms - 1}]")

    def _context(self, x: ArrayLike) -> NDArray[np.float64]:
        context = np.ascontiguousarray(x, dtype=np.float64)
        if context.shape != (self.features,):
            raise SwerveError(f"x has shape {context.shape}; this fleet reads contexts of {self.features} features")
        return context

    def _offers(self, available: ArrayLike, count: int) -> NDArray[np.int64]:
        offers = self._column("available", available, count)
        return np.array([self._offer(offer) for offer in offers.tolist()], np.int64)

    def _column(self, name: str, values: ArrayLike, count: int) -> NDArray[Any]:
        column = np.asarray(values)
        if column.shape != (count,):
            raise SwerveError(f"{name} has shape {column.shape}; it must be {(count,)}: one for each row")
        return column

    def _offer(self, available: int) -> int:
        offer = int(available) & self.available
        if offer >= 1 << 63:  # arm 63 is the sign bit
            offer -= 1 << 64
        if offer == 0:
            raise SwerveError(f"available = {available} is not allowed; at least one of the {self.arms} arms must be on offer")
        return offer

    def _refused(self, code: int, x: Any) -> None:
        if code == engine.NOT_FINITE:
            raise SwerveError(f"x = {np.asarray(x).tolist()} is not allowed; every feature must be a finite number")
        if code == engine.OUTSIDE:
            raise SwerveError(
                f"x = {np.asarray(x).tolist()} is not allowed; it lies outside the ball that {self.policy!r} is declared for"
            )
        raise SwerveError("nothing could be selected: no arm on offer")
