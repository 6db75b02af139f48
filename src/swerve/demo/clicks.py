"""The click model: the behaviour of simulated users in front of a page of results.

A user wants one meaning, drawn from the shares of the hour. The user looks at the results from the top, and goes on to the next one
with probability 0.7. A result of the wanted meaning is clicked with probability 0.65 × its quality, any other result with 0.03.
There is at most one click, and it ends the visit. A user without a click asks again with probability 0.35, and then says the
meaning ("hurricane irma").

These figures are invented, not measured: high enough that a ranking matters, low enough that a single click says little.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from swerve.demo.corpus import Document

LOOK_ON = 0.7  # probability that a user looks at one more result
CLICK_RIGHT = 0.65  # probability of a click on a perfect result of the wanted meaning
CLICK_WRONG = 0.03  # probability of a click on a result of another meaning
AGAIN = 0.35  # probability that a user without a click asks again with the meaning

#: Draws from [0, 1) that define a user, besides one for each result: meaning, patience, second question.
TRAITS = 3


class User(NamedTuple):
    """A user of a query: the wanted meaning, how many results they look at, one random draw per result, whether they ask again."""

    query: str
    meaning: str
    looks: int
    luck: Sequence[float]
    again: bool


def user(query: str, shares: Mapping[str, float], draws: Sequence[float]) -> User:
    """Return the user defined by these draws from [0, 1): meaning, patience, second question, then one per result."""
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
    """Return the probability that the user clicks the document when looking at it; two queries may share names of meanings."""
    return CLICK_RIGHT * document.quality if document.meaning == one.meaning and document.query == one.query else CLICK_WRONG


def clicked(one: User, ranking: Sequence[Document]) -> int:
    """Return the index in the ranking of the result that the user clicks, −1 for none."""
    for index in range(min(one.looks, len(ranking), len(one.luck))):
        if one.luck[index] < likes(one, ranking[index]):
            return index
    return -1


def chance(document: Document, query: str, shares: Mapping[str, float]) -> float:
    """Return the probability that the document is clicked on top of a query with these shares: everybody looks at the top.

    >>> irma = Document("irma", "hurricane", "Irma", "", "irma", 1.0, None)
    >>> round(chance(irma, "hurricane", {"irma": 0.5, "jose": 0.5}), 3)
    0.34
    """
    share = shares.get(document.meaning, 0.0) if document.query == query else 0.0
    return share * CLICK_RIGHT * document.quality + (1.0 - share) * CLICK_WRONG
