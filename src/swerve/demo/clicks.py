"""The click model: what simulated users do with a page of results.

A user wants one meaning, drawn from the shares of the hour. They look at the results from the top; after each one they go on to
the next with probability 0.7. A result of the meaning they want is clicked with probability 0.65 × its quality, any other with
0.03. There is at most one click, and it ends the visit. Who clicks nothing asks again, and says what they mean ("hurricane irma"),
with probability 0.35.

These figures are ours, not measured: high enough that a ranking matters, low enough that a click says little by itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from swerve.demo.corpus import Document

LOOK_ON = 0.7  # the chance that a user looks at one result more
RIGHT = 0.65  # the chance of a click on a perfect result of the meaning that is wanted
WRONG = 0.03  # and on a result of another meaning
AGAIN = 0.35  # the chance that who clicked nothing says what they mean

#: Numbers in [0, 1) that a user is made of, besides one for each result.
TRAITS = 3


class User(NamedTuple):
    """Somebody who asks a query: what they mean, how many results they look at, their luck at each, whether they ask again."""

    query: str
    meaning: str
    looks: int
    luck: Sequence[float]
    again: bool


def user(query: str, shares: Mapping[str, float], draws: Sequence[float]) -> User:
    """The user that these draws from [0, 1) make: the meaning, the patience, the second question, then one for each result."""
    rest = draws[0]
    wanted = ""
    for meaning, share in shares.items():
        if share > 0.0:
            wanted = meaning
            rest -= share
            if rest < 0.0:
                break
    looks = 1 + int(math.log(1.0 - draws[1]) / math.log(LOOK_ON))
    return User(query, wanted, looks, draws[TRAITS:], draws[2] < AGAIN)


def likes(one: User, document: Document) -> float:
    """The chance that the user clicks the document when they look at it; two queries may have meanings of the same name."""
    return RIGHT * document.quality if document.meaning == one.meaning and document.query == one.query else WRONG


def clicked(one: User, ranking: Sequence[Document]) -> int:
    """The place of the result that the user clicks, −1 for none."""
    for place in range(min(one.looks, len(ranking), len(one.luck))):
        if one.luck[place] < likes(one, ranking[place]):
            return place
    return -1


def chance(document: Document, query: str, shares: Mapping[str, float]) -> float:
    """The chance that the document is clicked when it is on top of a query with these shares: everybody looks at the top.

    >>> irma = Document("irma", "hurricane", "Irma", "", "irma", 1.0, None)
    >>> round(chance(irma, "hurricane", {"irma": 0.5, "jose": 0.5}), 3)
    0.34
    """
    share = shares.get(document.meaning, 0.0) if document.query == query else 0.0
    return share * RIGHT * document.quality + (1.0 - share) * WRONG
