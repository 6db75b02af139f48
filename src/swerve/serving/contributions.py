"""What workers have contributed to what queries share: this worker's own contribution, and what it has taken up of each other one.

Tests: tests/serving/test_exchange.py.
"""

from __future__ import annotations

import functools
import zlib
from typing import Any

import msgspec
import numpy as np

from swerve.core import engine
from swerve.core.contract import begin_contribution
from swerve.core.spec import Spec, pack
from swerve.core.tables import Table, contribution_dtype
from swerve.serving.place import Common
from swerve.signals.season import advance

#: The level at which contributions are compressed: higher levels take several times as long, and gain a few percent.
LEVEL = 1
#: No hour has this number.
NEVER = -1


class Part(msgspec.Struct, array_like=True):
    """A worker's contribution to what queries share: since when it has contributed; the record, compressed (empty if nothing is
    new); the hour of its season, and the requests of that hour."""

    since: float
    learnt: bytes
    hour: int
    requests: float


class Known(msgspec.Struct):
    """What was taken up from one worker."""

    since: float
    table: Any  # what was taken up of the contribution
    hour: int = NEVER
    requests: float = 0.0


class Stored(msgspec.Struct, array_like=True):
    """Contributions as a record for the store: that of this worker; an hour of the season, and the requests of other workers in it;
    what was taken up of each other worker."""

    own: Part
    hour: int
    others: float
    known: dict[int, Part]


class Kind:
    """The contributions to what one policy shares."""

    def __init__(self, policy: Spec, features: int) -> None:
        self.policy, self.params, self.features = policy, pack(policy), features
        self.dtype = contribution_dtype(policy, features)
        self.blank = self.fresh().tobytes()

    @functools.cached_property
    def novel(self) -> Any:
        """Reduces a contribution to what is new in it, compiled."""
        return engine.novel_one.bind(self.policy, variant=f"-{self.features}")

    @functools.cached_property
    def take_up(self) -> Any:
        """Takes up a contribution, compiled."""
        return engine.take_up_one.bind(self.policy, variant=f"-{self.features}")

    def fresh(self) -> Table:
        """Return an empty contribution."""
        made = np.zeros(1, self.dtype)
        begin_contribution(self.params[0], made[0], self.features)
        return made

    def read(self, packed: bytes) -> Table | None:
        """Return a contribution; None if it has another layout, which another version of Swerve has written."""
        try:
            content = zlib.decompress(packed)
        except zlib.error as error:
            raise ValueError(str(error)) from None
        return None if len(content) != self.dtype.itemsize else np.frombuffer(content, self.dtype).copy()


def packed(table: Table) -> bytes:
    """Return a contribution, compressed."""
    return zlib.compress(table.tobytes(), LEVEL)


class Contributions:
    """The contributions of all workers to what the queries of one namespace share, for one policy."""

    def __init__(self, kind: Kind, since: float) -> None:
        self.kind, self.since = kind, since
        self.known: dict[int, Known] = {}
        self._heard: dict[int, Part] = {}  # the last message of each worker: most repeat it
        self.hour, self.others = NEVER, 0.0  # the requests of an hour of the season that other workers have counted

    def _counted(self, season: Any) -> float:
        """Return the requests of the season's hour that this worker has counted."""
        requests = float(season.requests)
        return requests - self.others if self.hour == int(season.hour) else requests

    def part(self, own: Table, season: Any) -> Part | None:
        """Return what this worker has contributed; None if it has contributed nothing."""
        requests = self._counted(season)
        if own.tobytes() == self.kind.blank and requests == 0.0:
            return None
        return Part(self.since, packed(own), int(season.hour), requests)

    def _of(self, worker: int, since: float) -> Known:
        """Return what was taken up from a worker; an empty record if the worker has begun anew since."""
        known = self.known.get(worker)
        if known is None or known.since < since:
            known = self.known[worker] = Known(since, self.kind.fresh())
        return known

    def news_in(self, worker: int, part: Part) -> Part | None:
        """Return what is new in a worker's contribution; None if nothing is."""
        if self._heard.get(worker) == part:
            return None
        self._heard[worker] = part
        known = self.known.get(worker)
        if known is not None and known.since > part.since:  # sent before the worker began anew
            return None
        if known is None or known.since < part.since:
            known = Known(part.since, self.kind.fresh())
        theirs, learnt = self.kind.read(part.learnt), b""
        if theirs is None:
            return None
        if theirs.tobytes() != self.kind.blank and self.kind.novel(self.kind.params, theirs, known.table):
            learnt = packed(theirs)
        if not learnt and (part.hour, part.requests) <= (known.hour, known.requests):
            return None
        return Part(part.since, learnt, part.hour, part.requests)

    def fold(self, worker: int, part: Part, common: Common, senses: Any, now: float) -> None:
        """Fold in what is new in a worker's contribution."""
        known, season = self._of(worker, part.since), common.seasons[0]
        theirs = self.kind.read(part.learnt) if part.learnt else None
        if theirs is not None:
            self.kind.take_up(self.kind.params, common.pools, 0, 1, theirs, known.table)
        advance(senses[0], season, now)  # type: ignore[no-untyped-call]
        hour = int(season.hour)
        if hour != self.hour:
            self.hour, self.others = hour, 0.0
        if part.hour > hour or (part.hour, part.requests) <= (known.hour, known.requests):
            return
        if part.hour == hour:  # requests of an hour that is over are left out: few, since they came after the last message in it
            new = part.requests - (known.requests if known.hour == hour else 0.0)
            season.requests += new
            self.others += new
        known.hour, known.requests = part.hour, part.requests

    # ------------------------------------------------------------------ records for the store
    def record(self, own: Table, season: Any) -> bytes:
        """Return the contributions as a record for the store."""
        known = {worker: Part(of.since, packed(of.table), of.hour, of.requests) for worker, of in sorted(self.known.items())}
        said = Part(self.since, packed(own), int(season.hour), self._counted(season))
        return msgspec.msgpack.encode(Stored(said, self.hour, self.others, known))

    @classmethod
    def read(cls, kind: Kind, record: bytes) -> tuple[Contributions, Table] | None:
        """Return the contributions of a record, and that of this worker; None if the record is of another layout."""
        stored = msgspec.msgpack.decode(record, type=Stored)
        own = kind.read(stored.own.learnt) if stored.own.learnt else kind.fresh()
        if own is None:
            return None
        made = cls(kind, stored.own.since)
        made.hour, made.others = stored.hour, stored.others
        for worker, part in stored.known.items():
            table = kind.read(part.learnt)
            if table is not None:
                made.known[worker] = Known(part.since, table, part.hour, part.requests)
        return made, own


def handed_on(record: bytes, worker: int, newcomer: int, now: float) -> bytes:
    """Return the record with which a new worker begins, from that of another worker, whose contribution it has taken up already."""
    stored = msgspec.msgpack.decode(record, type=Stored)
    known = {number: part for number, part in {**stored.known, worker: stored.own}.items() if number != newcomer}
    others = stored.own.requests + (stored.others if stored.hour == stored.own.hour else 0.0)
    return msgspec.msgpack.encode(Stored(Part(now, b"", NEVER, 0.0), stored.own.hour, others, known))
