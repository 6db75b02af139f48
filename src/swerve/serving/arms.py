"""Which candidate holds which arm of a query's record, and which one leaves when there is no room."""

from __future__ import annotations

from typing import Any

import numpy as np

from swerve.serving.keys import signed
from swerve.serving.ledger import MISPLACED
from swerve.serving.notes import Notes
from swerve.serving.place import Place
from swerve.serving.requests import Misplaced
from swerve.serving.rows import Rows
from swerve.serving.settings import Settings


def written(place: Place, outcome: int) -> int:
    """Return the outcome of a compiled call; raise `Misplaced` when it refused to write into another query's record."""
    if outcome == MISPLACED:
        raise Misplaced(place)
    return int(outcome)


class Arms:
    """Gives candidates their arms."""

    def __init__(self, rows: Rows, settings: Settings, senses: Any) -> None:
        self.rows, self.settings, self.senses = rows, settings, senses
        self.evicted = 0  # candidates that lost their arm to another
        self.notes: Notes | None = None  # see `Ranker.notes`

    def admit(self, place: Place, ids: list[str], now: float) -> bool:
        """Give every candidate an arm and note what is on offer; False when there are too many."""
        arms = place.arms
        missing = [candidate for candidate in ids if candidate not in arms]
        if missing:
            if len(ids) > self.settings.arms:
                return False
            present = {arms[candidate] for candidate in ids if candidate in arms}
            young = not arms  # the query's first candidates are not news
            for candidate in missing:
                arm = self.free(place, present, now)
                if arm is None:
                    return False
                self.rows.name(place, arm, candidate)
                present.add(arm)
                if not young:
                    place.shelf.of("first", place.index)[arm] = int(now)
                if self.notes is not None:
                    self.notes.named(place, arm, not young, now)
            self.rows.recount(place)
        place.forget_asked()
        place.order = bytes([place.arms[candidate] for candidate in ids])
        place.last = [place.ids[arm] for arm in place.order]  # the strings that are kept already, not those of this request
        mask = 0
        for arm in place.order:
            mask |= 1 << arm
        place.mask = signed(mask)
        return True

    def free(self, place: Place, present: set[int], now: float) -> int | None:
        """Return an arm for a new candidate, or None.

        In this order: a free arm; the arm of a candidate that has not been offered for `forget` seconds; an arm of a larger
        record; the arm of the candidate offered longest ago. Candidates in `present` keep theirs.
        """
        room = min(place.shelf.arms, self.settings.arms)
        for arm in range(len(place.ids)):
            if place.ids[arm] is None:
                return arm
        if len(place.ids) < room:
            return len(place.ids)
        offered = place.shelf.of("offered", place.index)
        others = [arm for arm in range(room) if arm not in present]
        stalest = min(others, key=lambda arm: float(offered[arm]), default=None)
        if stalest is not None and now - float(offered[stalest]) > self.settings.forget:
            return self._vacated(place, stalest)
        if place.shelf.arms < self.settings.arms:
            if not self.rows.shelf_for(place.shelf.arms + 1, place.shelf.rival).ready:
                return None  # no candidate is evicted because the larger capacity is still compiling
            if self.grow(place, now):
                return len(place.ids)
        return None if stalest is None else self._vacated(place, stalest)

    def begin(self, place: Place, word: int, now: float) -> None:
        """Make the query's row a fresh one, its random stream started from `word`."""
        shelf = place.shelf
        shelf.calls.begin(shelf.params, self.senses, shelf.table, place.index, place.owner, np.uint64(word), now)

    def grow(self, place: Place, now: float) -> bool:
        """Move a row to the next larger capacity; False when there is none or no room."""
        grown = self.rows.grow(place, lambda row: self.begin(row, 0, now))
        if grown and self.notes is not None:
            self.notes.grown(place, now)
        return grown

    def _vacated(self, place: Place, arm: int) -> int:
        self.evicted += 1
        self.vacate(place, arm)
        return arm

    def vacate(self, place: Place, arm: int, unnamed: bool = False) -> None:
        """Free an arm, with everything that the record has of it; `unnamed` says that its candidate is deleted."""
        if self.notes is not None:
            self.notes.know(place)
        written(place, place.shelf.calls.vacate(place.shelf.params, place.shelf.table, place.index, place.owner, arm))
        if unnamed:
            candidate = place.ids[arm]
            assert candidate is not None, "only the arm of a candidate is taken from it"
            del place.arms[candidate]
            place.ids[arm], place.shorts[arm] = None, 0
            place.shelf.asked.name(place.index, (0,), arm)
            place.forget_asked()
            place.last, place.order, place.mask, place.grades = [], b"", 0, b""
            self.rows.recount(place)
        if self.notes is not None:
            self.notes.vacated(place.key, arm, unnamed)
