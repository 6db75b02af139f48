"""How an instance of `Shifts` is drawn: the history of each query, line by line, in compiled code."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from swerve.core.engine import Entry
from swerve.core.hashing import SCRATCH, word_of
from swerve.core.tables import bit, has
from swerve.core.verbs import kernel
from swerve.environments.drawing import (
    NO_LEADER,
    TRIES,
    close_query,
    event_rounds,
    in_order,
    integer,
    leader,
    uniform,
)

if TYPE_CHECKING:
    from swerve.environments.shifts import Shifts

MOVES = ("all", "one", "return")
ONE, RETURN = 1, 2  # indices in the list above
STEP = 5  # a glide is a staircase with one step every this many rounds
INTENTS = 3  # the number of meanings of a query with recurring intents
ROUNDING = 1e-12  # sums of shares may exceed 1 by this much, and a tie is a gap below it
RISE = 0.05  # a rising result ends at least this far above the best one
CEILING = 0.98  # and at most here


@kernel
def copy_to(chances, others):
    """Copy click probabilities."""
    for arm in range(len(chances)):
        chances[arm] = others[arm]


@kernel
def draw_intent(spec, stream, chances, taken):
    """Draw click probabilities of all results such that none of `taken`, a mask, is the best; return whether a draw did."""
    for _ in range(TRIES):
        best = integer(stream, 0, spec.results - 1)
        for arm in range(spec.results):
            chances[arm] = uniform(stream, spec.other_low, spec.other_high)
        chances[best] = uniform(stream, spec.best_low, spec.best_high)
        top, second = leader(chances, spec.results), -math.inf
        for arm in range(spec.results):
            if arm != top:
                second = max(second, chances[arm])
        if not has(taken, top) and chances[top] - second >= max(spec.minimum_gap, ROUNDING):
            return True
    return False


@kernel
def move_one(spec, stream, former, chances, turn):
    """Let another result rise in even turns and the best fall in odd ones; half the time redraw some other result low."""
    best = leader(former, spec.results)
    copy_to(chances, former)
    if turn % 2 == 0:
        moved = integer(stream, 0, spec.results - 2)
        moved += moved >= best
        chances[moved] = uniform(stream, former[best] + RISE, CEILING)
    else:
        moved = best
        chances[moved] = uniform(stream, spec.other_low, spec.other_high)
    if uniform(stream, 0.0, 1.0) < 0.5:
        top, bystanders = leader(chances, spec.results), 0
        for arm in range(spec.results):
            bystanders += arm != moved and arm != top and arm != best
        low = uniform(stream, spec.other_low, spec.other_high)
        left = integer(stream, 0, bystanders - 1)
        for arm in range(spec.results):
            if arm != moved and arm != top and arm != best:
                if left == 0:
                    chances[arm] = low
                left -= 1


@kernel
def draw_intents(spec, stream, events, intents):
    """Draw the click probabilities before the first event and after each; return whether all could be drawn.

    With `return`, the rows of `intents` after those hold the query's meanings.
    """
    if not draw_intent(spec, stream, intents[0], 0):
        return False
    if spec.moves == RETURN:
        meanings, taken = min(INTENTS, spec.results), np.int64(0)
        for meaning in range(meanings):
            own = intents[events + 1 + meaning]
            if meaning == 0:
                copy_to(own, intents[0])
            elif not draw_intent(spec, stream, own, taken):
                return False
            taken |= bit(leader(own, spec.results))
        now = 0
        for turn in range(events):
            now = (now + integer(stream, 1, meanings - 1)) % meanings
            copy_to(intents[turn + 1], intents[events + 1 + now])
        return True
    for turn in range(events):
        if spec.moves == ONE:
            move_one(spec, stream, intents[turn], intents[turn + 1], turn)
        elif not draw_intent(spec, stream, intents[turn + 1], bit(leader(intents[turn], spec.results))):
            return False
    return True


@kernel
def draw_signals(spec, stream, rounds, events, starts, bursts, signals):
    """Write the rounds of a query's signals into `signals`, in order; return how many there are. Two may be in one round."""
    count = 0
    for turn in range(events):
        if uniform(stream, 0.0, 1.0) >= spec.silent_share:
            signals[count] = starts[turn] + integer(stream, -spec.lead_rounds, spec.lag_rounds)
            count += 1
    if bursts:
        for burst in range(1 + integer(stream, 1, spec.burst_every), rounds + 1, spec.burst_every):
            signals[count] = burst
            count += 1
    for i in range(count):
        signals[i] = min(max(2, signals[i]), rounds)
    in_order(signals, count)
    return count


