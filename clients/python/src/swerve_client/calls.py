"""The calls of a search: rank, report clicks, push numbers, see what was learnt. Each is a generator of steps (`exchange`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, Unpack

import msgspec

from swerve_client.answers import (
    Error,
    FeedbackResponse,
    ObserveResponse,
    QueryList,
    QueryState,
    QuerySummary,
    RankResponse,
    ShiftResponse,
    SignalResponse,
)
from swerve_client.exchange import OK, UNRANKABLE, Exchange, Failure, Reply, Send, Steps
from swerve_client.forms import (
    CandidateLike,
    Clicks,
    PartArguments,
    RankArguments,
    Ranking,
    Report,
    ServiceAway,
    SwerveClientError,
    events_of,
    feedback_of,
    finite,
    given,
    parameters_of,
    path_of,
    quoted,
)

QUERIES_LISTED = 20  # of a list


class Calls(Exchange):
    """The calls of a search."""

    def rank(
        self,
        query: str,
        candidates: Sequence[CandidateLike],
        signals: Mapping[str, float | None] | None = None,
        session: str | None = None,
        *,
        slots: int | None = None,
        locale: str | None = None,
        filter: str | None = None,
        segment: str | None = None,
        unit: str | None = None,
        namespace: str | None = None,
        query_id: str | None = None,
    ) -> Steps[Ranking]:
        """Return the order to show; the given order, degraded, if the service does not answer in time or refuses what a user typed
        or a search engine returned."""
        arguments: RankArguments = {"query": query, "candidates": candidates, "signals": signals, "session": session}
        arguments |= {"slots": slots, "locale": locale, "filter": filter, "segment": segment, "unit": unit}
        ids, asked = self._asked(arguments | {"namespace": namespace, "query_id": query_id})
        if not ids:
            return given(ids, "there are no candidates")
        try:
            answer = yield from self._guarded("/v1/rank", asked, lambda body: ranking_of(body, ids))
        except SwerveClientError as refused:
            if refused.status not in UNRANKABLE:
                raise
            return given(ids, str(refused))
        return given(ids, answer.reason) if isinstance(answer, Failure) else answer

    def rank_many(self, requests: Iterable[RankArguments]) -> Steps[list[Ranking]]:
        """Return the orders of several queries, in one request. A refused entry keeps its order, with the reason."""
        pairs = [self._asked(arguments) for arguments in requests]
        rankings = [given(ids, "there are no candidates") for ids, _ in pairs]
        indices = [index for index, (ids, _) in enumerate(pairs) if ids]
        if not indices:
            return rankings

        def read(body: bytes) -> list[Ranking]:
            entries = zip(self._entries(body), indices, strict=True)
            return [self._entry(entry, pairs[index][0]) for entry, index in entries]

        answer: list[Ranking] | Failure
        try:
            answer = yield from self._guarded("/v1/rank/batch", [pairs[index][1] for index in indices], read)
        except SwerveClientError as refused:
            if refused.status not in UNRANKABLE:
                raise
            answer = Failure(str(refused))
        for entry, index in enumerate(indices):
            rankings[index] = given(pairs[index][0], answer.reason) if isinstance(answer, Failure) else answer[entry]
        return rankings

    def feedback(self, decision: str | None, clicks: Clicks = None, *, shown: Sequence[str] | None = None) -> Steps[bool]:
        """Report clicks: results by id, positions from 1, or events; None for no click. `shown` has the results that were really
        shown, where they differ. Return True if it counts; False if it came too late or there is no decision."""
        if decision is None:
            return False
        return (yield from self._insist("/v1/feedback", feedback_of(decision, clicks, shown), counted))

    def feedback_many(self, reports: Iterable[Report]) -> Steps[list[bool]]:
        """Report several (decision, clicks) or (decision, clicks, shown) entries in one request; return for each whether it counts.

        Raises `SwerveClientError` for the first refused pair; every pair that is not refused was taken. Raises `ServiceAway` if
        some pair could not be taken; others may have been. A pair counts once, however often it is sent: docs/client.md shows how
        to retry.
        """
        pairs = list(reports)
        indices = [index for index, report in enumerate(pairs) if report[0] is not None]
        outcomes = [False] * len(pairs)
        if not indices:
            return outcomes
        asked = [feedback_of(*pairs[index]) for index in indices]

        def read(body: bytes) -> list[bool | Error] | Failure:
            entries = zip(self._entries(body), indices, strict=True)
            answers = [self._problem(entry) or counted(entry) for entry, _ in entries]
            for answer in answers:  # a pair could not be made durable: send all again, because pairs that were taken count once
                if not isinstance(answer, bool) and answer.code == "unavailable":
                    return Failure(answer.message)
            return answers

        for index, outcome in zip(indices, (yield from self._insist("/v1/feedback/batch", asked, read)), strict=True):
            if not isinstance(outcome, bool):
                raise refused_entry("decision", index, outcome)
            outcomes[index] = outcome
        return outcomes

    def observe(
        self,
        query: str,
        shown: Sequence[CandidateLike],
        clicks: Clicks = None,
        *,
        at: float | str | None = None,
        signals: Mapping[str, float | None] | None = None,
        session: str | None = None,
        locale: str | None = None,
        filter: str | None = None,
        segment: str | None = None,
        namespace: str | None = None,
    ) -> Steps[str]:
        """Report a ranking that the service did not make, with its clicks; return a decision for later clicks."""
        parts = {"locale": locale, "filter": filter, "segment": segment, "namespace": namespace}
        body = self._placed({"query": query, "shown": list(shown), "at": at, "session": session, **parts})
        body["events"] = events_of(clicks)
        if signals:
            body["signals"] = {name: finite(name, value) for name, value in signals.items()}

        def read(answer: bytes) -> str:
            return msgspec.json.decode(answer, type=ObserveResponse).decision

        answer = self._answer((yield Send("POST", "/v1/observe", self._encoded(body), self._feedback_timeout)), read)
        if isinstance(answer, Failure):  # not sent again: an observed ranking has no decision yet that would count once
            raise ServiceAway(f"the ranking may or may not have been counted: {answer.reason}")
        return answer

    def state(self, query: str, **parts: Unpack[PartArguments]) -> Steps[QueryState]:
        """Return what the service has learnt about a query."""
        return (yield from self._once("GET", path_of(query) + parameters_of(self._placed(parts)), QueryState))

    def queries(
        self, order: Literal["traffic", "shifted"] = "traffic", limit: int = QUERIES_LISTED, *, namespace: str | None = None
    ) -> Steps[list[QuerySummary]]:
        """Return the queries with the most traffic, or those that shifted last."""
        path = "/v1/queries" + parameters_of(self._placed({"order": order, "limit": int(limit), "namespace": namespace}))
        return (yield from self._once("GET", path, QueryList)).queries

    def shift(self, query: str, **parts: Unpack[PartArguments]) -> Steps[int]:
        """Tell the service that a query's intent has shifted; return the phase that begins."""
        path = path_of(query) + "/shift" + parameters_of(self._placed(parts))
        return (yield from self._once("POST", path, ShiftResponse, b"{}")).phase

    def signal(
        self,
        name: str,
        value: float | None,
        query: str | None = None,
        *,
        at: float | str | None = None,
        ttl_seconds: float | None = None,
        **parts: Unpack[PartArguments],
    ) -> Steps[str]:
        """Push a number for a query, or for all, that rankings use which do not carry it; return what became of it: `taken`,
        `older` or `stale`. None takes back the number before. Needs a key with the scope `signals`."""
        pushed = {"name": name, "value": value, "query": query, "at": at, "ttl_seconds": ttl_seconds, **parts}
        return (yield from self._once("POST", "/v1/signals", SignalResponse, self._encoded(self._signal(pushed)))).status

    def signal_many(self, numbers: Iterable[Mapping[str, object]]) -> Steps[list[str]]:
        """Push several numbers in one request, each a mapping with the arguments of `signal`."""
        asked = [self._signal(entry) for entry in numbers]
        if not asked:
            return []
        content = self._encoded(asked)
        answer = self._answer((yield Send("POST", "/v1/signals/batch", content, self._feedback_timeout)), self._entries)
        if isinstance(answer, Failure):
            raise ServiceAway(answer.reason)
        out: list[str] = []
        for index, entry in enumerate(answer):
            if (problem := self._problem(entry)) is not None:
                raise refused_entry("number", index, problem)
            out.append(msgspec.json.decode(entry, type=SignalResponse).status)
        return out

    def health(self) -> Steps[bool]:
        """Return whether the service can serve now."""
        reply = yield Send("GET", "/readyz", None, self._feedback_timeout)
        return isinstance(reply, Reply) and reply.status == OK

    def _signal(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the body of a pushed number; a value of None takes back the one before."""
        return {**self._placed(arguments), "value": finite(str(arguments.get("name")), arguments.get("value"))}

    def _asked(self, arguments: RankArguments) -> tuple[list[str], dict[str, Any]]:
        """Return the ids in the given order, and the body to send."""
        candidates = list(arguments["candidates"])
        ids: list[str] = []
        for index, candidate in enumerate(candidates):
            name = candidate.get("id") if isinstance(candidate, Mapping) else candidate
            if not isinstance(name, str):
                field, allowed = f"candidates[{index}]", "it must be an id (text) or {'id': …, 'published_at': …, 'score': …}"
                raise SwerveClientError(f"{field} = {quoted(candidate)} is not allowed; {allowed}", field=field)
            ids.append(name)
        body: dict[str, Any] = {
            "query": arguments["query"],
            "candidates": [c if isinstance(c, str) else dict(c) for c in candidates],
        }
        if signals := arguments.get("signals"):
            body["signals"] = {name: finite(name, value) for name, value in signals.items()}
        for name in ("session", "slots", "locale", "filter", "segment", "unit", "query_id"):
            if (value := arguments.get(name)) is not None:
                body[name] = value
        if (namespace := arguments.get("namespace") or self.namespace) is not None:
            body["namespace"] = namespace
        return ids, body

    def _entry(self, body: bytes, ids: list[str]) -> Ranking:
        """Return one ranking of a batch; a refused entry keeps its order, with the reason."""
        problem = self._problem(body)
        return ranking_of(body, ids) if problem is None else given(ids, problem.message)


def ranking_of(body: bytes, ids: list[str]) -> Ranking:
    """Return an answer as a ranking of these candidates; raise ValueError if it has others."""
    said = msgspec.json.decode(body, type=RankResponse)
    blocked = [mark.result for mark in said.ruled or () if mark.kind == "block" and mark.result is not None]
    if sorted([*said.ranking, *blocked]) != sorted(ids):
        raise ValueError("the ranking has other candidates than were given")
    reason = "the service could not use its state in time" if said.degraded else None
    return Ranking(
        said.decision, said.ranking, said.propensities, said.explored, said.phase, said.degraded, reason, said.ruled or (),
        said.arm, said.guarded, None if said.swapped is None else tuple(said.swapped), said.shadow,
    )  # fmt: skip


def counted(body: bytes) -> bool:
    """Return whether feedback counts."""
    return msgspec.json.decode(body, type=FeedbackResponse).status != "expired"


def refused_entry(what: str, index: int, problem: Error) -> SwerveClientError:
    """Return the error for one entry of a list, of which the others were taken."""
    message = f"{what} {index} of the list was refused: {problem.message}; those that are not refused were taken"
    return SwerveClientError(message, OK, problem.code, f"[{index}]", problem.request_id)
