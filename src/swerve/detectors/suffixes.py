"""The latest plays of an arm in suffixes of about 1, 2, 4, 8, … plays, from one number per size.

A test for a change compares the latest plays with those before, for every length of "latest". An exact test needs the whole
history. A geometric grid of lengths loses at most a constant factor of the evidence and needs one number per level and arm. Mark k
is the total that the arm had earned when a suffix began that now has between 2^k and 2^(k+1) − 1 plays.

Usage: call `push` with the counts so far just before each play; count the play; then ask for `suffix`. Counts run from the last
`forget`, and every play is pushed once: the position of a mark follows from the number of plays, so it is not stored. A late click
is counted in the suffix in which it arrives.

When 2^k divides n, the number of plays so far, mark k takes over the value of mark k − 1, which has then reached its largest
distance. Mark 0 is always the latest total. One push moves two marks on average.

A mark is a total modulo 2^20 in steps of 1/4096, so that four bytes suffice for any number of plays: sums of clicks are exact,
other rewards are off by at most 1/4096 per suffix. Datar, Gionis, Indyk and Motwani (SIAM J. Comput. 31, 2002) count in exponential
buckets for the same reason.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from swerve.core.errors import SwerveError
from swerve.core.verbs import kernel

STEPS = 4096.0  # steps of a mark per unit of reward
WORD = np.int64(0xFFFFFFFF)  # the 32 bits of a mark
MOST_LEVELS = 19  # the longest suffix then has 2^19 − 1 plays: its total stays below the 2^20 at which a mark wraps around
ALWAYS = 6  # levels below this, of up to 63 plays, are tested every time
EIGHTH = 3  # longer ones after every 2^(k − 3) plays, an eighth of 2^k


def suffix_layout(arms: int, levels: int) -> list[tuple[Any, ...]]:
    """Return the field of the marks of each arm: 4 bytes per mark.

    >>> suffix_layout(8, 12)
    [('marks', 'u4', (8, 12))]
    """
    if not 1 <= levels <= MOST_LEVELS:
        raise SwerveError(f"levels = {levels} is not allowed; levels must be in [1, {MOST_LEVELS}]")
    return [("marks", "u4", (arms, levels))]


@kernel
def word_of(total):
    """Return a total in the form in which marks store it."""
    return np.int64(total * STEPS + 0.5) & WORD


@kernel
def push(row, arm, plays, total):
    """Record the arm's counts before its next play: `plays` plays so far, which earned `total`."""
    top = 0
    while top + 1 < row.marks.shape[1] and plays & ((2 << top) - 1) == 0:
        top += 1
    for k in range(top, 0, -1):
        row.marks[arm, k] = row.marks[arm, k - 1]
    row.marks[arm, 0] = word_of(total)


@kernel
def length_of(k, plays):
    """Return the length of suffix k after `plays` plays: 2^k to 2^(k+1) − 1, or all plays while there are at most 2^k."""
    size = np.int64(1) << k
    return plays if plays <= size else ((plays - 1) & (size - 1)) + size


@kernel
def suffix(row, arm, k, plays, total):
    """Return the length and reward of the arm's suffix at level k; `plays` and `total` are its counts now."""
    n = length_of(k, plays)
    earned = ((word_of(total) - np.int64(row.marks[arm, k])) & WORD) / STEPS
    return n, min(earned, float(n))  # a late click may belong to a play before the suffix


@kernel
def forget(row, arm):
    """Forget the arm's marks. Its counts must restart at 0."""
    for k in range(row.marks.shape[1]):
        row.marks[arm, k] = 0


@kernel
def due(k, plays, check_every):
    """Return whether level k is tested after `plays` plays, a multiple of `check_every`.

    Short suffixes are tested every time, longer ones after every eighth of 2^k plays: before that they have hardly changed. If a
    level is not due, no higher level is due.
    """
    return k < ALWAYS or plays & ((np.int64(1) << (k - EIGHTH)) - 1) < check_every
