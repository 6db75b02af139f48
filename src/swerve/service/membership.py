"""A machine among those that serve one store: its signs of life, who else lives, and which shares it is to run.

A machine is taken for dead when its signs of life stand still while the observer's own clock goes on, and while the observer itself
reaches the directory. Whoever was wrongly taken for dead loses nothing: a share has one owner at a time by its lease, and the epoch
refuses an owner of before.

Tests: tests/service/test_membership.py.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from swerve.core.errors import SwerveError
from swerve.service.board import Posted, put
from swerve.store.directory import Directory, Machine, Seen, divided
from swerve.store.protocol import InUse, StoreError

#: Seconds between two signs of life, and between two looks at the directory.
BEAT_SECONDS, LOOK_SECONDS = 0.5, 0.2
#: Seconds without a sign of life after which a machine is taken for dead.
DEAD_SECONDS = 5.0
#: Seconds between two looks that count at most: a pause of the observer says nothing about others.
MOST_STEP = 1.0
#: Seconds in which a machine of the same address must give no sign of life for another start to take its place.
REPLACED_SECONDS = 2.0
#: Seconds after which a dead machine is forgotten.
FORGOTTEN_SECONDS = 600.0
#: What a machine is told of shares: which to run, and which it owns.
RUN, HAVE = "run", "have"
#: Random bytes of the mark of a start.
BOOT_BYTES = 8


class Watch:
    """Who lives, as seen from here."""

    def __init__(self) -> None:
        self._still: dict[str, tuple[tuple[str, int], float]] = {}  # the last sign, and how long it is the last
        self._looked: float | None = None

    def look(self, machines: Mapping[str, Machine], now: float) -> None:
        """Take note of what the directory has; `now` is the time of any clock that only goes forward."""
        passed = 0.0 if self._looked is None else min(now - self._looked, MOST_STEP)
        self._looked = now
        before, self._still = self._still, {}
        for address, machine in machines.items():
            sign = machine.boot, machine.beats
            last, still = before.get(address, (sign, 0.0))
            self._still[address] = sign, still + passed if last == sign else 0.0

    def missed(self) -> None:
        """The directory could not be asked: what passes until the next look says nothing about others."""
        self._looked = None

    def still(self, address: str) -> float:
        """Return for how many seconds a machine has given no sign of life."""
        return self._still[address][1]

    def lives(self, address: str) -> bool:
        """Return whether a machine lives."""
        return address in self._still and self.still(address) < DEAD_SECONDS


class Member:
    """This machine. `tell` gets the shares that it is to run (`RUN`), and those that it owns as all its workers know (`HAVE`),
    whenever these change."""

    def __init__(
        self, directory: Directory, machine: Machine, shares: int, board: Path,
        tell: Callable[[str, list[int]], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self.directory, self.machine, self.shares = directory, machine, shares
        self.board, self.tell, self.clock = board, tell, clock
        self.watch = Watch()
        self._beaten: float | None = None  # when it gave its last sign of life
        self._posted: Posted | None = None
        self._told: dict[str, list[int]] = {}

    def join(self, sleep: Callable[[float], None] = time.sleep) -> None:
        """Make sure that no other machine stands in the way. Raises `InUse`, or `StoreError`."""
        first, until = self._in_the_way(), self.clock() + REPLACED_SECONDS
        seen = first
        while seen and self.clock() <= until:
            sleep(LOOK_SECONDS)
            seen = self._in_the_way()
            for address, other in seen.items():
                if first.setdefault(address, other)[1:4] != other[1:4]:
                    raise self._in_use(other)

    def _in_the_way(self) -> dict[str, Machine]:
        """Return the machines of the directory, other starts than this one, that must not live beside this one."""
        ours, boot = self.machine.address, self.machine.boot
        seen = self.directory.look().machines.items()
        return {name: other for name, other in seen if (not ours or not name or name == ours) and other.boot != boot}

    def _in_use(self, other: Machine) -> InUse:
        if other.address and other.address == self.machine.address:
            return InUse(
                f"{other.name} serves the store with server.crew_address = {other.address!r} too: each machine has its own"
            )
        return InUse(
            f"the store is in use by {other.name}; stop it, or let several machines serve it: set server.crew_address on each "
            "(docs/service.md)"
        )

    def step(self) -> None:
        """Give a sign of life when it is time, look who else does, and tell what follows."""
        try:
            seen = self.directory.look()
            self._replaced(seen)
            if self._beaten is None or self.clock() - self._beaten >= BEAT_SECONDS:
                self.machine = self.machine._replace(beats=self.machine.beats + 1)
                self.directory.beat(self.machine)
                self._beaten = self.clock()
        except StoreError:
            self.watch.missed()
            raise
        self.watch.look(seen.machines, self.clock())
        living = {name: machine for name, machine in seen.machines.items() if self.watch.lives(name)}
        living[self.machine.address] = self.machine
        self._post(seen, living)
        holders = {share: owner.machine for share, owner in seen.owners.items() if owner.there}
        whose = divided(self.shares, {name: machine.workers for name, machine in living.items()}, holders)
        mine = [share for share, name in whose.items() if name == self.machine.address]
        self._tell(RUN, mine)
        for name, machine in seen.machines.items():
            if name not in living and self.watch.still(name) > FORGOTTEN_SECONDS:
                self.directory.leave(name, machine.boot)

    def _replaced(self, seen: Seen) -> None:
        """Raise `SwerveError` if another start has this machine's address."""
        found = seen.machines.get(self.machine.address)
        if self._beaten is not None and found is not None and found.boot != self.machine.boot:
            raise self._in_use(found)

    def _post(self, seen: Seen, living: Mapping[str, Machine]) -> None:
        posted = Posted({share: owner for share, owner in seen.owners.items() if owner.there and owner.machine in living})
        if posted != self._posted:
            put(self.board, posted)
            self._posted = posted
        self._tell(HAVE, [share for share, owner in posted.owners.items() if owner.machine == self.machine.address])

    def _tell(self, what: str, shares: list[int]) -> None:
        if self._told.get(what) != shares:
            self._told[what] = shares
            self.tell(what, shares)

    def leave(self) -> None:
        """Take leave of the others: they take over what this machine still runs as soon as it has let it go."""
        self.directory.leave(self.machine.address, self.machine.boot)


def new_boot() -> str:
    """Return the mark of a start."""
    return os.urandom(BOOT_BYTES).hex()


def parts_of(address: str) -> tuple[str, int]:
    """Return host and port of an address of `server.crew_address`.

    >>> parts_of("10.0.0.1:8351"), parts_of("[::1]:8351")
    (('10.0.0.1', 8351), ('::1', 8351))
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise SwerveError(f"server.crew_address = {address!r} is not allowed: it must be HOST:PORT")
    return host.strip("[]"), int(port)
