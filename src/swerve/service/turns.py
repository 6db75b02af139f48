"""Cuts long requests into short turns, so that other requests are answered in between.

There is one event loop. Reading a batch, deciding it and encoding its answer yield to the loop after every millisecond of work.
No request may hold the loop for five milliseconds; a turn is shorter because its last step may overrun it.
"""

from __future__ import annotations

import asyncio
import time

#: Seconds of a turn.
TURN = 0.001


class Turns:
    """`await turns()` between two steps of long work lets other requests run when the turn is over."""

    __slots__ = ("since",)

    def __init__(self) -> None:
        self.since = time.perf_counter()

    def over(self) -> bool:
        """Return whether the turn is over."""
        return time.perf_counter() - self.since > TURN

    async def __call__(self) -> None:
        if self.over():
            await asyncio.sleep(0)
            self.since = time.perf_counter()
