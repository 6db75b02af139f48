"""A fleet for whole pages: `order` fills the slots of a page, `respond` takes its clicks."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from swerve.core.contract import starts
from swerve.core.engine import NOTHING_TO_SHOW, Entry, admissible, consider
from swerve.core.errors import SwerveError, whole
from swerve.core.examination import SLOTS
from swerve.core.fleet import NOT_NUMBERS, Fleet
from swerve.core.pages import NOT_LEARNT, order, present, respond

#: The answer of `order_one` in `facts`: the slots that were filled, those that count as seen, and the policy's start.
FILLED, SEEN, START = range(3)


@Entry
def order_one(params, table, i, pools, group, writer, x, told, given, page, number, now, facts):
    """Fill a page for row i and count it as shown; `facts` has the columns named above, or a negative reason."""
    spec = params[0]
    facts[FILLED] = admissible(spec, pools[group], x)
    if facts[FILLED] != 0:
        return 0
    consider(spec, table[i], pools, group, writer, x, told, now)
    filled = order(spec, table[i], pools[group], given, page, now)
    if filled <= 0:
        facts[FILLED] = NOTHING_TO_SHOW
        return 0
    facts[SEEN] = present(spec, table[i], pools[group], page[:filled], number, now)
    facts[START] = starts(spec, table[i])
    facts[FILLED] = filled
    return 0


@Entry
def respond_one(params, table, i, pools, group, page, generations, seen, before, final, after, number, start, shown, now):
    """Apply clicks to a page of row i; return the slots that count as seen from now on, or `NOT_LEARNT`."""
    spec, row = params[0], table[i]
    if starts(spec, row) != start:
        return NOT_LEARNT
    for slot in range(len(page)):
        if row.generation[page[slot]] != generations[slot]:
            for other in range(len(final)):
                if final[other] == page[slot]:
                    final[other] = -1
            page[slot] = -1
    return respond(spec, row, pools[group], page, seen, before, final, after, number, shown, now)


#: Columns of a page in `replay_many`: its query, the arms on offer, the slots to fill, the results that were shown (−1: that is not
#: learnt), and their clicks as a mask.
QUERY, OFFERED, ROOM, SHOWN, CLICKED = range(5)


@Entry
def replay_many(params, table, pools, groups, writer, x, asked, given, pages, finals, first, times):
    """Fill a page for each line of `asked`, in order, and tell the policy what was shown in its place, as `order_one` and
    `respond_one` do. Pages are written to `pages`, with −1 after their last slot."""
    spec = params[0]
    for k in range(len(asked)):
        i, now, number = asked[k, QUERY], times[k], first + k
        group = groups[i]
        consider(spec, table[i], pools, group, writer, x, 0, now)
        room = pages[k, : asked[k, ROOM]]
        filled = max(order(spec, table[i], pools[group], given[k, : asked[k, OFFERED]], room, now), 0)
        for slot in range(filled, pages.shape[1]):
            pages[k, slot] = -1
        if filled == 0:
            continue
        page = room[:filled]
        seen = present(spec, table[i], pools[group], page, number, now)
        if asked[k, SHOWN] < 0:
            continue
        final = finals[k, : asked[k, SHOWN]]
        same = filled == len(final) and asked[k, CLICKED] == 0
        for slot in range(min(filled, len(final))):
            same &= page[slot] == final[slot]
        if not same:
            respond(spec, table[i], pools[group], page, seen, 0, final, asked[k, CLICKED], number, now, now)
    return 0


@dataclasses.dataclass(slots=True)
class Page:
    """A page that was shown: the arms of its slots from the top, and everything that its clicks need.

    `clicks` has the slots that were clicked so far, from 0.
    """

    arms: list[int]
    number: int
    shown: float
    start: int
    generations: list[int]
    seen: int  # as a mask of slots
    clicks: list[int] = dataclasses.field(default_factory=list)


class PageFleet(Fleet):
    """A `Fleet` whose decisions are pages of up to ten results. Any policy can order pages; `Listed` learns from every slot.

    >>> from swerve import policy
    >>> fleet = PageFleet(policy("bubble"), queries=1, arms=4, features=1)  # `Listed()` takes longer to compile
    >>> page = fleet.order(0, given=[2, 0, 3, 1], x=[0.1])
    >>> sorted(page.arms)
    [0, 1, 2, 3]
    >>> fleet.respond(0, page, clicks=[2])
    True
    """

    numbered = 0  # pages so far

    @functools.cached_property
    def _calls(self) -> tuple[Any, Any, NDArray[np.int64]]:
        """The compiled calls, and room for what `order_one` answers."""
        return order_one.bind(self.policy), respond_one.bind(self.policy), np.zeros(3, np.int64)

    def order(
        self,
        query: int,
        given: Sequence[int] | None = None,
        x: ArrayLike | None = None,
        *,
        slots: int = SLOTS,
        told: bool = False,
        now: float = 0.0,
    ) -> Page:
        """Fill a page for `query` from the arms in `given`, the given order (default: all arms), and count it as shown."""
        i, room = self._query(query), whole("slots", slots, 1, SLOTS)
        offered = self._given(given)
        page = np.zeros(min(room, len(offered)), np.int64)
        context = self._quiet if x is None and not self.reads_context else self._context(x)
        self.numbered += 1
        fill, _, facts = self._calls
        try:
            time = now + 0.0 if now - now == 0.0 else self._no_time(now)
            fill(
                self.params, self.table, i, self.pools, self._group_of[i], self.writer, context, 1 if told else 0, offered, page,
                self.numbered, time, facts,
            )  # fmt: skip
        except NOT_NUMBERS as error:
            self._explain(error, told=told, now=now)
        filled, seen, start = facts.tolist()
        if filled < 0:
            self._refused(filled, x)
        arms: list[int] = page[:filled].tolist()
        generations = [int(self.table[i].generation[arm]) for arm in arms]
        return Page(arms, self.numbered, time, start, generations, seen)

    def respond(
        self, query: int, page: Page, clicks: Iterable[int], *, shown: Sequence[int] | None = None, now: float | None = None
    ) -> bool:
        """Add clicks on slots of a page, counted from 0. `shown` has the arms that were really shown, if they differ from the page;
        then the slots are those of `shown`. Return whether the policy has learnt anything; a repeated click teaches nothing."""
        i = self._query(query)
        final = list(page.arms) if shown is None else self._given(shown).tolist()[:SLOTS]
        known = [final.index(page.arms[slot]) for slot in page.clicks if page.arms[slot] in final]
        after = sorted({*known, *(whole("clicks", slot, 0, len(final) - 1) for slot in clicks)})
        before = page.clicks
        if final == page.arms and after == before:
            return False
        seen = int(
            self._calls[1](
                self.params, self.table, i, self.pools, self._group_of[i], np.array(page.arms, np.int64),
                np.array(page.generations, np.int64), page.seen, mask_of_slots(before), np.array(final, np.int64),
                mask_of_slots(after), page.number, page.start, page.shown, page.shown if now is None else now + 0.0,
            )
        )  # fmt: skip
        if seen == NOT_LEARNT:
            return False
        if final != page.arms:
            page.generations = [int(self.table[i].generation[arm]) for arm in final]
        page.arms, page.clicks, page.seen = final, after, seen
        return True

    def replay(
        self, asked: NDArray[np.int64], given: NDArray[np.int64], finals: NDArray[np.int64], times: NDArray[np.float64]
    ) -> NDArray[np.int64]:
        """Order many pages in one call, each followed by what was shown in its place; return the arms of the pages, then −1.

        For tables of one log: `asked` has the columns named above, a line for each page, `given` and `finals` the arms in their
        first entries. Contexts are silent. The caller vouches for the arms; the rows end in the bytes of `order` and `respond`.
        """
        pages = np.full((len(asked), SLOTS), -1, np.int64)
        call = replay_many.bind(self.policy)
        silent = np.full(self.features, np.nan)
        call(
            self.params, self.table, self.pools, self.groups, self.writer, silent, asked, given, pages, finals,
            self.numbered + 1, times,
        )  # fmt: skip
        self.numbered += len(asked)
        return pages

    def _given(self, given: Sequence[int] | None) -> NDArray[np.int64]:
        """Return the arms on offer, checked: at least one, none twice."""
        if given is None:
            return np.arange(self.arms, dtype=np.int64)
        arms = [whole("given", arm, 0, self.arms - 1) for arm in given]
        if not arms or len(set(arms)) < len(arms):
            raise SwerveError(f"given = {arms} is not allowed; it must have at least one arm, and none twice")
        return np.array(arms, np.int64)


def mask_of_slots(slots: Iterable[int]) -> int:
    """Return slots as a mask.

    >>> mask_of_slots([0, 2])
    5
    """
    return sum(1 << slot for slot in slots)