@kernel
def write_line(spec, segments, line, since, event, chances):
    """Write a line: click probabilities from round `since` on, without a signal."""
    segments[line].since = since
    segments[line].event, segments[line].signal = event, 0
    for arm in range(spec.results):
        segments[line].chance[arm] = chances[arm]


@kernel
def write_changes(spec, rounds, events, starts, intents, segments, line):
    """Write the lines of a query's changes, from `line` on; return the line after them.

    A glide is a staircase from one set of click probabilities to the next; the event is where another result first leads. A third
    result may lead for some steps in between. Then the event is where the third one takes the lead, and there is no second. A glide
    may outlast its query.
    """
    write_line(spec, segments, line, 1, 0, intents[0])
    line += 1
    stairs = (spec.glide_rounds + STEP - 1) // STEP
    for turn in range(events):
        former, target = intents[turn], intents[turn + 1]
        if stairs == 0:
            write_line(spec, segments, line, starts[turn], 1, target)
            line += 1
        crossed, old = False, leader(former, spec.results)
        for stair in range(stairs):
            since = starts[turn] + stair * STEP
            if since > rounds:
                break
            share = (stair + 1) / stairs
            write_line(spec, segments, line, since, 0, former)
            chances = segments[line].chance
            for arm in range(spec.results):
                chances[arm] = former[arm] + (target[arm] - former[arm]) * share
            if not crossed and leader(chances, spec.results) != old:
                segments[line].event = 1
                crossed = True
            line += 1
    return line


@kernel
def announce(segments, line, changes, end, signals, count):
    """Merge the changes, the lines `changes` to before `end`, with the signals into lines from `line` on; return the end of those.

    A signal between two changes is a line that changes nothing. There is room for all signals between `line` and `changes`.
    """
    used = 0
    while changes < end or used < count:
        if used < count and (changes >= end or signals[used] < segments[changes].since):
            segments[line] = segments[line - 1]
            segments[line].since, segments[line].event = signals[used], 0
        else:
            segments[line] = segments[changes]
            changes += 1
        while used < count and signals[used] == segments[line].since:
            segments[line].signal = 1
            used += 1
        line += 1
    return line


@Entry
def draw_queries(
    params, query, clicks, contexts, shares, movers, bursters, segments, owner, cursors, starts, keys, values, signals, intents,
    scratch, trouble,
):  # fmt: skip
    """Draw the history of every query into `segments`; return the number of lines. `trouble` says if that is impossible.

    `query`, `clicks` and `contexts` are the paths of the queries' streams. The arguments after `cursors` are scratch space.
    """
    spec = params[0]
    stream = scratch[SCRATCH:]
    apart = max(1, spec.minimum_event_distance, spec.glide_rounds)
    line = 0
    for number in range(len(shares)):
        rounds = shares[number]
        stream[0] = word_of(query, number, scratch)
        events = 0
        if movers[number]:
            events = event_rounds(stream, rounds, spec.events_low, spec.events_high, apart, starts, keys, values, trouble)
            if events < 0:
                return line
        if not draw_intents(spec, stream, events, intents):
            trouble[0] = NO_LEADER
            return line
        count = draw_signals(spec, stream, rounds, events, starts, bursters[number], signals)
        first = line
        end = write_changes(spec, rounds, events, starts, intents, segments, first + count)
        line = announce(segments, first, first + count, end, signals, count)
        close_query(
            number, first, line, spec.results, word_of(clicks, number, scratch), word_of(contexts, number, scratch), segments,
            owner, cursors,
        )  # fmt: skip
    return line


def most_lines(spec: Shifts, shares: NDArray[np.int64], movers: NDArray[np.bool_], bursters: NDArray[np.bool_]) -> int:
    """Return how many lines an instance has at most, those that merging needs for a while included."""
    events = np.minimum(spec.events_high, shares[movers]).sum()
    bursts = (shares[bursters] // spec.burst_every + 1).sum()
    return int(spec.queries + events * (max(1, -(-spec.glide_rounds // STEP)) + 1) + bursts)
