"""The crew: the workers of one service as one of them sees it. Which has a query, and how to reach the others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from swerve.service.siblings import Sibling
from swerve.serving.tokens import Ticket
from swerve.store.shares import PARTITIONS, Share, partition_of

#: The worker to which operators' changes go.
FIRST = 0
#: Seconds between two exchanges of what workers tell each other: what is set somewhere is in force everywhere after at most this.
EXCHANGE_SECONDS = 1.0
#: The header of an answer with the partition of its query.
PARTITION = b"swerve-partition"
PARTITION_LINES = tuple(b"%b: %d\r\n" % (PARTITION, partition) for partition in range(PARTITIONS))


class Post(NamedTuple):
    """A worker's place in its crew: its share, the folder with the workers' sockets, and what its supervisor gave it."""

    share: Share
    folder: Path
    life_line: int = -1  # ends when the supervisor does
    told: int = -1  # where the supervisor is told what happens

    def socket_of(self, index: int) -> Path:
        """Return the path of a worker's socket."""
        return self.folder / f"{index}.sock"


class Crew:
    """The crew of a worker."""

    def __init__(self, post: Post) -> None:
        self.post, self.share = post, post.share
        self.index, self.count = post.share
        self.siblings = {index: Sibling(index, post.socket_of(index)) for index in range(self.count) if index != self.index}

    def owner(self, key: bytes) -> int:
        """Return the worker that has a query."""
        return partition_of(key) % self.count

    def foreign(self, key: bytes) -> Sibling | None:
        """Return the sibling that has a query; None if this worker has it."""
        return self.siblings.get(partition_of(key) % self.count)

    def having(self, ticket: Ticket) -> Sibling | None:
        """Return the sibling that has the record of a decision; None if this worker has it. The record of a control arm's policy
        lies with that of its query, which only the worker that made the decision knows."""
        if ticket.rival and ticket.home[1] == self.count:
            return self.siblings.get(ticket.home[0])
        return self.foreign(ticket.key)

    @property
    def first(self) -> Sibling | None:
        """The sibling to which operators' changes go; None if this worker is it."""
        return self.siblings.get(FIRST)

    def __iter__(self) -> Iterator[Sibling]:
        return iter(self.siblings.values())

    def close(self) -> None:
        """Close all connections."""
        for sibling in self:
            sibling.close()
