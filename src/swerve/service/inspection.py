"""Requests of operators: explain a query, list queries by traffic or by their last shift, and tell the service of a shift."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from swerve.service.availability import Availability, Unavailable
from swerve.service.committer import Committer
from swerve.service.groups import Written, durable
from swerve.service.loader import Loader, Wish
from swerve.service.namespaces import Within, may
from swerve.service.turns import Turns
from swerve.serving.explain import state_of, summary_of
from swerve.serving.messages import QueryList, QueryState, Refused, ShiftResponse, key_text
from swerve.serving.migration import Layouts
from swerve.serving.place import UNPACK, Place
from swerve.serving.ranker import KEY, Ranker
from swerve.store.protocol import Order, StoreError

#: Seconds that an operator's request waits for a row; then it is answered 503.
WAIT = 1.0

#: The refusal of a query without a row.
UNKNOWN = 404, "unknown_query", "this query is not known: it was never asked, or it has been removed"

T = TypeVar("T")


def _in(place: Place, namespace: str | None, within: Within) -> Place:
    """Return a row that was named by its key, unless it belongs to another namespace than the one asked for, or than those that the
    caller may use."""
    if (namespace is not None and place.namespace != namespace) or not may(within, place.namespace):
        raise Refused(*UNKNOWN)
    return place


class Inspection:
    """The operators' side of a service."""

    def __init__(
        self,
        ranker: Ranker,
        loader: Loader,
        committer: Committer,
        availability: Availability,
        clock: Callable[[], float],
        *,
        layouts: Callable[[], Layouts],
        names: tuple[str, ...],
        shifted: Callable[[str, Mapping[str, str], int, int, str | None], None],
        guarded: Callable[[bytes], str | None],
    ) -> None:
        self.ranker, self.loader, self.committer, self.availability = ranker, loader, committer, availability
        self.clock, self.layouts, self.names = clock, layouts, names
        self.noted = shifted  # is told of every shift, and by whom
        self.guarded = guarded  # returns why a query is shown in its given order

    async def with_row(self, text: str, parts: Mapping[str, str], use: Callable[[Place], T], within: Within = None) -> T:
        """Call `use` with the row of a known query and return its result.

        `text` is the query's text, with `parts`, or `key:` and its key. The row stays in memory during the call.
        """
        key = self.ranker.key_from(text, parts)
        namespace = parts.get("namespace")
        place = self.ranker.rows.get(key)
        if place is not None:
            return use(_in(place, namespace, within))
        async with self.loader.held([Wish(key)], WAIT) as (found,):
            if found == "unknown":
                raise Refused(*UNKNOWN)
            if isinstance(found, str):
                raise Unavailable
            return use(_in(found, namespace, within))

    async def explain(self, text: str, parts: Mapping[str, str], within: Within = None) -> QueryState:
        """Return the state of a query."""
        return await self.with_row(text, parts, self.state_of, within)

    def state_of(self, place: Place) -> QueryState:
        """Return the state of a query in memory."""
        state = state_of(place, self.names)
        state.guarded = self.guarded(place.key)
        return state

    async def shift(self, text: str, parts: Mapping[str, str], by: str | None = None, within: Within = None) -> ShiftResponse:
        """Start a query over because an operator says that its intent has shifted. Returns once that is durable."""
        self.availability.require()
        named = text if text.startswith(KEY) else key_text(text, **parts)

        def use(place: Place) -> tuple[int, Written]:
            before = int(place.record.ledger.phase)
            phase, written = self._shifted(place, named)
            self.noted(text, parts, before, phase, by)
            return phase, written

        phase, written = await self.with_row(text, parts, use, within)
        await durable(written)
        return ShiftResponse(phase)

    def _shifted(self, place: Place, text: str) -> tuple[int, Written]:
        now = self.clock()
        phase = self.ranker.shift(place, now)
        return phase, self.committer.now()

    async def queries(self, order: Order, limit: int, namespace: str | None = None, within: Within = None) -> QueryList:
        """List the queries with the most traffic, or those that shifted last: from the store, brought up to date from memory."""

        def wanted(names: bytes) -> bool:
            found = UNPACK.decode(names).namespace
            return may(within, found) and namespace in (None, found)

        if not self.committer.begun:
            raise Unavailable
        try:
            rows = await self.loader.ask(
                self.loader.store.scan, order, limit, None if namespace is None and within is None else wanted
            )
        except StoreError:
            raise Unavailable from None
        listed, turns = [], Turns()
        for row in rows:
            await turns()
            place = self.ranker.rows.get(row.key)
            if place is None:
                names = UNPACK.decode(row.names)
                listed.append(summary_of(row.key, self.layouts().view(row), names.query, names.namespace, names.rival))
            else:
                listed.append(summary_of(row.key, place.record, place.query, place.namespace, place.shelf.rival))
        for place in {place.key: place for _, place in self.ranker.unwritten}.values():  # queries that only the log has so far
            await turns()
            if place.gone or place.version or not (may(within, place.namespace) and namespace in (None, place.namespace)):
                continue
            line = summary_of(place.key, place.record, place.query, place.namespace, place.shelf.rival)
            if order == "traffic" or line.shifted:
                listed.append(line)
        by = (lambda line: -(line.shifted or 0.0)) if order == "shifted" else (lambda line: -float(line.requests))
        return QueryList(order, sorted(listed, key=by)[:limit])
