"""The service's compiled entry points: a request and a click, each from the signals to the ledger in one call."""

from __future__ import annotations

from typing import Any

import numpy as np

from swerve.core.contract import ALARM, RESTARTED, begin, blame, evict, plays_of, restart, select, show, testing
from swerve.core.decisions import code_of, disown, next_generation, still_ours
from swerve.core.engine import NOTHING_TO_SHOW, Entry, admissible, consider, credit
from swerve.core.rng import at
from swerve.core.spec import Spec, record_dtype
from swerve.core.tables import Table, has, nested, row_dtype
from swerve.core.verbs import kernel
from swerve.serving.ledger import (
    ENOUGH_DRAWS,
    OPERATOR,
    SHIFT,
    begin_ledger,
    count_draws,
    count_show,
    forget_arm,
    is_evidence,
    ledger_layout,
    likeliest,
    log_alarm,
    next_phase,
    note,
)
from swerve.signals import answered, begin_senses, reformulated, sense, senses_layout

#: What became of feedback: learned; counted, but nothing is left that it could be learnt into; counted, but no evidence.
LEARNED, LATE, IGNORED = 1, 2, 3
#: What a compiled call says instead of writing into a record that belongs to another query.
MISPLACED = -100

APART = np.uint64(0x5357_4552_5645_2121)  # what tells the stream of the draws from the policy's own


def query_dtype(policy: Spec, arms: int, features: int, numbers: int) -> np.dtype[Any]:
    """The record of one query: the policy's state, the signals' and the ledger. Its bytes are what the store keeps."""
    state = row_dtype(policy, arms, features)
    room = state["generation"].shape[0]
    return record_dtype(
        [("policy", state), ("senses", nested(senses_layout(numbers))), ("ledger", nested(ledger_layout(room, max(features, 1))))]
    )


#: The columns of a request in `rank_many`: its row and whose that must be, the mask on offer, whether there is a session, the row
#: that the session came from (negative for none) and whose that must be, and the arms that the session was heard on, in which
#: phase.
ROW, OWNER, OFFER, SESSION, LEFT, LEFT_OWNER, HEARD, HEARD_PHASE = range(8)
#: The columns of its answer: the arm, negative when the context cannot be used or there is nothing to show; the decision's code,
#: the phase, whether it explored, the report, the signal of an alarm, and whether the show is evidence.
ARM, CODE, PHASE, EXPLORED, REPORT, SIGNAL, EVIDENCE = range(8, 15)
ASKED, ASKS = 8, 15
#: Facts of a request before the numbers that the caller sent.
FACTS = 3


#: What `fixed_of` begins with: words of the policy's part of a record, numbers of its streams and of features, and `share` of
#: `is_evidence`.
SIZE, STREAMS, FEATURES, SHARE, HEAD = range(5)


