"""What stands between the server's HTTP protocol and its connection: a transport, and a request that waits for the store."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from swerve.service.http.door import Door

#: Bytes of a body that is worth a copy: an answer's, joined with its head, or a request's, kept for the short way.
MOST_COPIED = 65_536


class Joined:
    """A transport that sends the head of an answer together with its body, which saves a system call and wakes the caller once."""

    __slots__ = ("door", "get_extra_info", "held", "is_closing", "paused", "send", "transport")

    def __init__(self, transport: asyncio.Transport, door: Door) -> None:
        self.transport, self.door, self.held, self.paused = transport, door, b"", False
        # every request uses these: bound here, they cost no extra call
        self.send, self.is_closing, self.get_extra_info = transport.write, transport.is_closing, transport.get_extra_info

    def write(self, data: bytes) -> None:
        if self.held:
            if len(data) > MOST_COPIED:
                self.flush()
            else:
                data, self.held = self.held + data, b""
        elif data.startswith(b"HTTP/1.1 2"):
            self.held = data
            return
        self.send(data)

    def flush(self) -> None:
        """Send a pending head whose answer has no body."""
        if self.held:
            self.send(self.held)
            self.held = b""

    def close(self) -> None:
        self.flush()
        self.transport.close()

    def pause_reading(self) -> None:
        self.paused = True
        self.transport.pause_reading()

    def resume_reading(self) -> None:
        """Continue reading. Bytes that were read and not parsed yet are parsed first."""
        self.paused = False
        if self.door.rest:
            self.door.loop.call_soon(self.door.go_on_reading)
        else:
            self.transport.resume_reading()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.transport, name)


class Pending:
    """Stands for a request's cycle while its answer waits for the store, so that the protocol holds back the requests behind it."""

    __slots__ = ("disconnected", "keep_alive", "message_event", "response_complete", "response_started")

    def __init__(self) -> None:
        self.response_complete, self.response_started, self.disconnected, self.keep_alive = False, False, False, True
        self.message_event = NOBODY


class Nobody:
    """Stands for an `asyncio.Event` that nothing waits for."""

    def set(self) -> None:
        """Do nothing."""


NOBODY = Nobody()
