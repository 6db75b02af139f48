"""The ledger of a query's record, beside the policy's own state: totals, the current phase, the last alarms.

A *phase* of the service begins with every alarm and every restart of the policy. It is for people: whether a click is learnt is
decided by the policy. The last alarms are kept in a ring: time, signal, value and verdict.

A show is *evidence* when the policy learns from it. So that one person cannot outweigh many, a session has a bounded number of
units of evidence for each result in a phase (`swerve.serving.people`), and requests without a session add a bounded share.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from swerve.core.contract import ALARM, LABEL_FALSE, LABEL_TRUE, RESTARTED, REVISED
from swerve.core.tables import has
from swerve.core.verbs import kernel

#: An owner that a zeroed row does not have. A call with it is compiled and returns `MISPLACED` at once: `Ranker.compile` uses that.
NOBODY = -1
#: A compiled call returns this instead of writing into a record that belongs to another query.
MISPLACED = -100

#: Alarms that a record remembers.
LOG = 8

#: Codes of alarms that no configured signal raised: seen in the clicks, reported by an operator.
CLICKS, OPERATOR = -1, -2

#: Verdicts on an alarm: its test is open; there was a shift; there was none; the test ended without a verdict.
OPEN, SHIFT, NO_SHIFT, CUT = 0, 1, 2, 3

#: Units of evidence that requests without a session may always add in a phase.
ANONYMOUS = 20
#: `share` in `is_evidence` is in thousandths: compiled code takes whole numbers here.
THOUSAND = 1000


def ledger_layout(arms: int, features: int) -> list[tuple[Any, ...]]:
    """Return the fields of the ledger for this many arms and features."""
    return [
        ("owner", "i8"),  # 8 bytes of the query's key: every write checks them
        ("created", "f8"),
        ("seen", "f8"),
        ("requests", "i8"),
        ("phase", "i8"),
        ("began", "f8"),  # when the phase began
        ("shifted", "f8"),  # time of the last shift that was found, 0 for none
        ("phase_requests", "i8"),
        ("named", "i8"),  # units of evidence from sessions, in all phases
        ("phase_named", "i4"),  # units of evidence from sessions in this phase
        ("phase_anonymous", "i4"),  # units of evidence from requests without a session in this phase
        ("alarms", "i8"),  # total; the ring holds the last LOG
        ("alarm_at", "u4", LOG),  # times below are in whole seconds: there may be a million records
        ("alarm_value", "f4", LOG),
        ("alarm_phase", "i4", LOG),
        ("alarm_signal", "i1", LOG),
        ("alarm_verdict", "i1", LOG),
        ("surprise", "f4", features),  # the context of the last request, for `explain`
        ("first", "u4", arms),  # when the candidate was first seen; 0 for candidates of the first request
        ("offered", "u4", arms),  # when the candidate was last on offer
        ("plays", "i4", arms),  # pages that showed the candidate in one of their slots
        ("clicks", "i4", arms),
        ("phase_plays", "i4", arms),
        ("phase_clicks", "i4", arms),
    ]


@kernel
def begin_ledger(book, owner, now):
    """Initialise the ledger of a new query."""
    book.owner = owner
    book.created = now
    book.seen = now
    book.began = now
    book.phase = 1


@kernel
def next_phase(book, now):
    """Begin a phase: its counts start at 0, totals go on."""
    book.phase += 1
    book.began = now
    book.phase_requests = 0
    book.phase_named = 0
    book.phase_anonymous = 0
    for arm in range(book.plays.shape[0]):
        book.phase_plays[arm] = 0
        book.phase_clicks[arm] = 0


@kernel
def log_alarm(book, signal, value, verdict, now):
    """Add an alarm. An alarm before it that is still open ends without a verdict."""
    if book.alarms > 0 and book.alarm_verdict[(book.alarms - 1) % LOG] == OPEN:
        book.alarm_verdict[(book.alarms - 1) % LOG] = CUT
    index = book.alarms % LOG
    book.alarm_at[index] = np.int64(now)
    book.alarm_value[index] = value
    book.alarm_phase[index] = book.phase
    book.alarm_signal[index] = signal
    book.alarm_verdict[index] = verdict
    book.alarms += 1


@kernel
def conclude(book, verdict, now):
    """Set the verdict of the last alarm if it is open; return whether it was."""
    index = (book.alarms - 1) % LOG
    if book.alarms == 0 or book.alarm_verdict[index] != OPEN:
        return False
    book.alarm_verdict[index] = verdict
    if verdict == SHIFT:
        book.shifted = now
    return True


@kernel
def note(book, report, signal, value, tested, testing, now):
    """Enter the reports of `settle` and `observe`; `tested` and `testing` say whether a test was open before and is open now."""
    labels, unasked = LABEL_TRUE | LABEL_FALSE, False
    if report & labels:
        conclude(book, SHIFT if report & LABEL_TRUE else NO_SHIFT, now)
    elif report & ALARM == 0:
        if tested and not testing:  # the test ended without a label: no change, or undecided
            conclude(book, CUT if report & RESTARTED else NO_SHIFT, now)
        elif report & RESTARTED and not conclude(book, SHIFT, now):
            unasked = True
    # after the label: one that was given in this round may have been revised in it
    if report & REVISED and book.alarms > 0 and book.alarm_verdict[(book.alarms - 1) % LOG] == NO_SHIFT:
        book.alarm_verdict[(book.alarms - 1) % LOG] = SHIFT
        book.shifted = now
    if report & (ALARM | RESTARTED):
        next_phase(book, now)
    if unasked:  # no signal raised it: the policy found the change, or the reason for a test, in the clicks
        log_alarm(book, CLICKS, 0.0, OPEN if testing else SHIFT, now)
        if not testing:
            book.shifted = now
    if report & ALARM:
        log_alarm(book, signal, value, OPEN, now)


@kernel
def is_evidence(book, arm, session, spent, spent_phase, share):
    """Return whether the policy learns from a page with this arm on top.

    `spent` has the arms for which the session has used its units in phase `spent_phase`. `share` bounds the units of requests
    without a session, where sessions ask the query too, in thousandths of the sessions' units in this phase; negative: all shows
    are evidence.
    """
    if share < 0:
        return True
    if session:
        return spent_phase != book.phase or not has(spent, arm)
    return book.named == 0 or book.phase_anonymous < ANONYMOUS + book.phase_named * share // THOUSAND


@kernel
def count_show(book, page, available, session, evidence, now):
    """Count a request: the arms of the page were shown, and the arms of `available` were on offer."""
    if book.requests == 0:  # the row was made a moment earlier, and a replay knows only the request's time
        book.created = now
        book.began = now
    book.requests += 1
    book.phase_requests += 1
    book.seen = max(book.seen, now)
    for arm in page:
        book.plays[arm] += 1
        if evidence:
            book.phase_plays[arm] += 1
    if evidence:
        if session:
            book.named += 1
            book.phase_named += 1
        else:
            book.phase_anonymous += 1
    for a in range(book.offered.shape[0]):
        if has(available, a):
            book.offered[a] = np.int64(now)


@kernel
def recount(book, page, other, sign, evidence):
    """Count the arms of `page` that are not in `other` as shown (`sign` 1), or no longer (−1): there are never more clicks."""
    for arm in page:
        among = arm < 0
        for a in other:
            among |= a == arm
        if not among:
            book.plays[arm] = max(book.plays[arm] + sign, book.clicks[arm])
            if evidence:
                book.phase_plays[arm] = max(book.phase_plays[arm] + sign, book.phase_clicks[arm])


@kernel
def count_click(book, arm):
    """Count a click in the totals. A crash may lose a show, but not its click: there are never more clicks than shows."""
    book.clicks[arm] += 1
    book.plays[arm] = max(book.plays[arm], book.clicks[arm])


@kernel
def forget_arm(book, arm):
    """Clear an arm for another candidate."""
    book.first[arm] = 0
    book.offered[arm] = 0
    book.plays[arm] = 0
    book.clicks[arm] = 0
    book.phase_plays[arm] = 0
    book.phase_clicks[arm] = 0
