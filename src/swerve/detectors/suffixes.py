"""The most recent plays of an arm, of about 1, 2, 4, 8, … plays, from one number per size: what tests for a change look at.

A test for a change compares the latest plays with those before, for every length of "latest". That needs the whole history; a
geometric grid of lengths loses at most a constant factor of the evidence and needs `levels` numbers per arm. Mark k is what the
arm had earned when a suffix began that has between 2^k and 2^(k+1) − 1 plays by now.

How to use it: `push` with the counts so far, just before each play; then take the play in; then ask for `suffix`. Counts run
from the last `forget`, and every play is pushed once: where a mark stands follows from the number of plays, so it need not be kept.
What a click earned late is counted into the suffix in which it arrived.

When play n is about to come and 2^k divides n, mark k takes over the place of mark k − 1, which has then reached its largest
distance; mark 0 is always the latest place. One push moves two marks on average.

A mark is a total modulo 2^20 in steps of 1/4096, so that four bytes do at any number of plays: sums of clicks are exact, other
rewards are off by at most 1/4096 per suffix. Datar, Gionis, Indyk and Motwani (SIAM J. Comput. 31, 2002) count in exponential
buckets for the same reason.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from swerve.core.errors import SwerveError
from swerve.core.verbs import kernel

STEPS = 4096.0
WORD = np.int64(0xFFFFFFFF)
MOST_LEVELS = 19  # the longest suffix then has 2^19 − 1 plays: its total stays below the 2^20 at which a mark wraps around


def suffix_layout(arms: int, levels: int) -> list[tuple[Any, ...]]:
    """The marks of each arm: 4 bytes each.

    >>> suffix_layout(8, 12)
    [('marks', 'u4', (8, 12))]
    """
    if not 1 <= levels <= MOST_LEVELS:
        raise SwerveError(f"levels = {levels} is not allowed; levels must be in [1, {MOST_LEVELS}]")
    return [("marks", "u4", (arms, levels))]


@kernel
def word_of(total):
    """A total as marks keep it."""
    return np.int64(total * STEPS + 0.5) & WORD


@kernel
def push(row, arm, plays, total):
    """Note where the arm stands before its next play: `plays` plays so far, which earned `total`."""
    top = 0
    while top + 1 < row.marks.shape[1] and plays & ((2 << top) - 1) == 0:
        top += 1
    for k in range(top, 0, -1):
        row.marks[arm, k] = row.marks[arm, k - 1]
    row.marks[arm, 0] = word_of(total)


@kernel
def length_of(k, plays):
    """How many plays suffix k has after `plays` plays: from 2^k to 2^(k+1) − 1, or all of them while there are no more than 2^k."""
    size = np.int64(1) << k
    return plays if plays <= size else ((plays - 1) & (size - 1)) + size


@kernel
def suffix(row, arm, k, plays, total):
    """The latest plays of the arm at level k, and what they earned; `plays` and `total` are its counts now."""
    n = length_of(k, plays)
    earned = ((word_of(total) - np.int64(row.marks[arm, k])) & WORD) / STEPS
    return n, min(earned, float(n))  # a late click may have been earned by a play before the suffix


@kernel
def forget(row, arm):
    """Start the arm's record over; its counts start at 0 again."""
    for k in range(row.marks.shape[1]):
        row.marks[arm, k] = 0


@kernel
def due(k, plays, every):
    """Whether level k is to be tested after `plays` plays, a multiple of `every`.

    Short suffixes are tested each time, longer ones whenever an eighth of 2^k plays has come in: before that they would hardly have
    changed. After a level that is not due comes none that is.
    """
    return k < 6 or plays & ((np.int64(1) << (k - 3)) - 1) < every
