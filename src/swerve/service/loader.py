"""Reading: rows that are not in memory, those asked for at about the same time together, in a thread of its own.

Who waits for a row holds it from the moment that it is in memory: rows that are taken up after it cannot push it out before its
waiters have had their turn.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

from swerve.service.metrics import Metrics
from swerve.serving.rows import Place
from swerve.store.protocol import Damaged, Row, Store, StoreError

log = logging.getLogger("swerve.service")

MOST_ROWS = 128  # of one load, taken up in one go; further ones wait for the next
MOST_WAITING = 4096  # keys that may wait to be loaded: beyond, the store is too slow, and requests are not kept waiting for it

Found = Row | Damaged | None
T = TypeVar("T")


class Wish(NamedTuple):
    """A row that somebody wants: whether it is to begin if nobody has asked it before, with which text and how many arms; which
    session asks (0 for none), and whether several do."""

    key: bytes
    begin: bool = False
    text: str | None = None
    arms: int = 1
    session: int = 0
    several: bool = False


@dataclasses.dataclass(slots=True)
class Wanted:
    """A row that is being read, and how many wait for it."""

    done: asyncio.Future[Place | str]
    wish: Wish
    waiting: int = 0


class Loader:
    """Owns the reading side of a store.

    `adopt` makes a row in memory of what was read, or says why not; it is called also when nobody waits any more, so that the next
    one who asks need not wait. `suspect` is told of trouble that concerns the whole store.
    """

    def __init__(
        self,
        store: Store,
        metrics: Metrics,
        adopt: Callable[[Wish, Found], Place | str],
        suspect: Callable[[StoreError], None],
    ) -> None:
        self.store, self.metrics, self.adopt, self.suspect = store, metrics, adopt, suspect
        self._thread = ThreadPoolExecutor(1, "swerve-reader")
        self._wanted: dict[bytes, Wanted] = {}
        self._queue: list[bytes] = []
        self._task: asyncio.Task[None] | None = None

    @contextlib.asynccontextmanager
    async def held(self, wishes: Sequence[Wish], within: float) -> AsyncIterator[list[Place | str]]:
        """The rows of keys, which stay in memory until the end of the block; in the place of one that is not there in so many
        seconds, why."""
        wanted = [self._want(wish) for wish in wishes]
        try:
            waiting = [one.done for one in wanted if one is not None]
            if waiting:
                await asyncio.wait(waiting, timeout=within)
            yield [self._found(one) for one in wanted]
        finally:
            for one in wanted:
                if one is not None:
                    one.waiting -= 1
                    if one.done.done() and isinstance(place := one.done.result(), Place):
                        place.pinned -= 1

    def _want(self, wish: Wish) -> Wanted | None:
        """Wait for a row; None when too many are waited for already."""
        wanted = self._wanted.get(wish.key)
        if wanted is None:
            if len(self._queue) >= MOST_WAITING:
                return None
            wanted = self._wanted[wish.key] = Wanted(asyncio.get_running_loop().create_future(), wish)
            self._queue.append(wish.key)
            if self._task is None:
                self._task = asyncio.get_running_loop().create_task(self._read(), name="swerve-loader")
        elif wish.begin:
            first = wanted.wish
            several = first.several or (first.begin and first.session != wish.session)
            wanted.wish = wish._replace(text=first.text or wish.text, arms=max(first.arms, wish.arms), several=several)
        wanted.waiting += 1
        return wanted

    @staticmethod
    def _found(wanted: Wanted | None) -> Place | str:
        if wanted is None or not wanted.done.done():
            return "deadline"
        found = wanted.done.result()
        return "store" if isinstance(found, Place) and found.gone else found  # another store was put in its place meanwhile

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
                        found = self.adopt(wanted.wish, rows[at])
                    except Exception:  # a record of a layout that nobody knows, for one
                        log.exception("a row could not be taken up")
                if isinstance(found, Place):
                    found.pinned += wanted.waiting
                wanted.done.set_result(found)
        self._task = None
