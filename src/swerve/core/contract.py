"""The verbs that everything in Swerve is made of: what a policy, a classifier and an environment must answer.

Arguments have the same name and order everywhere:

`spec`
    the hyper-parameters (an object in Python, a packed record in compiled code);
`row`
    one query's state: a record of the table, written in place;
`pool`
    what a group of queries has learnt together: read, never written by a policy;
`delta`
    the writer's own row of the pool's type, where it puts what it has learnt since the last fold, and its scratch space;
`available`
    the set on offer, as a 64-bit mask: bit a is set when arm a may be played;
`x`
    the context, an array of d numbers; `told` is 1 when somebody who knows (an environment's oracle, an operator) says
    that this very round is an event, else 0;
`now`
    the time; `shown` is the time at which a play was shown. No kernel reads a clock.

A round is `settle`, `observe`, `select`, `show`, and `reward` when a click arrives. `settle` and `observe` may write to
`delta`, and the engine folds it into the pool right after each, so that what a test has just taught counts for the very next
prediction. `select` reads the pool; `show` and `reward` touch the row alone, so that feedback never waits for shared state.
"""

from __future__ import annotations

import math
from typing import Any

from swerve.core.verbs import kernel, verb

# What `settle` and `observe` report: bits that a simulation counts and a service logs.
CONSULTED = 1  #: the classifier was asked about this context
ALARM = 2  #: it said "positive": something may have changed with this round
LABEL_FALSE = 4  #: a test ended: the alarm that opened it was false (fed back to the classifier)
LABEL_TRUE = 8  #: a test ended: something had changed
RESTARTED = 16  #: the bandit started over in this round
LEARNT = 32  #: the delta holds something to fold into the pool
REVISED = 64  #: the alarm that was last called false was true after all


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
    finite = True
    for j in range(len(x)):  # no early exit: nearly every context passes, and this way the loop is straight
        finite &= abs(x[j]) < math.inf
    return finite


@kernel
def _largest(spec, pool, x):
    which = 0
    for j in range(1, len(x)):
        if x[j] > x[which]:
            which = j
    return which


# ---------------------------------------------------------------- layouts (Python only)
@verb(default=_no_fields)
def layout(spec, arms, features):
    """Fields of a query's row for this many arms and features."""


@verb(default=_no_fields)
def pool_layout(spec, features):
    """Fields of a group's row for this many features."""


# ---------------------------------------------------------------- policies and bandits
@verb
def begin(spec, row, word):
    """Make a zeroed row a fresh one, its random stream started from a word."""


@verb
def restart(spec, row):
    """Start over, the random stream going on."""


@verb(default=_nothing)
def settle(spec, row, pool, delta, now):
    """Close what has become ripe, before the round begins; returns report bits."""


@verb(default=_nothing)
def observe(spec, row, pool, delta, x, told, now):
    """See the round's context before the arm is chosen; returns report bits."""


@verb
def select(spec, row, pool, available, now):
    """Choose an arm on offer."""


@verb
def show(spec, row, arm, now):
    """The arm was shown: it counts as a play with reward 0."""


@verb
def reward(spec, row, arm, value, shown, now):
    """A play that was shown at the time `shown` earns `value` more; returns whether the policy has learnt it.

    A click is evidence about the time of its show. A policy that keeps records of different times puts it into the one of that
    time, and one that has no record of that time any more leaves it.
    """


@verb
def evict(spec, row, arm):
    """Forget an arm, so that another can take its place."""


@verb(default=_nothing)
def starts(spec, row):
    """How often the policy has begun anew; feedback for a decision of an earlier start is not learnt."""


@verb(default=_nothing)
def testing(spec, row):
    """Whether the row is inside a test, which ends with a verdict."""


@verb
def guess(spec, row):
    """The L-th round guess of a testable bandit, two masks (G⁺, G⁻)."""


@verb(default=_nothing)
def reads_context(spec):
    """Whether the policy looks at contexts at all, asked from Python."""


@verb
def test_length(spec):
    """L: after how many plays a testable bandit's guess may be taken."""


@verb
def slots(spec, row):
    """How many arms the row has room for."""


@verb
def played(spec, row):
    """Plays since the last start, all arms together."""


@verb(default=_one)
def plays_of(spec, row, arm):
    """Plays of one arm since the last start, 1 where they are not kept."""


@verb
def mean_of(spec, row, arm):
    """Sample average of one arm since the last start, 0 before its first play."""


# ---------------------------------------------------------------- detectors (which also have a layout, `restart` and `evict`)
@verb
def watch(spec, row, arm, value):
    """Take in the reward of one play; True when the arm's click probability seems to have changed."""


@verb
def intake(spec, row, arm, value):
    """Take in the reward of one play, without asking for an alarm."""


@verb
def evidence(spec, row, arm, bonus):
    """How strongly the arm's record speaks for a change (an alarm when positive), and the plays and total since.

    The bonus is added by whoever knows more.
    """


@verb
def onset(spec, row, arm):
    """The plays and the total of an arm since its most likely change."""


# ---------------------------------------------------------------- classifiers
@verb(default=_nothing)
def begin_pool(spec, pool, d):
    """Make a zeroed group row an empty one for d features."""


@verb
def predict(spec, pool, delta, x, told):
    """Is this context an event? Positive is True."""


@verb(default=_nothing)
def absorb(spec, pool, delta, x):
    """Put a context whose label nobody knows into the delta; 1 if there is something to fold."""


@verb(default=_largest)
def blame(spec, pool, x):
    """The feature that makes this context positive, the largest where that has no answer."""


@verb(default=_nothing)
def learn(spec, delta, x):
    """Put a false-labelled context into the delta."""


@verb(default=_nothing)
def merge(spec, pool, delta):
    """Join what `delta` has learnt into `pool`."""


@verb(default=_nothing)
def clear(spec, delta):
    """Empty a delta after it was folded in."""


@verb(default=_anywhere)
def domain(spec, pool, x):
    """Whether a context can be used: finite, and where the policy or classifier is declared for."""
