"""Owning a store in a Valkey server: opening, the lease, and what every new connection checks.

The epoch in the store protects it: every script that writes compares it. The lease only says who owns the store, so that a second
service is refused while the first one runs. It expires by the server's clock. Its owner renews it; an owner that was paused and
finds its epoch unchanged is still the owner.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from swerve.core.errors import SwerveError
from swerve.store.opened import RANDOM_MASK, UNBOUNDED
from swerve.store.protocol import Fenced, InUse, StoreError, missing
from swerve.store.valkey_link import Link, OtherOwner
from swerve.store.valkey_scripts import BEAT, CREATE, LEAVE, OWN, Script
from swerve.store.valkey_server import Promise, promise_of, wait_for_replicas
from swerve.store.valkey_urls import address_of

log = logging.getLogger("swerve.store")

#: The form of the keys; a store of a later form is refused.
FORM = 1
#: Seconds after which a lease expires unless it is renewed, and between two renewals: four in a row may fail.
LEASE_SECONDS, BEAT_SECONDS = 10.0, 2.0
#: Seconds between two looks at the lease of another owner.
LOOK_EVERY = 0.1
#: … and between two looks of a standby.
STANDBY_SECONDS = 0.5
#: Seconds that a call may take: to read or append, and to write many rows.
CALL_SECONDS, WRITE_SECONDS = 2.0, 10.0
#: Random bytes of a store's id.
ID_BYTES = 8


def said_in(link: Link) -> dict[str, str]:
    """Return the fields of a store's `meta`; empty if there is no store."""
    found = iter(link.call("HGETALL", f"{link.address.keys}meta"))
    return {name.decode(): value.decode("latin-1") for name, value in zip(found, found, strict=True)}


class Lost(StoreError):  # noqa: N818 - names what happened
    """The server lacks what it had acknowledged."""


