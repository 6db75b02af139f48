"""A thread of its own for calls that block: one for reading the store, one for writing it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


class Worker:
    """One thread that runs calls in the order in which they are asked for."""

    def __init__(self, name: str) -> None:
        self._thread = ThreadPoolExecutor(1, name)

    async def ask(self, function: Callable[..., T], *args: Any) -> T:
        """Call a function in the thread and wait for its result."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *args)

    def stop(self) -> None:
        """Drop the calls that have not started. A call that runs goes on, and `stop` does not wait for it."""
        self._thread.shutdown(wait=False, cancel_futures=True)
