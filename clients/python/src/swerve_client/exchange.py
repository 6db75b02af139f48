"""How the client's calls send, wait and read answers, as steps: without sending and waiting themselves.

A call is a generator of steps, run by `Client` or by `AsyncClient`. It yields a `Send` and receives a `Reply` or a `Failure`; or it
yields a number, and is resumed that many seconds later. `calls` and `operating` have the calls.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Generator, Mapping
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

import msgspec

from swerve_client.answers import Error, Problem
from swerve_client.forms import ServiceAway, SwerveClientError, quoted
from swerve_client.version import __version__
from swerve_client.waiting import LEAST_TIMEOUT, Breaker, Deadline, seconds_of

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
    """What all calls share: settings, sending, and the meaning of answers."""

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
        import httpx  # here, because the service imports the structures of this package, and no httpx

        parts = urlsplit(base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise SwerveClientError(f"base_url = {quoted(base_url)} is not allowed; it must be like {ADDRESS}")
        if api_key is not None and not (api_key.isascii() and api_key.isprintable() and api_key.strip() == api_key != ""):
            raise SwerveClientError("the API key has characters that no key has; use the key as `swerve keys new` printed it")
        for name, value in (("timeout", timeout), ("feedback_timeout", feedback_timeout), ("breaker_seconds", breaker_seconds)):
            if not 0 < value < math.inf:
                raise SwerveClientError(f"{name} = {quoted(value)} is not allowed; {name} must be seconds > 0")
        if retries < 0 or breaker_failures < 1:
            raise SwerveClientError("retries must be ≥ 0 and breaker_failures ≥ 1")
        self.httpx = httpx
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
            decoded: T = msgspec.json.decode(body, type=kind)
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

    def _encoded(self, body: Any) -> bytes:
        try:
            return msgspec.json.encode(body)
        except UnicodeEncodeError as trouble:
            message = f"{quoted(trouble.object)} is not text: it holds half of a surrogate pair"
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
            problem = problem or Error("unknown", message)
            raise SwerveClientError(f"HTTP {status}: {message}", status, problem.code, problem.field, problem.request_id)
        return Failure(f"HTTP {status}: {message}")

    def _problem(self, body: bytes) -> Error | None:
        try:
            return msgspec.json.decode(body, type=Problem).error
        except (ValueError, RecursionError):
            return None

    def _entries(self, body: bytes) -> list[bytes]:
        return [bytes(entry) for entry in msgspec.json.decode(body, type=list[msgspec.Raw])]
