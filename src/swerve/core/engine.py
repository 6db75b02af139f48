"""The compiled entry points: Python calls compiled code through this module only.

Entry points take tables and indices, never records, functions or generators, because Numba can cache only such signatures on disk.
The table of pools holds the groups first; each writer's delta is a row after them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from swerve.core.cache import compiled
from swerve.core.contract import (
    LEARNT,
    begin,
    begin_pool,
    clear,
    contribute,
    domain,
    evict,
    learn,
    merge,
    novel,
    observe,
    plays_of,
    predict,
    restart,
    reward,
    select,
    settle,
    show,
    take_up,
)
from swerve.core.decisions import code_of, disown, next_generation, still_ours
from swerve.core.digest import fingerprint, from_modules
from swerve.core.spec import Spec
from swerve.core.verbs import inlined, kernel

#: Up to this many rows a fleet is set up by uncompiled code, which takes milliseconds. Compiling takes seconds, once.
FEW = 256

NOT_FINITE, OUTSIDE, NOTHING_TO_SHOW = -1, -2, -3
NOWHERE = -1  # the row of a journal that nobody keeps


class Entry:
    """A function that is compiled once per code that it can run; `entry.plain` is the same function, uncompiled."""

    def __init__(self, plain: Callable[..., Any]) -> None:
        self.plain = plain
        self.__doc__ = plain.__doc__
        self.__name__ = plain.__name__
        self._by_digest: dict[str, Any] = {}

    def digest(self, *specs: Spec) -> str:
        """Return the fingerprint of the code that runs for these specs."""
        return fingerprint(self.plain, specs)

    def bind(self, *specs: Spec, variant: str = "") -> Any:
        """Return the compiled form for these specs (policy, environment).

        Each `variant` is cached separately, on disk too. Otherwise processes that compile the same code for different record
        types at the same time would overwrite each other's cache index.
        """
        digest = self.digest(*specs) + variant
        if digest not in self._by_digest:
            self._by_digest[digest] = compiled(self.plain, digest if from_modules(self.plain, specs) else None)
        return self._by_digest[digest]

    def fitting(self, items: int, *specs: Spec) -> Any:
        """Return the compiled form for many items and the plain one for few: both give the same bytes."""
        return self.bind(*specs) if items > FEW else self.plain


@kernel
def fold(spec, pools, group, writer, report, journal=NOWHERE, owns=None):
    """Merge the writer's delta into its group and empty it, if the report says that something was learnt.

    `journal` is a row of the pools that also receives the delta: it holds what was learnt, apart from what was known. `owns` has
    the contribution of this worker, for others to take up; it is empty where there are no others.
    """
    if report & LEARNT:
        if owns is not None:  # noqa: SIM102 - where there are none, compiled code leaves this out
            if len(owns) > 0:
                contribute(spec, owns[0], pools[writer])
        if journal >= 0:
            merge(spec, pools[journal], pools[writer])
        merge(spec, pools[group], pools[writer])
        clear(spec, pools[writer])


@inlined
def consider(spec, row, pools, group, writer, x, told, now, journal=NOWHERE, owns=None):
    """Run a round up to the choice (settle, observe); return the report bits."""
    report = settle(spec, row, pools[group], pools[writer], now)
    fold(spec, pools, group, writer, report, journal, owns)
    seen = observe(spec, row, pools[group], pools[writer], x, told, now)
    fold(spec, pools, group, writer, seen, journal, owns)
    return report | seen


@inlined
def decide(spec, row, pools, group, writer, x, told, available, now, journal=NOWHERE, owns=None):
    """Run a round up to the show (settle, observe, select, show); return the arm and the report bits."""
    report = consider(spec, row, pools, group, writer, x, told, now, journal, owns)
    arm = select(spec, row, pools[group], available, now)
    if arm >= 0:
        show(spec, row, arm, now)
    return arm, report


@kernel
def admissible(spec, pool, x):
    """Return 0 when the context may be used, else the negative reason."""
    if domain(spec, pool, x):
        return 0
    for j in range(len(x)):
        if math.isinf(x[j]):
            return NOT_FINITE
    return OUTSIDE


@kernel
def credit(spec, row, arm, generation, start, value, shown, now):
    """Apply a reward for a decision that was shown at `shown`; return whether it was learnt.

    This is the one rule for clicks, in a `Fleet`. `swerve.serving.feedback_kernel.respond_one` applies it to the clicks of a page,
    in the service and in a replay; a test checks that both give the same bytes. In a simulation a click arrives in the round of its
    play, which always satisfies the rule.

    - The arm must not have been reassigned since the decision, and the policy must not have started over.
    - The policy must have counted a play of the arm.
    - The policy decides what it learns: `reward` receives the time of the show.
    """
    if not still_ours(spec, row, arm, generation, start) or plays_of(spec, row, arm) == 0:
        return False
    return reward(spec, row, arm, value, shown, now)


@Entry
def begin_rows(params, table, words):
    """Initialise rows, each with its own random stream."""
    for i in range(len(table)):
        begin(params[0], table[i], words[i])


@Entry
def begin_pools(params, pools, d):
    """Initialise groups and deltas."""
    for g in range(len(pools)):
        begin_pool(params[0], pools[g], d)


@Entry
def select_one(params, table, i, pools, group, writer, x, told, available, now):
    """Return a decision for row i as a code (see `swerve.core.decisions`), or a negative reason."""
    spec = params[0]
    bad = admissible(spec, pools[group], x)
    if bad != 0:
        return bad
    arm, _ = decide(spec, table[i], pools, group, writer, x, told, available, now)
    return NOTHING_TO_SHOW if arm < 0 else code_of(spec, table[i], arm)


@Entry
def update_one(params, table, i, arm, generation, start, value, shown, now):
    """Apply a reward for a decision of row i; return whether it was learnt."""
    return credit(params[0], table[i], arm, generation, start, value, shown, now)


@Entry
def step_one(params, table, i, pools, group, writer, arm, generation, start, value, shown, x, told, available, now):
    """Run `update_one` for the previous decision, then `select_one`, in one call."""
    spec = params[0]
    bad = admissible(spec, pools[group], x)
    if bad != 0:
        return bad
    if value != 0.0:
        credit(spec, table[i], arm, generation, start, value, shown, now)
    chosen, _ = decide(spec, table[i], pools, group, writer, x, told, available, now)
    return NOTHING_TO_SHOW if chosen < 0 else code_of(spec, table[i], chosen)


@Entry
def select_many(params, table, rows, pools, groups, writer, xs, told, available, now, decisions):
    """Run `select_one` for each of `rows`, in order. Return the index of the first one refused, else the number of rows.

    A context that is not admissible refuses all rows before any decision is made.
    """
    spec = params[0]
    for k in range(len(rows)):
        bad = admissible(spec, pools[groups[rows[k]]], xs[k])
        if bad != 0:
            decisions[k] = bad
            return k
    for k in range(len(rows)):
        i = rows[k]
        arm, _ = decide(spec, table[i], pools, groups[i], writer, xs[k], told[k], available[k], now[k])
        if arm < 0:
            decisions[k] = NOTHING_TO_SHOW
            return k
        decisions[k] = code_of(spec, table[i], arm)
    return len(rows)


@Entry
def update_many(params, table, rows, arms, generations, starts, values, shown, now):
    """Run `update_one` for each of `rows`, in order; return how many rewards were learnt."""
    spec = params[0]
    learnt = 0
    for k in range(len(rows)):
        learnt += credit(spec, table[rows[k]], arms[k], generations[k], starts[k], values[k], shown[k], now[k])
    return learnt


@Entry
def restart_one(params, table, i):
    """Start row i over. Clicks for earlier decisions are not credited afterwards."""
    restart(params[0], table[i])
    disown(table[i])


@Entry
def evict_one(params, table, i, arm):
    """Forget one arm of row i and reassign it: clicks for earlier decisions are not credited to its next candidate."""
    evict(params[0], table[i], arm)
    table[i].generation[arm] = next_generation(table[i].generation[arm])


@Entry
def predict_one(params, pools, group, writer, x):
    """Return a classifier's prediction: 1 positive, 0 negative, or a negative reason."""
    bad = admissible(params[0], pools[group], x)
    if bad != 0:
        return bad
    return 1 if predict(params[0], pools[group], pools[writer], x, 0) else 0


@Entry
def learn_one(params, pools, group, writer, x):
    """Teach a classifier a false-labelled context and fold it at once; return 0, or a negative reason."""
    bad = admissible(params[0], pools[group], x)
    if bad == 0:
        learn(params[0], pools[writer], x)
        fold(params[0], pools, group, writer, LEARNT)
    return bad


@Entry
def merge_one(params, pools, into, other):
    """Merge group `other` into group `into`."""
    merge(params[0], pools[into], pools[other])


@Entry
def novel_one(params, theirs, known):
    """Reduce another worker's contribution to what is not known of it; return 1 if there is anything, else 0."""
    return 1 if novel(params[0], theirs[0], known[0]) else 0


@Entry
def take_up_one(params, pools, group, writer, theirs, known):
    """Fold what `novel_one` has left of a contribution into a group, and note it in `known`."""
    take_up(params[0], pools[group], pools[writer], theirs[0], known[0])
