"""Reading: rows that are not in memory, those asked for at about the same time together, in a thread of its own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from swerve.service.metrics import Metrics
from swerve.store.protocol import Damaged, Row, Store, StoreError

log = logging.getLogger("swerve.service")

MOST_ROWS = 256  # of one load; further ones wait for the next
MOST_WAITING = 4096  # keys that may wait to be loaded: beyond, the store is too slow, and requests are not kept waiting for it

Found = Row | Damaged | None
T = TypeVar("T")


class Loader:
    """Owns the reading side of a store. `suspect` is told of trouble that concerns the whole store."""

    def __init__(self, store: Store, metrics: Metrics, suspect: Callable[[StoreError], None]) -> None:
        self.store, self.metrics, self.suspect = store, metrics, suspect
        self._thread = ThreadPoolExecutor(1, "swerve-reader")
        self._loading: dict[bytes, asyncio.Future[Found]] = {}
        self._queue: list[bytes] = []
        self._task: asyncio.Task[None] | None = None

    async def load(self, key: bytes, within: float) -> Found:
        """The stored row of a key. Raises `StoreError`, of kind "slow" when it takes too long."""
        try:
            return await asyncio.wait_for(asyncio.shield(self._wanted(key)), within)
        except TimeoutError:
            raise StoreError("slow", "a row could not be read in time") from None

    async def ask(self, function: Callable[..., T], *args: Any) -> T:
        """Call the store in the reader's thread."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, function, *args)
        except StoreError as error:
            self.metrics.store_errors(error.kind).value += 1
            raise

    def stop(self) -> None:
        """Read no more."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _wanted(self, key: bytes) -> asyncio.Future[Found]:
        found = self._loading.get(key)
        if found is None:
            found = asyncio.get_running_loop().create_future()
            if len(self._queue) >= MOST_WAITING:
                found.set_exception(StoreError("slow", "too many rows wait to be read"))
                return found
            self._loading[key] = found
            self._queue.append(key)
            if self._task is None:
                self._task = asyncio.get_running_loop().create_task(self._read(), name="swerve-loader")
        return found

    async def _read(self) -> None:
        while self._queue:
            keys, self._queue = self._queue[:MOST_ROWS], self._queue[MOST_ROWS:]
            rows: Sequence[Found | StoreError]
            try:
                rows = await self.ask(self.store.load, keys)
            except StoreError as error:
                if error.kind not in ("corrupt", "locked"):  # a damaged page concerns some rows only
                    self.suspect(error)
                rows = [error] * len(keys)
            except Exception as error:
                log.exception("rows could not be read")
                rows = [StoreError("io", str(error))] * len(keys)
            for key, row in zip(keys, rows, strict=True):
                waiting = self._loading.pop(key)
                if waiting.done():
                    continue
                if isinstance(row, StoreError) and not isinstance(row, Damaged):
                    waiting.set_exception(row)
                    waiting.exception()  # nobody may be waiting any more
                else:
                    waiting.set_result(row)
        self._task = None
