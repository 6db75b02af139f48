"""Groups of entries that become durable together, and the callers that wait for them."""

from __future__ import annotations

import asyncio
import dataclasses

from swerve.service import tracing
from swerve.service.availability import Unavailable

#: Resolves when a group is in the log. Fails with `Unavailable` when it could not be written.
Written = asyncio.Future[None]


async def durable(waiting: Written) -> None:
    """Wait until a group is durable. Raises `Unavailable` when it could not be written."""
    with tracing.inside("store.commit"):
        await waiting


@dataclasses.dataclass(slots=True)
class Group:
    """The entries of one append, and the callers that wait for them."""

    numbers: set[int] = dataclasses.field(default_factory=set)  # of decisions that were used
    waiting: list[Written] = dataclasses.field(default_factory=list)
    audited: bool = False  # whether the audit is written with it

    def wait(self) -> Written:
        """Return a future that resolves when the group is durable."""
        waiting: Written = asyncio.get_running_loop().create_future()
        self.waiting.append(waiting)
        return waiting

    def fail(self) -> None:
        """Fail all futures with `Unavailable`. Its decisions stay in the group."""
        for one in self.waiting:
            if not one.done():
                one.set_exception(Unavailable())
                one.exception()  # marks it as retrieved: the caller may have gone, and asyncio would log the exception
        self.waiting = []

    def done(self) -> None:
        """Resolve all futures."""
        for one in self.waiting:
            if not one.done():
                one.set_result(None)
        self.waiting = []

    def join(self, earlier: Group) -> None:
        """Take over an earlier group that could not be written."""
        self.numbers |= earlier.numbers
        self.audited |= earlier.audited
