"""The service's kernels: a request, from the signals to the ledger; shifts; arms that change hands.

The entry point of rankings is in `swerve.serving.calls`, that of feedback in `swerve.serving.feedback_kernel`.

Tests: tests/serving/test_ranker.py, tests/serving/test_pages.py, tests/serving/test_one_rule.py,
tests/service/test_same_kernels.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from swerve.core.contract import ALARM, begin, blame, evict, restart, starts, testing
from swerve.core.decisions import STARTS, disown, encode, next_generation
from swerve.core.engine import NOTHING_TO_SHOW, NOWHERE, Entry, admissible, consider
from swerve.core.examination import SLOTS
from swerve.core.pages import CANNOT, grade, mask_of, order, present, redraw
from swerve.core.prefetching import fetch
from swerve.core.rng import at, unit
from swerve.core.spec import Spec, record_dtype
from swerve.core.tables import Table, bit, has, nested, row_dtype
from swerve.core.verbs import kernel
from swerve.serving.ledger import (
    MISPLACED,
    OPERATOR,
    SHIFT,
    begin_ledger,
    count_show,
    forget_arm,
    is_evidence,
    ledger_layout,
    log_alarm,
    next_phase,
    note,
)
from swerve.signals import begin_senses, reformulated, sense, senses_layout

#: Separates the stream of the draws for propensities from the policy's own.
APART = np.uint64(0x5357_4552_5645_2121)
#: The stream of the swaps.
SWAP_STREAM = np.uint64(0x5357_4150_5357_4150)


def query_dtype(policy: Spec, arms: int, features: int, numbers: int) -> np.dtype[Any]:
    """Return the record of one query: the policy's state, the signals' and the ledger. The store keeps its bytes."""
    state = row_dtype(policy, arms, features)
    room = state["generation"].shape[0]
    return record_dtype(
        [("policy", state), ("senses", nested(senses_layout(numbers))), ("ledger", nested(ledger_layout(room, max(features, 1))))]
    )


#: The columns of a request in `decide_many`.
ASKED = 15
(
    ROW,  # the row of its query,
    OWNER,  # the owner that this row must have, which is the first word of the query's key,
    KEY_2,  # and the second word
    OFFER,  # the arms on offer, as a mask
    PERSON,  # the hash of its session, 0 for none
    LEFT,  # the row of the session's previous query, negative for none,
    LEFT_OWNER,  # and the owner that this row must have
    SPENT,  # the arms for which the session has used its evidence, as a mask,
    SPENT_PHASE,  # and the phase in which it did
    CANDIDATES,  # how many there are
    GRADED,  # how many of them have grades: all or none
    FILL,  # the slots to fill
    AS_GIVEN,  # what is shown: 0 for the policy's page, else bits `GIVEN`, `HELD`
    KEEP,  # what is remembered of the answer for its session, see below
    NUMBER,  # the decision's number
) = range(ASKED)
#: Bits of `KEEP`: the page may be shown again; the caller remembers page and evidence itself; an experiment shows the given order;
#: and, times `KEEP_ARM`, the arm of the experiment.
KEEP_PAGE, KEPT_APART, KEEP_CONTROL, KEEP_ARM = 1, 2, 4, 8
#: Bits of `AS_GIVEN`. The given order is shown as it is, and the policy's page goes to `OTHER`. The page is not shown yet: nothing
#: of it is counted, and `respond_one` tells what was shown. The page gets no swap.
GIVEN, HELD, UNSWAPPED = 1, 2, 4
#: The columns of its answer, after those of the request.
(
    FILLED,  # the slots that were filled; negative: the context cannot be used, there is nothing to show, or `MISPLACED`
    START,  # the policy's start
    PHASE,  # the query's phase
    EXPLORED,  # the explored slot, −1 for none
    REPORT,  # the policy's report bits
    SIGNAL,  # the signal of an alarm
    EVIDENCE,  # 1: the policy learns from the page
    SEEN,  # the slots that count as seen, as a mask
    PAGE,  # from here on: the code of each slot's arm, see `swerve.core.decisions`
) = range(ASKED, ASKED + 9)
SWAPPED = PAGE + SLOTS  # after the page: 0, or the positions of two slots that changed places, the second one times 16
ANSWERED = SWAPPED + 1
#: After them: room for another page, and the policy's page before a swap.
OTHER, CHOSEN, ASKS = ANSWERED, ANSWERED + SLOTS, ANSWERED + 2 * SLOTS
#: The columns of `facts`: when the newest candidate was published, when the session asked its previous query, from `CHANCES` on the
#: propensity of each slot (an answer), from `FACTS` on the numbers that the caller sent.
NEWEST, LEFT_AT, CHANCES = 0, 1, 2
FACTS = CHANCES + SLOTS
#: A request's columns in `orders`: the candidates' arms in the given order, their grades, and, in the answer, the arms in the order
#: to show.
GRADES_AT, ANSWERED_ORDER, ORDERS = 64, 128, 192
#: Propensities are multiples of 1 / `CHANCE_STEPS`: with the most draws that a setting allows, their error is larger.
CHANCE_STEPS = 10_000.0
#: With swaps, propensities are exact down to the chance of one swap, which may be small: they are rounded much finer.
FINE_STEPS = 1e9

#: Indices into `fixed_of`: the policy's part of a record in words of eight bytes, the number of its random streams, the number of
#: features, `share` of `is_evidence`, and the share of pages with a swap, in millionths; from `HEAD` on the positions of the
#: streams, then the signals' plan.
SIZE, STREAMS, FEATURES, SHARE, SWAPS, HEAD = range(6)
MILLION = 1_000_000.0


def fixed_of(record: np.dtype[Any], plan: tuple[int, ...], share: int, swaps: float = 0.0) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the facts about a record, the signals, evidence and swaps that `decide_many` needs."""
    size = dict(record.fields or {})["senses"][1] // 8  # the policy's part comes first
    streams = words_of(record)
    return np.array([size, len(streams), len(plan), share, round(swaps * MILLION), *streams, *plan], np.int64)


