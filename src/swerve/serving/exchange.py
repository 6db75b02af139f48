"""What the rankers of several workers tell each other: what they have learnt that queries share, and which sessions have asked.

A worker's message contains everything that it has contributed itself, as sums that only grow; others take up what is new to them.
So a message may be lost, repeated or late: the next one has everything. What is taken up is an entry of the journal.

Tests: tests/serving/test_exchange.py, tests/serving/test_playing.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from swerve.core.errors import SwerveError
from swerve.serving.common import EXCHANGED, Commons
from swerve.serving.contributions import Contributions, Part, handed_on
from swerve.serving.people import hash_sessions_by, key_of
from swerve.serving.people_kernels import gone_elsewhere
from swerve.serving.place import Common

if TYPE_CHECKING:
    from swerve.serving.ranker import Ranker

#: A session that has asked, and when: what `Exchange.sessions` returns is made of these.
ASKED = np.dtype([("session", "u8"), ("at", "f8")])

_encode, _decoder = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder(dict[str, Part])


class Exchange:
    """The exchange of a ranker with the rankers of other workers; it does nothing before `begin`."""

    def __init__(self, ranker: Ranker) -> None:
        self.ranker = ranker
        self._said = -np.inf  # the time up to which sessions were returned
        self._gone = gone_elsewhere.bind()

    def begin(self, now: float) -> None:
        """From now on, keep apart what this ranker contributes, to send it; earlier contributions stay where they are. Sessions get
        hashes that are the same in every worker with this query key."""
        hash_sessions_by(self.ranker.query_key)
        for commons in self._all():
            commons.exchange(now)

    @property
    def on(self) -> bool:
        """Whether this ranker exchanges anything."""
        return self.ranker.commons.since is not None

    def _all(self) -> Iterator[Commons]:
        yield self.ranker.commons
        if self.ranker.rivals is not None:
            yield self.ranker.rivals

    def compile(self) -> None:
        """Compile (or load) the code that takes up contributions, by calls that take up nothing."""
        for commons in self._all():
            commons.compile_exchange()

    # ------------------------------------------------------------------ what queries share
    def learning(self) -> bytes:
        """Return everything that this ranker itself has contributed, for `take_up` of the others."""
        parts: dict[str, Part] = {}
        for commons in self._all():
            for name, common, contributions in commons.contributing():
                if (part := contributions.part(common.owns, common.seasons[0])) is not None:
                    parts[name] = part
        return _encode(parts)

    def take_up(self, worker: int, learning: bytes, now: float) -> bool:
        """Take up what is new in another worker's `learning`, and write it to the journal; return whether anything was. Raises
        `SwerveError` if these are not the bytes of a `learning`."""
        assert self.on, "see `begin`"
        try:
            said = _decoder.decode(learning)
            parts = {name: new for name, part in said.items() if (new := self._news(worker, name, part)) is not None}
        except (msgspec.DecodeError, ValueError) as error:
            raise SwerveError(f"what worker {worker} has learnt cannot be read: {error}") from None
        if not parts:
            return False
        if self.ranker.notes is not None:
            self.ranker.notes.taken_up(worker, parts, now)
        self.fold(worker, parts, now)
        return True

    def _found(self, name: str) -> tuple[Commons, Common, Contributions] | None:
        """Return what queries share under a name, and the contributions to it; None if this ranker has nothing of that name."""
        for commons in self._all():
            found = commons.contributed(name)
            if found is not None:
                return commons, *found
        return None

    def _news(self, worker: int, name: str, part: Part) -> Part | None:
        """Return what is new in one part of a message; None if nothing is."""
        found = self._found(name)
        if found is None:  # a worker with another configuration, which is being rolled out
            return None
        return found[2].news_in(worker, part)

    def fold(self, worker: int, parts: Mapping[str, Part], now: float) -> None:
        """Fold in what was new in another worker's `learning`, also when a journal is played."""
        for name, part in parts.items():
            if (found := self._found(name)) is not None:
                commons, common, contributions = found
                contributions.fold(worker, part, common, commons.senses, now)
        self.ranker.learnt = True

    # ------------------------------------------------------------------ sessions
    def sessions(self) -> bytes:
        """Return the sessions that have asked since the last call, each with its last time, for `told` of the others."""
        people = self.ranker.people.all
        asked = (people["lasts"][:, :, 0] != 0) & (people["last_at"] > self._said)
        found = np.zeros(int(asked.sum()), ASKED)
        found["session"], found["at"] = people["lasts"][:, :, 0][asked], people["last_at"][asked]
        if len(found):
            self._said = float(found["at"].max())
        return found.tobytes()

    def told(self, sessions: bytes, now: float) -> int:
        """Note that sessions have asked other workers: the last query of such a session here counts as if the session had gone on
        to another query here. Return how many there were. Raises `SwerveError` if these are not the bytes of `sessions`."""
        if len(sessions) % ASKED.itemsize:
            raise SwerveError(f"{len(sessions)} bytes are no list of sessions")
        asked = np.frombuffer(sessions, ASKED)
        lines, times = np.zeros((len(asked), 2), np.uint64), np.zeros(len(asked))
        who, at = np.ascontiguousarray(asked["session"]), np.ascontiguousarray(asked["at"])
        count = self._gone(self.ranker.people.table, who, at, lines, times)
        for words, when in zip(lines[:count].tolist(), times[:count].tolist(), strict=True):
            self.ranker.left(None, key_of(words), when, now)
        return int(count)


def records_for(newcomer: int, records: Mapping[str, bytes], worker: int, now: float) -> dict[str, bytes]:
    """Return the shared records with which a new worker begins, from those of another one: it knows what that one knows, has
    contributed nothing yet, and takes up what all workers contribute from then on."""
    exchanged = {name: handed_on(record, worker, newcomer, now) for name, record in records.items() if name.startswith(EXCHANGED)}
    return {**records, **exchanged}
