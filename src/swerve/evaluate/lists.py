"""The common form of all logs: a result list that was shown, with its clicks."""

from __future__ import annotations

import msgspec


class Shown(msgspec.Struct, gc=False, array_like=True):
    """A list that was shown for a query, from its top position on, and what became of it.

    `clicks` has positions, from 1. `propensities` has, for each result, the probability with which the log's own ranking put it at
    its position; None where the log does not say. `choices` has the results that could have been at the first position of the list,
    with their probabilities (`chances`) where the log has them.
    """

    time: float  # unix seconds; NaN where the log has no time
    query: str
    shown: list[str]
    clicks: list[int]
    propensities: list[float] | None = None
    signals: dict[str, float] | None = None
    top: int = 1  # position of the first result in `shown`: Open Bandit logs one result at a time
    choices: list[str] | None = None
    chances: list[float] | None = None
    given: list[str] | None = None  # the given order, where the log has it
