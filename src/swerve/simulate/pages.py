"""The compiled round loop for result pages: a policy orders a page, people click on it, and the policy learns from every slot."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from swerve.core.contract import CONSULTED, testing
from swerve.core.engine import NOWHERE, Entry, admissible, consider
from swerve.core.examination import SLOTS
from swerve.core.pages import grade, order, present_and_respond
from swerve.core.spec import record_dtype
from swerve.core.tables import Table
from swerve.core.verbs import inlined, kernel
from swerve.environments.browsing import browse, ideal, offer, rate, worth
from swerve.environments.worlds import advance, best, chance, context
from swerve.simulate.loop import LEARNING, NOTE as SINGLE_NOTE, TALLY as SINGLE_TALLY, TESTING, cause_after, count

#: The first impressions of a query, in which a policy that knows nothing yet must not harm the given order.
FIRST = 200
#: A page is as good as the best one from this share of its value on.
GOOD = 0.95
HARM_QUANTILE = 0.9  # of the queries


def extended(record: np.dtype[Any], *more: tuple[Any, ...]) -> np.dtype[Any]:
    """Return a record type with further fields."""
    assert record.fields is not None
    return record_dtype([*[(name, record.fields[name][0]) for name in record.names or ()], *more])


#: The counters of one query. `regret` is value lost to the best page, `top_regret` attractiveness lost on the top slot.
TALLY = extended(
    SINGLE_TALLY,
    ("searches", "i8"),  # rounds with at least one click
    ("top_regret", "f8"),
    ("churn", "i8"),  # slots that differ from the query's page before
)

#: The state of a query: beside that of the loop for one slot, its sums over the first impressions and its last page.
NOTE = extended(
    SINGLE_NOTE,
    ("harm", "f8"),  # value lost to the given order in the first impressions
    ("given_value", "f8"),  # the given order's value in the same
    ("waits", "i8"),  # whether the page has not been good again since the last event
    ("event_round", "i8"),
    ("event_line", "i8"),
    ("filled", "i8"),  # slots of the last page
    ("page", "i8", SLOTS),
)


@kernel
def count_slots(note, page):
    """Remember the page; return how many of its slots differ from the page before."""
    differing = 0
    for slot in range(len(page)):
        if slot < note.filled and note.page[slot] != page[slot]:
            differing += 1
        note.page[slot] = page[slot]
    note.filled = len(page)
    return differing


@inlined
def play_page(
    spec, row, pools, group, writer, env, facts, segments, cursor, t, see, x, given, grades, page, tally, note, recovered,
    journal=NOWHERE, owns=None,
):  # fmt: skip
    """Play round `t`; return False, with nothing decided, when its context cannot be used.

    `given`, `grades` and `page` are scratch space. `recovered` holds, for each segment that begins with an event, the rounds until
    the page was good again, −1 before that.
    """
    now = float(t)
    event = advance(env, facts, segments, cursor)
    if see:
        context(env, facts, cursor, event, x)
        if admissible(spec, pools[group], x) != 0:
            return False
    offer(env, facts, segments, cursor, given)
    report = consider(spec, row, pools, group, writer, x, event, now, journal, owns)
    if rate(env, facts, segments, cursor, grades):
        grade(spec, row, given, grades)
    filled = order(spec, row, pools[group], given, page, now)
    shown = page[:filled]
    clicks = np.int64(0)
    if filled > 0:
        clicks = browse(env, facts, segments, cursor, shown)
        present_and_respond(spec, row, pools[group], shown, clicks, cursor.t, now)
        if clicks != 0:
            tally.searches += 1
    while clicks != 0:
        tally.clicks += float(clicks & 1)
        clicks >>= 1
    if event != 0 or report > CONSULTED:
        count(tally, note, event, report)
        note.cause = cause_after(note.cause, event, report)
    elif report == CONSULTED:
        tally.consulted += 1
    top = ideal(env, facts, segments, cursor)
    value = worth(env, facts, segments, cursor, shown)
    lost = top - value
    tally.regret += lost
    tally.by_cause[TESTING if note.cause == LEARNING and testing(spec, row) else note.cause] += lost
    if filled > 0:
        tally.top_regret += best(env, facts, segments, cursor) - chance(env, facts, segments, cursor, page[0])
    else:
        tally.top_regret += best(env, facts, segments, cursor)
    tally.churn += count_slots(note, shown)
    if cursor.t <= FIRST:
        usual = worth(env, facts, segments, cursor, given[: len(page)])
        note.harm += usual - value
        note.given_value += usual
    if event != 0:
        note.waits, note.event_round, note.event_line = 1, cursor.t, cursor.segment
    if note.waits != 0 and value >= GOOD * top:
        recovered[note.event_line] = cursor.t - note.event_round
        note.waits = 0
    return True


@Entry
def play_pages(
    params, table, pools, groups, writer, env_params, scene, segments, cursors, schedule, start, stop, see, x, given, grades, page,
    tallies, notes, recovered,
):  # fmt: skip
    """Play rounds `start` to `stop`; return the round reached, which is below `stop` when a context cannot be used."""
    for t in range(start, stop):
        query = schedule[t]
        if not play_page(
            params[0], table[query], pools, groups[query], writer, env_params[0], scene[0], segments, cursors[query], t, see, x,
            given, grades, page, tallies[query], notes[query], recovered,
        ):  # fmt: skip
            return t
    return stop


def page_counts(churn: int, rounds: int, notes: Table, recovered: NDArray[np.int64], events: NDArray[np.int64]) -> dict[str, float]:
    """Return the figures of pages: churn per round, harm in % of the given order's value, and the median rounds to recover.

    An event after which the page was never good again counts as infinitely long.
    """
    played = notes["given_value"] > 0.0
    harm = 100.0 * notes["harm"][played] / notes["given_value"][played]
    waited = np.where(recovered < 0, math.inf, recovered)[events > 0]
    return {
        "churn": churn / max(1, rounds),
        "harm": float(harm.mean()) if harm.size else 0.0,
        "harm_p90": float(np.quantile(harm, HARM_QUANTILE)) if harm.size else 0.0,
        "recovered": float(np.quantile(waited, 0.5, method="lower")) if waited.size else math.nan,
    }