def fixed_of(record: np.dtype[Any], plan: tuple[int, ...], share: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """What `rank_many` must know of a record, of the signals, and of what is evidence."""
    size = dict(record.fields or {})["senses"][1] // 8  # the policy's part comes first
    streams = words_of(record)
    return np.array([size, len(streams), len(plan), share, *streams, *plan], np.int64)


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
def choose(spec, row, pool, available, now):
    """`select`, compiled once for the choice and for the draws: it is the largest part of what a first start compiles."""
    return select(spec, row, pool, available, now)


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
        arm = choose(spec, table[spare].policy, pool, available, now)
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
def begin_row(params, senses, table, i, owner, word, now):
    """Make row i, zeroed, a fresh query, which belongs to `owner`."""
    begin(params[0], table[i].policy, word)
    begin_senses(senses[0], table[i].senses, word, now)
    begin_ledger(table[i].ledger, owner, now)


@Entry
def rank_many(params, senses, table, words, fixed, pools, seasons, work, asks, facts, now, draws):
    """A ranking for each request, in order: signals, context, decision, ledger. `pools` holds the group and this writer's delta.

    Few arguments, because each takes its time in a call from Python; hence what is packed into them:

    `asks[k]`
        the columns named above;
    `facts[k]`
        in: when the newest candidate was published; out: the arm's chance; in: when the session had asked the row that it came
        from, and the numbers that the caller sent;
    `fixed`
        see `fixed_of`;
    `work`
        room for 64 wins and a context.

    Nothing is written for a request whose row, or the row before, belongs to another query.
    """
    spec = params[0]
    size, count, d = fixed[SIZE], fixed[STREAMS], fixed[FEATURES]
    streams, plan = fixed[HEAD : HEAD + count], fixed[HEAD + count : HEAD + count + d]
    wins, x = work[:64], work[64 : 64 + d]
    for k in range(len(asks)):
        i, offer, session = asks[k, ROW], asks[k, OFFER], asks[k, SESSION]
        row = table[i]
        book = row.ledger
        if book.owner != asks[k, OWNER] or (asks[k, LEFT] >= 0 and table[asks[k, LEFT]].ledger.owner != asks[k, LEFT_OWNER]):
            asks[k, ARM] = MISPLACED
            continue
        if asks[k, LEFT] >= 0:
            reformulated(senses[0], table[asks[k, LEFT]].senses, facts[k, 2], now)
        sense(senses[0], row.senses, seasons[0], plan, facts[k, FACTS:], facts[k, 0], youngest(book, offer), session, now, x)
        for j in range(d):
            book.surprise[j] = x[j]
        bad = admissible(spec, pools[0], x)
        if bad != 0:
            asks[k, ARM] = bad
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
        arm = choose(spec, row.policy, pools[0], offer, now)
        if arm < 0:
            asks[k, ARM] = NOTHING_TO_SHOW
            continue
        signal, value = 0, 0.0
        if report & ALARM and d > 0:
            signal = blame(spec, pools[0], x)
            value = x[signal]
        note(book, report, signal, value, tested, testing(spec, row.policy) != 0, now)
        evidence = is_evidence(book, arm, session, asks[k, HEARD], asks[k, HEARD_PHASE], fixed[SHARE])
        if evidence:
            show(spec, row.policy, arm, now)
        count_show(book, arm, offer, session, evidence, now)
        chance, explored = 1.0, 0
        if lots:
            chance = count_draws(book, wins, more, arm, offer)
            explored = 0 if likeliest(book, offer) == arm else 1
        asks[k, ARM] = arm
        asks[k, CODE] = code_of(spec, row.policy, arm)
        asks[k, PHASE] = book.phase
        asks[k, EXPLORED] = explored
        asks[k, REPORT] = report
        asks[k, SIGNAL] = signal
        asks[k, EVIDENCE] = 1 if evidence else 0
        facts[k, 1] = chance
    return 0


@Entry
def credit_one(params, senses, table, i, owner, arm, generation, start, phase_then, top, clicked, evidence, shown, now):
    """Feedback for a ranking of row i that was made at `shown`; what became of it.

    `arm` is where the candidate that was on top lies, negative when it is gone; `top` says that it was the one clicked, `clicked`
    that anything was, `evidence` that the policy may learn of it. What the policy learns is decided by `credit`; the phase is the
    ledger's, for people.
    """
    spec, row = params[0], table[i]
    book = row.ledger
    if book.owner != owner:
        return MISPLACED
    answered(senses[0], row.senses, shown, clicked, now)
    if arm < 0:
        return LATE
    if top:
        book.clicks[arm] += 1
        book.plays[arm] = max(book.plays[arm], book.clicks[arm])  # after a crash: a click whose show was lost
    if not still_ours(spec, row.policy, arm, generation, start):
        return LATE
    if not evidence:
        return IGNORED
    if plays_of(spec, row.policy, arm) == 0:
        return LATE
    if top:
        now_as_then = book.phase == phase_then
        if now_as_then and book.phase_clicks[arm] >= book.phase_plays[arm]:
            return LATE  # after a crash again: a policy with more clicks than shows would draw nonsense
        if not credit(spec, row.policy, arm, generation, start, 1.0, shown, now):
            return LATE
        if now_as_then:
            book.phase_clicks[arm] += 1
    return LEARNED


@Entry
def left_one(senses, table, i, owner, shown, now):
    """A session went from row i on to another query."""
    if table[i].ledger.owner != owner:
        return MISPLACED
    reformulated(senses[0], table[i].senses, shown, now)
    return 0


@Entry
def shift_one(params, table, i, owner, now):
    """Somebody who knows says that row i has shifted: it starts over. The new phase."""
    if table[i].ledger.owner != owner:
        return MISPLACED
    restart(params[0], table[i].policy)
    disown(table[i].policy)
    next_phase(table[i].ledger, now)
    log_alarm(table[i].ledger, OPERATOR, 1.0, SHIFT, now)
    table[i].ledger.shifted = now
    return table[i].ledger.phase


@Entry
def vacate_one(params, table, i, owner, arm):
    """A place of row i goes to another candidate: what was decided for the one before is not credited to it."""
    if table[i].ledger.owner != owner:
        return MISPLACED
    evict(params[0], table[i].policy, arm)
    table[i].policy.generation[arm] = next_generation(table[i].policy.generation[arm])
    forget_arm(table[i].ledger, arm)
    return 0


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
