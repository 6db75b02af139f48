"""Replay of a recording: its requests go through a ranker, without a network, a store or a clock.

With the same secrets (or the same `policy.seed`) every ranking comes out as it was recorded, and every record has the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from swerve.core.errors import SwerveError
from swerve.serving.erasing import forget, target_of
from swerve.serving.holdout import ARMS
from swerve.serving.outcomes import Outcome
from swerve.serving.ranker import KEY, Ranker
from swerve.serving.recording import Answered, Erased, Head, Line, Ranked, Shifted
from swerve.serving.requests import Decided, Prepared
from swerve.serving.rows import Place
from swerve.serving.settings import Settings
from swerve.serving.tokens import NUMBER_BITS, Ticket
from swerve.store.protocol import Life
from swerve_client.naming import namespace_in

#: Lines between two calls of `progress`.
PROGRESS_EVERY = 256
#: Decisions whose feedback is awaited; bounds the memory. The oldest are dropped first.
MOST_OPEN = 1_000_000


class Replayed(msgspec.Struct):
    """The result of a replay."""

    requests: int = 0
    same: int = 0  # rankings with the same results in the same slots as recorded
    first_difference: int | None = None  # the line of the first ranking with another page
    feedback: int = 0
    clicks: int = 0
    queries: int = 0
    alarms: int = 0
    shifts: int = 0  # queries with a shift that was found or reported by an operator


def lines_of(file: BinaryIO, name: str) -> Iterator[tuple[int, Line]]:
    """Yield the lines of a recording. A last line that a crash cut off is left out."""
    decode = msgspec.json.Decoder(Line).decode
    for number, raw in enumerate(file, 1):
        if not raw.endswith(b"\n"):
            return
        try:
            yield number, decode(raw)
        except msgspec.DecodeError as error:
            raise SwerveError(f"{name}:{number}: this is not a line of a recording: {error}") from None


class Replay:
    """Plays a recording through a ranker without rows; the recording must have begun with an empty store."""

    def __init__(
        self,
        path: Path,
        query_key: bytes,
        settings_of: Callable[[dict[str, Any]], Settings],
        opened: Callable[[Path], BinaryIO] = lambda path: path.open("rb"),
    ) -> None:
        self.path, self.query_key, self.settings_of, self.opened = path, query_key, settings_of, opened
        self.ranker: Ranker | None = None
        self.counts = Replayed()
        self.last = 0.0  # the time of the last line
        self._open: dict[int, Opened] = {}

    def run(self, progress: Callable[[int], None] = lambda read: None) -> Replayed:
        """Play the recording; `progress` is called with the number of bytes read."""
        try:
            file = self.opened(self.path)
        except OSError as error:
            raise SwerveError(f"the recording {self.path} cannot be read: {error.strerror or error}") from None
        with file:
            for number, line in lines_of(file, str(self.path)):
                if isinstance(line, Head):
                    self._begin(line, number)
                elif self.ranker is None:
                    raise SwerveError(f"{self.path}:1: this is not a recording: its first line must be the configuration")
                elif isinstance(line, Ranked):
                    self._rank(self.ranker, line, number)
                elif isinstance(line, Answered):
                    self._answer(self.ranker, line)
                elif isinstance(line, Erased):
                    key = None if line.query is None else bytes.fromhex(line.query)
                    forget(self.ranker, target_of(self.ranker, key, line.result, line.namespace), line.now)
                else:
                    self._shift(self.ranker, line)
                self.last = self.last if isinstance(line, Head) else line.now
                if number % PROGRESS_EVERY == 0:
                    progress(file.tell())
        if self.ranker is None:
            raise SwerveError(f"the recording {self.path} is empty")
        self.counts.queries = len(self.ranker.rows)
        self.counts.alarms = sum(int(place.record.ledger.alarms) for place in self.ranker.rows)
        self.counts.shifts = sum(float(place.record.ledger.shifted) > 0.0 for place in self.ranker.rows)
        return self.counts

    def _begin(self, head: Head, number: int) -> None:
        if self.ranker is None:
            self.ranker = Ranker(self.settings_of(head.config), self.query_key)
            self.ranker.share(head.shared)
        # A later start of the service goes on with the same rows, and has forgotten the sessions.
        self.ranker.life, self.ranker.issued = Life(0, head.life, head.life), head.issued
        self.ranker.forget_sessions()

    def _rank(self, ranker: Ranker, line: Ranked, number: int) -> None:
        key = ranker.key_of(line.query)
        place = ranker.rows.get(key) or ranker.fresh(key, line.query, len(line.candidates), line.now)
        if place is None:
            raise SwerveError(f"{self.path}:{number}: more queries than store.cache_mb of the recording's configuration holds")
        prepared = Prepared(key, line.query, line.candidates, None, line.signals, line.session, line.slots, line.as_given)
        prepared.ruling, prepared.namespace = line.ruling, namespace_in(line.query)
        prepared.control, prepared.arm = line.control, ARMS.index(line.arm)
        decided = ranker.rank([(place, prepared)], line.now)[0]
        self.counts.requests += 1
        if decided is not None and decided.ranking[: len(decided.chances)] == line.page:
            self.counts.same += 1
        elif self.counts.first_difference is None:
            self.counts.first_difference = number
        if decided is not None:
            ticket = ticket_of(decided, ranker.life)
            self._open[line.number] = Opened(place, ticket, Outcome(0, ticket.seen))
            if len(self._open) > MOST_OPEN:
                del self._open[next(iter(self._open))]

    def _answer(self, ranker: Ranker, line: Answered) -> None:
        opened = self._open.get(line.number)
        if opened is None or opened.place.gone:
            return  # a decision from before the recording, or of a query that was deleted
        before = opened.outcome
        opened.outcome = ranker.feedback(opened.place, opened.ticket, line.number, before, line.events, line.shown, line.now)
        self.counts.feedback += 1
        self.counts.clicks += opened.outcome.clicked.bit_count() - before.clicked.bit_count()

    def _shift(self, ranker: Ranker, line: Shifted) -> None:
        place = ranker.rows.get(ranker.key_from(line.query) if line.query.startswith(KEY) else ranker.key_of(line.query))
        if place is not None:
            ranker.shift(place, line.now)


class Opened(msgspec.Struct):
    """A decision of the recording, for which feedback may come."""

    place: Place
    ticket: Ticket
    outcome: Outcome


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
