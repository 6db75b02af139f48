"""Groups: rows and decisions that become durable together, and the futures of the callers that wait for them."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import NamedTuple

from swerve.service import tracing
from swerve.service.availability import Unavailable
from swerve.serving.rows import Place

#: Resolves when a group is written: True, or False for a row that cannot be written because its page is damaged. Fails with
#: `Unavailable` when the group could not be written.
Written = asyncio.Future[bool]


async def durable(waiting: Written) -> None:
    """Wait until a row is durable. Raises `Unavailable` when its group, or the row itself, could not be written."""
    with tracing.inside("store.commit"):
        if not await waiting:
            raise Unavailable


class Use(NamedTuple):
    """The outcome of a decision, the row that it changed, and the outcome that the store had before."""

    outcome: int
    place: Place
    before: int


@dataclasses.dataclass(slots=True)
class Group:
    """Rows and used decisions that one batch writes, and the callers that wait for it."""

    used: dict[int, Use] = dataclasses.field(default_factory=dict)  # by decision number
    rows: dict[bytes, Place] = dataclasses.field(default_factory=dict)  # every row that a decision or a caller of this group needs
    waiting: list[tuple[bytes, Written]] = dataclasses.field(default_factory=list)  # a row's key and the future of its caller
    audited: bool = False  # whether the audit is written with it

    def wait(self, key: bytes) -> Written:
        """Return a future that resolves when the row `key` is durable. The row must be in the group."""
        assert key in self.rows, "a caller may wait only for a row that is written with the group"
        waiting: Written = asyncio.get_running_loop().create_future()
        self.waiting.append((key, waiting))
        return waiting

    def fail(self) -> None:
        """Fail all futures with `Unavailable`. Rows and decisions stay in the group."""
        for _, one in self.waiting:
            if not one.done():
                one.set_exception(Unavailable())
                one.exception()  # marks it as retrieved: the caller may have gone, and asyncio would log the exception
        self.waiting = []

    def done(self, lost: frozenset[bytes]) -> None:
        """Resolve all futures: False for the rows in `lost`, True for the others."""
        for key, one in self.waiting:
            if not one.done():
                one.set_result(key not in lost)
        self.waiting = []

    def put(self, number: int, outcome: int, place: Place, before: int) -> None:
        """Note the outcome of a decision, which was `before`."""
        known = self.used.get(number)
        self.used[number] = Use(outcome, place, known.before if known else before)

    def join(self, earlier: Group) -> None:
        """Take over what an earlier group could not write."""
        for number, use in self.used.items():
            if number in earlier.used:
                earlier.used[number] = use._replace(before=earlier.used[number].before)
            else:
                earlier.used[number] = use
        self.used, self.rows = earlier.used, earlier.rows | self.rows
        self.audited |= earlier.audited

    def lose(self, place: Place) -> dict[int, int]:
        """Remove a row that cannot be written and resolve its futures with False; return its decisions' outcomes before."""
        numbers = {number: use.before for number, use in self.used.items() if use.place is place}
        for number in numbers:
            del self.used[number]
        if self.rows.pop(place.key, None) is not None:
            for key, one in self.waiting:
                if key == place.key and not one.done():
                    one.set_result(False)
        return numbers
