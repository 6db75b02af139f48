"""Opening a store in PostgreSQL, and opening it again: its connections, its owner, its epoch."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from swerve.core.errors import SwerveError
from swerve.store.opened import UNBOUNDED
from swerve.store.postgresql_address import address_of
from swerve.store.postgresql_link import MILLISECONDS, Bounded, Link, one, refuse_losses
from swerve.store.postgresql_owner import STANDBY_SECONDS, Keeper
from swerve.store.postgresql_schema import SEAT, is_made, make, migrate
from swerve.store.protocol import Fenced, InUse, StoreError, missing

log = logging.getLogger("swerve.store")

#: Seconds that a statement may take: a read, for which requests wait; an append and a checkpoint, which are tried again; one over
#: whole tables.
READ_SECONDS, APPEND_SECONDS, WRITE_SECONDS, LONG_SECONDS = 2.0, 5.0, 10.0, 600.0


class Owned(NamedTuple):
    """What an owner finds: the store's id, its own epoch, the begin and the end of the log, and when its last entry was written."""

    store: int
    epoch: int
    begin: int
    end: int
    last: float


class Opened:
    """A store that this process owns. One connection reads, one appends, one writes, one keeps the lock.

    `new` begins a store where an earlier one is missing, `new_log` a log in place of a damaged one. With `waiting`, opening waits
    until another owner has ended, and calls `waiting` with the reason. Without `begin`, a missing store is only made if `new`.
    `may_lose_clicks` accepts asynchronous standbys.
    """

    def __init__(
        self,
        url: str,
        worker: str = "0",
        *,
        new: bool = False,
        most: int = UNBOUNDED,
        new_log: bool = False,
        may_lose_clicks: bool = False,
        waiting: Callable[[str], None] | None = None,
        begin: bool = True,
    ) -> None:
        self.address, self.worker, self.most, self.may_lose_clicks = address_of(url), worker, most, may_lose_clicks
        self._keeper = Keeper(self.address)
        self._reader, self._log, self._writer = (
            Link(self.address, name, seconds)
            for name, seconds in (("reader", READ_SECONDS), ("log", APPEND_SECONDS), ("writer", WRITE_SECONDS))
        )
        self.store, self.epoch, self.begin, self._end, self._count, self._last = 0, 0, 0, 0, 0, 0.0
        self._anew = False  # whether this process owns it anew, and `reopen` has not said so yet
        try:
            self._take(self._first(new, begin, new_log, waiting))
            self._linked()
        except BaseException:
            self.close()
            raise

    def _first(self, new: bool, begin: bool, new_log: bool, waiting: Callable[[str], None] | None) -> Owned:
        """Take the lock and own the store. With `waiting`, errors are waited out too: the last statements of the previous owner may
        hold their locks for as long as a standby of the server does not answer."""
        told = ""
        while True:
            self._keeper.open(waiting)
            try:
                with self._keeper.transaction() as connection:
                    refuse_losses(connection, self.address, self.may_lose_clicks)
                    self._found(connection, new, begin)
                    owned = self._own(connection, new_log)
                return owned
            except StoreError as error:
                if waiting is None or error.kind == "corrupt":
                    raise
                if str(error) != told:
                    told = str(error)
                    waiting(told)
                self._keeper.close()
            time.sleep(STANDBY_SECONDS)

    def _found(self, connection: Bounded, new: bool, begin: bool) -> None:
        """Make the tables of a new store; refuse `new` for one that is there, and to begin one where there has been another."""
        made = is_made(connection, self.address)
        if made and new:
            raise SwerveError(
                f"a new store was asked for, and {self.address.shown} is one already; name another schema with ?schema=NAME, or "
                "drop this one"
            )
        if not (made or new or begin):
            raise missing(self.address.shown)
        if not made:
            make(connection, self.address)

    # --- the owner ---

    def _own(self, connection: Bounded, new_log: bool = False) -> Owned:
        """Raise the epoch, inside a transaction. It waits until an append or a checkpoint of the previous owner has ended; the next
        one is refused."""
        store = migrate(connection, self.address)
        raised = f"greatest(epoch, {self.epoch}) + 1"  # above ours too: a server that has lost data may not know it
        end, last, epoch = self._moved(connection, f'UPDATE logs SET epoch = {raised} WHERE seat = %s RETURNING "end", last, epoch')
        (begin,) = self._moved(connection, f"UPDATE seats SET epoch = {epoch} WHERE number = %s RETURNING begin")
        if new_log:
            connection.seconds = LONG_SECONDS
            connection.execute("SELECT set_config('statement_timeout', %s, true)", (str(round(LONG_SECONDS * MILLISECONDS)),))
            connection.execute("DELETE FROM blocks WHERE seat = %s", (SEAT,))
            connection.execute("UPDATE seats SET begin = %s WHERE number = %s", (end, SEAT))
            begin = end
        self._complete(connection, begin, end)
        return Owned(store, epoch, begin, end, last)

    def _take(self, owned: Owned) -> None:
        """Take over what `_own` found, once its transaction is durable."""
        self.store, self.epoch, self.begin, self._end, self._last = owned

    def _moved(self, connection: Bounded, statement: str) -> tuple[Any, ...]:
        found = connection.execute(statement, (SEAT,)).fetchone()
        if found is None:
            raise self._incomplete("the tables `seats` and `logs` lack the row of this store")
        return found

    def _complete(self, connection: Bounded, begin: int, end: int) -> None:
        """Raise `StoreError` if the log lacks its last entries."""
        statement = "SELECT first + entries FROM blocks WHERE seat = %s ORDER BY first DESC LIMIT 1"
        (found,) = connection.execute(statement, (SEAT,)).fetchone() or (0,)
        if begin < end and found != end:
            raise self._incomplete(f"its log ends with entry {found}, but had reached {end}")

    def _incomplete(self, words: str) -> StoreError:
        return StoreError(
            "corrupt",
            f"{self.address.shown}: {words}; restore a backup of the database, or go on without what only the log has: --new-log",
        )

    def _ours(self, connection: Bounded) -> bool:
        """Return whether the server has this process as the owner."""
        return self._epoch(connection) == self.epoch

    def _epoch(self, connection: Bounded) -> int:
        found = connection.execute("SELECT epoch FROM logs WHERE seat = %s", (SEAT,)).fetchone()
        return -1 if found is None else int(found[0])

    def owned(self, connection: Bounded, begin: int | None = None) -> None:
        """Raise `Fenced` unless this process is the owner. Inside a transaction: its row lock keeps it the owner until the end."""
        done = connection.execute(
            "UPDATE seats SET begin = coalesce(%s, begin) WHERE number = %s AND epoch = %s", (begin, SEAT, self.epoch), prepare=True
        )
        if done.rowcount != 1:
            raise Fenced(self.address.shown, self.epoch, self._epoch(connection))

    @contextlib.contextmanager
    def _writing(self, begin: int | None = None) -> Iterator[Bounded]:
        """Run one transaction as the owner: durable when the block ends, rolled back on any error."""
        with self._writer.transaction() as connection:
            self.owned(connection, begin)
            yield connection

    @contextlib.contextmanager
    def _long(self) -> Iterator[Bounded]:
        """Use a connection for statements over whole tables."""
        link = Link(self.address, "long", LONG_SECONDS)
        link.open()
        try:
            with link.using() as connection:
                yield connection
        finally:
            link.close()

    # --- open, close ---

    def _linked(self) -> None:
        """Open the other connections, and begin to keep the lock."""
        for link in (self._reader, self._log, self._writer):
            link.open()
            with link.using() as connection:
                refuse_losses(connection, self.address, self.may_lose_clicks)
        with self._long() as connection:
            (self._count,) = one(connection.execute("SELECT count(*) FROM rows"))
        self._keeper.keep(self._ours)

    def _forgotten(self) -> None:
        """Forget entries that wait to be appended: they are of the time before this process owned the store anew."""

    def close(self) -> None:
        """Release the store; closing twice is no error."""
        self._unlinked()
        self._keeper.close()

    def _unlinked(self) -> None:
        for link in (self._reader, self._log, self._writer):
            link.close()

    def reopen(self) -> bool:
        """Connect again; return whether this process is still the owner of the same store. See `Store`.

        The lock is kept if its session lives: a standby must not take over for a moment's trouble.
        """
        with self._log.busy, self._writer.busy, self._reader.busy:
            self._unlinked()
            try:
                self._keeper.again()
                owned = self._again()
                if owned is not None:
                    self._take(owned)
                    self._anew = True
                self._linked()
            except InUse as error:
                raise StoreError("conflict", str(error)) from error
            except StoreError:
                self.close()
                raise
            except SwerveError as error:  # a server that may lose clicks, or a store of a newer form
                self.close()
                raise StoreError("io", str(error)) from error
            if self._anew:
                self._forgotten()
            same, self._anew = not self._anew, False
            return same

    def _again(self) -> Owned | None:
        """Find the store as it was left, or own it anew."""
        with self._keeper.transaction() as connection:
            refuse_losses(connection, self.address, self.may_lose_clicks)
            if not is_made(connection, self.address):
                words = "there is no store any more; restore a backup of the database (docs/operations.md)"
                raise StoreError("gone", f"{self.address.shown}: {words}")
            same = migrate(connection, self.address) == self.store
            end, epoch = self._moved(connection, 'SELECT "end", epoch FROM logs WHERE seat = %s')
            (begin,) = self._moved(connection, "SELECT begin FROM seats WHERE number = %s")
            if same and epoch == self.epoch and end >= self._end:
                self._complete(connection, begin, end)
                self.begin = begin
                return None
            if same and epoch <= self.epoch and not self.may_lose_clicks:
                words = (
                    f"the server has entries up to {end} of epoch {epoch}, and {self._end} were acknowledged in epoch {self.epoch}"
                )
                raise StoreError(
                    "gone",
                    f"{self.address.shown}: {words}: it lost clicks, or is an older copy; bring the right server back, or "
                    "start the service again to go on without them",
                )
            return self._own(connection)
