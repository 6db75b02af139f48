"""The service's compiled entry points: a request and a click, each from the signals to the ledger in one call."""

from __future__ import annotations

from typing import Any

import numpy as np

from swerve.core.contract import ALARM, RESTARTED, begin, blame, evict, plays_of, restart, select, show, testing
from swerve.core.engine import NOTHING_TO_SHOW, Entry, admissible, consider
from swerve.core.rng import at
from swerve.core.spec import Spec, record_dtype
from swerve.core.tables import Table, has, nested, row_dtype
from swerve.core.verbs import kernel
from swerve.policies.patient import attribute
from swerve.service.ledger import (
    ENOUGH_DRAWS,
    OPERATOR,
    SHIFT,
    begin_ledger,
    count_draws,
    count_show,
    forget_arm,
    ledger_layout,
    likeliest,
    log_alarm,
    next_phase,
    note,
)
from swerve.signals import answered, begin_senses, reformulated, sense, senses_layout

#: What became of feedback: inside its phase; counted, but its phase is over or its candidate gone.
LEARNED, LATE = 1, 2

APART = np.uint64(0x5357_4552_5645_2121)  # what tells the stream of the draws from the policy's own


def query_dtype(policy: Spec, arms: int, features: int, numbers: int) -> np.dtype[Any]:
    """The record of one query: the policy's state, the signals' and the ledger. Its bytes are what the store keeps."""
    state = row_dtype(policy, arms, features)
    room = state["generation"].shape[0]
    return record_dtype(
        [("policy", state), ("senses", nested(senses_layout(numbers))), ("ledger", nested(ledger_layout(room, max(features, 1))))]
    )


#: Numbers that a request is, and is answered with, in `rank_many`.
ASKS = 10
#: Facts of a request before the numbers that the caller sent.
FACTS = 3


