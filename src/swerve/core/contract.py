"""The verbs that policies, detectors, classifiers and environments implement.

Arguments have the same name and order everywhere:

`spec`
    the hyper-parameters (an object in Python, a packed record in compiled code);
`row`
    the state of one query: a record of the table, updated in place;
`pool`
    the knowledge shared by a group of queries. Policies read it and never write it;
`delta`
    the writer's own record of the pool's type. It holds everything learnt since the last fold, and scratch space;
`own`, `theirs`, `known`
    what a worker itself has contributed to the pool since it began, another worker's contribution, and what was taken up of that;
`available`
    the arms on offer as a 64-bit mask: bit a is set when arm a may be played;
`x`
    the context, an array of d numbers. NaN means that the feature is missing in this round; infinite numbers are refused;
`told`
    1 when an oracle (the environment's, or an operator) says that this round is an event, else 0;
`now`
    the current time. `shown` is the time at which a play was shown. No kernel reads a clock.

A round calls `settle`, `observe`, `select` and `show`, and `reward` when a click arrives. `settle` and `observe` may write to
`delta`. The engine folds the delta into the pool after each of the two, so that the result of a test affects the next prediction.
`select` reads the pool. `show` and `reward` touch only the row, so that feedback never waits for shared state.
"""

from __future__ import annotations

import math
from typing import Any

from swerve.core.verbs import kernel, verb

# Report bits of `settle` and `observe`. Simulations count them, the service logs them.
CONSULTED = 1  #: the classifier was asked about this context
ALARM = 2  #: the classifier said "positive": something may have changed in this round
LABEL_FALSE = 4  #: a test ended: the alarm that opened it was false (fed back to the classifier)
LABEL_TRUE = 8  #: a test ended: something had changed
RESTARTED = 16  #: in this round the policy started over, or dropped records because they no longer hold
LEARNT = 32  #: the delta holds something to fold into the pool
REVISED = 64  #: the alarm that was last called false turned out to be true


def _no_fields(spec: Any, *capacities: int) -> list[tuple[Any, ...]]:
    return []


@kernel
def _nothing(spec, *args):
    return 0


@kernel
def _one(spec, *args):
    return 1


@kernel
def _anywhere(spec, pool, x):
    usable = True
    for j in range(len(x)):  # no early exit: nearly every context passes, and a loop without branches is faster
        usable &= abs(x[j]) != math.inf
    return usable


@kernel
def _largest(spec, pool, x):
    largest, which = -math.inf, 0
    for j in range(len(x)):
        if x[j] > largest:
            largest, which = x[j], j
    return which


@kernel
def all_missing(x):
    """Return whether every feature of the context is missing."""
    for j in range(len(x)):
        if not math.isnan(x[j]):
            return False
    return True


# ---------------------------------------------------------------- layouts (Python only)
@verb(default=_no_fields)
def layout(spec, arms, features):
    """Return the fields of a query's row for this many arms and features."""


@verb(default=_no_fields)
def pool_layout(spec, features):
    """Return the fields of a group's row for this many features."""


# ---------------------------------------------------------------- policies and bandits
@verb
def begin(spec, row, word):
    """Initialise a zeroed row and start its random stream from `word`."""


@verb
def restart(spec, row):
    """Start over and keep the random stream."""


@verb(default=_nothing)
def settle(spec, row, pool, delta, now):
    """Finish everything that is due before the round begins; return report bits."""


@verb(default=_nothing)
def observe(spec, row, pool, delta, x, told, now):
    """Read the round's context before an arm is chosen; return report bits."""


@verb
def select(spec, row, pool, available, now):
    """Choose one of the arms on offer."""


@verb
def show(spec, row, arm, now):
    """Count a play of `arm` with reward 0."""


@verb
def reward(spec, row, arm, value, shown, now):
    """Add `value` to the play that was shown at time `shown`; return whether the policy learnt it.

    A click is evidence about the time at which its result was shown. A policy that keeps several records adds the click to the
    record of that time. If the policy no longer has such a record, it ignores the click.
    """


@verb
def evict(spec, row, arm):
    """Forget an arm, so that it can be reassigned to another candidate."""


@verb(default=_nothing)
def starts(spec, row):
    """Return how often the policy has started. Feedback for a decision of an earlier start is not learnt."""


@verb(default=_nothing)
def testing(spec, row):
    """Return whether the row is inside a test. A test ends with a verdict."""


