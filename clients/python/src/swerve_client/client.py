"""The clients of the service, `Client` and `AsyncClient`, which keep search working when the service does not.

`rank` returns the given order, marked degraded and with a reason, if the service is away, slow or broken. `feedback` retries,
which is safe because the service counts a click on a result of a decision once. `calls` and `operating` define the calls, once for
both clients, as steps; this module only sends and waits.
"""

from __future__ import annotations

import functools
import inspect
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from types import MethodType, TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, cast, overload

from swerve_client.exchange import ADDRESS, Failure, Reply, Send, Steps
from swerve_client.exporting import AsyncExports, Exports
from swerve_client.operating import AllCalls
from swerve_client.waiting import Deadline

T = TypeVar("T")
P = ParamSpec("P")
Call = Callable[Concatenate[AllCalls, P], Steps[T]]

RANK_SECONDS = 0.1  # a search page waits for the ranking: users do not notice a tenth of a second
FEEDBACK_SECONDS = 2.0  # feedback is answered when it is durable, and nobody waits for it on a page
RETRIES = 3  # with growing waits; after them the caller keeps the feedback and sends it later
BREAKER_FAILURES, BREAKER_SECONDS = 5, 1.0  # a dead service costs five timeouts, then one per second


def _signature(call: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of a call as its callers see it: it returns the result of its steps."""
    signature = inspect.signature(call)
    return signature.replace(return_annotation=str(signature.return_annotation).removeprefix("Steps[").removesuffix("]"))


def _now(call: Call[P, T]) -> Callable[Concatenate[Client, P], T]:
    """Return a call as a method of `Client`."""

    @functools.wraps(call)
    def method(self: Client, /, *arguments: P.args, **options: P.kwargs) -> T:
        return self._run(call(self._exchange, *arguments, **options))

    method.__signature__ = _signature(call)  # type: ignore[attr-defined]
    return method


def _awaited(call: Call[P, T]) -> Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]]:
    """Return a call as a method of `AsyncClient`."""

    @functools.wraps(call)
    async def method(self: AsyncClient, /, *arguments: P.args, **options: P.kwargs) -> T:
        return await self._run(call(self._exchange, *arguments, **options))

    method.__signature__ = _signature(call)  # type: ignore[attr-defined]
    return method


class _Method(Generic[P, T]):
    """A call as a method of both clients: `Client` runs its steps, `AsyncClient` awaits them."""

    def __init__(self, call: Call[P, T]) -> None:
        self._now, self._awaited = _now(call), _awaited(call)

    @overload
    def __get__(self, client: Client, owner: type[Client]) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: AsyncClient, owner: type[AsyncClient]) -> Callable[P, Coroutine[Any, Any, T]]: ...
    @overload
    def __get__(self, client: None, owner: type[_Base]) -> Callable[..., Any]: ...
    def __get__(self, client: _Base | None, owner: type[_Base]) -> Callable[..., Any]:
        method = self._awaited if issubclass(owner, AsyncClient) else self._now
        return method if client is None else MethodType(method, client)


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
        self._exchange = AllCalls(
            base_url, api_key, timeout, feedback_timeout, retries, breaker_failures, breaker_seconds, namespace
        )
        self._open()

    rank = _Method(AllCalls.rank)
    rank_many = _Method(AllCalls.rank_many)
    feedback = _Method(AllCalls.feedback)
    feedback_many = _Method(AllCalls.feedback_many)
    observe = _Method(AllCalls.observe)
    state = _Method(AllCalls.state)
    queries = _Method(AllCalls.queries)
    shift = _Method(AllCalls.shift)
    signal = _Method(AllCalls.signal)
    signal_many = _Method(AllCalls.signal_many)
    health = _Method(AllCalls.health)
    rules = _Method(AllCalls.rules)
    pin = _Method(AllCalls.pin)
    block = _Method(AllCalls.block)
    boost = _Method(AllCalls.boost)
    off = _Method(AllCalls.off)
    on = _Method(AllCalls.on)
    remove_rule = _Method(AllCalls.remove_rule)
    delete = _Method(AllCalls.delete)
    audit = _Method(AllCalls.audit)
    experiment = _Method(AllCalls.experiment)
    ramp = _Method(AllCalls.ramp)

    @abstractmethod
    def _open(self) -> None:
        """Create the pool of connections."""


class Client(Exports, _Base):
    """The service for threads. One instance serves all threads and keeps its connections; make one per process."""

    def _open(self) -> None:
        self._http = self._exchange.httpx.Client(**self._exchange.options)

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
