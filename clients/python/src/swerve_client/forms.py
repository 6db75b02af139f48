"""What callers of the client give and get: arguments, rankings, errors; and requests in the form that the service takes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Required, TypedDict
from urllib.parse import quote, urlencode

from swerve_client.rules import Ruled

#: The most characters of a value in an error message; of a longer value the head and the tail are shown.
LONGEST, HEAD, TAIL = 200, 160, 20

CandidateLike = str | Mapping[str, Any]


class RankArguments(TypedDict, total=False):
    """One query of `rank_many`: the arguments of `rank`."""

    query: Required[str]
    candidates: Required[Sequence[CandidateLike]]
    signals: Mapping[str, float | None] | None
    session: str | None
    slots: int | None
    locale: str | None
    filter: str | None
    segment: str | None
    unit: str | None
    namespace: str | None
    query_id: str | None


class PartArguments(TypedDict, total=False):
    """The parts of a query's key besides its text."""

    locale: str | None
    filter: str | None
    segment: str | None
    namespace: str | None


class RuleArguments(TypedDict, total=False):
    """Where a rule holds, until when, and why. Without a query it holds for all; `until` is in unix seconds or RFC 3339."""

    query: str | None
    locale: str | None
    filter: str | None
    segment: str | None
    namespace: str | None
    until: float | str | None
    note: str | None


#: A click: the id of the result, its position from 1, or an event as the service takes it.
Click = str | int | Mapping[str, Any]
#: The clicks on a ranking: one, several, or none.
Clicks = Click | Sequence[Click] | None
#: One entry of `feedback_many`: the decision, its clicks and, where they differ, the results that were shown.
Report = tuple[str | None, Clicks] | tuple[str | None, Clicks, Sequence[str] | None]


@dataclass(frozen=True, slots=True)
class Ranking:
    """The order to show. Without a decision there is nothing to send feedback for; `reason` says why the ranking is degraded.

    `propensities` are the estimated probabilities of the filled slots, `explored` the first position, from 1, whose result the
    policy would mostly not put there, `ruled` what rules of an operator have done: blocked results are not in the ranking.
    `arm` is that of an experiment, `treated` or `control`, and `guarded` says why its guard shows the given order for this query.
    `swapped` has the two positions, from 1, whose results changed places at random; `shadow` says that the policy only watches.
    """

    decision: str | None
    ranking: list[str]
    propensities: list[float] | None = None
    explored: int | None = None
    phase: int | None = None
    degraded: bool = False
    reason: str | None = None
    ruled: Sequence[Ruled] = ()
    arm: str | None = None
    guarded: str | None = None
    swapped: tuple[int, ...] | None = None
    shadow: bool = False


class ClientError(ValueError):
    """Base of the errors of the client."""


class SwerveClientError(ClientError):
    """The request is wrong and would be refused again. `status` is None if it was not sent."""

    def __init__(
        self,
        message: str,
        status: int | None = None,
        code: str = "invalid",
        field: str | None = None,
        request_id: str | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.field, self.request_id = status, code, field, request_id


class ServiceAway(ClientError):  # noqa: N818 - names what happened
    """The service gave no usable answer, even after the retries."""


def quoted(value: object) -> str:
    """Return a value as one line for an error message, shortened if it is long.

    >>> quoted("a\\nb"), len(quoted("long" * 100))
    ("'a\\\\nb'", 183)
    """
    line = " ".join(repr(value).split())
    return line if len(line) <= LONGEST else f"{line[:HEAD]} … {line[-TAIL:]}"


def events_of(clicks: Clicks) -> list[dict[str, Any]]:
    """Return clicks as the events of a request.

    >>> events_of("irma"), events_of([1, {"result": "jose", "id": "e7"}]), events_of(None)
    ([{'kind': 'click', 'result': 'irma'}], [{'kind': 'click', 'position': 1}, {'kind': 'click', 'result': 'jose', 'id': 'e7'}], [])
    """
    if clicks is None:
        return []
    several = [clicks] if isinstance(clicks, str | int | Mapping) else clicks
    events: list[dict[str, Any]] = []
    for click in several:
        if isinstance(click, Mapping):
            events.append({"kind": "click", **click})
        else:
            events.append({"kind": "click", "position" if isinstance(click, int) else "result": click})
    return events


def feedback_of(decision: str | None, clicks: Clicks, shown: Sequence[str] | None = None) -> dict[str, Any]:
    """Return the body of feedback."""
    body: dict[str, Any] = {"decision": decision, "events": events_of(clicks)}
    if shown is not None:
        body["shown"] = list(shown)
    return body


def parameters_of(parts: Mapping[str, str | None]) -> str:
    given = {name: part for name, part in parts.items() if part is not None}
    return f"?{urlencode(given)}" if given else ""


def finite(name: str, value: Any) -> float | None:
    if value is None:
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        message = f"signals[{name!r}] = {quoted(value)} is not allowed; it must be a finite number, or None where it is missing"
        raise SwerveClientError(message, field="signals")
    return number


def path_of(query: str) -> str:
    # dots are quoted too: a query of two dots would mean the parent folder
    return "/v1/queries/" + quote(query, safe="", errors="replace").replace(".", "%2E")


def given(ids: list[str], reason: str) -> Ranking:
    """Return the given order, degraded."""
    return Ranking(None, ids, degraded=True, reason=reason)