def words_of(record: np.dtype[Any], name: str = "rng", base: int = 0) -> list[int]:
    """Return where the fields called `name` are in a record, in words of eight bytes: the streams of a nested policy."""
    found: list[int] = []
    for field, (kind, offset, *_) in (record.fields or {}).items():
        if field == name and kind == np.dtype("u8"):
            found.append((base + offset) // 8)
        elif kind.fields:
            found += words_of(kind, name, base + offset)
    return found


def as_words(table: Table) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """Return the same memory as rows of eight-byte words."""
    return table.view(np.uint64).reshape(len(table), -1)


@kernel
def fill(spec, row, pool, given, page, now):
    """Call `order`. One function for the choice and for the draws: it is the largest part of what a start compiles."""
    return order(spec, row, pool, given, page, now)


@kernel
def draw_pages(spec, table, words, i, streams, size, pool, given, page, shown, other, now, draws, wins, found):
    """Count how often each slot gets the arm of `shown` in `draws` further pages; return whether the policy drew at random.

    `page` is what the policy has chosen, `shown` the same page unless two slots have changed places. `found`, if it has room, gets
    how often the arm of each slot is anywhere on the page.

    The table ends with two scratch rows: `before` is the policy's state of row i just before its page was filled, `spare` is
    overwritten by each draw. A draw has a random stream of its own. It uses `redraw` if the policy has it, else `order` on a copy
    in `spare`; `other` is room for a page. If `order` did not advance the random streams, the policy is deterministic: return
    False.
    """
    before, spare = len(table) - 2, len(table) - 1
    random = False
    for k in range(len(streams)):
        random |= words[before, streams[k]] != words[i, streams[k]]
        words[before, streams[k]] ^= APART
    if not random:
        return False
    for slot in range(len(page)):
        wins[slot] = 0.0
        if len(found) > 0:
            found[slot] = 0.0
    for draw in range(draws):
        filled = CANNOT
        if len(streams) == 1:
            filled = redraw(spec, table[i].policy, given, page, other, at(words[before, streams[0]], draw + 1))
        if filled == CANNOT:
            for w in range(size):
                words[spare, w] = words[before, w]
            for k in range(len(streams)):
                words[spare, streams[k]] = at(words[spare, streams[k]], draw + 1)
            filled = fill(spec, table[spare].policy, pool, given, other, now)
        for slot in range(filled):
            if other[slot] == shown[slot]:
                wins[slot] += 1.0
        if len(found) > 0:
            among = mask_of(other[:filled])
            for slot in range(len(shown)):
                found[slot] += 1.0 if has(among, shown[slot]) else 0.0
    return True


@kernel
def swap_of(number, slots, share):
    """Return the two slots that change places on the page of a decision, the higher one first; −1 twice for most pages.

    `share` of all pages have a swap, each pair of slots with the same probability. The decision's number determines it.
    """
    if slots < 2 or unit(at(SWAP_STREAM, 2 * number)) >= share:
        return -1, -1
    pairs = slots * (slots - 1) // 2
    pair = min(np.int64(unit(at(SWAP_STREAM, 2 * number + 1)) * pairs), pairs - 1)
    first = 0
    while pair >= slots - 1 - first:
        pair -= slots - 1 - first
        first += 1
    return first, first + 1 + pair


@kernel
def with_swaps(chance, anywhere, slots, share):
    """Return the probability of a result in its slot with swaps, from that of the policy and that of the result on its page.

    A slot is one of the two with probability 2 / slots; then each other slot is as likely to be the other one.
    """
    return chance * (1.0 - 2.0 * share / slots) + (anywhere - chance) * 2.0 * share / (slots * (slots - 1))


@kernel
def write_order(out, given, page):
    """Write the arms of the page and, after them, the other candidates in the given order."""
    shown = np.int64(0)
    for slot in range(len(page)):
        out[slot] = page[slot]
        shown |= bit(page[slot])
    at_end = len(page)
    for arm in given:
        if not has(shown, arm):
            out[at_end] = arm
            at_end += 1


@kernel
def youngest(book, available):
    """Return when the newest candidate on offer was first seen; NaN when all were there from the beginning."""
    newest = 0.0
    for arm in range(len(book.first)):
        if has(available, arm):
            newest = max(newest, float(book.first[arm]))
    return newest if newest > 0.0 else np.nan


@Entry
def begin_row(params, senses, table, i, owner, word, now):
    """Make row i, zeroed, a new query that belongs to `owner`."""
    begin(params[0], table[i].policy, word)
    begin_senses(senses[0], table[i].senses, word, now)
    begin_ledger(table[i].ledger, owner, now)


@kernel
def decide_many(spec, senses, table, words, fixed, pools, owns, seasons, work, asks, orders, facts, now, draws):
    """Decide each request, in order: signals, context, page, ledger. `pools` holds the group and this writer's delta, `owns`
    what this worker has contributed to the group, if there are others.

    `asks`, `orders` and `facts` have one line per request, with the columns named above, and receive the answers; `fixed` see
    `fixed_of`; `work` is scratch space for a context. Nothing is written for a request whose row, or the row that its session came
    from, belongs to another query.
    """
    size, count, d = fixed[SIZE], fixed[STREAMS], fixed[FEATURES]
    streams, plan = fixed[HEAD : HEAD + count], fixed[HEAD + count : HEAD + count + d]
    x = work[:d]
    swaps, found = fixed[SWAPS] / MILLION, work[len(work) - SLOTS :]
    for k in range(len(asks)):
        if k + 1 < len(asks):
            fetch(words, asks[k + 1, ROW])  # it arrives while this one is decided
        i, offer, session = asks[k, ROW], asks[k, OFFER], 1 if asks[k, PERSON] != 0 else 0
        row = table[i]
        book = row.ledger
        if book.owner != asks[k, OWNER] or (asks[k, LEFT] >= 0 and table[asks[k, LEFT]].ledger.owner != asks[k, LEFT_OWNER]):
            asks[k, FILLED] = MISPLACED
            continue
        if asks[k, LEFT] >= 0:
            reformulated(senses, table[asks[k, LEFT]].senses, facts[k, LEFT_AT], now)
        newest = facts[k, NEWEST]
        sense(senses, row.senses, seasons[0], plan, facts[k, FACTS:], newest, youngest(book, offer), session, now, x)
        for j in range(d):
            book.surprise[j] = x[j]
        bad = admissible(spec, pools[0], x)
        if bad != 0:
            asks[k, FILLED] = bad
            continue
        tested = testing(spec, row.policy) != 0
        report = consider(spec, row.policy, pools, 0, 1, x, 0, now, NOWHERE, owns)
        given = orders[k, : asks[k, CANDIDATES]]
        if asks[k, GRADED] > 0:
            grade(spec, row.policy, given, orders[k, GRADES_AT : GRADES_AT + asks[k, GRADED]])
        room = asks[k, PAGE : PAGE + min(asks[k, FILL], SLOTS)]
        other = asks[k, OTHER : OTHER + len(room)]
        chances = facts[k, CHANCES : CHANCES + SLOTS]
        if draws > 0:  # the draws begin in the state in which the page is filled
            for w in range(size):
                words[len(table) - 2, w] = words[i, w]
        filled = fill(spec, row.policy, pools[0], given, room, now)
        if filled <= 0:
            asks[k, FILLED] = NOTHING_TO_SHOW
            continue
        page = room[:filled]
        explored, random = -1, False
        chosen = page
        asks[k, SWAPPED] = 0
        swapping = swaps if asks[k, AS_GIVEN] == 0 and filled > 1 else 0.0
        if swapping > 0.0:
            one, two = swap_of(asks[k, NUMBER], filled, swapping)
            if one >= 0:
                chosen = asks[k, CHOSEN : CHOSEN + filled]
                for slot in range(filled):
                    chosen[slot] = page[slot]
                page[one], page[two] = chosen[two], chosen[one]
                asks[k, SWAPPED] = one + 1 | (two + 1) << 4
        if asks[k, AS_GIVEN] & GIVEN:
            for slot in range(filled):
                other[slot] = page[slot]
                page[slot] = given[slot]
        elif draws > 0:
            anywhere = found if swapping > 0.0 else found[:0]
            random = draw_pages(
                spec, table, words, i, streams, size, pools[0], given, chosen, page, other, now, draws, chances, anywhere
            )
        for slot in range(filled):
            own = 1.0 if chosen[slot] == page[slot] else 0.0  # the policy's own page is one of the draws
            share = (chances[slot] + own) / (draws + 1.0) if random else own
            if swapping > 0.0:
                share = with_swaps(share, (found[slot] + 1.0) / (draws + 1.0) if random else 1.0, filled, swapping)
                chances[slot] = np.floor(share * FINE_STEPS + 0.5) / FINE_STEPS
            else:
                chances[slot] = np.floor(share * CHANCE_STEPS + 0.5) / CHANCE_STEPS
            if explored < 0 and chances[slot] < 0.5:
                explored = slot
        signal, value = 0, 0.0
        if report & ALARM and d > 0:
            signal = blame(spec, pools[0], x)
            value = x[signal]
        note(book, report, signal, value, tested, testing(spec, row.policy) != 0, now)
        evidence = is_evidence(book, page[0], session, asks[k, SPENT], asks[k, SPENT_PHASE], fixed[SHARE])
        seen = np.int64(0)
        held = asks[k, AS_GIVEN] & HELD != 0
        if evidence and not held:
            seen = present(spec, row.policy, pools[0], page, asks[k, NUMBER], now)
        count_show(book, page[:0] if held else page, offer, session, evidence, now)
        write_order(orders[k, ANSWERED_ORDER:], given, page)
        for slot in range(filled):
            page[slot] = encode(page[slot], np.int64(row.policy.generation[page[slot]]), 0)
        asks[k, FILLED] = filled
        asks[k, START] = np.int64(starts(spec, row.policy)) & STARTS
        asks[k, PHASE] = book.phase
        asks[k, EXPLORED] = explored
        asks[k, REPORT] = report
        asks[k, SIGNAL] = signal
        asks[k, EVIDENCE] = 1 if evidence else 0
        asks[k, SEEN] = seen


@Entry
def left_one(senses, table, i, owner, shown, now):
    """Note that a session went from row i on to another query."""
    if table[i].ledger.owner != owner:
        return MISPLACED
    reformulated(senses[0], table[i].senses, shown, now)
    return 0


@Entry
def shift_one(params, table, i, owner, now):
    """Start row i over because an operator says that it has shifted; return the new phase."""
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
    """Free an arm of row i for another candidate, which gets no credit for earlier decisions."""
    if table[i].ledger.owner != owner:
        return MISPLACED
    evict(params[0], table[i].policy, arm)
    table[i].policy.generation[arm] = next_generation(table[i].policy.generation[arm])
    forget_arm(table[i].ledger, arm)
    return 0
