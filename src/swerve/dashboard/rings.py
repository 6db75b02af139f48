"""The last messages of one kind: in full for readers that resume, in brief for new readers."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from typing import Any

from swerve.serving.messages import encode

#: Messages kept in brief: ten minutes at one per second.
KEPT_BRIEF = 600
#: Messages kept in full, to be sent again. After a longer absence a fresh start, with everything in brief, is shorter.
KEPT_WHOLE = 240


def wire(event: str, data: bytes, identity: str = "") -> bytes:
    """Return a message as bytes of an event stream. A reader cannot resume from a message without an id.

    >>> wire("sample", b"{}", "3f-7")
    b'id: 3f-7\\nevent: sample\\ndata: {}\\n\\n'
    """
    head = f"id: {identity}\nevent: {event}\n" if identity else f"event: {event}\n"
    return head.encode() + b"data: " + data + b"\n\n"


class Ring:
    """A bounded history. `heavy` names the fields that only the newest message needs; `lost` is the last number that is gone."""

    def __init__(self, heavy: Collection[str] = (), lost: int = 0) -> None:
        self.heavy, self.lost = heavy, lost
        self.whole: deque[tuple[int, bytes]] = deque()
        self.brief: deque[bytes] = deque(maxlen=KEPT_BRIEF)
        self.newest = b""  # in full

    def put(self, number: int, message: bytes, data: bytes, brief: Mapping[str, Any]) -> None:
        """Add a message: its bytes, its data, and the fields that the history needs."""
        if len(self.whole) >= KEPT_WHOLE:
            self.lost = self.whole.popleft()[0]
        self.whole.append((number, message))
        self.brief.append(encode({name: value for name, value in brief.items() if name not in self.heavy}))
        self.newest = data

    def since(self, number: int) -> list[tuple[int, bytes]] | None:
        """Return the messages after a number; None if some of them are gone."""
        if number < self.lost:
            return None
        return [entry for entry in self.whole if entry[0] > number]

    def past(self) -> bytes:
        """Return all messages except the newest, in brief, as the inside of a JSON list."""
        return b",".join(list(self.brief)[:-1])
