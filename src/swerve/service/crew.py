"""The crew: the workers of one service as one of them sees it. Which has a query, and how to reach the others."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from swerve.service.board import Board
from swerve.service.handshake import crew_key
from swerve.service.membership import parts_of
from swerve.service.siblings import Place, Sibling
from swerve.serving.tokens import Ticket
from swerve.store.directory import Owner
from swerve.store.protocol import StoreError
from swerve.store.shares import PARTITIONS, Share, partition_of
from swerve.store.urls import open_directory

log = logging.getLogger("swerve.service")

#: The worker to which operators' changes go.
FIRST = 0
#: Seconds between two exchanges of what workers tell each other: what is set somewhere is in force everywhere after at most this.
EXCHANGE_SECONDS = 1.0
#: Seconds between two looks at the board, and after an entry into the directory that has failed.
LOOK_SECONDS, AGAIN_SECONDS = 0.1, 1.0
#: The header of an answer with the partition of its query.
PARTITION = b"swerve-partition"
PARTITION_LINES = tuple(b"%b: %d\r\n" % (PARTITION, partition) for partition in range(PARTITIONS))


class Among(NamedTuple):
    """A worker's machine among several: its address, empty if it is the only one, and the address of the store."""

    machine: str
    store: str


class Post(NamedTuple):
    """A worker's place in its crew: its share, the folder with the workers' sockets, and what its supervisor gave it. Workers over
    a store on a server are `among` machines."""

    share: Share
    folder: Path
    life_line: int = -1  # ends when the supervisor does
    told: int = -1  # where the supervisor is told what happens
    among: Among | None = None

    def socket_of(self, index: int) -> Path:
        """Return the path of a worker's socket."""
        return self.folder / f"{index}.sock"

    @property
    def board(self) -> Path:
        """The path of the board of the workers' machine."""
        return self.folder / "board"

    @property
    def reached(self) -> tuple[str, int] | None:
        """Where workers of other machines reach this one: host and port; None if there are no others."""
        if self.among is None or not self.among.machine:
            return None
        return place_at(self.among.machine, self.share.number)


def place_at(machine: str, share: int) -> tuple[str, int]:
    """Return where the worker of a share is reached, if this machine owns it.

    >>> place_at("10.0.0.1:8351", 3)
    ('10.0.0.1', 8354)
    """
    host, port = parts_of(machine)
    return host, port + share


class Crew:
    """The crew of a worker."""

    def __init__(self, post: Post) -> None:
        self.post, self.share, self.key = post, post.share, b""
        self.index, self.count = post.share
        self.board = None if post.among is None else Board(post.board)
        others = (index for index in range(self.count) if index != self.index)
        self.siblings = {
            index: Sibling(index, None if self.board is not None else post.socket_of(index), look=self.look) for index in others
        }
        self._entered = 0  # the epoch that the directory has of this worker
        self._following: asyncio.Task[None] | None = None

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

    @property
    def compiled_elsewhere(self) -> bool:
        """Whether another process of this machine compiles the code that is not on its disk."""
        return self.board is not None or self.first is not None

    def __iter__(self) -> Iterator[Sibling]:
        return iter(self.siblings.values())

    # ------------------------------------------------------------------ several machines
    def prove_with(self, query_key: bytes) -> None:
        """Take the secrets with which workers of several machines prove that they belong together."""
        self.key = crew_key(query_key)
        for sibling in self:
            sibling.key = self.key

    def look(self) -> None:
        """Look where the others are."""
        if self.board is not None and self.board.look():
            for sibling in self:
                sibling.move(self._place(sibling.index))

    def _place(self, index: int) -> Place:
        assert self.board is not None
        assert self.post.among is not None
        owner = self.board.posted.owners.get(index)
        if owner is None:
            return None
        return self.post.socket_of(index) if owner.machine == self.post.among.machine else place_at(owner.machine, index)

    def begins(self) -> bool:
        """Return whether this share was never begun. Raises `StoreError`."""
        assert self.post.among is not None
        if self.index == FIRST:  # it has the directory
            return False
        with open_directory(self.post.among.store) as directory:
            return self.index not in directory.look().owners

    def enter(self, epoch: int) -> None:
        """Say in the directory that this worker owns its share. Raises `StoreError`, also when there is a later owner."""
        among = self.post.among
        if among is None or epoch == self._entered:
            return
        with open_directory(among.store) as directory:
            if not directory.own(self.index, Owner(among.machine, epoch)):
                raise StoreError("conflict", f"{self.share} has an owner of a later epoch than {epoch}")
        self._entered = epoch

    def leave(self) -> None:
        """Say in the directory that this worker owns its share no more."""
        if self.post.among is not None and self._entered:
            with contextlib.suppress(StoreError), open_directory(self.post.among.store) as directory:
                directory.let_go(self.index, self._entered)

    def follow(self, epoch: Callable[[], int]) -> None:
        """Begin to follow where the others are, and to keep the entry in the directory right; `epoch` returns this worker's."""
        if self.board is not None:
            self._following = asyncio.get_running_loop().create_task(self._follow(epoch), name="swerve-board")

    async def _follow(self, epoch: Callable[[], int]) -> None:
        assert self.board is not None
        while True:
            self.look()
            mine, owner = epoch(), self.board.posted.owners.get(self.index)
            if owner is not None and owner.epoch > mine:
                log.error("another machine owns this share now: its worker here ends, and can write nothing any more")
                os._exit(1)
            try:
                if mine != self._entered:
                    await asyncio.to_thread(self.enter, mine)
                await asyncio.sleep(LOOK_SECONDS)
            except StoreError as error:
                log.warning("the directory does not have this worker: %s", error)
                await asyncio.sleep(AGAIN_SECONDS)

    def close(self) -> None:
        """Close all connections."""
        if self._following is not None:
            self._following.cancel()
        for sibling in self:
            sibling.close()
