"""Who owns a store in PostgreSQL: a lock that lasts as long as a session of the owner, and an epoch in the tables.

The lock keeps a second process away; it protects nothing, because a session can end while its process goes on. What protects is the
epoch: opening raises it, and each append and each checkpoint names it. So nothing here trusts a clock: an owner that was taken for
dead too early, and is alive, is refused by the server.
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from swerve.store.postgresql_address import Address
from swerve.store.postgresql_link import GRACE_SECONDS, Bounded, Link, one
from swerve.store.postgresql_schema import SEAT
from swerve.store.protocol import InUse, StoreError

#: Seconds between two signs of life of an owner, and between two looks of a standby.
BEAT_SECONDS, STANDBY_SECONDS = 1.0, 0.5
#: Seconds without a sign of life after which a standby ends the owner's session.
DEAD_SECONDS = 15.0
#: Seconds for which the session of a process that has just ended may still hold the lock, and between two attempts to take it.
ENDING_SECONDS, AGAIN_SECONDS = 2.0, 0.05
#: Seconds that a statement of an opening may take, and wait for locks of the previous owner: longer than the server lets a session
#: be idle inside a transaction.
OPEN_SECONDS, LOCKED_SECONDS = 10.0, 8.0
#: Seconds that a sign of life may take.
KEEP_SECONDS = 2.0

LOCK_BYTES = 8


class Holder(NamedTuple):
    """A session that holds the lock: its backend in the server, its owner, since when, and its last sign of life."""

    pid: int
    name: str
    since: str
    sign: str | None

    def __str__(self) -> str:
        process, _, host = self.name.removeprefix("swerve owner ").partition("@")
        return f"process {process or '?'} on {host or 'another machine'} since {self.since}"


def lock_key(address: Address) -> int:
    """Return the number of a store's advisory lock in its database.

    >>> lock_key(Address("", "shop", "")) != lock_key(Address("", "swerve", ""))
    True
    """
    name = f"swerve/{address.schema}/{SEAT}".encode()
    return int.from_bytes(hashlib.blake2b(name, digest_size=LOCK_BYTES).digest(), "little", signed=True)


def holder_of(connection: Bounded, key: int) -> Holder | None:
    """Return who holds a lock."""
    high, low = (key >> 32) & 0xFFFFFFFF, key & 0xFFFFFFFF
    found = connection.execute(
        "SELECT a.pid, coalesce(a.application_name, ''), "
        "coalesce(to_char(a.backend_start AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS \"UTC\"'), '?'), a.state_change::text "
        "FROM pg_locks AS l JOIN pg_stat_activity AS a USING (pid) WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 "
        "AND l.classid = %s::bigint::oid AND l.objid = %s::bigint::oid "
        "AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())",
        (high, low),
    ).fetchone()
    return None if found is None else Holder(*found)


class Keeper:
    """Holds the lock of a store on a session of its own, gives signs of life, and takes the lock again after its session was lost.

    `ours` says whether the process still owns the store: one that does not must not take the lock from the next owner.
    """

    def __init__(self, address: Address) -> None:
        self.address, self.key = address, lock_key(address)
        self.link = Link(address, "owner", OPEN_SECONDS, lock=LOCKED_SECONDS)
        self._ends = threading.Event()
        self._thread: threading.Thread | None = None
        self._pid, self._held = 0, False  # the server's process that held the lock last, and whether it does, as far as is known

    def open(self, waiting: Callable[[str], None] | None = None) -> None:
        """Connect, and take the lock. If another process holds it, raise `InUse`; with `waiting`, call that with who it is, and
        wait for its end."""
        self.link.open()
        told, sign, still = "", None, time.monotonic()
        until = still + ENDING_SECONDS
        while True:
            try:
                if not self.link.is_open:
                    self.link.open()
                holder = self._tried()
                if holder is None:
                    return
                if holder.pid == self._pid:  # an earlier session of this process, whose end the server has not noticed
                    self._end(holder)
                if time.monotonic() < until:
                    time.sleep(AGAIN_SECONDS)
                    continue
                if waiting is None:
                    self.link.close()
                    raise InUse(
                        f"{self.address.shown} is in use by {holder}; stop that process, use another store, or wait for its end "
                        "with --standby"
                    )
                if str(holder) != told:
                    told = str(holder)
                    waiting(f"{self.address.shown} is in use by {told}")
                if holder.sign is None or (holder.pid, holder.sign) != sign:
                    sign, still = (holder.pid, holder.sign), time.monotonic()
                elif time.monotonic() - still > DEAD_SECONDS:
                    self._end(holder)
            except StoreError as error:
                if waiting is None or not told:  # no owner was seen yet: the address may be wrong
                    raise
                if str(error) != told:
                    told = str(error)
                    waiting(told)
                self.link.close()
            time.sleep(STANDBY_SECONDS)

    def _tried(self) -> Holder | None:
        """Try to take the lock; return who holds it, None if this session does now."""
        with self.link.using() as connection:
            while True:
                if one(connection.execute("SELECT pg_try_advisory_lock(%s::bigint)", (self.key,)))[0]:
                    self._pid, self._held = connection.info.backend_pid, True
                    return None
                holder = holder_of(connection, self.key)
                if holder is not None:
                    return holder

    def _end(self, holder: Holder) -> None:
        """End a session that holds the lock."""
        with self.link.using() as connection:
            connection.execute("SELECT pg_terminate_backend(%s)", (holder.pid,))

    def again(self) -> None:
        """Keep the lock if its session lives, take it again otherwise. Raises `InUse` if another process holds it."""
        if self.link.is_open and self._held:
            with contextlib.suppress(StoreError), self.link.using() as connection:
                connection.execute("SELECT 1")
                return
        self.close()
        self.open()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Bounded]:
        """A transaction on the session that holds the lock."""
        with self.link.busy:
            with self.link.using() as connection:
                connection.seconds = OPEN_SECONDS + GRACE_SECONDS
            with self.link.transaction() as connection:
                yield connection

    def keep(self, ours: Callable[[Bounded], bool]) -> None:
        """Give signs of life from now on, in a thread."""
        if self._thread is not None and self._thread.is_alive():
            return
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(self._ends, ours), name="swerve-owner", daemon=True)
        self._thread.start()

    def _run(self, ends: threading.Event, ours: Callable[[Bounded], bool]) -> None:
        while not ends.wait(BEAT_SECONDS):
            with contextlib.suppress(StoreError):
                if not self.link.is_open:
                    self._held = False
                    self.link.open()
                with self.link.using() as connection:
                    connection.seconds = KEEP_SECONDS
                    if self._held:
                        connection.execute("SELECT 1")
                    elif ours(connection) and not ends.is_set():
                        self._tried()
                    else:
                        self.link.close()
                        return

    def close(self) -> None:
        """Give the lock up; closing twice is no error."""
        self._ends.set()
        self._held = False
        if self.link.is_open:
            with contextlib.suppress(StoreError), self.link.using() as connection:
                connection.execute("SELECT pg_advisory_unlock_all()")
        self.link.close()
        if self._thread is not None:
            self._thread.join(OPEN_SECONDS)
            self._thread = None
