"""The tail: rare queries beside the famous ones of a scenario, each about one document of the corpus.

A rare query is an ambiguous query and two words of a document's title ("jaguar camera traps"). Most of its users want what the
document is about, the others anything else that the ambiguous query means. A few are asked several times an hour, most of them
several times a day, and each begins at a time of its own, so that the service meets young queries all the time.

>>> [rare.text for rare in rare()][:3]
['amazon orders parcels', 'amazon length flow', 'amazon plants animals']
"""

from __future__ import annotations

import functools
import re
from typing import NamedTuple

from swerve.demo.corpus import documents, meanings

#: Rare queries of a scenario.
COUNT = 48
#: The k-th rare query is asked in proportion to k to the power of −SLOPE.
SLOPE = 0.7
#: The last rare query begins at this part of the scenario's length.
LAST = 0.6
#: Share of the users who want what the query's words say.
WANTED = 0.75
#: The first rare queries are asked from the beginning: this share of them.
AT_ONCE = 0.25
#: The fractions of their multiples are spread evenly over [0, 1), independent of each other: of the golden ratio, the root of 2.
SPREAD, OTHER = 0.6180339887498949, 0.4142135623730951
WORD = re.compile(r"[a-z]{3,}")
COMMON = frozenset(
    WORD.findall(
        "the and for from with without your you that this what who how why when where which are was not its all any one two three "
        "has have had can does into about than then them they their our out but his her"
    )
)
WORDS = 2


class Rare(NamedTuple):
    """A rare query: its text, the ambiguous query that it is about, and the meaning that most of its users want."""

    text: str
    about: str
    meaning: str


@functools.cache
def rare() -> tuple[Rare, ...]:
    """Return the rare queries, of documents that always exist, spread over the corpus."""
    found: dict[str, Rare] = {}
    for document in documents():
        taken = {*document.query.split(), *document.meaning.split("-"), *COMMON}
        words = [word for word in WORD.findall(document.title.lower()) if word not in taken and word.removesuffix("s") not in taken]
        words = list(dict.fromkeys(words))[:WORDS]
        if document.published is None and len(words) == WORDS:
            text = " ".join([document.query, *words])
            found.setdefault(text, Rare(text, document.query, document.meaning))
    every = list(found.values())
    return tuple(every[number * len(every) // COUNT] for number in range(COUNT))


def frequencies(per_hour: float) -> list[float]:
    """Return the requests per hour of each rare query; neighbours in the corpus differ in theirs.

    >>> each = frequencies(30.0)
    >>> round(sum(each), 9), round(max(each), 1), round(min(each), 2)
    (30.0, 3.8, 0.25)
    """
    spread = sorted(range(COUNT), key=lambda number: (number * SPREAD) % 1.0)
    weights = [0.0] * COUNT
    for rank, number in enumerate(spread):
        weights[number] = (rank + 1.0) ** -SLOPE
    return [per_hour * weight / sum(weights) for weight in weights]


def beginnings(length: float) -> list[float]:
    """Return the times at which the rare queries are asked first, in seconds since the scenario's beginning; a quarter at once."""
    parts = [(number * OTHER % 1.0 - AT_ONCE) / (1.0 - AT_ONCE) for number in range(COUNT)]
    return [LAST * length * max(part, 0.0) for part in parts]


def shares(one: Rare) -> dict[str, float]:
    """Return the shares of the meanings among the users of a rare query."""
    always = {document.meaning for document in documents() if document.query == one.about and document.published is None}
    others = len(always - {one.meaning})
    return {
        meaning: WANTED if meaning == one.meaning else (1.0 - WANTED) / others if meaning in always else 0.0
        for meaning in meanings(one.about)
    }
