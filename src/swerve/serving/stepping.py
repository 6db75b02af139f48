"""Plays decisions and feedback of a journal one by one, by the code that serves.

`swerve.serving.play_kernels.play_many` plays a million of them in a second, and compiling it takes as long as compiling all the
code that serves, which a service has at hand. So a short log is played here, to the same bytes.

Tests: tests/serving/test_playing.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from swerve.serving import feedback_kernel, kernels
from swerve.serving.calls import GO_ON
from swerve.serving.entries import BODY, F_SHOWN, GONE_ON, NOW, RANKED, RESPONDED, SIZE_AT
from swerve.serving.entry_kernels import NOWHERE
from swerve.serving.ledger import MISPLACED, count_click
from swerve.serving.packing import Arrays
from swerve.serving.people_kernels import MOVES
from swerve.serving.place import Common
from swerve.serving.play_kernels import count_one, unpack_one
from swerve.serving.rows import Shelf

if TYPE_CHECKING:
    from swerve.serving.ranker import Ranker

#: In place of the seconds within which a session's page is shown again: entries have no repeats.
NEVER = -1.0


class Steps:
    """Plays entries on the rows of a ranker; `counts` are those of `swerve.serving.entry_kernels`."""

    def __init__(self, ranker: Ranker, work: NDArray[np.float64], counts: NDArray[np.int64]) -> None:
        self.ranker, self.counts, self._work = ranker, counts, work
        self.taken = 0  # steps so far
        self._arrays = Arrays(1, len(ranker.settings.numbers))
        self._ask = np.zeros(feedback_kernel.RESPONSE, np.int64)
        # what sessions have done is in the entries: a table that tracks none, of the type for which the code is compiled
        self._people = np.zeros(1, ranker.people.table.dtype)
        self._moves = np.zeros((1, MOVES), np.uint64)
        self._unpack, self._count = unpack_one.bind(), count_one.bind()

    def run(
        self, shelf: Shelf, common: Common, numbers: tuple[int, int], lines: NDArray[np.int64], entries: NDArray[np.int64], at: int
    ) -> int:
        """Play entries, from a word on, as long as they are decisions and feedback for rows of a shelf, which share what they
        learn; return the word of the first that is not. `numbers` are those of the shelf and of what its rows share."""
        arrays, floats = self._arrays, entries.view(np.float64)
        columns = arrays.asks, arrays.orders, arrays.facts
        while at < len(entries):
            kind, row, page = self._unpack(entries, at, lines, *numbers, shelf.arms, *columns, self._ask)
            if kind == NOWHERE or not self._play(shelf, common, numbers[0], kind, row, floats, entries, at):
                return at
            if kind in (RANKED, RESPONDED):
                self._count(entries, at, page, arrays.asks, self.counts)
            self.taken += 1
            at += int(entries[at]) >> SIZE_AT
        return at

    def _play(
        self, shelf: Shelf, common: Common, number: int, kind: int, row: int, floats: Any, entries: NDArray[np.int64], at: int
    ) -> bool:
        """Play one entry; return whether its row is that of its query."""
        ranker, arrays, now = self.ranker, self._arrays, float(floats[at + NOW])
        if kind == RANKED:
            shelf.calls.rank(
                shelf.params, ranker.senses, shelf.table, shelf.words, ranker.fixed[shelf], common.pools, common.owns,
                common.seasons, self._work, self._people, shelf.asked.words, self._moves, len(shelf), number, NEVER, GO_ON,
                arrays.asks, arrays.orders, arrays.facts, now, 0,
            )  # fmt: skip
            return bool(arrays.asks[0, kernels.FILLED] != MISPLACED)
        if kind == RESPONDED:
            shown = float(floats[at + F_SHOWN])
            return bool(
                shelf.calls.respond(shelf.params, ranker.senses, shelf.table, common.pools, self._ask, shown, now) != MISPLACED
            )
        place = shelf.owners[row]
        if kind == GONE_ON:
            when = float(floats[at + BODY])
            return bool(shelf.calls.left(ranker.senses, shelf.table, row, place.owner, when, now) != MISPLACED)
        count_click(place.record.ledger, int(entries[at + BODY]))  # type: ignore[no-untyped-call]
        return True
