"""The clients of the service, `Client` and `AsyncClient`, which keep search working when the service does not.

`rank` returns the given order, marked degraded and with a reason, if the service is away, slow or broken. `feedback` retries,
which is safe because the service counts a click on a result of a decision once. `exchange` defines requests and the meaning of
answers; this module only sends and waits.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self, TypeVar, Unpack, cast

from swerve.client.exchange import ADDRESS, Exchange, Failure, Reply, Send, Steps
from swerve.client.exporting import AsyncExports, Exports
from swerve.client.forms import (
    CandidateLike,
    Clicks,
    PartArguments,
    RankArguments,
    Ranking,
    Report,
    RuleArguments,
    ServiceAway,
    SwerveClientError,
)
from swerve.client.waiting import Deadline

if TYPE_CHECKING:
    from swerve.serving.control import Change, DeleteResponse, Rule
    from swerve.serving.experiment import Report as Experiment
    from swerve.serving.messages import QueryState, QuerySummary

__all__ = ["AsyncClient", "CandidateLike", "Client", "RankArguments", "Ranking", "ServiceAway", "SwerveClientError"]

T = TypeVar("T")

RANK_SECONDS = 0.1  # a search page waits for the ranking: users do not notice a tenth of a second
FEEDBACK_SECONDS = 2.0  # feedback is answered when it is durable, and nobody waits for it on a page
RETRIES = 3  # with growing waits; after them the caller keeps the feedback and sends it later
BREAKER_FAILURES, BREAKER_SECONDS = 5, 1.0  # a dead service costs five timeouts, then one per second
QUERIES_LISTED, CHANGES_LISTED = 20, 100  # queries of a list, and changes of the audit


class _Base(ABC):
    """The arguments that both clients share.

    base_url, api_key: the address of the service, and a key of `swerve keys new` if the service requires one. timeout: seconds for
    a whole `rank`. feedback_timeout: seconds for one try of any other call. retries: further tries of feedback. breaker_failures:
    failed ranks in a row after which `rank` is degraded without a request. breaker_seconds: how long, until it tries again.
    namespace: that of all calls which name none.
    """

    def __init__(
        self,
        base_url: str = ADDRESS,
        api_key: str | None = None,
        timeout: float = RANK_SECONDS,
        feedback_timeout: float = FEEDBACK_SECONDS,
        retries: int = RETRIES,
        breaker_failures: int = BREAKER_FAILURES,
        breaker_seconds: float = BREAKER_SECONDS,
        namespace: str | None = None,
    ) -> None:
        self._exchange = Exchange(
            base_url, api_key, timeout, feedback_timeout, retries, breaker_failures, breaker_seconds, namespace
        )
        self._open()

    @abstractmethod
    def _open(self) -> None:
        """Create the pool of connections."""


class Client(Exports, _Base):
    """The service for threads. One instance serves all threads and keeps its connections; make one per process."""

    def _open(self) -> None:
        self._http = self._exchange.httpx.Client(**self._exchange.options)

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
    ) -> Ranking:
        """Return the order to show; the given order, degraded, if the service does not answer in time or refuses what a user typed
        or a search engine returned."""
        parts: RankArguments = {"query": query, "candidates": candidates, "signals": signals, "session": session, "slots": slots}
        parts |= {
            "locale": locale,
            "filter": filter,
            "segment": segment,
            "unit": unit,
            "namespace": namespace,
            "query_id": query_id,
        }
        return self._run(self._exchange.rank(parts))

    def rank_many(self, requests: Iterable[RankArguments]) -> list[Ranking]:
        """Return the orders of several queries, in one request. A refused entry keeps its order, with the reason."""
        return self._run(self._exchange.rank_many(requests))

    def feedback(self, decision: str | None, clicks: Clicks = None, *, shown: Sequence[str] | None = None) -> bool:
        """Report clicks: results by id, positions from 1, or events; None for no click. `shown` has the results that were really
        shown, where they differ. Return True if it counts; False if it came too late or there is no decision."""
        return self._run(self._exchange.feedback(decision, clicks, shown))

    def feedback_many(self, reports: Iterable[Report]) -> list[bool]:
        """Report several (decision, clicks) or (decision, clicks, shown) entries in one request; return for each whether it counts.

        Raises `SwerveClientError` for the first refused pair; every pair that is not refused was taken. Raises `ServiceAway` if
        some pair could not be taken; others may have been. A pair counts once, however often it is sent: docs/client.md shows how
        to retry.
        """
        return self._run(self._exchange.feedback_many(reports))

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
    ) -> str:
        """Report a ranking that the service did not make, with its clicks; return a decision for later clicks."""
        arguments = {"query": query, "shown": list(shown), "at": at, "signals": signals, "session": session}
        parts = {"locale": locale, "filter": filter, "segment": segment, "namespace": namespace}
        return self._run(self._exchange.observe({**arguments, **parts}, clicks))

    def state(self, query: str, **parts: Unpack[PartArguments]) -> QueryState:
        """Return what the service has learnt about a query."""
        return self._run(self._exchange.state(query, parts))

    def queries(
        self, order: Literal["traffic", "shifted"] = "traffic", limit: int = QUERIES_LISTED, *, namespace: str | None = None
    ) -> list[QuerySummary]:
        """Return the queries with the most traffic, or those that shifted last."""
        return self._run(self._exchange.queries(order, limit, namespace))

    def shift(self, query: str, **parts: Unpack[PartArguments]) -> int:
        """Tell the service that a query's intent has shifted; return the phase that begins."""
        return self._run(self._exchange.shift(query, parts))

    def rules(self) -> list[Rule]:
        """Return the rules of operators in force. All calls about rules need a key with the scope `operate`."""
        return self._run(self._exchange.rules())

    def pin(self, result: str, position: int, **where: Unpack[RuleArguments]) -> Rule:
        """Show a result at a position, from 1. A rule that is set again replaces the one before."""
        return self._run(self._exchange.set_rule("pin", where, result=result, position=position))

    def block(self, result: str, **where: Unpack[RuleArguments]) -> Rule:
        """Do not show a result."""
        return self._run(self._exchange.set_rule("block", where, result=result))

    def boost(self, result: str, up: int, **where: Unpack[RuleArguments]) -> Rule:
        """Show a result so many positions above the place that the policy gives it."""
        return self._run(self._exchange.set_rule("boost", where, result=result, up=up))

    def off(self, **where: Unpack[RuleArguments]) -> Rule:
        """Switch the policy off: the given order is shown, without blocked results."""
        return self._run(self._exchange.set_rule("off", where))

    def on(self, query: str | None = None, **parts: Unpack[PartArguments]) -> Rule | None:
        """Remove the rule that switches the policy off, for a query or for all; return it, None if there is none."""
        return self._run(self._exchange.on(query, parts))

    def remove_rule(self, rule: int) -> Rule:
        """Remove a rule by its id; return it."""
        return self._run(self._exchange.remove_rule(rule))

    def delete(self, query: str | None = None, *, result: str | None = None, **parts: Unpack[PartArguments]) -> DeleteResponse:
        """Delete for good: a query; a result in one query; or, without a query, a result in all. Durable on return."""
        return self._run(self._exchange.delete(query, result, parts))

    def audit(self, limit: int = CHANGES_LISTED) -> list[Change]:
        """Return what operators did, the latest first."""
        return self._run(self._exchange.audit(limit))

    def experiment(self, limit: int = QUERIES_LISTED) -> Experiment:
        """Return the experiment that runs, what it says and how sure that is, with the busiest segments and queries."""
        return self._run(self._exchange.experiment(limit))

    def ramp(self, treated: float | None = None, *, name: str | None = None, note: str | None = None) -> Experiment:
        """Set the share of treated units; with another name begin a new experiment, with an empty one end it. Needs `operate`."""
        return self._run(self._exchange.ramp({"treated": treated, "name": name, "note": note}))

    def signal(
        self,
        name: str,
        value: float | None,
        query: str | None = None,
        *,
        at: float | str | None = None,
        ttl_seconds: float | None = None,
        **parts: Unpack[PartArguments],
    ) -> str:
        """Push a number for a query, or for all, that rankings use which do not carry it; return what became of it: `taken`,
        `older` or `stale`. None takes back the number before. Needs a key with the scope `signals`."""
        pushed = {"name": name, "value": value, "query": query, "at": at, "ttl_seconds": ttl_seconds, **parts}
        return self._run(self._exchange.signal(pushed))

    def signal_many(self, numbers: Iterable[Mapping[str, object]]) -> list[str]:
        """Push several numbers in one request, each a mapping with the arguments of `signal`."""
        return self._run(self._exchange.signal_many(numbers))

    def health(self) -> bool:
        """Return whether the service can serve now."""
        return self._run(self._exchange.health())

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _run(self, steps: Steps[T]) -> T:
        answer: Reply | Failure | None = None
        try:
            while True:
                step, answer = steps.send(answer), None
                if isinstance(step, Send):
                    answer = self._send(step)
                else:
                    time.sleep(step)
        except StopIteration as done:
            return cast(T, done.value)

    def _send(self, step: Send) -> Reply | Failure:
        deadline = Deadline(step.timeout)
        body = bytearray()
        try:
            with self._http.stream(**self._exchange.request(step, deadline)) as response:
                for chunk in response.iter_bytes():
                    body += chunk
                    if deadline.over:  # the answer trickles in: each wait was short, their sum is too long
                        return self._exchange.failure(step)
            return Reply(response.status_code, bytes(body), response.headers.get("retry-after"))
        except self._exchange.httpx.HTTPError as trouble:
            return self._exchange.failure(step, trouble)


