"""Reading: rows that are not in memory, loaded in groups by a thread of its own.

A row is pinned in memory for its waiters from the moment it is loaded: rows that are loaded after it cannot push it out before the
waiters have used it.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from swerve.service.metrics import Metrics
from swerve.service.worker import Worker
from swerve.serving.place import Place
from swerve.store.protocol import Damaged, Row, Store, StoreError

log = logging.getLogger("swerve.service")

#: Rows of one load. They are adopted without a pause, so more would hold the event loop; the rest waits for the next load.
MOST_ROWS = 128
#: Keys that may wait to be loaded. With more of them the store is too slow, and requests fail at once instead of waiting.
MOST_WAITING = 4096

Found = Row | Damaged | None
T = TypeVar("T")


class Wish(NamedTuple):
    """A request for a row.

    `begin` creates the row when the query is new, with this `text` and room for this many `arms`. `session` is the session that
    asks (0 for none), and `several` whether more than one does. `rival`: it is a row of the control arm's policy; of a
    wish with a text, the text says so.
    """

    key: bytes
    begin: bool = False
    text: str | None = None
    arms: int = 1
    session: int = 0
    several: bool = False
    rival: bool = False


@dataclasses.dataclass(slots=True)
class Wanted:
    """A row that is being read, and the number of its waiters."""

    done: asyncio.Future[Place | str]
    wish: Wish
    waiting: int = 0


class Loader:
    """Owns the reading side of a store.

    `adopt` makes a row in memory from a stored one, or returns the reason why it cannot. It is called even when all waiters have
    given up, so that the next request finds the row in memory. `suspect` receives errors that concern the whole store.
    """

    def __init__(
        self,
        store: Store,
        metrics: Metrics,
        adopt: Callable[[Wish, Found], Place | str],
        suspect: Callable[[StoreError], None],
    ) -> None:
        self.store, self.metrics, self.adopt, self.suspect = store, metrics, adopt, suspect
        self._reader = Worker("swerve-reader")
        self._wanted: dict[bytes, Wanted] = {}
        self._queue: list[bytes] = []
        self._task: asyncio.Task[None] | None = None
        self.deletions = 0  # rows that were read before the last one are read again

    @contextlib.asynccontextmanager
    async def held(self, wishes: Sequence[Wish], within: float) -> AsyncIterator[list[Place | str]]:
        """Yield the rows of the wishes, which stay in memory until the end of the block. A row that is not there after `within`
        seconds is replaced by the reason."""
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
        """Queue a row for loading, or join its waiters; None when too many rows are queued."""
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
            wanted.wish = wish._replace(
                text=first.text or wish.text, arms=max(first.arms, wish.arms), several=several, rival=first.rival or wish.rival
            )
        wanted.waiting += 1
        return wanted

    @staticmethod
    def _found(wanted: Wanted | None) -> Place | str:
        if wanted is None or not wanted.done.done():
            return "deadline"
        found = wanted.done.result()
        return "store" if isinstance(found, Place) and found.gone else found  # gone: another store has replaced ours meanwhile

    async def ask(self, function: Callable[..., T], *args: Any) -> T:
        """Call the store in the reader's thread; counts its errors."""
        try:
            return await self._reader.ask(function, *args)
        except StoreError as error:
            self.metrics.store_errors(error.kind).value += 1
            raise

    def stop(self) -> None:
        """Stop reading."""
        self._reader.stop()

    async def _read(self) -> None:
        """Load all queued rows and resolve their futures."""
        while self._queue:
            keys, self._queue = self._queue[:MOST_ROWS], self._queue[MOST_ROWS:]
            rows: Sequence[Found] = ()
            try:
                deletions = -1
                while deletions != self.deletions:
                    deletions = self.deletions
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
                    except Exception:  # for example, the record has a layout that the store does not know
                        log.exception("a row could not be restored")
                if isinstance(found, Place):
                    found.pinned += wanted.waiting
                wanted.done.set_result(found)
        self._task = None
