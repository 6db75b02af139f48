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
    the time. No kernel reads a clock.

A round is `settle`, `observe`, `select`, `show`, and `reward` when a click arrives. `settle` and `observe` may write to
`delta`, and the engine folds it into the pool right after each, so that what a test has just taught counts for the very next
prediction. `select` reads the pool; `show` and `reward` touch the row alone, so that feedback never waits for shared state.
"""

from __future__ import annotations

import math
from typing import Any

from swerve.core.verbs import Verb, kernel

# What `settle` and `observe` report: bits that a simulation counts and a service logs.
CONSULTED = 1  #: the classifier was asked about this context
ALARM = 2  #: it said "positive": a new phase begins with this round
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
layout = Verb("layout", "Fields of a query's row for this many arms and features: `layout(spec, arms, features)`.", _no_fields)
pool_layout = Verb("pool_layout", "Fields of a group's row for this many features: `pool_layout(spec, features)`.", _no_fields)

# ---------------------------------------------------------------- policies and bandits
begin = Verb("begin", "Make a zeroed row a fresh one, its random stream started from a word: `begin(spec, row, word)`.")
restart = Verb("restart", "Start over, the random stream going on: `restart(spec, row)`.")
settle = Verb(
    "settle",
    "Close what has become ripe, before the round begins; returns report bits: `settle(spec, row, pool, delta, now)`.",
    _nothing,
)
observe = Verb(
    "observe",
    "See the round's context before the arm is chosen; returns report bits: `observe(spec, row, pool, delta, x, told, now)`.",
    _nothing,
)
select = Verb("select", "Choose an arm on offer: `select(spec, row, pool, available, now)`.")
show = Verb("show", "The arm was shown: it counts as a play with reward 0: `show(spec, row, arm, now)`.")
reward = Verb("reward", "A play that was shown earns `value` more: `reward(spec, row, arm, value, now)`.")
evict = Verb("evict", "Forget an arm, so that another can take its place: `evict(spec, row, arm)`.")
phase = Verb("phase", "The phase a decision belongs to; feedback for an older one is not learnt: `phase(spec, row)`.", _nothing)
testing = Verb("testing", "Whether the row is inside a test, which ends with a verdict: `testing(spec, row)`.", _nothing)
guess = Verb("guess", "The L-th round guess of a testable bandit, two masks (G⁺, G⁻): `guess(spec, row)`.")
reads_context = Verb(
    "reads_context", "Whether the policy looks at contexts at all, asked from Python: `reads_context(spec)`.", _nothing
)
test_length = Verb("test_length", "L: after how many plays a testable bandit's guess may be taken: `test_length(spec)`.")
slots = Verb("slots", "How many arms the row has room for: `slots(spec, row)`.")
played = Verb("played", "Plays since the last start, all arms together: `played(spec, row)`.")
plays_of = Verb("plays_of", "Plays of one arm since the last start, 1 where they are not kept: `plays_of(spec, row, arm)`.", _one)
mean_of = Verb("mean_of", "Sample average of one arm since the last start, 0 before its first play: `mean_of(spec, row, arm)`.")

# ---------------------------------------------------------------- detectors (which also have a layout, `restart` and `evict`)
watch = Verb(
    "watch",
    "Take in the reward of one play; True when the arm's click probability seems to have changed: `watch(spec, row, arm, value)`.",
)

intake = Verb("intake", "Take in the reward of one play, without asking for an alarm: `intake(spec, row, arm, value)`.")
evidence = Verb(
    "evidence",
    "How strongly the arm's record speaks for a change (an alarm when positive), and the plays and total since: "
    "`evidence(spec, row, arm, bonus)`, the bonus being added by whoever knows more.",
)

onset = Verb("onset", "The plays and the total of an arm since its most likely change: `onset(spec, row, arm)`.")

# ---------------------------------------------------------------- classifiers
begin_pool = Verb("begin_pool", "Make a zeroed group row an empty one for d features: `begin_pool(spec, pool, d)`.", _nothing)
predict = Verb("predict", "Is this context an event? Positive is True: `predict(spec, pool, delta, x, told)`.")
absorb = Verb(
    "absorb",
    "Put a context whose label nobody knows into the delta; 1 if there is something to fold: `absorb(spec, pool, delta, x)`.",
    _nothing,
)
blame = Verb(
    "blame", "The feature that makes this context positive, the largest where that has no answer: `blame(spec, pool, x)`.", _largest
)
learn = Verb("learn", "Put a false-labelled context into the delta: `learn(spec, delta, x)`.", _nothing)
merge = Verb("merge", "Join what `delta` has learnt into `pool`: `merge(spec, pool, delta)`.", _nothing)
clear = Verb("clear", "Empty a delta after it was folded in: `clear(spec, delta)`.", _nothing)
domain = Verb(
    "domain",
    "Whether a context can be used: finite, and where the policy or classifier is declared for: `domain(spec, pool, x)`.",
    _anywhere,
)
