"""Reading: rows that are not in memory, those asked for at about the same time together, in a thread of its own."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from swerve.service.metrics import Metrics
from swerve.service.rows import Place
from swerve.store.protocol import Damaged, Row, Store, StoreError

log = logging.getLogger("swerve.service")

MOST_ROWS = 256  # of one load; further ones wait for the next
MOST_WAITING = 4096  # keys that may wait to be loaded: beyond, the store is too slow, and requests are not kept waiting for it

Found = Row | Damaged | None
T = TypeVar("T")


@dataclasses.dataclass(slots=True)
class Wanted:
    """A row that somebody waits for: whether it is to begin if nobody has asked it before, with which text and how many arms."""

    done: asyncio.Future[Place | str]
    begin: bool
    text: str | None
    arms: int


class Loader:
    """Owns the reading side of a store.

    `adopt` makes a row in memory of what was read, or says why not; it is called also when nobody waits any more, so that the next
    one who asks need not wait. `suspect` is told of trouble that concerns the whole store.
    """

    def __init__(
        self,
        store: Store,
        metrics: Metrics,
        adopt: Callable[[bytes, Found, Wanted], Place | str],
        suspect: Callable[[StoreError], None],
    ) -> None:
        self.store, self.metrics, self.adopt, self.suspect = store, metrics, adopt, suspect
        self._thread = ThreadPoolExecutor(1, "swerve-reader")
        self._wanted: dict[bytes, Wanted] = {}
        self._queue: list[bytes] = []
        self._task: asyncio.Task[None] | None = None

    async def load(self, key: bytes, within: float, *, begin: bool = False, text: str | None = None, arms: int = 1) -> Place | str:
        """The row of a key, or why there is none in so many seconds."""
        wanted = self._wanted.get(key)
        if wanted is None:
            if len(self._queue) >= MOST_WAITING:
                return "deadline"
            wanted = self._wanted[key] = Wanted(asyncio.get_running_loop().create_future(), begin, text, arms)
            self._queue.append(key)
            if self._task is None:
                self._task = asyncio.get_running_loop().create_task(self._read(), name="swerve-loader")
        elif begin:
            wanted.begin, wanted.text, wanted.arms = True, wanted.text or text, max(wanted.arms, arms)
        try:
            return await asyncio.wait_for(asyncio.shield(wanted.done), within)
        except TimeoutError:
            return "deadline"

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

    async def _read(self) -> None:
        while self._queue:
            keys, self._queue = self._queue[:MOST_ROWS], self._queue[MOST_ROWS:]
            rows: Sequence[Found] = ()
            try:
                rows = await self.ask(self.store.load, keys)
            except StoreError as error:
                if error.kind not in ("corrupt", "locked"):  # a damaged page concerns some rows only
                    self.suspect(error)
            except Exception:
                log.exception("rows could not be read")
            for at, key in enumerate(keys):
                wanted = self._wanted.pop(key)
                found: Place | str = "store"
                if rows:
                    try:
                        found = self.adopt(key, rows[at], wanted)
                    except Exception:  # a record of a layout that nobody knows, for one
                        log.exception("a row could not be taken up")
                if not wanted.done.done():
                    wanted.done.set_result(found)
        self._task = None
