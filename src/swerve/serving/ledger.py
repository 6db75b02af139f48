"""What a query's row remembers beside the policy's own state: totals, the current phase, and why there were alarms.

A *phase* of the service begins with every alarm and every restart. Feedback counts for the policy only inside the phase in which
its ranking was made. The log of alarms is a ring of the last few: when, which signal, how strong, and what the test concluded.

A show is *evidence* when the policy learns of it. One person must not move what many made, so a session is heard a bounded number
of times on each result in a phase (`swerve.serving.evidence`), and requests without a session add a bounded share.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from swerve.core.contract import ALARM, LABEL_FALSE, LABEL_TRUE, RESTARTED, REVISED
from swerve.core.tables import has
from swerve.core.verbs import kernel

LOG = 8  # alarms remembered

#: Who raised an alarm when it was none of the configured signals.
CLICKS, OPERATOR = -1, -2

#: What came of an alarm: its test is open; there was a shift; there was none; it ended without a verdict.
OPEN, SHIFT, NO_SHIFT, CUT = 0, 1, 2, 3

MOST_DRAWS = 256.0  # that the running estimate of a candidate's chance looks back over
ANONYMOUS = 20  # units of evidence in a phase that requests without a session may always add
ENOUGH_DRAWS = 48.0  # from here on one further draw, at every fourth request, keeps it up to date


def ledger_layout(arms: int, features: int) -> list[tuple[Any, ...]]:
    """Fields of the ledger for this many arms and features."""
    return [
        ("owner", "i8"),  # of the query's key: whoever writes into the record says whose it is
        ("created", "f8"),
        ("seen", "f8"),
        ("requests", "i8"),
        ("phase", "i8"),
        ("began", "f8"),  # when the phase did
        ("shifted", "f8"),  # when the last shift was found, 0 before
        ("phase_requests", "i8"),
        ("named", "i8"),  # units of evidence from sessions, all there have been
        ("phase_named", "i4"),  # of this phase, and those from requests without a session
        ("phase_anonymous", "i4"),
        ("drawn", "f8"),  # draws behind `chance`
        ("offer", "i8"),  # the mask they were made for
        ("alarms", "i8"),  # all there have been; the ring holds the last LOG
        ("alarm_at", "u4", LOG),  # times in whole seconds from here on: a row is kept a million times
        ("alarm_value", "f4", LOG),
        ("alarm_phase", "i4", LOG),
        ("alarm_signal", "i1", LOG),
        ("alarm_verdict", "i1", LOG),
        ("surprise", "f4", features),  # the last context, for whoever asks
        ("first", "u4", arms),  # when the candidate was first seen; 0 for those that the query began with
        ("offered", "u4", arms),  # when it was last on offer
        ("plays", "i4", arms),
        ("clicks", "i4", arms),
        ("phase_plays", "i4", arms),
        ("phase_clicks", "i4", arms),
        ("chance", "f4", arms),  # estimate of the probability to be chosen
    ]


@kernel
def begin_ledger(book, owner, now):
    """A fresh query."""
    book.owner = owner
    book.created = now
    book.seen = now
    book.began = now
    book.phase = 1


@kernel
def next_phase(book, now):
    """Counts start over; totals go on."""
    book.phase += 1
    book.began = now
    book.phase_requests = 0
    book.phase_named = 0
    book.phase_anonymous = 0
    book.drawn = 0.0
    for arm in range(book.plays.shape[0]):
        book.phase_plays[arm] = 0
        book.phase_clicks[arm] = 0


@kernel
def log_alarm(book, signal, value, verdict, now):
    """Remember an alarm; one that is still open will get no verdict of its own any more."""
    if book.alarms > 0 and book.alarm_verdict[(book.alarms - 1) % LOG] == OPEN:
        book.alarm_verdict[(book.alarms - 1) % LOG] = CUT
    place = book.alarms % LOG
    book.alarm_at[place] = np.int64(now)
    book.alarm_value[place] = value
    book.alarm_phase[place] = book.phase
    book.alarm_signal[place] = signal
    book.alarm_verdict[place] = verdict
    book.alarms += 1


@kernel
def conclude(book, verdict, now):
    """The verdict on the last alarm; whether there was one that waited for it."""
    place = (book.alarms - 1) % LOG
    if book.alarms == 0 or book.alarm_verdict[place] != OPEN:
        return False
    book.alarm_verdict[place] = verdict
    if verdict == SHIFT:
        book.shifted = now
    return True


@kernel
def note(book, report, signal, value, tested, testing, now):
    """Enter what `settle` and `observe` reported; `tested` and `testing` say whether a test was open before and is now."""
    labels, unasked = LABEL_TRUE | LABEL_FALSE, False
    if report & REVISED and book.alarms > 0 and book.alarm_verdict[(book.alarms - 1) % LOG] == NO_SHIFT:
        book.alarm_verdict[(book.alarms - 1) % LOG] = SHIFT
        book.shifted = now
    if report & labels:
        conclude(book, SHIFT if report & LABEL_TRUE else NO_SHIFT, now)
    elif report & ALARM == 0:
        if tested and not testing:  # the test ended without a word: nothing had changed, or nobody can say
            conclude(book, CUT if report & RESTARTED else NO_SHIFT, now)
        elif report & RESTARTED and not conclude(book, SHIFT, now):
            unasked = True
    if report & (ALARM | RESTARTED):
        next_phase(book, now)
    if unasked:  # nobody had called: the clicks themselves told of a change, or gave reason to look for one
        log_alarm(book, CLICKS, 0.0, OPEN if testing else SHIFT, now)
        if not testing:
            book.shifted = now
    if report & ALARM:
        log_alarm(book, signal, value, OPEN, now)


@kernel
def is_evidence(book, arm, session, heard, heard_phase, share):
    """Whether the policy is to learn that the arm is shown.

    `heard` are the arms that the session has had its say on in phase `heard_phase`. `share` is, in thousandths of what sessions
    have added in this phase, what requests without one may add where sessions are known; negative: everything is evidence.
    """
    if share < 0:
        return True
    if session:
        return heard_phase != book.phase or not has(heard, arm)
    return book.named == 0 or book.phase_anonymous < ANONYMOUS + book.phase_named * share // 1000


@kernel
def count_show(book, arm, available, session, evidence, now):
    """The arm was put on top, the others of `available` were on offer."""
    if book.requests == 0:  # a row is made a moment before its first request; a replay knows the request's time only
        book.created = now
        book.began = now
    book.requests += 1
    book.phase_requests += 1
    book.seen = max(book.seen, now)
    book.plays[arm] += 1
    if evidence:
        book.phase_plays[arm] += 1
        if session:
            book.named += 1
            book.phase_named += 1
        else:
            book.phase_anonymous += 1
    for a in range(book.offered.shape[0]):
        if has(available, a):
            book.offered[a] = np.int64(now)


@kernel
def count_draws(book, wins, draws, arm, available):
    """Fold draws of the policy's choice (and the choice itself) into the running chances; the chosen arm's chance.

    The estimate looks back over as many draws as the phase has requests: what was drawn before a fifth of what the policy knows
    now was known hardly counts, and what changes the choice (another phase, another offer) starts it over.
    """
    if book.offer != available:
        book.offer = available
        book.drawn = 0.0
    kept = min(book.drawn, min(float(book.phase_requests), MOST_DRAWS))
    book.drawn = kept + draws + 1.0
    for a in range(book.chance.shape[0]):
        if has(available, a):
            before = float(book.chance[a]) * kept if kept > 0.0 else 0.0
            book.chance[a] = (before + wins[a] + (1.0 if a == arm else 0.0)) / book.drawn
    return float(book.chance[arm])


@kernel
def likeliest(book, available):
    """The arm on offer with the highest chance, the first of equals."""
    best, which = -1.0, -1
    for a in range(book.chance.shape[0]):
        if has(available, a) and book.chance[a] > best:
            best, which = book.chance[a], a
    return which


@kernel
def forget_arm(book, arm):
    """The place goes to another candidate."""
    book.first[arm] = 0
    book.offered[arm] = 0
    book.plays[arm] = 0
    book.clicks[arm] = 0
    book.phase_plays[arm] = 0
    book.phase_clicks[arm] = 0
    book.chance[arm] = 0.0