def fixed_of(record: np.dtype[Any], plan: tuple[int, ...]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """What `rank_many` must know of a record, and of the signals."""
    size = dict(record.fields or {})["senses"][1] // 8  # the policy's part comes first
    streams = words_of(record)
    return np.array([size, len(streams), len(plan), *streams, *plan], np.int64)


def words_of(record: np.dtype[Any], name: str = "rng", base: int = 0) -> list[int]:
    """Where in a record, counted in words of eight bytes, the fields called `name` lie: the streams of a nested policy."""
    found: list[int] = []
    for field, (kind, offset, *_) in (record.fields or {}).items():
        if field == name and kind == np.dtype("u8"):
            found.append((base + offset) // 8)
        elif kind.fields:
            found += words_of(kind, name, base + offset)
    return found


def as_words(table: Table) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """The same memory as rows of eight-byte words."""
    return table.view(np.uint64).reshape(len(table), -1)


@kernel
def draw_wins(spec, table, words, i, streams, size, pool, available, now, draws, wins):
    """How often each arm wins `draws` further choices, made on a copy of the row with streams of its own; whether lots were drawn.

    The copy is the table's last row. A policy that draws no lots leaves the streams where they are: what it chose it would have
    chosen again.
    """
    spare = len(table) - 1
    for arm in range(len(wins)):
        wins[arm] = 0.0
    for w in range(size):
        words[spare, w] = words[i, w]
    for k in range(len(streams)):
        words[spare, streams[k]] = at(words[i, streams[k]] ^ APART, 1)
    for _ in range(draws):
        arm = select(spec, table[spare].policy, pool, available, now)
        if arm >= 0:
            wins[arm] += 1.0
    lots = False
    for k in range(len(streams)):
        lots |= words[spare, streams[k]] != at(words[i, streams[k]] ^ APART, 1)
    return lots


@kernel
def youngest(book, available):
    """When the newest candidate on offer was first seen; no number when all were there from the beginning."""
    newest = 0.0
    for arm in range(len(book.first)):
        if has(available, arm):
            newest = max(newest, float(book.first[arm]))
    return newest if newest > 0.0 else np.nan


@Entry
def begin_row(params, senses, table, i, word, now):
    """Make row i, zeroed, a fresh query."""
    begin(params[0], table[i].policy, word)
    begin_senses(senses[0], table[i].senses, now)
    begin_ledger(table[i].ledger, now)


@Entry
def rank_many(params, senses, table, words, fixed, pools, seasons, work, asks, facts, now, draws):
    """A ranking for each request, in order: signals, context, decision, ledger. `pools` holds the group and this writer's delta.

    Few arguments, because each takes its time in a call from Python; hence what is packed into them:

    `asks[k]`
        in: the row, the mask on offer, whether there is a session; out: the arm, its generation, the phase, whether it explored,
        the report, the signal of an alarm; in: the row that the session came from, negative for none. The arm is negative when
        the context cannot be used or there is nothing to show;
    `facts[k]`
        in: when the newest candidate was published; out: the arm's chance; in: when the session had asked the row that it came
        from, and the numbers that the caller sent;
    `fixed`
        words of the policy's part of a record, number of its streams, number of features, the streams, the plan (see `fixed_of`);
    `work`
        room for 64 wins and a context.
    """
    spec = params[0]
    size, count, d = fixed[0], fixed[1], fixed[2]
    streams, plan = fixed[3 : 3 + count], fixed[3 + count : 3 + count + d]
    wins, x = work[:64], work[64 : 64 + d]
    for k in range(len(asks)):
        i, offer, session = asks[k, 0], asks[k, 1], asks[k, 2]
        if asks[k, 9] >= 0:
            reformulated(senses[0], table[asks[k, 9]].senses, facts[k, 2], now)
        row = table[i]
        book = row.ledger
        sense(senses[0], row.senses, seasons[0], plan, facts[k, FACTS:], facts[k, 0], youngest(book, offer), session, now, x)
        for j in range(d):
            book.surprise[j] = x[j]
        bad = admissible(spec, pools[0], x)
        if bad != 0:
            asks[k, 3] = bad
            continue
        tested = testing(spec, row.policy) != 0
        report = consider(spec, row.policy, pools, 0, 1, x, 0, now)
        more, lots = 0, False
        if draws > 0:  # from the very state that the choice is made in
            few = book.drawn < ENOUGH_DRAWS or book.offer != offer or report & (ALARM | RESTARTED) != 0
            if few or book.requests & 3 == 0:
                more = draws if few else 1
                lots = draw_wins(spec, table, words, i, streams, size, pools[0], offer, now, more, wins)
            else:  # the choice itself is a draw too
                lots = True
                wins[:] = 0.0
        arm = select(spec, row.policy, pools[0], offer, now)
        if arm < 0:
            asks[k, 3] = NOTHING_TO_SHOW
            continue
        signal, value = 0, 0.0
        if report & ALARM and d > 0:
            signal = blame(spec, pools[0], x)
            value = x[signal]
        note(book, report, signal, value, tested, testing(spec, row.policy) != 0, now)
        show(spec, row.policy, arm, now)
        count_show(book, arm, offer, now)
        chance, explored = 1.0, 0
        if lots:
            chance = count_draws(book, wins, more, arm, offer)
            explored = 0 if likeliest(book, offer) == arm else 1
        asks[k, 3] = arm
        asks[k, 4] = row.policy.generation[arm]
        asks[k, 5] = book.phase
        asks[k, 6] = explored
        asks[k, 7] = report
        asks[k, 8] = signal
        facts[k, 1] = chance
    return 0


@Entry
def credit_one(params, senses, table, i, arm, generation, phase_then, top, clicked, shown, now):
    """Feedback for a ranking of row i that was made at `shown`; what became of it.

    `arm` is where the candidate that was on top lies, negative when it is gone; `top` says that it was the one clicked, `clicked`
    that anything was.
    """
    row = table[i]
    book = row.ledger
    answered(senses[0], row.senses, shown, clicked, now)
    if arm < 0:
        return LATE
    if top:
        book.clicks[arm] += 1
        book.plays[arm] = max(book.plays[arm], book.clicks[arm])  # after a crash: a click whose show was lost
    if book.phase != phase_then or row.policy.generation[arm] != generation or plays_of(params[0], row.policy, arm) == 0:
        return LATE
    if top:
        if book.phase_clicks[arm] >= book.phase_plays[arm]:
            return LATE  # after a crash again: a policy with more clicks than shows would draw nonsense
        book.phase_clicks[arm] += 1
        attribute(params[0], row.policy, arm, 1.0, shown, now)
    return LEARNED


@Entry
def left_one(senses, table, i, shown, now):
    """A session went from row i on to another query."""
    reformulated(senses[0], table[i].senses, shown, now)


@Entry
def shift_one(params, table, i, now):
    """Somebody who knows says that row i has shifted: it starts over."""
    restart(params[0], table[i].policy)
    next_phase(table[i].ledger, now)
    log_alarm(table[i].ledger, OPERATOR, 1.0, SHIFT, now)
    table[i].ledger.shifted = now


@Entry
def vacate_one(params, table, i, arm):
    """A place of row i goes to another candidate: what was decided for the one before is not credited to it."""
    evict(params[0], table[i].policy, arm)
    table[i].policy.generation[arm] = (np.int64(table[i].policy.generation[arm]) + 1) & 255
    forget_arm(table[i].ledger, arm)


class Calls:
    """All of them, compiled for one policy and one capacity."""

    def __init__(self, policy: Spec, senses: Spec, arms: int) -> None:
        variant = f"-{arms}"
        self.begin = begin_row.bind(policy, senses, variant=variant)
        self.rank = rank_many.bind(policy, senses, variant=variant)
        self.credit = credit_one.bind(policy, senses, variant=variant)
        self.left = left_one.bind(senses, variant=variant)
        self.shift = shift_one.bind(policy, variant=variant)
        self.vacate = vacate_one.bind(policy, variant=variant)
