"""Merges the answers of several workers about all queries into one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

import msgspec

from swerve.serving.control import ShadowQuery, ShadowReport
from swerve.serving.messages import QueryList, encode
from swerve.store.protocol import Order

#: The counts in the last line of an export.
COUNTED = ("queries", "candidates", "shared", "damaged")


def lists_of(bodies: list[bytes], order: Order, limit: int) -> QueryList:
    """Merge the lists of queries of several workers."""
    lines = [line for body in bodies for line in msgspec.json.decode(body, type=QueryList).queries]
    by = (lambda line: -(line.shifted or 0.0)) if order == "shifted" else (lambda line: -float(line.requests))
    return QueryList(order, sorted(lines, key=by)[:limit])


def shadows_of(bodies: list[bytes], limit: int) -> ShadowReport:
    """Merge the reports on shadow mode of several workers."""
    reports = [msgspec.json.decode(body, type=ShadowReport) for body in bodies]
    lines: list[ShadowQuery] = sorted(
        (line for report in reports for line in report.queries), key=lambda line: (-line.differs, -line.rankings)
    )
    since = [report.since for report in reports if report.since is not None]
    return ShadowReport(
        reports[0].mode,
        min(since) if since else None,
        sum(report.rankings for report in reports),
        sum(report.differs for report in reports),
        sum(report.top_differs for report in reports),
        lines[:limit],
    )


def labelled(texts: Mapping[int, bytes | None]) -> bytes:
    """Merge the metrics of several workers: each sample gets the label `worker`; the gauge `swerve_worker_up` says which answer.

    >>> one, two = b"# HELP a A.\\n# TYPE a gauge\\na 1\\n", b'# HELP a A.\\n# TYPE a gauge\\na{b="c"} 2\\n'
    >>> print(labelled({0: one, 1: two}).decode()[:79])
    # HELP a A.
    # TYPE a gauge
    a{worker="0"} 1
    a{worker="1",b="c"} 2
    # HELP swerve_
    """
    families: dict[bytes, tuple[list[bytes], list[bytes]]] = {}
    for index, text in sorted(texts.items()):
        lines: list[bytes] = []
        for line in (text or b"").splitlines():
            if line.startswith(b"# "):
                head, lines = families.setdefault(line.split(b" ", 3)[2], ([], []))
                if line not in head and len(head) < 2:
                    head.append(line)
            else:
                name, _, rest = line.partition(b"{" if b"{" in line else b" ")
                begin = b'%b{worker="%d"' % (name, index)
                lines.append(begin + (b"," + rest if b"{" in line else b"} " + rest))
    out = [line for head, lines in families.values() for line in (*head, *lines)]
    out += [b"# HELP swerve_worker_up 1 for a worker that answers, 0 for one that does not.", b"# TYPE swerve_worker_up gauge"]
    out += [b'swerve_worker_up{worker="%d"} %d' % (index, text is not None) for index, text in sorted(texts.items())]
    return b"\n".join(out) + b"\n"


class End:
    """The last line of an export over several workers: the sums of their last lines."""

    def __init__(self) -> None:
        self.counts = dict.fromkeys(COUNTED, 0)
        self.unknown = True
        self.ended = False

    async def without(self, pieces: AsyncIterator[bytes], *, shared: bool) -> AsyncIterator[bytes]:
        """Yield the lines of one worker without the last one, whose counts are added, and without the lines of the kind `shared`
        unless `shared`."""
        self.ended, rest = False, b""
        async for piece in pieces:
            *lines, rest = (rest + piece).split(b"\n")
            kept = []
            for line in lines:
                if line.startswith(b'{"kind":"end"'):
                    self._add(msgspec.json.decode(line), shared)
                elif shared or not line.startswith(b'{"kind":"shared"'):
                    kept.append(line + b"\n")
            if kept:
                yield b"".join(kept)

    def _add(self, line: dict[str, Any], shared: bool) -> None:
        self.ended = True
        for name in COUNTED:
            if shared or name != "shared":
                self.counts[name] += line[name]
        self.unknown = self.unknown and bool(line.get("unknown_namespace"))

    def line(self) -> bytes:
        """Return the line."""
        end: dict[str, Any] = {"kind": "end", "queries": self.counts["queries"], "candidates": self.counts["candidates"]}
        end["shared"] = self.counts["shared"]
        if self.unknown:
            end["unknown_namespace"] = True
        return encode({**end, "damaged": self.counts["damaged"]}) + b"\n"
