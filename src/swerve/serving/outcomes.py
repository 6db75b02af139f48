"""What has become of a decision so far, as one number: the store keeps it by the decision's number, so that a repeat counts once.

Nearly all numbers fit in 64 bits. The results that were really shown, where a caller reports them, take more.
"""

from __future__ import annotations

from typing import NamedTuple

from swerve.core.decisions import ARM_BITS, GENERATION_BITS
from swerve.core.examination import SLOTS
from swerve.serving.messages import Status

#: What became of feedback: learned; counted, but nothing is left that it could be learnt into; counted, but no evidence.
LEARNED, LATE, IGNORED = 1, 2, 3
STATUSES: dict[int, Status] = {LEARNED: "learned", LATE: "late", IGNORED: "ignored"}

#: Bits of one slot of `final`: an arm and its generation, or `GONE`.
CODE_BITS = ARM_BITS + GENERATION_BITS + 1
#: A result without an arm.
GONE = (1 << CODE_BITS) - 1
STATUS_BITS, COUNT_BITS = 2, 4


class Outcome(NamedTuple):
    """The state of a decision after feedback; `status` 0: no feedback yet.

    Masks are of slots. `clicks` are those that the policy counts, `heard` all that were reported; `outside` says that a result
    below the slots was clicked. `final` has the codes of the results that were really shown, None if they are the decision's own.
    """

    status: int
    seen: int
    clicks: int = 0
    heard: int = 0
    outside: bool = False
    final: tuple[int, ...] | None = None


def encode(outcome: Outcome) -> int:
    """Return the number of an outcome.

    >>> decode(encode(Outcome(LEARNED, 7, 2, 2, False, (5, GONE))))
    Outcome(status=1, seen=7, clicks=2, heard=2, outside=False, final=(5, 32767))
    """
    status, seen, clicks, heard, outside, final = outcome
    number = 0
    if final is not None:
        for code in reversed(final):
            number = number << CODE_BITS | code
        number = number << COUNT_BITS | len(final) + 1
    for mask in (heard, clicks, seen):
        number = number << SLOTS | mask
    return (number << 1 | outside) << STATUS_BITS | status


def decode(number: int) -> Outcome:
    """Return the outcome of a number."""
    status, number = number & (1 << STATUS_BITS) - 1, number >> STATUS_BITS
    outside, number = bool(number & 1), number >> 1
    masks = []
    for _ in range(3):
        masks.append(number & (1 << SLOTS) - 1)
        number >>= SLOTS
    count, number = number & (1 << COUNT_BITS) - 1, number >> COUNT_BITS
    final = None
    if count:
        final = tuple(number >> CODE_BITS * slot & GONE for slot in range(count - 1))
    seen, clicks, heard = masks
    return Outcome(status, seen, clicks, heard, outside, final)
