"""Everything learnt as a stream of JSON lines: from the store, brought up to date from memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

from swerve.service.availability import Unavailable
from swerve.service.batches import row_of
from swerve.service.committer import Committer
from swerve.service.loader import Loader
from swerve.service.namespaces import Within, may
from swerve.service.turns import Turns
from swerve.serving.export import Policy, lines_of, policies_of, shared_lines
from swerve.serving.messages import encode
from swerve.serving.migration import Layouts
from swerve.serving.ranker import Ranker
from swerve.store.protocol import Row, StoreError

#: Bytes that are collected before they are sent.
PIECE = 65_536


class Exporting:
    """The exporting side of a service."""

    def __init__(
        self, ranker: Ranker, loader: Loader, committer: Committer, layouts: Callable[[], Layouts], names: tuple[str, ...]
    ) -> None:
        self.ranker, self.loader, self.committer, self.layouts, self.names = ranker, loader, committer, layouts, names
        self._policies: list[Policy] | None = None

    async def pieces(self, namespace: str | None, brief: bool, within: Within = None) -> AsyncIterator[bytes]:
        """Yield the lines, several at a time, of one namespace or of those that the caller may use. The last one, of the
        kind `end`, has their counts: without it the stream was cut."""
        counts = {"query": 0, "candidate": 0, "shared": 0}
        if self._policies is None:
            self._policies = policies_of(self.ranker.settings)
        policies = [] if brief else self._policies
        out, turns = bytearray(), Turns()
        try:
            await self.committer.aside(self.committer.rows.write_all)  # queries that only the log has
        except StoreError:
            raise Unavailable from None
        if not brief:
            for line in shared_lines(self.ranker.shared(0.0), self.ranker.settings):
                if may(within, line["namespace"]) and namespace in (None, line["namespace"]):
                    counts["shared"] += 1
                    out += encode(line) + b"\n"
        after: int | None = 0
        damaged = 0
        while after is not None:
            try:
                rows, after = await self.loader.ask(self.loader.store.page, after)
            except StoreError:
                raise Unavailable from None
            for row in rows:
                await turns()
                if not isinstance(row, Row):
                    damaged += 1
                    continue
                place = self.ranker.rows.get(row.key)
                fresh = row if place is None else row_of(place, self.layouts().ids, row.version)
                for line in lines_of(fresh, self.layouts().known, self.names, policies):
                    if not may(within, line["namespace"]) or namespace not in (None, line["namespace"]):
                        break
                    counts[line["kind"]] += 1
                    out += encode(line) + b"\n"
                if len(out) > PIECE:
                    yield bytes(out)
                    out.clear()
        end: dict[str, Any] = {
            "kind": "end",
            "queries": counts["query"],
            "candidates": counts["candidate"],
            "shared": counts["shared"],
        }
        if not any(counts.values()) and not self.ranker.settings.knows(namespace):
            end["unknown_namespace"] = True
        yield bytes(out) + encode({**end, "damaged": damaged}) + b"\n"
