"""A fleet: one policy that runs on many queries, from Python."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numba.core.errors import NumbaError
from numpy.typing import ArrayLike, NDArray

from swerve.core import engine
from swerve.core.contract import reads_context, select
from swerve.core.decisions import GENERATION_BITS, START_BITS, decode
from swerve.core.errors import SwerveError, shown, table_of, whole
from swerve.core.hashing import words
from swerve.core.pooling import groups_of
from swerve.core.spec import LARGEST, Spec, pack
from swerve.core.tables import full_mask, pool_dtype, row_dtype

FLOAT = np.dtype(np.float64)
#: The exceptions of Python and Numba for arguments that are not numbers.
NOT_NUMBERS = (TypeError, ValueError, OverflowError, NumbaError)


class Decision(NamedTuple):
    """A decision, to be passed to `reward` with its reward.

    It holds the arm, the generation of the arm, the number of times the policy had started, and the time of the show.
    """

    arm: int
    generation: int = 0
    start: int = 0
    shown: float = 0.0

    def __repr__(self) -> str:
        parts = [f"{name}={value!r}" for name, value in zip(self._fields, self, strict=True) if value or name == "arm"]
        return f"Decision({', '.join(parts)})"


@functools.lru_cache(4096)
def decision_of(code: int) -> Decision:
    """Return the decision of an engine's code, at time 0. Few codes occur, and a cached decision is faster than a new one."""
    return Decision(*decode(code))


#: Faster than the constructor of a named tuple.
remade: Callable[[type[Decision], tuple[Any, ...]], Decision] = tuple.__new__


class Decisions(NamedTuple):
    """Many decisions: `arms[k]`, `generations[k]`, `starts[k]` and `shown[k]` belong together."""

    arms: NDArray[np.int64]
    generations: NDArray[np.int64]
    starts: NDArray[np.int64]
    shown: NDArray[np.float64]


