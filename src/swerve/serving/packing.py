"""The compiled call of a ranking: requests packed into its arrays, and its answers taken out.

Assigning to NumPy arrays costs more than the decision of a single request, so one request is written with `struct`, and several by
column. Both must write the same columns: change them together.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from swerve.core.examination import SLOTS
from swerve.serving import kernels
from swerve.serving.requests import Asking
from swerve.serving.tokens import NUMBER_BITS

if TYPE_CHECKING:
    from swerve.serving.ranker import Ranker

ASK = struct.Struct(f"={kernels.ASKED}q")
ANSWER = struct.Struct(f"={kernels.ANSWERED - kernels.ASKED}q")
CHANCES = struct.Struct(f"={SLOTS}d")
CHANCES_AT = 8 * kernels.CHANCES  # bytes before them
NO_CHANCES = (0.0,) * SLOTS


def picker(names: tuple[str, ...]) -> Callable[[dict[str, float | None]], Any]:
    """A function that takes the values of these names out of a table; faster than asking for each."""
    if len(names) > 1:
        return itemgetter(*names)
    return lambda given: [given[name] for name in names]


class Packing:
    """The arrays of one ranker's calls."""

    def __init__(self, ranker: Ranker) -> None:
        self.ranker, self._names = ranker, ranker.settings.numbers
        self._work = np.zeros(max(ranker.features, 1) + SLOTS)  # a context, and a number for each slot
        self._fact = struct.Struct(f"={kernels.FACTS + len(self._names)}d")
        self._pick = picker(self._names)
        self._none = [math.nan] * len(self._names)
        self._one, self._many = self._arrays(1), self._arrays(128)
        self._order = memoryview(self._one[1]).cast("B")

    def decide(self, run: Sequence[Asking], now: float) -> tuple[list[Sequence[int]], list[Sequence[float]], list[bytes], int]:
        """Decide requests whose rows lie in one table, and share what they learn.

        Return the call's answers, the propensities of the slots, the arms in the order to show, and the first decision's number.
        """
        ranker, shelf = self.ranker, run[0][0].shelf
        single = len(run) == 1
        first = (ranker.life.id << NUMBER_BITS | ranker.issued) + 1
        if single:  # packing by hand takes half the time of assigning to arrays
            ((place, session, newest, given, left, owner, when, spent, phase, slots, as_given),) = run
            asks, orders, facts = self._one
            count = len(place.order)
            ASK.pack_into(
                asks, 0, place.index, place.owner, place.mask, session != 0, left, owner, spent, phase, count, len(place.grades),
                slots, as_given, first,
            )  # fmt: skip
            self._order[:count] = place.order
            if place.grades:
                self._order[kernels.GRADES_AT : kernels.GRADES_AT + count] = place.grades
            self._fact.pack_into(facts, 0, newest, when, *NO_CHANCES, *given)
        else:
            places, sessions, newests, givens, lefts, owners, whens, spents, phases, slots_of, shown_as_given = zip(
                *run, strict=True
            )
            asks, orders, facts = self._room_for(len(run))
            asks[:, kernels.ROW] = [place.index for place in places]
            asks[:, kernels.OWNER] = [place.owner for place in places]
            asks[:, kernels.OFFER] = [place.mask for place in places]
            asks[:, kernels.SESSION] = [session != 0 for session in sessions]
            asks[:, kernels.LEFT], asks[:, kernels.LEFT_OWNER] = lefts, owners
            asks[:, kernels.SPENT], asks[:, kernels.SPENT_PHASE] = spents, phases
            asks[:, kernels.CANDIDATES] = [len(place.order) for place in places]
            asks[:, kernels.GRADED] = [len(place.grades) for place in places]
            asks[:, kernels.FILL], asks[:, kernels.AS_GIVEN] = slots_of, shown_as_given
            asks[:, kernels.NUMBER] = range(first, first + len(run))
            for k, place in enumerate(places):
                orders[k, : len(place.order)] = np.frombuffer(place.order, np.uint8)
                if place.grades:
                    orders[k, kernels.GRADES_AT : kernels.GRADES_AT + len(place.grades)] = np.frombuffer(place.grades, np.uint8)
            facts[:, kernels.NEWEST], facts[:, kernels.LEFT_AT] = newests, whens
            if self._names:
                facts[:, kernels.FACTS :] = givens
        common = run[0][0].common
        shelf.calls.rank(
            shelf.params, ranker.senses, shelf.table, shelf.words, ranker.fixed[shelf], common.pools, common.seasons,
            self._work, asks, orders, facts, now, ranker.settings.draws,
        )  # fmt: skip
        ranker.learnt = True
        ranker.issued += len(run)
        if single:
            order = bytes(self._order[kernels.ANSWERED_ORDER : kernels.ANSWERED_ORDER + count])
            return [ANSWER.unpack_from(asks, ASK.size)], [CHANCES.unpack_from(facts, CHANCES_AT)], [order], first
        shown, width, after = orders[:, kernels.ANSWERED_ORDER :].tobytes(), kernels.ORDERS - kernels.ANSWERED_ORDER, 0
        found = []
        for place in places:
            found.append(shown[after : after + len(place.order)])
            after += width
        return (
            asks[:, kernels.ASKED : kernels.ANSWERED].tolist(),
            facts[:, kernels.CHANCES : kernels.CHANCES + SLOTS].tolist(),
            found,
            first,
        )

    def choices(self, count: int) -> list[list[int]]:
        """Return the arms that the policy would have put into the slots, for the requests of the last call, shown as given."""
        asks = self._one[0] if count == 1 else self._many[0][:count]
        found: list[list[int]] = asks[:, kernels.OTHER : kernels.OTHER + SLOTS].tolist()
        return found

    def numbers_in(self, given: dict[str, float | None] | None) -> Sequence[float]:
        """Return the numbers that the caller sent, in the order of the configuration; NaN for null and for those left out."""
        if not given:
            return self._none
        try:
            picked: Sequence[float] = self._pick(given)
            if None not in picked:
                return picked
        except KeyError:
            pass
        return [math.nan if (number := given.get(name)) is None else number for name in self._names]

    def _room_for(self, count: int) -> Any:
        """Return arrays for this many requests."""
        if len(self._many[0]) < count:
            self._many = self._arrays(max(count, 128))
        return tuple(array[:count] for array in self._many)

    def _arrays(self, count: int) -> Any:
        facts = np.zeros((count, kernels.FACTS + len(self._names)))
        return np.zeros((count, kernels.ASKS), np.int64), np.zeros((count, kernels.ORDERS), np.uint8), facts
