"""Seats: how several workers share one store.

Queries hash into partitions. A worker sits on a *seat*, which has a log of its own and an epoch; the leases say which seat has
which partition. Opening a seat raises its epoch: the engine then refuses whatever its owner of before writes. Nothing here trusts a
clock: a worker is taken for dead when its beats no longer move, and if that was wrong the epoch protects.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

#: Partitions of a store.
PARTITIONS = 64
#: In place of a seat's number: nobody has the partition.
FREE = -1
#: Posts that an engine keeps of each seat, at least: older ones may be dropped, everybody alive has read them.
KEPT_POSTS = 1000


class Seat(NamedTuple):
    """A seat as the engine has it. `beats` counts how often its owner has said that it is alive; `address` is where other workers
    reach the owner, empty when the owner has left in order; `end` is the number after the last entry of its log, `begin` that of
    the entry from which its log must be played: what is before is in rows."""

    number: int
    epoch: int
    beats: int
    address: str
    begin: int
    end: int


class Post(NamedTuple):
    """A message of a worker to all others; the numbers of a seat's posts are dense, and go on when its owner changes."""

    seat: int
    number: int
    content: bytes


@runtime_checkable
class Seats(Protocol):
    """What a store that was opened for a seat can do besides, see `swerve.store.protocol.Store`.

    Any thread may call any method. Each call that writes is carried out by the engine only for the present owner of the seat, and
    raises `Fenced` otherwise. Each is durable on return, but for `beat` and `post`, which a crash may lose.
    """

    @property
    def seat(self) -> int:
        """The number of this seat."""

    def beat(self) -> None:
        """Say that the owner of this seat is alive."""

    def seats(self) -> list[Seat]:
        """Return all seats that are not retired, by number."""

    def leases(self) -> list[int]:
        """Return the seat that has each partition, or `FREE`."""

    def take(self, partitions: Sequence[int]) -> list[int]:
        """Take those of these partitions that are free; return them."""

    def give(self, partitions: Sequence[int]) -> None:
        """Set those of these partitions free that this seat has."""

    def leave(self) -> None:
        """Give all partitions, and clear the address: the owner stops in order, and its log has nothing that is not in rows. Raises
        `StoreError` if it has."""

    def retire(self, number: int) -> None:
        """Remove a seat that was left, for good. Raises `StoreError` for one that has partitions, or a log to be played."""

    def post(self, content: bytes) -> int:
        """Add a message of this seat to the board; return its number."""

    def posts(self, after: Mapping[int, int]) -> list[Post]:
        """Return the posts of other seats after a number of each, in order; of seats that are not named, all that there are."""

    def control(self) -> tuple[int, dict[str, bytes]]:
        """Return the version of what operators have set (rules, experiments, audit), and the records."""

    def set_control(self, version: int, records: Mapping[str, bytes]) -> bool:
        """Replace these records if the version is still the one given, and raise it; return whether."""
