"""The last messages of one kind: whole for whoever lost the connection for a moment, in brief for whoever comes anew."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from typing import Any

from swerve.serving.messages import encode

#: Messages that are kept in brief: ten minutes at one a second.
KEPT = 600
#: The last of them that are kept whole, to be sent again. More would take memory for whoever was away so long that a fresh start,
#: with everything in brief, is shorter.
WHOLE = 240


def wire(event: str, data: bytes, identity: str = "") -> bytes:
    """A message as it goes over the wire. Without an id, it is no place to go on from.

    >>> wire("sample", b"{}", "3f-7")
    b'id: 3f-7\\nevent: sample\\ndata: {}\\n\\n'
    """
    head = f"id: {identity}\nevent: {event}\n" if identity else f"event: {event}\n"
    return head.encode() + b"data: " + data + b"\n\n"


class Ring:
    """A bounded past. `heavy` names the fields that only the newest message needs; `lost` is the last number that is gone."""

    def __init__(self, heavy: Collection[str] = (), lost: int = 0) -> None:
        self.heavy, self.lost = heavy, lost
        self.whole: deque[tuple[int, bytes]] = deque()
        self.brief: deque[bytes] = deque(maxlen=KEPT)
        self.newest = b""  # whole

    def put(self, number: int, message: bytes, data: bytes, brief: Mapping[str, Any]) -> None:
        """Keep a message: as it went over the wire, its data, and of that what the past needs."""
        if len(self.whole) >= WHOLE:
            self.lost = self.whole.popleft()[0]
        self.whole.append((number, message))
        self.brief.append(encode({name: value for name, value in brief.items() if name not in self.heavy}))
        self.newest = data

    def since(self, number: int) -> list[tuple[int, bytes]] | None:
        """The messages after a number; None when some of them are gone."""
        if number < self.lost:
            return None
        return [entry for entry in self.whole if entry[0] > number]

    def past(self) -> bytes:
        """Everything but the newest one, in brief: the inside of a list in JSON."""
        return b",".join(list(self.brief)[:-1])
