"""Events with weights: what several events on one result of a decision add up to, and the click that the policy counts for it.

An event is worth its kind's weight times its value. The worth of a result is the sum over its events, at most 1: once for each id
of an event, and once for each kind among events without an id; of repeats the highest counts. Sums are of whole units, so that
order and splitting make no difference.

The policy learns clicks, not fractions. A worth w counts as a click with probability w: when it exceeds a uniform number that the
decision and the result determine. A growing worth can only turn the draw from no click to a click, and the same events always end
in the same draw. The draw is unbiased; it adds E[w (1 − w)] to the variance of the reward.

Tests: tests/serving/test_rewards.py, tests/service/test_events.py.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence

from swerve.serving.checks import PLAIN, check_kind
from swerve.serving.messages import Event, Refused
from swerve.serving.outcomes import KEY_BITS, MOST_MARKS, UNITS, Mark

#: Constants of the finaliser of splitmix64, and a word that sets these draws apart from all others.
_FIRST, _SECOND, _APART = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB, 0x5245_5741_5244_5321
_WORD = (1 << 64) - 1


class Rewards:
    """The weights of the kinds of events.

    >>> rewards = Rewards({"click": 0.25, "cart": 1.0})
    >>> rewards.units_of(Event("click", "a"), 0), rewards.units_of(Event("cart", "a", value=0.5), 1)
    (250, 500)
    """

    def __init__(self, weights: Mapping[str, float] = PLAIN) -> None:
        self.weights = dict(weights)

    def units_of(self, event: Event, index: int) -> int:
        """Return what an event is worth, in units; raises `Refused`."""
        weight = self.weights.get(event.kind)
        if weight is None:
            check_kind(event, index, self.weights)
            return 0
        return UNITS if weight == event.value == 1.0 else round(UNITS * weight * event.value)


def mark_of(slot: int, event: Event, units: int) -> Mark:
    """Return what is kept of an event that is not worth a whole click."""
    name = f"{event.kind}\0{event.id}" if event.id is not None else event.kind
    return slot, int.from_bytes(hashlib.blake2b(name.encode(errors="replace"), digest_size=KEY_BITS // 8).digest(), "little"), units


def added(before: Sequence[Mark], fresh: Iterable[Mark], full: int) -> tuple[tuple[Mark, ...], int]:
    """Return all marks, and the slots that are worth a whole click, as a mask; those have no marks. `full` has such slots so far.

    >>> added([(0, 7, 300)], [(0, 7, 200), (0, 8, 400), (1, 7, 600), (1, 9, 400)], 0b100)
    (((0, 7, 300), (0, 8, 400)), 6)
    """
    best: dict[tuple[int, int], int] = {(slot, key): units for slot, key, units in before}
    for slot, key, units in fresh:
        best[slot, key] = max(units, best.get((slot, key), 0))
    for slot, units in sums_of((slot, key, units) for (slot, key), units in best.items()).items():
        if units >= UNITS:
            full |= 1 << slot
    marks = tuple(sorted((slot, key, units) for (slot, key), units in best.items() if not full >> slot & 1))
    if len(marks) > MOST_MARKS:
        message = f"events bring {len(marks)} to the decision that are worth less than a click; at most {MOST_MARKS} are kept"
        raise Refused(422, "too_many", message, "events")
    return marks, full


def sums_of(marks: Iterable[Mark]) -> dict[int, int]:
    """Return the units of each slot that has marks."""
    sums: dict[int, int] = {}
    for slot, _, units in marks:
        sums[slot] = sums.get(slot, 0) + units
    return sums


def drawn(marks: Sequence[Mark], number: int, codes: Sequence[int]) -> int:
    """Return the slots whose marks count as a click, as a mask; `number` is the decision's, `codes` are those of its results."""
    clicks = 0
    for slot, units in sums_of(marks).items():
        if units << 64 > UNITS * uniform(number, codes[slot]):
            clicks |= 1 << slot
    return clicks


def uniform(number: int, code: int) -> int:
    """Return a word of 64 bits, uniform over decisions and results, from the decision's number and the code of a result."""
    word = _mixed((number ^ _APART) & _WORD)
    return _mixed((word + code + 1) & _WORD)


def _mixed(word: int) -> int:
    word = (word ^ word >> 30) * _FIRST & _WORD
    word = (word ^ word >> 27) * _SECOND & _WORD
    return word ^ word >> 31