class Owned:
    """A store in a Valkey server that this process owns. One connection reads, one appends, one writes, one renews the lease.

    `new` begins a store where an earlier one is missing. `may_lose_clicks` accepts a server that acknowledges what is not on its
    disk. With `waiting`, opening waits until another owner has ended, and calls `waiting` with the reason. Without `begin`, a
    missing store is only made if `new`.
    """

    def __init__(
        self,
        url: str,
        worker: str = "0",
        *,
        new: bool = False,
        most: int = UNBOUNDED,
        may_lose_clicks: bool = False,
        waiting: Callable[[str], None] | None = None,
        begin: bool = True,
    ) -> None:
        self.address, self.worker, self.most, self.may_lose_clicks = address_of(url), worker, most, may_lose_clicks
        address, self.name = self.address, str(self.address)
        self.epoch = self.begin = self.store = 0
        self._writes = self._end = 0  # what the server has acknowledged: the count of writes, and the end of the log
        self._promise = Promise("", 0)
        self._writing_now, self._appending_now = threading.RLock(), threading.RLock()
        self._reader = Link(address, self.name, CALL_SECONDS, self._greet)
        self._log = Link(address, self.name, CALL_SECONDS, self._greet)
        self._writer = Link(address, self.name, WRITE_SECONDS, self._greet)
        self._beating = Link(address, self.name, CALL_SECONDS, self._greet)
        self._ended = threading.Event()
        self.owner = f"process {os.getpid()} on {socket.gethostname()}\n{os.urandom(ID_BYTES).hex()}"
        try:
            self._open(new, begin, waiting)
        except BaseException:
            self._close_links()
            raise
        threading.Thread(target=self._beat, name="swerve-lease", daemon=True).start()

    def _door(self) -> Link:
        """Return a connection for the time before this process owns the store."""
        return Link(self.address, self.name, WRITE_SECONDS, self._look)

    def _open(self, new: bool, begin: bool, waiting: Callable[[str], None] | None) -> None:
        """Own the store, which is made if there is none. See `Owned` for `waiting`; without it raise `InUse`."""
        told, door = "", self._door()
        try:
            while True:
                try:
                    self._found(door, new, begin)
                    epoch = self._lease(door, wait=True)
                    break
                except (InUse, StoreError) as error:
                    if waiting is None:
                        raise
                    words = str(error).partition(";")[0] if isinstance(error, InUse) else str(error)
                    if words != told:
                        told = words
                        waiting(told)
                time.sleep(STANDBY_SECONDS)
            self._take(door, epoch)
        finally:
            door.close()

    def _found(self, link: Link, new: bool, begin: bool) -> None:
        """Make the store if there is none. Raises `SwerveError` if `new` finds one, or if there has been another."""
        said = said_in(link)
        if said and new:
            raise SwerveError(
                f"a new store was asked for, and {self.name} is one already; name another one with ?prefix=NAME, or remove its keys"
            )
        if not (said or new or begin):
            raise missing(self.name)
        if not said:
            store = int.from_bytes(os.urandom(ID_BYTES), "little") & RANDOM_MASK
            link.run(CREATE, store, FORM)

    def _lease(self, link: Link, *, wait: bool) -> int:
        """Own the store, and return the epoch. If another process has the lease, wait until it expires (with `wait`); raise `InUse`
        if that process renews it."""
        least, until = math.inf, time.monotonic() + 2 * LEASE_SECONDS
        while True:
            found = link.run(OWN, int(1000 * LEASE_SECONDS), self.owner)
            if found[0]:
                return int(found[1])
            _, owner, left = found
            if not wait or left > least or time.monotonic() > until:
                who = owner.decode().splitlines()[0]
                raise InUse(
                    f"{self.name} is in use by {who}; stop that process, use another store, or wait for its end with --standby"
                )
            least = left
            time.sleep(LOOK_EVERY)

    def _take(self, link: Link, epoch: int) -> None:
        """Take over the store as it is, with this epoch. After an error the lease is given up."""
        before, self.epoch = self.epoch, epoch
        try:
            said = said_in(link)
            if int(said["form"]) > FORM:
                raise SwerveError(
                    f"{self.name} has form {said['form']}, and this version of Swerve knows {FORM}: use a newer Swerve"
                )
            self.store, self.begin = int(said["store"]), int(said["begin"])
            self._writes, self._end = int(said["writes"]), int(said["end"])
            self._taken()
        except BaseException:
            self.epoch = before
            with contextlib.suppress(StoreError):
                link.run_owned(LEAVE, epoch)
            raise

    def _taken(self) -> None:
        """Called when this process has come to own a store: forget what was to be written before."""

    # --- what the store must still have ---

    def _greet(self, link: Link) -> None:
        """Check, on each new connection, that the server keeps its promises and still has what it acknowledged."""
        self._look(link)
        self._check(link)

    def _look(self, link: Link) -> None:
        """Look at the settings and the replicas of the server. Raises `StoreError` where clicks might be lost."""
        promise = promise_of(link)
        if promise.trouble and not self.may_lose_clicks:
            self._promise = promise
            raise self._untrustworthy()
        if promise.trouble and promise != self._promise:
            log.warning("%s may lose clicks: %s", self.name, promise.trouble)
        self._promise = promise

    def _untrustworthy(self) -> StoreError:
        words = f"{self.name} would lose clicks that were acknowledged: {self._promise.trouble} (docs/operations.md)"
        return StoreError("io", f"{words}; store.may_lose_clicks = true accepts that")

    def _check(self, link: Link) -> None:
        """Raise unless the store is ours and has what was acknowledged."""
        known = self._writes, self._end  # read before the server is asked: other threads may write meanwhile
        names = ("store", "epoch", "writes", "end")
        told = link.call("HMGET", f"{self.address.keys}meta", *names)
        if None in told:
            raise StoreError("gone", f"{self.name} is not there any more; bring the server's files back")
        store, epoch, writes, end = map(int, told)
        if store != self.store:
            raise StoreError("gone", f"{self.name} is another store now")
        if epoch > self.epoch:
            raise self._fenced(epoch)
        if epoch < self.epoch or writes < known[0] or end < known[1]:
            later = max(known[0] - writes, 0)
            raise Lost(
                "gone",
                f"{self.name} has lost what it had acknowledged: its log ends with entry {end}, but had reached {known[1]}; "
                f"{later} later writes are missing. Bring the server's files back, or start this service again to go on without it",
            )

    def _fenced(self, epoch: int) -> StoreError:
        return Fenced(self.name, self.epoch, epoch)

    def _write(self, link: Link, script: Script, *arguments: bytes | str | float) -> list[Any]:
        """Run a script that writes, as the owner; durable on return. Its result ends with the count of writes so far, except for
        appends."""
        if self._promise.trouble and not self.may_lose_clicks:
            raise self._untrustworthy()
        try:
            found = link.run_owned(script, self.epoch, *arguments)
        except OtherOwner as error:
            if error.epoch > self.epoch:
                raise self._fenced(error.epoch) from None
            link.drop()  # an earlier epoch: an older copy of the store; the checks of a new connection say so
            self._check(link)
            raise
        if self._promise.replicas:
            wait_for_replicas(link, self._promise.replicas)
        return found

    def _written(self, script: Script, *arguments: bytes | str | float) -> int:
        """Run a script that writes rows, and return the first value of its result."""
        with self._writing_now:
            first, writes = self._write(self._writer, script, *arguments)
            self._writes = max(self._writes, writes)
        return int(first)

    # --- the lease ---

    def _beat(self) -> None:
        """Renew the lease, and look at the settings, until the store is closed."""
        while not self._ended.wait(BEAT_SECONDS):
            try:
                self._look(self._beating)
                self._beating.run_owned(BEAT, self.epoch, int(1000 * LEASE_SECONDS), self.owner)
            except StoreError as error:
                log.debug("%s: the lease could not be renewed: %s", self.name, error)
            except Exception:
                log.exception("%s: the lease could not be renewed", self.name)

    # --- close, open again ---

    def _links(self) -> tuple[Link, ...]:
        return self._reader, self._log, self._writer, self._beating

    def _close_links(self) -> None:
        for link in self._links():
            link.close()

    def close(self) -> None:
        """Release the store; closing twice is no error."""
        if not self._ended.is_set():
            self._ended.set()
            try:
                self._beating.run_owned(LEAVE, self.epoch)
            except StoreError as error:
                log.debug("%s: the lease is left to expire: %s", self.name, error)
        self._close_links()

    def reopen(self) -> bool:
        """Connect again; return whether it is the same store, with this process as its owner. See `Store`."""
        if self._ended.is_set():
            raise StoreError("gone", f"{self.name} is closed")
        with self._writing_now, self._appending_now:
            for link in self._links():
                link.drop()
            door = self._door()
            try:
                said = said_in(door)
                if not said:
                    raise StoreError("gone", f"{self.name} is not there any more; bring the server's files back")
                if int(said["store"]) == self.store and int(said["epoch"]) <= self.epoch:
                    try:
                        self._check(door)
                        return True
                    except Lost as error:
                        if not self.may_lose_clicks:
                            raise
                        log.warning("%s", error)
                self._take(door, self._lease(door, wait=False))
            except InUse as error:
                raise StoreError("conflict", str(error)) from error
            except StoreError:
                raise
            except SwerveError as error:  # a newer form: readable, but not usable
                raise StoreError("corrupt", str(error)) from error
            finally:
                door.close()
            return False
