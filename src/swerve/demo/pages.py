"""The value of a page under the click model: its probability of a click, and that of the best order of the same results."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from swerve.demo.clicks import CLICK_RIGHT, CLICK_WRONG, LOOK_ON
from swerve.demo.corpus import Document

#: Pages whose value is remembered; explored pages are many, and most of them are shown once.
REMEMBERED = 4_096


class Pages:
    """All orders of an offer, for users of the query `about` with these shares of its meanings.

    >>> irma, jose = (Document(name, "hurricane", name, "", name, 1.0, None) for name in ("irma", "jose"))
    >>> pages = Pages("hurricane", {"irma": 0.8, "jose": 0.2}, (jose, irma))
    >>> round(pages.chance(["jose", "irma"]), 4), round(pages.chance(["irma", "jose"]), 4), round(pages.best, 4)
    (0.5086, 0.6201, 0.6201)
    """

    def __init__(self, about: str, shares: Mapping[str, float], offer: Sequence[Document]) -> None:
        wanted = {meaning: share for meaning, share in shares.items() if share > 0.0}
        self._shares = list(wanted.values())
        self._likes = {
            one.id: [
                CLICK_RIGHT * one.quality if one.meaning == meaning and one.query == about else CLICK_WRONG for meaning in wanted
            ]
            for one in offer
        }
        self._known: dict[tuple[str, ...], float] = {}

    def chance(self, ranking: Sequence[str]) -> float:
        """Return the probability of a click on a page: some user looks so far without a click, and clicks there."""
        key = tuple(ranking)
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            found = self._known[key] = self._sum(key)
        return found

    def _sum(self, ranking: tuple[str, ...]) -> float:
        here, total = self._shares, 0.0  # users of each meaning who look at this place
        for name in ranking:
            clicks = [share * like for share, like in zip(here, self._likes[name], strict=True)]
            total += sum(clicks)
            here = [LOOK_ON * (share - click) for share, click in zip(here, clicks, strict=True)]
        return total

    @functools.cached_property
    def best(self) -> float:
        """The probability of a click on the best page, over all orders.

        Who is still looking depends on which results came before, not on their order: so the best way on from each set of results
        is found from the larger sets, 1,024 of them for ten results.
        """
        likes = np.array(list(self._likes.values()))
        staying = np.array([self._shares])
        for like in likes:
            staying = np.concatenate([staying, staying * (1.0 - like)])
        sizes, absent, larger = _sets(len(likes))
        gains: NDArray[np.float64] = np.where(absent, (staying @ likes.T) * (LOOK_ON**sizes)[:, None], -np.inf)
        ahead = np.zeros(len(staying))
        for size in range(len(likes) - 1, -1, -1):
            these = sizes == size
            ahead[these] = (gains[these] + ahead[larger[these]]).max(axis=1)
        return float(ahead[0])


@functools.cache
def _sets(count: int) -> tuple[NDArray[np.int64], NDArray[np.bool_], NDArray[np.int64]]:
    """Return, for each set of `count` results as a mask: its size, the results that are not in it, and the sets with each added."""
    masks = np.arange(1 << count)
    bits = 1 << np.arange(count)
    absent = (masks[:, None] & bits) == 0
    return (~absent).sum(axis=1), absent, masks[:, None] | bits