@verb
def guess(spec, row):
    """Return the L-th round guess of a testable bandit as two masks (G⁺, G⁻)."""


@verb(default=_nothing)
def reads_context(spec):
    """Return whether the policy reads contexts (called from Python only)."""


@verb(default=_nothing)
def needs_events(spec):
    """Return whether the class reads `told`: an oracle must tell it of events (called from Python only)."""


@verb
def test_length(spec):
    """Return L, the number of plays after which the guess of a testable bandit may be taken."""


@verb
def room(spec, row):
    """Return the number of arms that the row has room for."""


@verb
def played(spec, row):
    """Return the number of plays of all arms since the last start."""


@verb(default=_one)
def plays_of(spec, row, arm):
    """Return the number of plays of one arm since the last start, or 1 where the policy does not count them."""


@verb
def mean_of(spec, row, arm):
    """Return the sample average of one arm since the last start, 0 before its first play."""


# ---------------------------------------------------------------- detectors (which also have a layout, `restart` and `evict`)
@verb
def watch(spec, row, arm, value):
    """Add the reward of one play; return True when the arm's click probability seems to have changed."""


@verb
def intake(spec, row, arm, value):
    """Add the reward of one play without testing for a change."""


@verb
def evidence(spec, row, arm, bonus):
    """Return the evidence for a change of the arm (an alarm when positive), and the plays and total since that change.

    `bonus` is added to the evidence. A caller raises it when it has other reasons to expect a change.
    """


@verb
def onset(spec, row, arm):
    """Return the plays and the total of an arm since its most likely change."""


# ---------------------------------------------------------------- classifiers
# A missing feature is silent: it neither raises an alarm nor teaches. A context without any feature is negative and teaches
# nothing, unless the classifier reads no features at all.
@verb(default=_nothing)
def begin_pool(spec, pool, d):
    """Initialise a zeroed group row for d features."""


@verb
def predict(spec, pool, delta, x, told):
    """Return whether this context is an event (True is positive)."""


@verb(default=_nothing)
def absorb(spec, pool, delta, x):
    """Add an unlabelled context to the delta; return 1 if there is something to fold."""


@verb(default=_nothing)
def heed(spec, pool, delta, x):
    """Add a positive context that is not absorbed to the delta; return 1 if there is something to fold.

    A policy that absorbs only a sample of the contexts calls this for the other positive ones, so that the classifier learns soon
    which alarms repeat.
    """


@verb(default=_largest)
def blame(spec, pool, x):
    """Return the feature that makes this context positive; the largest one where the classifier cannot say.

    A missing feature is never named, unless all of them are missing.
    """


@verb(default=_nothing)
def learn(spec, delta, x):
    """Add a false-labelled context to the delta."""


@verb(default=_nothing)
def merge(spec, pool, delta):
    """Merge `delta` into `pool`."""


@verb(default=_nothing)
def joins(spec):
    """Return whether what a group knows is a join: merging is commutative, associative and idempotent (called from Python only).

    Then the order in which queries learn does not matter for what the group knows in the end.
    """


@verb(default=_nothing)
def clear(spec, delta):
    """Empty a delta after it was folded into the pool."""


# ---------------------------------------------------------------- several workers with a pool each
# A worker adds its deltas to its own contribution, which only grows, and sends all of it each time: messages may be lost, repeated
# or late. Others fold in what they do not know of it yet. What registers none of these verbs is not exchanged.
@verb(default=_no_fields)
def contribution_layout(spec, features):
    """Return the fields of a worker's contribution to a group, for this many features."""


@verb(default=_nothing)
def begin_contribution(spec, own, d):
    """Initialise a zeroed contribution for d features."""


@verb(default=_nothing)
def contribute(spec, own, delta):
    """Add a delta, before it is folded, to this worker's own contribution."""


@verb(default=_nothing)
def novel(spec, theirs, known):
    """Reduce another worker's contribution to what is not known of it yet; return whether there is anything."""


@verb(default=_nothing)
def take_up(spec, pool, delta, theirs, known):
    """Fold what `novel` has left of a contribution into the pool, and note it in `known`; `delta` is empty, before and after."""


@verb(default=_anywhere)
def domain(spec, pool, x):
    """Return whether a context can be used: its features lie in the domain of the policy or classifier, or are missing."""
