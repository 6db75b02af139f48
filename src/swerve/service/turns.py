"""Long requests in short turns: nobody waits for somebody else's batch.

There is one event loop. What takes long on it is cut into turns of two milliseconds, with a turn of all others in between:
reading a batch, deciding it, writing the answer.
"""

from __future__ import annotations

import asyncio
import time

#: Seconds of a turn.
TURN = 0.002


class Turns:
    """`await turns()` between two steps of something long: others have their turn when ours is over."""

    __slots__ = ("since",)

    def __init__(self) -> None:
        self.since = time.perf_counter()

    def over(self) -> bool:
        """Whether ours is over."""
        return time.perf_counter() - self.since > TURN

    async def __call__(self) -> None:
        if self.over():
            await asyncio.sleep(0)
            self.since = time.perf_counter()
