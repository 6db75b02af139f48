"""The directory of a store whose shares several machines serve: which machines there are, and which one owns each share.

It lies in the engine, with share 0. It says where to ask and what to run; it protects nothing: that is done by the lease and the
epoch of each share, which is a whole store of its own. So nothing here trusts a clock, and an entry may be old.

Tests: tests/store/test_directory.py, tests/service/test_membership.py.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import TracebackType
from typing import NamedTuple, Protocol

from swerve.store.shares import MOST_SHARES


class Machine(NamedTuple):
    """A machine that serves: where its workers are reached by those of others, its present start, how many workers it wants, how
    often it has given a sign of life, and who it is, for people. The address of a machine that serves alone is empty."""

    address: str
    boot: str
    workers: int
    beats: int
    name: str


class Owner(NamedTuple):
    """The owner of a share: the address of its machine, and its epoch. None owns it now where `there` is false; it had this one."""

    machine: str
    epoch: int
    there: bool = True


class Seen(NamedTuple):
    """What the directory has: machines by their addresses, owners by the numbers of their shares."""

    machines: dict[str, Machine]
    owners: dict[int, Owner]


class Shares(NamedTuple):
    """How many shares a store has, for good, and the fingerprint of the secrets of all of them."""

    of: int
    secrets: bytes


class Directory(Protocol):
    """A directory that is open. Every method raises `StoreError` where the engine cannot be asked."""

    def shares(self) -> Shares | None:
        """Return how many shares the store has; None: one, and no directory."""

    def begin(self, shares: Shares) -> Shares:
        """Note how many shares the store has, unless that is known already; return what is known. Durable on return."""

    def look(self) -> Seen:
        """Return what the directory has."""

    def beat(self, machine: Machine) -> None:
        """Enter a machine, or another sign of its life."""

    def leave(self, address: str, boot: str) -> None:
        """Remove a machine, unless it has started again."""

    def own(self, share: int, owner: Owner) -> bool:
        """Enter the owner of a share; return False if one of a later epoch is known."""

    def let_go(self, share: int, epoch: int) -> None:
        """Note that the owner of this epoch owns a share no more."""

    def close(self) -> None:
        """Close the connection; closing twice is no error."""


class Closing(ABC):
    """Closes a directory at the end of a block."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection; closing twice is no error."""

    def __enter__(self) -> Closing:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def fair(shares: int, workers: Mapping[str, int]) -> dict[str, int]:
    """Return how many shares each machine has, by how many workers it wants: the largest remainders get what is left.

    >>> fair(4, {"a": 1, "b": 1}), fair(4, {"a": 2, "b": 1}), fair(2, {"a": 1, "b": 1, "c": 1})
    ({'a': 2, 'b': 2}, {'a': 3, 'b': 1}, {'a': 1, 'b': 1, 'c': 0})
    """
    assert shares <= MOST_SHARES
    every = sum(workers.values())
    exact = {name: divmod(shares * wanted, every) for name, wanted in workers.items()}
    parts = {name: whole for name, (whole, _) in exact.items()}
    first = sorted(workers, key=lambda name: (-exact[name][1], name))
    for name in first[: shares - sum(parts.values())]:
        parts[name] += 1
    return parts


def divided(shares: int, workers: Mapping[str, int], owners: Mapping[int, str]) -> dict[int, str]:
    """Return which machine is to have each share: nobody gives up more than is above its fair part.

    All machines that see the same come to the same.

    >>> divided(4, {"a": 1, "b": 1}, {0: "a", 1: "a", 2: "a", 3: "a"})
    {0: 'a', 1: 'a', 2: 'b', 3: 'b'}
    >>> divided(4, {"b": 1}, {0: "a", 1: "a", 2: "b", 3: "b"})
    {0: 'b', 1: 'b', 2: 'b', 3: 'b'}
    """
    left, out = fair(shares, workers), dict[int, str]()
    for share in range(shares):
        holder = owners.get(share)
        if holder is not None and left.get(holder, 0):
            out[share] = holder
            left[holder] -= 1
    for share in range(shares):
        if share not in out:
            out[share] = min(left, key=lambda name: (-left[name], name))
            left[out[share]] -= 1
    return dict(sorted(out.items()))