class AsyncClient(AsyncExports, _Base):
    """The service for coroutines: the methods of `Client`, awaited. An instance belongs to one event loop."""

    def _open(self) -> None:
        self._http = self._exchange.httpx.AsyncClient(**self._exchange.options)

    async def rank(
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
    ) -> Ranking:
        """Return the order to show; the given order, degraded, if the service does not answer in time or refuses what a user typed
        or a search engine returned."""
        parts: RankArguments = {"query": query, "candidates": candidates, "signals": signals, "session": session, "slots": slots}
        parts |= {
            "locale": locale,
            "filter": filter,
            "segment": segment,
            "unit": unit,
            "namespace": namespace,
            "query_id": query_id,
        }
        return await self._run(self._exchange.rank(parts))

    async def rank_many(self, requests: Iterable[RankArguments]) -> list[Ranking]:
        """Return the orders of several queries, in one request. A refused entry keeps its order, with the reason."""
        return await self._run(self._exchange.rank_many(requests))

    async def feedback(self, decision: str | None, clicks: Clicks = None, *, shown: Sequence[str] | None = None) -> bool:
        """Report clicks: results by id, positions from 1, or events; None for no click. `shown` has the results that were really
        shown, where they differ. Return True if it counts; False if it came too late or there is no decision."""
        return await self._run(self._exchange.feedback(decision, clicks, shown))

    async def feedback_many(self, reports: Iterable[Report]) -> list[bool]:
        """Report several (decision, clicks) entries in one request; see `Client.feedback_many`."""
        return await self._run(self._exchange.feedback_many(reports))

    async def observe(
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
    ) -> str:
        """Report a ranking that the service did not make, with its clicks; return a decision for later clicks."""
        arguments = {"query": query, "shown": list(shown), "at": at, "signals": signals, "session": session}
        parts = {"locale": locale, "filter": filter, "segment": segment, "namespace": namespace}
        return await self._run(self._exchange.observe({**arguments, **parts}, clicks))

    async def state(self, query: str, **parts: Unpack[PartArguments]) -> QueryState:
        """Return what the service has learnt about a query."""
        return await self._run(self._exchange.state(query, parts))

    async def queries(
        self, order: Literal["traffic", "shifted"] = "traffic", limit: int = QUERIES_LISTED, *, namespace: str | None = None
    ) -> list[QuerySummary]:
        """Return the queries with the most traffic, or those that shifted last."""
        return await self._run(self._exchange.queries(order, limit, namespace))

    async def shift(self, query: str, **parts: Unpack[PartArguments]) -> int:
        """Tell the service that a query's intent has shifted; return the phase that begins."""
        return await self._run(self._exchange.shift(query, parts))

    async def rules(self) -> list[Rule]:
        """Return the rules of operators in force. All calls about rules need a key with the scope `operate`."""
        return await self._run(self._exchange.rules())

    async def pin(self, result: str, position: int, **where: Unpack[RuleArguments]) -> Rule:
        """Show a result at a position, from 1. A rule that is set again replaces the one before."""
        return await self._run(self._exchange.set_rule("pin", where, result=result, position=position))

    async def block(self, result: str, **where: Unpack[RuleArguments]) -> Rule:
        """Do not show a result."""
        return await self._run(self._exchange.set_rule("block", where, result=result))

    async def boost(self, result: str, up: int, **where: Unpack[RuleArguments]) -> Rule:
        """Show a result so many positions above the place that the policy gives it."""
        return await self._run(self._exchange.set_rule("boost", where, result=result, up=up))

    async def off(self, **where: Unpack[RuleArguments]) -> Rule:
        """Switch the policy off: the given order is shown, without blocked results."""
        return await self._run(self._exchange.set_rule("off", where))

    async def on(self, query: str | None = None, **parts: Unpack[PartArguments]) -> Rule | None:
        """Remove the rule that switches the policy off, for a query or for all; return it, None if there is none."""
        return await self._run(self._exchange.on(query, parts))

    async def remove_rule(self, rule: int) -> Rule:
        """Remove a rule by its id; return it."""
        return await self._run(self._exchange.remove_rule(rule))

    async def delete(
        self, query: str | None = None, *, result: str | None = None, **parts: Unpack[PartArguments]
    ) -> DeleteResponse:
        """Delete for good: a query; a result in one query; or, without a query, a result in all. Durable on return."""
        return await self._run(self._exchange.delete(query, result, parts))

    async def audit(self, limit: int = CHANGES_LISTED) -> list[Change]:
        """Return what operators did, the latest first."""
        return await self._run(self._exchange.audit(limit))

    async def experiment(self, limit: int = QUERIES_LISTED) -> Experiment:
        """Return the experiment that runs, what it says and how sure that is, with the busiest segments and queries."""
        return await self._run(self._exchange.experiment(limit))

    async def ramp(self, treated: float | None = None, *, name: str | None = None, note: str | None = None) -> Experiment:
        """Set the share of treated units; with another name begin a new experiment, with an empty one end it. Needs `operate`."""
        return await self._run(self._exchange.ramp({"treated": treated, "name": name, "note": note}))

    async def signal(
        self,
        name: str,
        value: float | None,
        query: str | None = None,
        *,
        at: float | str | None = None,
        ttl_seconds: float | None = None,
        **parts: Unpack[PartArguments],
    ) -> str:
        """Push a number for a query, or for all, that rankings use which do not carry it; return what became of it: `taken`,
        `older` or `stale`. None takes back the number before. Needs a key with the scope `signals`."""
        pushed = {"name": name, "value": value, "query": query, "at": at, "ttl_seconds": ttl_seconds, **parts}
        return await self._run(self._exchange.signal(pushed))

    async def signal_many(self, numbers: Iterable[Mapping[str, object]]) -> list[str]:
        """Push several numbers in one request, each a mapping with the arguments of `signal`."""
        return await self._run(self._exchange.signal_many(numbers))

    async def health(self) -> bool:
        """Return whether the service can serve now."""
        return await self._run(self._exchange.health())

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    async def _run(self, steps: Steps[T]) -> T:
        import anyio

        answer: Reply | Failure | None = None
        try:
            while True:
                step, answer = steps.send(answer), None
                if isinstance(step, Send):
                    answer = await self._send(step)
                else:
                    await anyio.sleep(step)
        except StopIteration as done:
            return cast(T, done.value)

    async def _send(self, step: Send) -> Reply | Failure:
        import anyio

        deadline = Deadline(step.timeout)
        try:
            with anyio.fail_after(step.timeout):
                async with self._http.stream(**self._exchange.request(step, deadline)) as response:
                    body = await response.aread()
            return Reply(response.status_code, body, response.headers.get("retry-after"))
        except (TimeoutError, self._exchange.httpx.HTTPError) as trouble:
            return self._exchange.failure(step, trouble)
