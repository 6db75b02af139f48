"""Replay of a recording: its entries are played on a ranker, without a network, a store or a clock.

Every page comes out as it was recorded, and every record has the same bytes; the secrets are not needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from swerve.core.errors import SwerveError
from swerve.serving.entries import Started
from swerve.serving.entry_kernels import ANSWERS, CLICKS, DECISIONS, FIRST_OTHER, OTHERS
from swerve.serving.playing import Player
from swerve.serving.ranker import Ranker
from swerve.serving.requests import Decided
from swerve.serving.settings import Settings
from swerve.serving.tokens import NUMBER_BITS, Ticket
from swerve.store.journal import tail
from swerve.store.protocol import Life
from swerve.store.shares import share_in

#: The query key of a replay without one.
NO_KEY = bytes(32)


class Replayed(msgspec.Struct):
    """The result of a replay."""

    requests: int = 0
    same: int = 0  # decisions with the same results in the same slots as recorded
    first_difference: int | None = None  # the first decision with another page, from 1
    feedback: int = 0
    clicks: int = 0
    queries: int = 0
    alarms: int = 0
    shifts: int = 0  # queries with a shift that was found or reported by an operator


def summed(found: Sequence[Replayed]) -> Replayed:
    """Return the results of the replays of all shares of a store as one. A first difference is that of the first share with one."""
    out = Replayed(*(sum(getattr(one, name) or 0 for one in found) for name in Replayed.__struct_fields__))
    out.first_difference = next((one.first_difference for one in found if one.first_difference is not None), None)
    return out


class Replay:
    """Plays a recording; `settings_of` makes the settings of the ranker from the recorded configuration.

    Rows that belong to another share by now are left out, unless `moved` ones are wanted: those as they were before.
    """

    def __init__(
        self, folder: Path, settings_of: Callable[[dict[str, Any]], Settings], query_key: bytes = NO_KEY, moved: bool = False
    ) -> None:
        self.folder, self.settings_of, self.query_key, self.moved = folder, settings_of, query_key, moved
        self.player = Player(self._begin)
        self.secrets = b""  # the key of an empty text, which tells whether the recording has the keys of `query_key`

    def _begin(self, started: Started) -> Ranker:
        self.secrets = started.secrets
        return Ranker(self.settings_of(started.config), self.query_key)

    def _leave_moved(self) -> None:
        """Drop rows that belong to another share since the store was divided, after which the log of share 0 goes on."""
        assert self.player.started is not None
        share = share_in(self.folder, int(self.player.started.config.get("server", {}).get("workers", 1)))
        for place in [place for place in self.ranker.rows if not place.shelf.rival and not share.has(place.key)]:
            self.ranker.rows.drop(place)

    @property
    def ranker(self) -> Ranker:
        """The ranker, after `run`."""
        assert self.player.ranker is not None, "a replay without a start raises"
        return self.player.ranker

    def run(self, progress: Callable[[int], None] = lambda read: None) -> Replayed:
        """Play the recording; `progress` is called with the number of bytes read."""
        done = 0
        for block in tail(self.folder):
            self.player.play(block)
            done += len(block.content)
            progress(done)
        if self.player.ranker is None:
            raise SwerveError(f"the recording {self.folder} is empty")
        if not self.moved:
            self._leave_moved()
        counts, books = self.player.counts, [place.record.ledger for place in self.ranker.rows]
        return Replayed(
            int(counts[DECISIONS]), int(counts[DECISIONS] - counts[OTHERS]), int(counts[FIRST_OTHER]) or None,
            int(counts[ANSWERS]), int(counts[CLICKS]), len(books), sum(int(book.alarms) for book in books),
            sum(float(book.shifted) > 0.0 for book in books),
        )  # fmt: skip


def ticket_of(decided: Decided, life: Life) -> Ticket:
    """Return the content of the token of a decision."""
    key, start, phase, number, session, evidence, seen, offer, _, arm, rival, ruled = decided.signed
    offer &= (1 << 64) - 1
    mark = (1 << NUMBER_BITS) - 1
    return Ticket(
        key,
        start,
        phase,
        decided.at,
        life.store,
        life.mark,
        number & mark,
        session,
        evidence,
        seen,
        offer,
        decided.signed.codes,
        decided.signed.names,
        arm,
        rival,
        ruled,
    )
