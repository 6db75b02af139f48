"""The requests of the client's calls and the meaning of their answers, without sending and waiting.

A call is a generator of steps, run by `Client` or by `AsyncClient`. It yields a `Send` and receives a `Reply` or a `Failure`; or it
yields a number, and is resumed that many seconds later.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeVar
from urllib.parse import urlsplit

from swerve.client.forms import (
    Clicks,
    RankArguments,
    Ranking,
    Report,
    RuleArguments,
    ServiceAway,
    SwerveClientError,
    events_of,
    feedback_of,
    finite,
    given,
    parameters_of,
    path_of,
)
from swerve.client.waiting import LEAST_TIMEOUT, Breaker, Deadline, seconds_of
from swerve.core.errors import shown
from swerve.version import __version__

if TYPE_CHECKING:
    from swerve.serving.control import Change, DeleteResponse, Rule
    from swerve.serving.experiment import Report as Experiment
    from swerve.serving.messages import Error, QueryState, QuerySummary
    from swerve.serving.ruling import Kind

ADDRESS = "http://127.0.0.1:8350"
#: Seconds between tries of feedback: doubling from the first, at most the last, even if the service asks for more.
FIRST_WAIT, LONGEST_WAIT = 0.1, 5.0
#: Ranges of random factors of a wait, so that clients that failed together do not retry together: of our own wait, which may be
#: shorter, and of the wait that the service asks for, which may only be longer.
WAIT_JITTER, ASKED_JITTER = (0.5, 1.0), (1.0, 1.25)
#: Seconds that an idle connection is kept: less than the 5 seconds of common servers, so that no request meets a closing one.
KEEP_ALIVE_SECONDS = 4.0
#: Connections of one client: more threads than this wait for each other.
MOST_CONNECTIONS = 100
OK, CLIENT_ERRORS, TOO_MANY = 200, (400, 500), 429
#: 4xx answers that a retry can mend: a timeout of the request, and too many requests.
TEMPORARY = (408, TOO_MANY)

#: Refusals of `rank` that depend on what a user typed or a search engine returned: the given order is shown.
UNRANKABLE = (422, 413)

T = TypeVar("T")


class Send(NamedTuple):
    """A step: send this request and resume with a `Reply` or a `Failure`. A step that is a number is a wait in seconds."""

    method: str
    path: str
    content: bytes | None
    timeout: float


class Reply(NamedTuple):
    """An answer of the service."""

    status: int
    body: bytes
    retry_after: str | None


class Failure(NamedTuple):
    """Why there is no usable answer."""

    reason: str


Steps = Generator[Send | float, Reply | Failure | None, T]


class Exchange:
    """The calls of both clients, as steps."""

    def __init__(
        self,
        base_url: str,
        api_key: str | None,
        timeout: float,
        feedback_timeout: float,
        retries: int,
        breaker_failures: int,
        breaker_seconds: float,
        namespace: str | None = None,
    ) -> None:
        try:
            import httpx
            import msgspec
        except ImportError as missing:
            message = f"the client needs {missing.name}, which is not installed; install the extra: pip install 'swerve[client]'"
            raise ImportError(message, name=missing.name) from None
        from swerve.serving import control, experiment, feeds, messages

        parts = urlsplit(base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise SwerveClientError(f"base_url = {shown(base_url)} is not allowed; it must be like {ADDRESS}")
        if api_key is not None and not (api_key.isascii() and api_key.isprintable() and api_key.strip() == api_key != ""):
            raise SwerveClientError("the API key has characters that no key has; use the key as `swerve keys new` printed it")
        for name, value in (("timeout", timeout), ("feedback_timeout", feedback_timeout), ("breaker_seconds", breaker_seconds)):
            if not 0 < value < math.inf:
                raise SwerveClientError(f"{name} = {shown(value)} is not allowed; {name} must be seconds > 0")
        if retries < 0 or breaker_failures < 1:
            raise SwerveClientError("retries must be ≥ 0 and breaker_failures ≥ 1")
        self.httpx, self._json, self._messages, self._control = httpx, msgspec.json, messages, control
        self._experiment, self._feeds = experiment, feeds
        self._raws = list[msgspec.Raw]
        self.namespace = namespace
        self._timeout, self._feedback_timeout, self._retries = timeout, feedback_timeout, retries
        self._breaker = Breaker(breaker_failures, breaker_seconds)
        self._random = random.Random()
        headers = {"User-Agent": f"swerve/{__version__}", "Accept": "application/json", "Accept-Encoding": "identity"}
        if api_key is not None:
            headers["Authorization"] = f"Bearer {api_key}"
        limits = httpx.Limits(max_connections=MOST_CONNECTIONS, keepalive_expiry=KEEP_ALIVE_SECONDS)
        # proxies and certificates of the environment apply to https only: a plain http address is nearby and needs neither
        secure = parts.scheme == "https"
        self.options: dict[str, Any] = {
            "base_url": base_url,
            "headers": headers,
            "limits": limits,
            "verify": secure,
            "trust_env": secure,
        }

    # the calls

    def rank(self, arguments: RankArguments) -> Steps[Ranking]:
        ids, asked = self._asked(arguments)
        if not ids:
            return given(ids, "there are no candidates")
        try:
            answer = yield from self._guarded("/v1/rank", asked, lambda body: self._ranking(body, ids))
        except SwerveClientError as refused:
            if refused.status not in UNRANKABLE:
                raise
            return given(ids, str(refused))
        return given(ids, answer.reason) if isinstance(answer, Failure) else answer

    def rank_many(self, requests: Iterable[RankArguments]) -> Steps[list[Ranking]]:
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

    def feedback(self, decision: str | None, clicks: Clicks, shown: Sequence[str] | None = None) -> Steps[bool]:
        if decision is None:
            return False
        return (yield from self._insist("/v1/feedback", feedback_of(decision, clicks, shown), self._counted))

    def feedback_many(self, reports: Iterable[Report]) -> Steps[list[bool]]:
        pairs = list(reports)
        indices = [index for index, report in enumerate(pairs) if report[0] is not None]
        counted = [False] * len(pairs)
        if not indices:
            return counted
        asked = [feedback_of(*pairs[index]) for index in indices]

        def read(body: bytes) -> list[bool | Error] | Failure:
            entries = zip(self._entries(body), indices, strict=True)
            outcomes = [self._problem(entry) or self._counted(entry) for entry, _ in entries]
            for outcome in outcomes:  # a pair could not be made durable: send all again, because pairs that were taken count once
                if not isinstance(outcome, bool) and outcome.code == "unavailable":
                    return Failure(outcome.message)
            return outcomes

        for index, outcome in zip(indices, (yield from self._insist("/v1/feedback/batch", asked, read)), strict=True):
            if not isinstance(outcome, bool):
                message = f"decision {index} of the list was refused: {outcome.message}; those that are not refused were taken"
                raise SwerveClientError(message, OK, outcome.code, f"[{index}]", outcome.request_id)
            counted[index] = outcome
        return counted

    def observe(self, arguments: Mapping[str, Any], clicks: Clicks) -> Steps[str]:
        body = self._placed(arguments)
        body["events"] = events_of(clicks)
        if signals := body.get("signals"):
            body["signals"] = {name: finite(name, value) for name, value in signals.items()}

        def read(answer: bytes) -> str:
            decision: str = self._json.decode(answer, type=self._messages.ObserveResponse).decision
            return decision

        answer = self._answer((yield Send("POST", "/v1/observe", self._encoded(body), self._feedback_timeout)), read)
        if isinstance(answer, Failure):  # not sent again: an observed ranking has no decision yet that would count once
            raise ServiceAway(f"the ranking may or may not have been counted: {answer.reason}")
        return answer

    def state(self, query: str, parts: Mapping[str, Any]) -> Steps[QueryState]:
        return (yield from self._once("GET", path_of(query) + parameters_of(self._placed(parts)), self._messages.QueryState))

    def queries(self, order: str, limit: int, namespace: str | None) -> Steps[list[QuerySummary]]:
        path = "/v1/queries" + parameters_of(self._placed({"order": order, "limit": int(limit), "namespace": namespace}))
        return (yield from self._once("GET", path, self._messages.QueryList)).queries

    def shift(self, query: str, parts: Mapping[str, Any]) -> Steps[int]:
        path = path_of(query) + "/shift" + parameters_of(self._placed(parts))
        return (yield from self._once("POST", path, self._messages.ShiftResponse, b"{}")).phase

    def rules(self) -> Steps[list[Rule]]:
        return (yield from self._once("GET", "/v1/rules", self._control.RuleList)).rules

    def set_rule(self, kind: Kind, where: RuleArguments, **fields: Any) -> Steps[Rule]:
        body = self._placed({**fields, **where})
        return (yield from self._once("POST", "/v1/rules", self._control.Rule, self._encoded({"kind": kind, **body})))

    def remove_rule(self, rule: int) -> Steps[Rule]:
        return (yield from self._once("DELETE", f"/v1/rules/{int(rule)}", self._control.Rule))

    def on(self, query: str | None, parts: Mapping[str, Any]) -> Steps[Rule | None]:
        named = self._control.named(query, **self._placed(parts))
        for rule in (yield from self.rules()):
            if rule.kind == "off" and self._control.named(rule.query, **rule.parts) == named:
                return (yield from self.remove_rule(rule.id))
        return None

    def delete(self, query: str | None, result: str | None, parts: Mapping[str, Any]) -> Steps[DeleteResponse]:
        body = self._encoded(self._placed({"query": query, "result": result, **parts}))
        return (yield from self._once("POST", "/v1/delete", self._control.DeleteResponse, body))

    def audit(self, limit: int) -> Steps[list[Change]]:
        return (yield from self._once("GET", f"/v1/audit?limit={int(limit)}", self._control.ChangeList)).changes

    def experiment(self, limit: int) -> Steps[Experiment]:
        return (yield from self._once("GET", f"/v1/experiments?limit={int(limit)}", self._experiment.Report))

    def ramp(self, trial: Mapping[str, Any]) -> Steps[Experiment]:
        body = self._encoded({name: value for name, value in trial.items() if value is not None})
        return (yield from self._once("PUT", "/v1/experiments", self._experiment.Report, body))

    def export(self, namespace: str | None, brief: bool) -> dict[str, Any]:
        """Return the request of an export as the arguments of httpx's `stream`: each wait is bounded, and not their sum."""
        asked = self._placed({"namespace": namespace, "brief": "true" if brief else None})
        bounds = dict.fromkeys(("connect", "read", "write", "pool"), self._feedback_timeout)
        return {"method": "GET", "url": "/v1/export" + parameters_of(asked), "extensions": {"timeout": bounds}}

    def line(self, text: bytes) -> dict[str, Any]:
        """Return one line of an export."""
        try:
            line: dict[str, Any] = self._json.decode(text, type=dict[str, Any])
        except (ValueError, RecursionError) as trouble:
            raise ServiceAway(f"the answer is not one of the service's: {trouble}") from None
        return line

    def refused(self, status: int, body: bytes) -> NoReturn:
        """Raise for an answer that is no export."""
        failure = self._answer(Reply(status, body, None), lambda _: Failure("no lines"))
        raise ServiceAway(failure.reason)

    def signal(self, arguments: Mapping[str, Any]) -> Steps[str]:
        body = self._encoded(self._signal(arguments))
        status: str = (yield from self._once("POST", "/v1/signals", self._feeds.SignalResponse, body)).status
        return status

    def signal_many(self, entries: Iterable[Mapping[str, Any]]) -> Steps[list[str]]:
        asked = [self._signal(entry) for entry in entries]
        if not asked:
            return []
        content = self._encoded(asked)
        answer = self._answer((yield Send("POST", "/v1/signals/batch", content, self._feedback_timeout)), self._entries)
        if isinstance(answer, Failure):
            raise ServiceAway(answer.reason)
        out: list[str] = []
        for index, entry in enumerate(answer):
            if (problem := self._problem(entry)) is not None:
                message = f"number {index} of the list was refused: {problem.message}; those that are not refused were taken"
                raise SwerveClientError(message, OK, problem.code, f"[{index}]", problem.request_id)
            out.append(self._json.decode(entry, type=self._feeds.SignalResponse).status)
        return out

    def _signal(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the body of a pushed number; a value of None takes back the one before."""
        return {**self._placed(arguments), "value": finite(str(arguments.get("name")), arguments.get("value"))}

    def health(self) -> Steps[bool]:
        reply = yield Send("GET", "/readyz", None, self._feedback_timeout)
        return isinstance(reply, Reply) and reply.status == OK

    # sending

    def _guarded(self, path: str, body: Any, read: Callable[[bytes], T]) -> Steps[T | Failure]:
        """Send once, within the timeout, or return the failure; send nothing while the breaker is open."""
        content = self._encoded(body)
        if not self._breaker.closed():
            return Failure("the service failed several times in a row and is not asked for a moment")
        ends = time.monotonic() + self._timeout
        reply = yield Send("POST", path, content, self._timeout)
        if isinstance(reply, Reply) and reply.status == TOO_MANY:
            asked = seconds_of(reply.retry_after)
            if 0.0 < asked < ends - time.monotonic():  # once more, if the timeout leaves the time for it
                yield asked
                reply = yield Send("POST", path, content, max(ends - time.monotonic(), LEAST_TIMEOUT))
        good = True  # a refusal shows that the service works
        try:
            answer = self._answer(reply, read)
            good = not isinstance(answer, Failure) or (isinstance(reply, Reply) and reply.status == TOO_MANY)
            return answer
        finally:
            self._breaker.record(good)

    def _insist(self, path: str, body: Any, read: Callable[[bytes], T | Failure]) -> Steps[T]:
        """Send until it is taken, as often as the retries allow."""
        content = self._encoded(body)
        reason = ""
        for attempt in range(self._retries + 1):
            reply = yield Send("POST", path, content, self._feedback_timeout)
            answer = self._answer(reply, read)
            if not isinstance(answer, Failure):
                return answer
            reason = answer.reason
            if attempt < self._retries:
                asked = seconds_of(reply.retry_after) if isinstance(reply, Reply) else 0.0
                wait = max(
                    FIRST_WAIT * 2**attempt * self._random.uniform(*WAIT_JITTER), asked * self._random.uniform(*ASKED_JITTER)
                )
                yield min(wait, LONGEST_WAIT)
        raise ServiceAway(f"feedback was not taken in {self._retries + 1} tries: {reason}; keep it and send it later")

    def _once(self, method: str, path: str, kind: type[T], content: bytes | None = None) -> Steps[T]:
        def read(body: bytes) -> T:
            decoded: T = self._json.decode(body, type=kind)
            return decoded

        answer = self._answer((yield Send(method, path, content, self._feedback_timeout)), read)
        if isinstance(answer, Failure):
            raise ServiceAway(answer.reason)
        return answer

    # requests and answers

    def _placed(self, parts: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments that are given, with the client's namespace where they name none."""
        given = {**parts, "namespace": parts.get("namespace") or self.namespace}
        return {name: value for name, value in given.items() if value is not None}

    def request(self, step: Send, deadline: Deadline) -> dict[str, Any]:
        """Return a step as the arguments of httpx's `stream`."""
        headers = {"Content-Type": "application/json"} if step.content is not None else None
        arguments = {"method": step.method, "url": step.path, "content": step.content, "headers": headers}
        return {**arguments, "extensions": {"timeout": deadline}}

    def failure(self, step: Send, trouble: Exception | None = None) -> Failure:
        """Return why a step failed; without `trouble`, its time was over."""
        if trouble is None or isinstance(trouble, TimeoutError | self.httpx.TimeoutException):
            return Failure(f"no answer within {step.timeout:g} s")
        return Failure(f"no answer: {trouble or type(trouble).__name__}")

    def _asked(self, arguments: RankArguments) -> tuple[list[str], dict[str, Any]]:
        """Return the ids in the given order, and the body to send."""
        candidates = list(arguments["candidates"])
        ids: list[str] = []
        for index, candidate in enumerate(candidates):
            name = candidate.get("id") if isinstance(candidate, Mapping) else candidate
            if not isinstance(name, str):
                field, allowed = f"candidates[{index}]", "it must be an id (text) or {'id': …, 'published_at': …, 'score': …}"
                raise SwerveClientError(f"{field} = {shown(candidate)} is not allowed; {allowed}", field=field)
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

    def _encoded(self, body: Any) -> bytes:
        try:
            return self._json.encode(body)
        except UnicodeEncodeError as trouble:
            message = f"{shown(trouble.object)} is not text: it holds half of a surrogate pair"
            raise SwerveClientError(message, UNRANKABLE[0], "not_text") from None
        except (TypeError, ValueError, OverflowError) as trouble:
            raise SwerveClientError(f"the request cannot be sent as JSON: {trouble}", UNRANKABLE[0], "not_json") from None

    def _answer(self, reply: Reply | Failure | None, read: Callable[[bytes], T | Failure]) -> T | Failure:
        """Return the content of a reply; raise if the request is at fault. Anything else is a failure of the service."""
        assert reply is not None
        if isinstance(reply, Failure):
            return reply
        status, body, _ = reply
        if status == OK:
            try:
                return read(body)
            except (ValueError, RecursionError) as trouble:
                return Failure(f"the answer is not one of the service's: {trouble}")
        problem = self._problem(body)
        message = problem.message if problem else "the answer is not one of the service's; is base_url right?"
        if CLIENT_ERRORS[0] <= status < CLIENT_ERRORS[1] and status not in TEMPORARY:
            problem = problem or self._messages.Error("unknown", message)
            raise SwerveClientError(f"HTTP {status}: {message}", status, problem.code, problem.field, problem.request_id)
        return Failure(f"HTTP {status}: {message}")

    def _problem(self, body: bytes) -> Error | None:
        try:
            return self._json.decode(body, type=self._messages.Problem).error
        except (ValueError, RecursionError):
            return None

    def _entries(self, body: bytes) -> list[bytes]:
        return [bytes(entry) for entry in self._json.decode(body, type=self._raws)]

    def _entry(self, body: bytes, ids: list[str]) -> Ranking:
        """Return one ranking of a batch; a refused entry keeps its order, with the reason."""
        problem = self._problem(body)
        return self._ranking(body, ids) if problem is None else given(ids, problem.message)

    def _ranking(self, body: bytes, ids: list[str]) -> Ranking:
        said = self._json.decode(body, type=self._messages.RankResponse)
        blocked = [mark.result for mark in said.ruled or () if mark.kind == "block" and mark.result is not None]
        if sorted([*said.ranking, *blocked]) != sorted(ids):
            raise ValueError("the ranking has other candidates than were given")
        reason = "the service could not use its state in time" if said.degraded else None
        return Ranking(
            said.decision, said.ranking, said.propensities, said.explored, said.phase, said.degraded, reason, said.ruled or (),
            said.arm, said.guarded, None if said.swapped is None else tuple(said.swapped), said.shadow,
        )  # fmt: skip

    def _counted(self, body: bytes) -> bool:
        return self._json.decode(body, type=self._messages.FeedbackResponse).status != "expired"