class Fleet:
    """`queries` bandits under one policy: their state in one table, their shared knowledge in the pools.

    `compiled_setup` sets up few rows by compiled code too, for callers that make many fleets of one policy.

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
        compiled_setup: bool = False,
    ) -> None:
        if not isinstance(policy, Spec) or not select.knows(policy):
            raise SwerveError(f"policy = {policy!r} is not allowed; a policy must be able to select, such as UCB1()")
        queries, arms, features = whole("queries", queries, 1), whole("arms", arms, 1), whole("features", features, 0)
        self.reads_context = bool(reads_context(policy))
        if self.reads_context and features == 0:
            raise SwerveError(f"features = 0 is not allowed; features must be ≥ 1: {policy!r} reads contexts")
        self.policy, self.queries, self.arms, self.features, self.seed = policy, queries, arms, features, whole("seed", seed)
        self.params = pack(policy)
        self.table = np.zeros(queries, row_dtype(policy, arms, features))
        self.groups = groups_of(pooling, queries)
        self.writer = int(self.groups.max()) + 1  # the row of this fleet's delta, after the groups
        self.pools = np.zeros(self.writer + 1, pool_dtype(policy, features))
        self.available = full_mask(arms)
        self._quiet = np.zeros(features)
        begin = engine.begin_rows.bind(policy) if compiled_setup else engine.begin_rows.fitting(queries, policy)
        begin(self.params, self.table, words(self.seed, "policy", queries))
        engine.begin_pools.fitting(len(self.pools), policy)(self.params, self.pools, features)
        self._select_one = engine.select_one.bind(policy)
        self._update_one = engine.update_one.bind(policy)
        self._step_one = engine.step_one.bind(policy)
        self._select_many = engine.select_many.bind(policy)
        self._update_many = engine.update_many.bind(policy)
        self._group_of: list[int] = self.groups.tolist()  # plain numbers: indexing an array costs 0.1 µs more per call

    # ------------------------------------------------------------------ one decision at a time
    # `now - now` is 0 for finite numbers only, and this is the fastest test
    def select(
        self,
        query: int,
        x: ArrayLike | None = None,
        *,
        available: int | None = None,
        told: bool = False,
        now: float = 0.0,
    ) -> Decision:
        """Choose an arm for `query` and count it as shown. `x` is the context, `available` the mask of the arms on offer."""
        try:
            i = query if type(query) is int and 0 <= query < self.queries else self._query(query)
            code = self._select_one(
                self.params,
                self.table,
                i,
                self.pools,
                self._group_of[i],
                self.writer,
                self._quiet if x is None and not self.reads_context else self._context(x),
                1 if told else 0,
                self.available if available is None else self._offer(available),
                time := now + 0.0 if now - now == 0.0 else self._no_time(now),
            )
        except NOT_NUMBERS as error:
            self._explain(error, told=told, now=now)
        if code < 0:
            self._refused(code, x)
        made = decision_of(code)
        if time == 0.0:
            return made
        return remade(Decision, (made[0], made[1], made[2], time))

    def reward(self, query: int, decision: Decision, value: float = 1.0, *, now: float = 0.0) -> bool:
        """Apply a reward of `value` to a decision. Return False when it is not learnt: the policy has started over, the arm was
        evicted, or the policy no longer has a record of the time of the show."""
        try:
            i = query if type(query) is int and 0 <= query < self.queries else self._query(query)
            arm, generation, start, shown = decision
            if not 0 <= arm < self.arms:
                self._no_arm(arm)
            if not 0.0 <= value <= 1.0:
                self._no_reward(value)
            time = now + 0.0 if now - now == 0.0 else self._no_time(now)
            learnt: bool = self._update_one(self.params, self.table, i, arm, generation, start, value + 0.0, shown + 0.0, time)
        except NOT_NUMBERS as error:
            self._explain(error, decision, value, now=now)
        return learnt

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
        """Apply `reward` to the previous decision and `select` the next one, in one call."""
        try:
            i = query if type(query) is int and 0 <= query < self.queries else self._query(query)
            arm, generation, start, shown = decision
            if not 0 <= arm < self.arms:
                self._no_arm(arm)
            if not 0.0 <= value <= 1.0:
                self._no_reward(value)
            code = self._step_one(
                self.params,
                self.table,
                i,
                self.pools,
                self._group_of[i],
                self.writer,
                arm,
                generation,
                start,
                value + 0.0,
                shown + 0.0,
                self._quiet if x is None and not self.reads_context else self._context(x),
                1 if told else 0,
                self.available if available is None else self._offer(available),
                time := now + 0.0 if now - now == 0.0 else self._no_time(now),
            )
        except NOT_NUMBERS as error:
            self._explain(error, decision, value, told, now)
        if code < 0:
            self._refused(code, x)
        made = decision_of(code)
        if time == 0.0:
            return made
        return remade(Decision, (made[0], made[1], made[2], time))

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
        """Choose an arm for each of `rows`, in order (a query may occur twice). If one context is refused, nothing is decided."""
        rows = self._rows(rows)
        count = len(rows)
        if xs is None and self.reads_context:
            raise SwerveError(f"xs is missing: this policy reads contexts of {self.features} features")
        contexts = np.zeros((count, self.features)) if xs is None else np.ascontiguousarray(table_of("xs", xs), dtype=np.float64)
        if contexts.shape != (count, self.features):
            raise SwerveError(f"xs has shape {contexts.shape}; it must be {(count, self.features)}: one context per row")
        offers = np.full(count, self.available, np.int64) if available is None else self._offers(available, count)
        events = np.zeros(count, np.int64) if told is None else self._integers("told", told, count, "biu")
        times = self._times(now, count)
        codes = np.zeros(count, np.int64)
        done = self._select_many(
            self.params, self.table, rows, self.pools, self.groups, self.writer, contexts, events, offers, times, codes
        )
        if done < count:
            self._refused(int(codes[done]), contexts[done])
        arms, generations, starts = decode(codes)
        return Decisions(arms, generations, starts, times)

    def update_many(self, rows: NDArray[np.int64], decisions: Decisions, values: ArrayLike, *, now: ArrayLike | float = 0.0) -> int:
        """Apply rewards to many decisions, in order; return how many were learnt."""
        rows = self._rows(rows)
        count = len(rows)
        try:
            single = any(isinstance(column, Decision) for column in decisions)
            given = decisions if single else Decisions(*decisions)
        except TypeError:
            raise SwerveError(f"decisions = {shown(decisions)} is not allowed; they must be what select_many returned") from None
        if single:
            columns = ", ".join(Decisions._fields)
            raise SwerveError(f"decisions is a list of single ones; it must be Decisions({columns}), by columns")
        arms, generations = self._integers("arms", given.arms, count), self._integers("generations", given.generations, count)
        starts = self._integers("starts", given.starts, count)
        shown_at = np.ascontiguousarray(self._column("shown", given.shown, count), dtype=np.float64)
        earned = np.ascontiguousarray(self._column("values", values, count), dtype=np.float64)
        wrong = ~((earned >= 0.0) & (earned <= 1.0))
        if wrong.any():
            self._no_reward(earned[wrong][0])
        if count and (arms.min() < 0 or arms.max() >= self.arms):
            self._no_arm(int(arms.min() if arms.min() < 0 else arms.max()))
        times = self._times(now, count)
        return int(self._update_many(self.params, self.table, rows, arms, generations, starts, earned, shown_at, times))

    # ------------------------------------------------------------------ the rest
    def restart(self, query: int) -> None:
        """Start `query` over."""
        engine.restart_one.bind(self.policy)(self.params, self.table, self._query(query))

    def evict(self, query: int, arm: int) -> None:
        """Forget an arm of `query`, so that it can be reassigned to another candidate."""
        place, arm = self._query(query), whole("arm", arm, 0, self.arms - 1)
        engine.evict_one.bind(self.policy)(self.params, self.table, place, arm)

    # ------------------------------------------------------------------ checks of arguments
    def _query(self, query: Any) -> int:
        return whole("query", query, 0, self.queries - 1)

    def _rows(self, rows: Any) -> NDArray[np.int64]:
        table = table_of("rows", rows)
        if table.ndim != 1 or (table.size and table.dtype.kind not in "iu"):
            raise SwerveError(f"rows = {shown(rows)} is not allowed; rows must be a list of numbers in [0, {self.queries - 1}]")
        if table.size and (table.min() < 0 or table.max() >= self.queries):
            raise SwerveError(f"query must be in [0, {self.queries - 1}], not {table.min()} … {table.max()}")
        return np.ascontiguousarray(table, dtype=np.int64)

    def _no_reward(self, value: float) -> None:
        raise SwerveError(f"value = {value} is not allowed; a reward must be in [0, 1]")

    def _no_arm(self, arm: int) -> int:
        raise SwerveError(f"arm = {arm} is not allowed; arm must be in [0, {self.arms - 1}]")

    def _no_time(self, now: Any) -> float:
        raise SwerveError(f"now = {shown(now)} is not allowed; now must be a finite number")

    def _explain(
        self, error: Exception, decision: Any = (0, 0, 0, 0.0), value: Any = 0.0, told: Any = False, now: Any = 0.0
    ) -> NoReturn:
        """Raise an error that names the argument that is not a number; the fast path only knows that a computation failed."""
        if isinstance(error, SwerveError):
            raise error
        try:
            arm, generation, start, at = decision
        except (TypeError, ValueError):
            raise SwerveError(f"decision = {shown(decision)} is not allowed; a decision must be what select returned") from None
        whole("arm", arm, 0, self.arms - 1), whole("generation", generation, 0, (1 << GENERATION_BITS) - 1)
        whole("start", start, 0, (1 << START_BITS) - 1)
        for name, number in (("value", value), ("told", told), ("shown", at), ("now", now)):
            if not isinstance(number, bool | int | float | np.number | np.bool_):
                raise SwerveError(f"{name} = {shown(number)} is not allowed; {name} must be one number")
            if isinstance(number, int) and abs(number) > LARGEST:  # only a number too large for a float gets here
                raise SwerveError(f"{name} = {shown(number)} is not allowed; {name} must be a finite number")
        raise error

    def _context(self, x: Any) -> NDArray[np.float64]:
        if type(x) is not np.ndarray or x.dtype is not FLOAT:
            if x is None:
                raise SwerveError(f"x is missing: this policy reads contexts of {self.features} features")
            x = table_of("x", x).astype(np.float64)
        context = np.ascontiguousarray(x)
        if context.shape != (self.features,):
            raise SwerveError(f"x has shape {context.shape}; this fleet reads contexts of {self.features} features")
        return context

    def _column(self, name: str, values: Any, count: int) -> NDArray[Any]:
        column = table_of(name, values)
        if column.shape != (count,):
            raise SwerveError(f"{name} has shape {column.shape}; it must be {(count,)}: one for each row")
        return column

    def _integers(self, name: str, values: Any, count: int, kinds: str = "iu") -> NDArray[np.int64]:
        column = self._column(name, values, count)
        if count and column.dtype.kind not in kinds:
            raise SwerveError(f"{name} = {shown(values)} is not allowed; {name} must be whole numbers")
        return np.ascontiguousarray(column, dtype=np.int64)

    def _times(self, now: Any, count: int) -> NDArray[np.float64]:
        times = table_of("now", now)
        times = np.full(count, times, np.float64) if times.ndim == 0 else self._column("now", times, count).astype(np.float64)
        if not np.isfinite(times).all():
            self._no_time(now)
        return times

    def _offers(self, available: Any, count: int) -> NDArray[np.int64]:
        try:
            column = np.asarray(available)
        except ValueError:
            column = table_of("available", available)
        if column.shape != (count,):
            raise SwerveError(f"available has shape {column.shape}; it must be {(count,)}: one mask for each row")
        if column.dtype.kind in "iu":
            offers = np.ascontiguousarray(column).astype(np.int64)
            if not ((offers == 0) | (offers & ~np.int64(self.available) != 0)).any():
                return offers
        # the slow way names the wrong value, and an array of objects keeps whole numbers exact
        return np.array([self._offer(offer) for offer in np.array(available, dtype=object)], np.int64)

    def _offer(self, available: Any) -> int:
        if type(available) is int and 0 < available <= self.available:  # the full mask has no gaps: it contains every smaller one
            return available
        offer = whole("available", available)
        if 1 << 63 <= offer < 1 << 64:  # arm 63 is the sign bit
            offer -= 1 << 64
        if offer == 0 or offer & ~self.available or not -LARGEST - 1 <= offer <= LARGEST:
            raise SwerveError(
                f"available = {available} is not allowed; it must be a mask of one or more of the {self.arms} arms, no others"
            )
        return offer

    def _refused(self, code: int, x: Any) -> None:
        if code == engine.NOT_FINITE:
            raise SwerveError(
                f"x = {np.asarray(x).tolist()} is not allowed; every feature must be a finite number, or NaN where it is missing"
            )
        if code == engine.OUTSIDE:
            raise SwerveError(
                f"x = {np.asarray(x).tolist()} is not allowed; it lies outside the domain that {self.policy!r} is declared for"
            )
        raise SwerveError("nothing could be selected: no arm on offer")
