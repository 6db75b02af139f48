"""The compiled call of a ranking: requests packed into its arrays, and its answers taken out.

Assigning to NumPy arrays costs more than a decision, so each request is written with `struct`, into the memory of the arrays.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from swerve.core.examination import SLOTS
from swerve.serving import kernels
from swerve.serving.calls import BEGIN, GO_ON
from swerve.serving.columns import DIRTY
from swerve.serving.people_kernels import FROM_ELSEWHERE, SPENT_APART
from swerve.serving.place import Common
from swerve.serving.requests import Asking
from swerve.serving.rows import Shelf

if TYPE_CHECKING:
    from swerve.serving.ranker import Ranker

ASK = struct.Struct(f"={kernels.ASKED}q")
ANSWER = struct.Struct(f"={kernels.ANSWERED - kernels.ASKED}q")
#: The propensities of a page, by its slots.
CHANCES = tuple(struct.Struct(f"={slots}d") for slots in range(SLOTS + 1))
Column = NDArray[Any]
WORDS = (1 << 64) - 1
WORD = 8  # bytes of a number
CHANCES_AT = WORD * kernels.CHANCES  # bytes before them
#: Bytes of a request in `asks` and in `orders`.
ASK_BYTES, ORDER_BYTES = WORD * kernels.ASKS, kernels.ORDERS
FIRST_ROOM = 128  # requests for which there is room at the start


def picker(names: tuple[str, ...]) -> Callable[[dict[str, float | None]], Any]:
    """A function that takes the values of these names out of a table; faster than asking for each."""
    if len(names) > 1:
        return itemgetter(*names)
    return lambda given: [given[name] for name in names]


class Arrays:
    """The arrays of a compiled call, with room for `count` requests, and their memory."""

    __slots__ = ("ask_bytes", "asks", "fact_bytes", "facts", "order_bytes", "orders")

    def __init__(self, count: int, numbers: int) -> None:
        self.asks = np.zeros((count, kernels.ASKS), np.int64)
        self.orders = np.zeros((count, kernels.ORDERS), np.uint8)
        self.facts = np.zeros((count, kernels.FACTS + numbers))
        self.ask_bytes, self.order_bytes, self.fact_bytes = (
            memoryview(array.data).cast("B") for array in (self.asks, self.orders, self.facts)
        )


class Packing:
    """The arrays of one ranker's calls."""

    def __init__(self, ranker: Ranker) -> None:
        self.ranker, self._names = ranker, ranker.settings.numbers
        self._work = np.zeros(max(ranker.features, 1) + SLOTS)  # a context, and a number for each slot
        self._fact = struct.Struct(f"=2d{WORD * SLOTS}x{len(self._names)}d")  # the columns of `facts`
        self._pick = picker(self._names)
        self._tables = {shelf: number for number, shelf in enumerate(ranker.rows.tables)}
        self._none = [math.nan] * len(self._names)
        # A single request has arrays of its own: cutting larger ones to its size takes longer than packing it.
        self._one, self._many = Arrays(1, len(self._names)), Arrays(FIRST_ROOM, len(self._names))
        self._used = self._one  # by the last call

    def decide(self, run: Sequence[Asking], now: float) -> tuple[list[tuple[int, ...]], list[list[float]], list[bytes], int]:
        """Decide requests whose rows lie in one table, and share what they learn.

        Return the call's answers, the propensities of the slots, the arms in the order to show, and the first decision's number.
        """
        count, (begun, *_) = len(run), run[0]
        number = first = self.ranker.next_number
        arrays = self._used = self._one if count == 1 else self.room_for(count)
        asks, orders, facts = arrays.ask_bytes, arrays.order_bytes, arrays.fact_bytes
        pack, pack_fact, fact_bytes = ASK.pack_into, self._fact.pack_into, self._fact.size
        ask_at = order_at = fact_at = 0
        for place, person, newest, given, slots, as_given, keep in run:
            order, grades = place.order, place.grades
            size = len(order)
            pack(
                asks, ask_at, place.index, place.owner, place.second, place.mask, person, -1, 0, 0, 0, size, len(grades), slots,
                as_given, keep, number,
            )  # fmt: skip
            orders[order_at : order_at + size] = order
            if grades:
                orders[order_at + kernels.GRADES_AT : order_at + kernels.GRADES_AT + size] = grades
            pack_fact(facts, fact_at, newest, 0.0, *given)
            ask_at += ASK_BYTES
            order_at += ORDER_BYTES
            fact_at += fact_bytes
            number += 1
        columns = arrays.asks, arrays.orders, arrays.facts
        if count < len(arrays.asks):
            columns = arrays.asks[:count], arrays.orders[:count], arrays.facts[:count]
        self.decide_columns(begun.shelf, begun.common, *columns, now)
        answers, chances, shown = [], [], []
        ask_at, order_at, fact_at = ASK.size, kernels.ANSWERED_ORDER, CHANCES_AT
        for place, *_ in run:
            answer = ANSWER.unpack_from(asks, ask_at)
            answers.append(answer)
            chances.append(list(CHANCES[max(answer[0], 0)].unpack_from(facts, fact_at)))
            shown.append(bytes(orders[order_at : order_at + len(place.order)]))
            ask_at += ASK_BYTES
            order_at += ORDER_BYTES
            fact_at += fact_bytes
        return answers, chances, shown, first

    def decide_columns(
        self, shelf: Shelf, common: Common, asks: Column, orders: Column, facts: Column, now: float, steady: bool = False
    ) -> int:
        """Decide requests whose rows lie on a shelf and share what they learn: every compiled ranking goes through here, with its
        columns, which receive the answers; see `swerve.serving.kernels`.

        Return how many were decided, from the first on. With `steady` these end before one that may be shown an earlier ranking.
        """
        ranker, people = self.ranker, self.ranker.people
        within = people.seconds if steady else -1.0
        around = (
            shelf.params, ranker.senses, shelf.table, shelf.words, ranker.fixed[shelf], common.pools, common.owns,
            common.seasons, self._work,
            people.table, shelf.asked.words, people.room_for(len(asks)), len(shelf), self._tables[shelf], within,
        )  # fmt: skip
        count, todo, more = shelf.calls.rank(*around, BEGIN, asks, orders, facts, now, ranker.settings.draws)
        if count == 0:
            return 0
        came: list[int] = []
        if todo:
            came = self._finish(shelf, asks[:count], facts, now)
            if todo & (FROM_ELSEWHERE | SPENT_APART):
                _, _, more = shelf.calls.rank(*around, GO_ON, asks[:count], orders, facts, now, ranker.settings.draws)
        ranker.learnt = True
        ranker.issued += count
        if ranker.notes is not None:
            ranker.notes.ranked(shelf.asked.words, asks[:count], orders, facts, now)
            for row in came:  # played, the entries above leave out a row that is not known yet: it follows as it is now
                ranker.notes.know(shelf.owners[row])
        if more:
            self._teach(shelf, asks[:count], orders)
        return int(count)

    def _teach(self, shelf: Shelf, asks: Column, orders: Column) -> None:
        """Note of pages what the columns have no room for."""
        people = self.ranker.people
        for k in people.teaching(len(asks)):
            place, filled, phase = shelf.owners[asks[k, kernels.ROW]], int(asks[k, kernels.FILLED]), int(asks[k, kernels.PHASE])
            shown = orders[k, kernels.ANSWERED_ORDER : kernels.ANSWERED_ORDER + filled].tolist()
            people.shown(int(asks[k, kernels.PERSON]) & WORDS, place.key, phase, [place.shorts[arm] for arm in shown])

    def _finish(self, shelf: Shelf, asks: Column, facts: Column, now: float) -> list[int]:
        """Do what the columns leave to do of what sessions have done before; return the rows of the shelf that they came from."""
        ranker, people, count = self.ranker, self.ranker.people, len(asks)
        for k, key in people.elsewhere(count):
            came = ranker.left(shelf, key, float(facts[k, kernels.LEFT_AT]), now)
            asks[k, kernels.LEFT], asks[k, kernels.LEFT_OWNER] = came
        for k in people.apart(count):
            place = shelf.owners[asks[k, kernels.ROW]]
            spent = people.spent_by(int(asks[k, kernels.PERSON]) & WORDS, place.key)
            if spent is not None:
                asks[k, kernels.SPENT], asks[k, kernels.SPENT_PHASE] = place.mask_of(spent.results), spent.phase
        lefts = asks[:, kernels.LEFT]
        rows = lefts[lefts >= 0]
        found: list[int] = rows.tolist()
        if count > 1:  # a look at each place would take longer
            rows = rows[shelf.asked.flags[rows] & np.uint64(DIRTY) == 0]
        for row in rows.tolist():
            if not (place := shelf.owners[row]).dirty:
                ranker.mark(place, now)
        return found

    def choices(self, count: int) -> list[list[int]]:
        """Return the arms that the policy would have put into the slots, for the requests of the last call, shown as given."""
        found: list[list[int]] = self._used.asks[:count, kernels.OTHER : kernels.OTHER + SLOTS].tolist()
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

    def room_for(self, count: int) -> Arrays:
        """Return arrays for this many requests, or more."""
        if len(self._many.asks) < count:
            self._many = Arrays(count, len(self._names))
        return self._many
