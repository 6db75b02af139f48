"""The hits of a search engine in the order to show, for any web framework: `rerank` and `report_clicks`, sync and async.

Hits are any objects; functions of the caller say what their ids and scores are. Nothing that a user types, an engine returns or a
service does raises here: the given order is shown, and the reason is returned and logged.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypedDict, TypeVar, Unpack

from swerve_client.forms import ServiceAway, SwerveClientError

if TYPE_CHECKING:
    from swerve_client.client import AsyncClient, Client
    from swerve_client.forms import Clicks, Ranking

__all__ = ["Reranked", "SearchArguments", "report_clicks", "report_clicks_async", "rerank", "rerank_async"]

log = logging.getLogger("swerve.client")
#: How the reason of a ranking begins that the service has refused, because the request does not fit its limits.
REFUSAL = "HTTP 4"

Hit = TypeVar("Hit")

#: Hits that are offered to the service, from the top: below the most that a service takes (64).
WINDOW = 50
#: What a function of the caller raises for a hit that lacks something.
LACKING = (LookupError, AttributeError, TypeError, ValueError, ArithmeticError)


class SearchArguments(TypedDict, total=False):
    """What else is known of a search: the further arguments of `Client.rank`."""

    signals: Mapping[str, float | None] | None
    session: str | None
    slots: int | None
    locale: str | None
    filter: str | None
    segment: str | None
    unit: str | None
    namespace: str | None
    query_id: str | None


@dataclass(frozen=True, slots=True)
class Reranked(Generic[Hit]):
    """The hits in the order to show, and the decision that the front end sends back with clicks.

    Without a decision there is nothing to report; `reason` says why the order is the given one, and is None if it is not.
    """

    hits: list[Hit]
    decision: str | None = None
    reason: str | None = None


def rerank(
    client: Client,
    query: str,
    hits: Sequence[Hit],
    id: Callable[[Hit], Any],
    score: Callable[[Hit], Any] | None = None,
    *,
    window: int = WINDOW,
    **search: Unpack[SearchArguments],
) -> Reranked[Hit]:
    """Return the hits of an engine, best first, in the order to show. `id` and `score` get them from a hit; ids become text.

    The first `window` hits are re-ranked, the others stay behind them. A hit without an id, or with that of an earlier hit, keeps
    its place. Hits that an operator has blocked are left out.
    """
    offer = _Offer(hits, id, score, window)
    if not offer.candidates:
        return offer.given()
    try:
        return offer.placed(client.rank(query, offer.candidates, **search))
    except SwerveClientError as refused:
        return offer.given(refused)


async def rerank_async(
    client: AsyncClient,
    query: str,
    hits: Sequence[Hit],
    id: Callable[[Hit], Any],
    score: Callable[[Hit], Any] | None = None,
    *,
    window: int = WINDOW,
    **search: Unpack[SearchArguments],
) -> Reranked[Hit]:
    """Return the hits of an engine in the order to show, as `rerank` does."""
    offer = _Offer(hits, id, score, window)
    if not offer.candidates:
        return offer.given()
    try:
        return offer.placed(await client.rank(query, offer.candidates, **search))
    except SwerveClientError as refused:
        return offer.given(refused)


def report_clicks(client: Client, decision: str | None, clicks: Clicks = None, *, shown: Sequence[str] | None = None) -> bool:
    """Report clicks, as `Client.feedback` does, and return whether they count; False, and a line in the log, where that raises."""
    try:
        return client.feedback(decision, clicks, shown=shown)
    except (ServiceAway, SwerveClientError) as trouble:
        return _lost(trouble)


async def report_clicks_async(
    client: AsyncClient, decision: str | None, clicks: Clicks = None, *, shown: Sequence[str] | None = None
) -> bool:
    """Report clicks, as `report_clicks` does."""
    try:
        return await client.feedback(decision, clicks, shown=shown)
    except (ServiceAway, SwerveClientError) as trouble:
        return _lost(trouble)


class _Offer(Generic[Hit]):
    """The hits that can be candidates, by their ids, and the places of all others."""

    def __init__(self, hits: Sequence[Hit], id: Callable[[Hit], Any], score: Callable[[Hit], Any] | None, window: int) -> None:
        if window < 1:
            raise SwerveClientError(f"window = {window!r} is not allowed; it must be 1 or more")
        self.hits = list(hits)
        self.window = window
        self.by_id: dict[str, Hit] = {}
        self.candidates: list[dict[str, Any]] = []
        self.staying: list[tuple[int, str | None]] = []  # places of hits that are no candidates, with the id of a repeated one
        self.trouble: Exception | None = None
        for place, hit in enumerate(self.hits[:window]):
            name = self._id(hit, id)
            if name is None or name in self.by_id:
                self.staying.append((place, name))
                continue
            self.by_id[name] = hit
            number = None if score is None else _finite(hit, score)
            self.candidates.append({"id": name} if number is None else {"id": name, "score": number})

    def _id(self, hit: Hit, id: Callable[[Hit], Any]) -> str | None:
        try:
            value = id(hit)
        except LACKING as trouble:
            self.trouble = trouble
            return None
        return None if value is None else str(value)

    def given(self, refused: SwerveClientError | None = None) -> Reranked[Hit]:
        """Return the given order. A refusal is a mistake of the set-up, such as a wrong key: it is logged."""
        if refused is not None:
            log.warning("the search engine's order is shown: %s", refused)
            return Reranked(self.hits, reason=str(refused))
        if not self.hits:
            return Reranked(self.hits, reason="there are no hits")
        reason = "no hit has an id" + (f": {self.trouble!r}" if self.trouble else "")
        log.warning("the search engine's order is shown: %s", reason)
        return Reranked(self.hits, reason=reason)

    def placed(self, answer: Ranking) -> Reranked[Hit]:
        """Return the hits in the order of an answer."""
        if answer.degraded:
            if answer.reason is not None and answer.reason.startswith(REFUSAL):
                log.warning("the search engine's order is shown: %s", answer.reason)
            return Reranked(self.hits, reason=answer.reason)
        order = [self.by_id[name] for name in answer.ranking]
        blocked = self.by_id.keys() - set(answer.ranking)
        for place, name in self.staying:
            if name not in blocked:
                order.insert(place, self.hits[place])
        return Reranked(order + self.hits[self.window :], answer.decision)


def _finite(hit: Hit, score: Callable[[Hit], Any]) -> float | None:
    """Return the score of a hit, or None if it has none."""
    try:
        number = float(score(hit))
    except LACKING:
        return None
    return number if math.isfinite(number) else None


def _lost(trouble: Exception) -> bool:
    log.warning("clicks are not counted: %s", trouble)
    return False
