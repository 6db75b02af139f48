"""Batches of rankings: their plain entries in columns (`swerve.serving.bulk`), all others as `swerve.service.ranking` serves them.

Entries are decided in their order. Answers are bytes from the beginning: those of columns are written by compiled code.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, NamedTuple

from swerve.service.namespaces import Within, checked, may
from swerve.service.ranking import Fetched, Ranking
from swerve.service.turns import Turns
from swerve.serving.bulk import JSON, Form, Read, Told
from swerve.serving.messages import Asked, Problem, RankResponse, Refused, encode, read_asked
from swerve.serving.scanning import OTHER, SHELF

log = logging.getLogger("swerve.service")

#: Entries that are decided without a pause.
TOGETHER = 128
#: Entries that are noted without a pause.
MOST_NOTED = 32


class Part(NamedTuple):
    """A part of a batch: its entries in columns, if it could be read so, and decoded those that do not repeat earlier ones."""

    read: Read | None
    entries: list[Asked | Refused | None]  # None: it is in columns only


class Batching:
    """The `rank/batch` side of a service."""

    def __init__(self, ranking: Ranking) -> None:
        self.ranking = ranking
        self.bulk = ranking.bulk

    @property
    def plain(self) -> bool:
        """Whether nothing concerns all requests that columns do not know: rules, experiments, pushed numbers."""
        ranking = self.ranking
        return (
            ranking.rules is None
            and ranking.experiments.trial is None
            and ranking.shadow is None
            and not ranking.feeds
            and ranking.availability.degraded() is None
        )

    async def read(self, body: bytes, turns: Turns) -> Part | None:
        """Read a list of requests; None if the decoder must say what is wrong with it. Malformed entries are refused here, before
        any is decided; entries that repeat what their rows were asked last are noted."""
        read = self.bulk.read(body, self.ranking.limits.batch)
        return None if read is None else await self.part(read, turns)

    async def part(self, read: Read, turns: Turns) -> Part:
        """Find the rows of entries in columns, and decode the others."""
        self.bulk.locate(read, 0, len(read))
        entries: list[Asked | Refused | None] = [None] * len(read)
        for index in (read.entries[:, SHELF] < 0).nonzero()[0].tolist():
            await turns()
            entry = entries[index] = self.decoded(read, index)
            if isinstance(entry, Asked) and (place := self.ranking.repeats(entry)) is not None:
                self.bulk.note(entry.query, place)
        return Part(read, entries)

    def decoded(self, read: Read, index: int) -> Asked | Refused:
        """Decode an entry; a malformed one refuses the body."""
        try:
            return read_asked(read.part(index))
        except Refused as refused:
            if refused.status == 400:
                raise read.moved(refused, index) from None
            return refused

    # ------------------------------------------------------------------ the ways in
    def ready(self, body: bytes, most: int) -> Read | None:
        """Read a batch that can be answered without waiting: all entries, at most so many, repeat what their rows, in memory, were
        last asked. None for any other."""
        if not self.plain:
            return None
        read = self.bulk.read(body, most)
        if read is None:
            return None
        return read if self._located(read) or (self._noted(read) and self._located(read)) else None

    def _located(self, read: Read) -> bool:
        """Find the rows of all entries; return whether all repeat what they were asked."""
        self.bulk.locate(read, 0, len(read))
        return bool((read.entries[:, SHELF] >= 0).all())

    def _noted(self, read: Read) -> bool:
        """Note what is not in columns yet of rows that were asked the same last; return whether that makes all entries ready."""
        missing = (read.entries[:, SHELF] < 0).nonzero()[0].tolist()
        if len(missing) > MOST_NOTED or read.entries[missing, OTHER].any():
            return False
        for index in missing:
            try:
                asked = read_asked(read.part(index))
            except Refused:
                return False
            place = self.ranking.repeats(asked)
            if place is None:
                return False
            self.bulk.note(asked.query, place)
        return True

    def at_once(self, read: Read) -> bytes:
        """Return the answers to a batch that is ready."""
        content, at, count = list[bytes](), 0, len(read)
        while at < count:
            told = self._decide(read, at, count)
            content += [self._one(read, at)] if told is None else told.content
            at += 1 if told is None else told.decided
        self.ranking.metrics.cache_hits.value += count
        return b"[" + b",".join(content) + b"]"

    async def answer(self, parts: Sequence[Part], turns: Turns, within: Within = None) -> bytes:
        """Return the answers to a batch as JSON; a refused entry has its refusal instead."""
        return b"[" + b",".join(await self.pieces(parts, turns, within, JSON)) + b"]"

    async def pieces(self, parts: Sequence[Part], turns: Turns, within: Within, form: Form) -> list[Any]:
        """Return the answers to a batch in a form, in pieces."""
        content = list[Any]()
        for part in parts:
            for first in range(0, len(part.entries), TOGETHER):
                content += await self._slice(part, first, min(first + TOGETHER, len(part.entries)), turns, within, form)
        return content

    async def _slice(self, part: Part, first: int, last: int, turns: Turns, within: Within, form: Form) -> list[Any]:
        """Return the answers to a slice of a part, in pieces."""
        read = part.read
        if read is None or not may(within, None):
            return await self._usual(part, first, last, turns, within, form)
        self.bulk.locate(read, first, last)
        others = (read.entries[first:last, SHELF] < 0).nonzero()[0].tolist()
        if not others or not self.plain:
            return await self._in_order(part, first, last, turns, within, form)
        asked = list[Asked | Refused]()
        for index in others:
            await turns()
            asked.append(self._entry(part, first + index))
        async with self.ranking.held(asked) as fetched:
            self.bulk.locate(read, first, last)  # reading rows moves others
            return await self._in_order(part, first, last, turns, within, form, fetched)

    async def _in_order(
        self, part: Part, first: int, last: int, turns: Turns, within: Within, form: Form, fetched: Fetched | None = None
    ) -> list[Any]:
        """Return the answers to a slice of a part whose rows were looked for."""
        content, at, read = list[Any](), first, part.read
        assert read is not None
        in_columns = (read.entries[first:last, SHELF] >= 0).tolist()
        while at < last:
            await turns()
            told = None
            if in_columns[at - first] and self.plain:
                told = self._decide(read, at, last, form)
            if told is not None:
                self.ranking.metrics.cache_hits.value += told.decided
                content += told.content
                at += told.decided
            else:
                behind = at + 1
                while behind < last and not in_columns[behind - first]:
                    behind += 1
                content += await self._usual(part, at, behind, turns, within, form, fetched)
                at = behind
        return content

    # ------------------------------------------------------------------ decide
    def _decide(self, read: Read, first: int, last: int, form: Form = JSON) -> Told | None:
        """Decide entries in columns, from the first on; None if that one must be decided in the usual way."""
        ranking = self.ranking
        try:
            told = self.bulk.decide(read, first, last, ranking.clock(), ranking.watched, form)
        except Exception:
            log.exception("a ranking failed")
            left = [ranking.prepare(read_asked(read.part(at)))[1] for at in range(first, last)]
            return Told([form.one(ranking.given(one, "internal")) for one in left], len(left), 0, len(left), [])
        if told is None:
            return None
        metrics = ranking.metrics
        metrics.decisions.value += told.decided - told.given
        metrics.explored.value += told.explored
        if told.given:
            metrics.degraded("candidates").value += told.given
        for alarm in told.alarms:
            ranking.tell(*alarm)
        return told

    def _one(self, read: Read, index: int) -> bytes:
        """Decide an entry whose row is in memory in the usual way: a session has asked the same query before, or a page watches."""
        place, prepared = self.ranking.prepare(read_asked(read.part(index)))
        return encode(self.ranking.given(prepared, "memory") if place is None else self.ranking.decided(place, prepared))

    def _entry(self, part: Part, index: int) -> Asked | Refused:
        """Return an entry, decoded."""
        entry = part.entries[index]
        if entry is None:
            assert part.read is not None
            entry = part.entries[index] = self.decoded(part.read, index)
        return entry

    async def _usual(
        self, part: Part, first: int, last: int, turns: Turns, within: Within, form: Form, fetched: Fetched | None = None
    ) -> list[Any]:
        """Decide entries in the usual way, and note them, so that the next batch that repeats them has them in columns."""
        asked = list[Asked | Refused]()
        for index in range(first, last):
            await turns()
            asked.append(checked(self._entry(part, index), within))
        answers = await self.ranking.rank(asked, turns, fetched)
        said = list[Any]()
        for one, answer in zip(asked, answers, strict=True):
            await turns()
            said.append(form.one(answer if isinstance(answer, RankResponse) else Problem(answer.error)))
            if part.read is not None and isinstance(one, Asked) and (place := self.ranking.repeats(one)) is not None:
                self.bulk.note(one.query, place)
        return said
