"""How workers of two machines prove to each other that they belong to one service, when a connection opens.

Both know a key that is derived from the service's secrets, and prove it with a hash over numbers that both have drawn, the version
of the form, and the share that is asked for. Before that nothing is read as a request. What follows is not encrypted.

The worker that is called sends a number; the caller answers with a number of its own, the time of its clock and its proof; the
worker sends its own proof. The caller's time says how far its clock is from the worker's, so that a time until which an answer is
of use (`siblings.UNTIL`) holds on both.

Tests: tests/service/test_handshake.py.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import os
import struct
import time
from collections.abc import Callable
from typing import Any

#: What a proof is for; a later form has another one.
FORM = b"swerve crew 1"
#: Bytes of a number that is drawn, and of a proof.
DRAWN, PROOF = 32, 32
#: The time of a clock.
CLOCK = struct.Struct("<d")
#: Bytes that a caller sends.
CALL = DRAWN + CLOCK.size + PROOF
#: Seconds in which a handshake is done, and how many may be under way at a worker.
SECONDS, MOST_OPEN = 2.0, 128


def crew_key(query_key: bytes) -> bytes:
    """Return the key of a service's workers: from the query key, which stays when token keys are rotated."""
    return hashlib.blake2b(b"", key=query_key, person=FORM).digest()


def proof(key: bytes, side: bytes, share: int, drawn: bytes, answer: bytes) -> bytes:
    """Return the proof of one side."""
    said = b"%b %b %d " % (FORM, side, share) + drawn + answer
    return hashlib.blake2b(said, key=key, digest_size=PROOF).digest()


class Knock(asyncio.Protocol):
    """The side of the worker that is called: whoever proves that it belongs here comes to the protocol that `door` makes of the
    seconds by which this clock is ahead of the caller's; others are told nothing. `open` counts those that have not yet."""

    def __init__(
        self, key: bytes, share: int, door: Callable[[float], Any], refused: Callable[[str], None], open: list[int]
    ) -> None:
        self.key, self.share, self.door, self.refused, self.open = key, share, door, refused, open
        self._drawn, self._got = os.urandom(DRAWN), b""
        self._waits = False

    def connection_made(self, transport: Any) -> None:
        self.transport: asyncio.Transport = transport
        if self.open[0] >= MOST_OPEN:
            self._refuse()
            return
        self.open[0] += 1
        self._waits = True
        self._timer = asyncio.get_running_loop().call_later(SECONDS, self._refuse)
        transport.write(self._drawn)

    def data_received(self, data: bytes) -> None:
        if not self._waits:
            return
        self._got += data
        if len(self._got) < CALL:
            return
        call, proved, rest = self._got[: CALL - PROOF], self._got[CALL - PROOF : CALL], self._got[CALL:]
        if not hmac.compare_digest(proved, proof(self.key, b"caller", self.share, self._drawn, call)):
            self._refuse()
            return
        self._settled()
        (sent,) = CLOCK.unpack(call[DRAWN:])
        self.transport.write(proof(self.key, b"worker", self.share, self._drawn, call))
        door = self.door(time.monotonic() - sent)
        self.transport.set_protocol(door)
        door.connection_made(self.transport)
        if rest:
            door.data_received(rest)

    def connection_lost(self, exc: Exception | None) -> None:
        self._settled()

    def _settled(self) -> None:
        if self._waits:
            self._waits = False
            self.open[0] -= 1
            self._timer.cancel()

    def _refuse(self) -> None:
        self._settled()
        peer = self.transport.get_extra_info("peername")
        self.refused(str(peer[0]) if peer else "")
        self.transport.abort()


class Call(asyncio.Protocol):
    """The side of the caller; `proved` gets the connection once the worker has proved that it belongs to the service."""

    def __init__(self, key: bytes, share: int) -> None:
        self.key, self.share, self._got = key, share, b""
        self._wanted: bytes | None = None
        self.proved: asyncio.Future[asyncio.Transport] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        self.transport: asyncio.Transport = transport

    def data_received(self, data: bytes) -> None:
        self._got += data
        if self._wanted is None:
            if len(self._got) < DRAWN:
                return
            drawn, self._got = self._got[:DRAWN], self._got[DRAWN:]
            call = os.urandom(DRAWN) + CLOCK.pack(time.monotonic())
            self._wanted = proof(self.key, b"worker", self.share, drawn, call)
            self.transport.write(call + proof(self.key, b"caller", self.share, drawn, call))
        if len(self._got) >= PROOF:
            if hmac.compare_digest(self._got, self._wanted):
                self.proved.set_result(self.transport)
            else:
                self._fail()

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail()

    def _fail(self) -> None:
        if not self.proved.done():
            self.proved.set_exception(ConnectionError("the other side has not proved that it belongs to the service"))
            self.proved.exception()  # whoever waited may have given up
        self.transport.abort()


async def call(host: str, port: int, key: bytes, share: int, made: Callable[[], asyncio.Protocol]) -> Any:
    """Open a connection to a worker, and return its protocol. Raises `OSError`, or `TimeoutError`."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(SECONDS):
        transport, caller = await loop.create_connection(lambda: Call(key, share), host, port)
        try:
            await caller.proved
        except BaseException:
            transport.abort()
            raise
    if transport.is_closing():
        raise ConnectionError("the other side has gone")
    protocol = made()
    transport.set_protocol(protocol)
    protocol.connection_made(transport)
    return protocol
