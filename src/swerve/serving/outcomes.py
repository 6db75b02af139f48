"""What has become of a decision so far, as one number: the store keeps it by the decision's number, so that a repeat counts once.

Nearly all numbers fit in 64 bits. The results that were really shown, where a caller reports them, take more.
"""

from __future__ import annotations

from collections.abc import Iterable
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

#: Units of a whole click: the worth of events is counted in them, see `swerve.serving.rewards`.
UNITS = 1000
#: Bits of the hash of an event's kind and id, and of units below a whole click.
KEY_BITS, UNIT_BITS = 32, 10
#: Marks of one decision: bounds what the store keeps of it.
MOST_MARKS = 100
MARKS_BITS = 7

#: What is known of an event that is not worth a whole click: its slot, the hash of its kind and id, its units.
Mark = tuple[int, int, int]


class Outcome(NamedTuple):
    """The state of a decision after feedback; `status` 0: no feedback yet.

    Masks are of slots. `clicks` are those that the policy counts, `clicked` all that were reported; `outside` says that a result
    below the slots was clicked. `final` has the codes of the results that were really shown, None if they are the decision's own.
    `marks` has the events on slots that are worth less than a click in sum, sorted; a slot that was reported and has no marks is
    worth a whole one. `ignored` are the slots whose clicks are no evidence, `late` those that were late: a repeat is answered
    as its first was.
    """

    status: int
    seen: int
    clicks: int = 0
    clicked: int = 0
    outside: bool = False
    final: tuple[int, ...] | None = None
    marks: tuple[Mark, ...] = ()
    ignored: int = 0
    late: int = 0

    @property
    def told(self) -> int:
        """The slots on which an event was reported, as a mask."""
        return self.clicked | slots_of(self.marks)

    def reward(self) -> float:
        """Return what the events on the slots are worth, at most 1 for each.

        >>> Outcome(LEARNED, 7, clicked=0b11, marks=((1, 99, 300), (2, 99, 250))).reward()
        1.55
        """
        return (self.clicked & ~slots_of(self.marks)).bit_count() + sum(units for _, _, units in self.marks) / UNITS


def slots_of(marks: Iterable[Mark]) -> int:
    """Return the slots that have marks, as a mask.

    >>> slots_of([(0, 99, 300), (2, 99, 250)])
    5
    """
    slots = 0
    for slot, _, _ in marks:
        slots |= 1 << slot
    return slots


def expected_late(outcome: Outcome) -> int:
    """Return the slots that are late if all events have had the outcome's status: the number has only what differs from that."""
    return outcome.told & ~outcome.ignored if outcome.status == LATE else 0


def encode(outcome: Outcome) -> int:
    """Return the number of an outcome.

    >>> decode(encode(Outcome(LEARNED, 7, 2, 2, False, (5, GONE))))
    Outcome(status=1, seen=7, clicks=2, clicked=2, outside=False, final=(5, 32767), marks=(), ignored=0, late=0)
    """
    status, seen, clicks, clicked, outside, final, marks, ignored, late = outcome
    number = (late ^ expected_late(outcome)) << SLOTS | ignored
    if marks or number:
        for slot, key, units in reversed(marks):
            number = ((number << UNIT_BITS | units) << KEY_BITS | key) << COUNT_BITS | slot
        number = number << MARKS_BITS | len(marks)
        if final is None:
            number <<= COUNT_BITS
    if final is not None:
        for code in reversed(final):
            number = number << CODE_BITS | code
        number = number << COUNT_BITS | len(final) + 1
    for mask in (clicked, clicks, seen):
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
        number >>= CODE_BITS * (count - 1)
    seen, clicks, clicked = masks
    marks, number = _marks(number)
    found = Outcome(status, seen, clicks, clicked, outside, final, marks, number & (1 << SLOTS) - 1)
    return found._replace(late=number >> SLOTS ^ expected_late(found))


def _marks(number: int) -> tuple[tuple[Mark, ...], int]:
    """Return the marks of a number, and what is left of it."""
    marks: list[Mark] = []
    count, number = number & (1 << MARKS_BITS) - 1, number >> MARKS_BITS
    for _ in range(count):
        slot, number = number & (1 << COUNT_BITS) - 1, number >> COUNT_BITS
        key, number = number & (1 << KEY_BITS) - 1, number >> KEY_BITS
        marks.append((slot, key, number & (1 << UNIT_BITS) - 1))
        number >>= UNIT_BITS
    return tuple(marks), number
