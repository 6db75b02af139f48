"""Traces of requests: `traceparent` of W3C is taken over, and spans are made for OpenTelemetry where `tracing.endpoint` is set.

OpenTelemetry is imported only for that. Spans are sent by a thread of its own, and dropped when they cannot be. No span has the
text of a query: routes are named by their templates, and errors by their types.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import re
import threading
import time
from collections.abc import Iterable
from contextvars import ContextVar
from typing import Any, Literal, NamedTuple

from swerve.core.errors import SwerveError
from swerve.service.config.sections import Tracing as Section
from swerve.version import __version__

log = logging.getLogger("swerve.tracing")

TRACEPARENT = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
#: Milliseconds between two exports, seconds that one may take, and seconds that a stop waits for the last.
EVERY_MS, PATIENCE, STOP_PATIENCE = 1000, 5.0, 2.0
#: Seconds between two log lines about spans that could not be sent.
QUIET = 60.0

Kind = Literal["server", "client", "internal"]


class Parent(NamedTuple):
    """The span of the caller, in hexadecimal digits."""

    trace: str
    span: str
    flags: int
    sent: bytes  # the header as it came


def parent_of(value: bytes) -> Parent | None:
    """Read a `traceparent`; None for a malformed one, which is ignored.

    >>> parent_of(b"00-" + b"a" * 32 + b"-" + b"b" * 16 + b"-01").flags
    1
    >>> parent_of(b"00-" + b"0" * 32 + b"-" + b"b" * 16 + b"-01") is None
    True
    """
    found = TRACEPARENT.fullmatch(value)
    if found is None or found[1] == b"ff" or (found[5] is not None and found[1] == b"00"):
        return None
    if not found[2].strip(b"0") or not found[3].strip(b"0"):
        return None
    return Parent(found[2].decode(), found[3].decode(), int(found[4], 16), value)


def parent_in(headers: Iterable[tuple[bytes, bytes]]) -> Parent | None:
    """Return the caller's span in the headers of a request; two of them are malformed too."""
    values = [value for name, value in headers if name == b"traceparent"]
    return parent_of(values[0]) if len(values) == 1 else None


def trace_of(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """Return the id of the caller's trace in the headers of a request, or an empty text."""
    parent = parent_in(headers)
    return "" if parent is None else parent.trace


class Span:
    """An open span of OpenTelemetry."""

    __slots__ = ("inner", "tracing")

    def __init__(self, tracing: Tracing, inner: Any) -> None:
        self.tracing, self.inner = tracing, inner

    @property
    def trace(self) -> str:
        """The id of the trace; empty where OpenTelemetry is switched off (`OTEL_SDK_DISABLED`)."""
        context = self.inner.get_span_context()
        return f"{context.trace_id:032x}" if context.is_valid else ""

    @property
    def traceparent(self) -> bytes:
        """The header for a call that belongs to this span; empty where OpenTelemetry is switched off."""
        context = self.inner.get_span_context()
        if not context.is_valid:
            return b""
        return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}".encode()

    def child(self, name: str, kind: Kind = "internal", **attributes: Any) -> Span:
        """Begin a span inside this one; of a trace that is not recorded, this one stands for all."""
        if not self.inner.is_recording():
            return self
        return self.tracing.begin(name, kind, self.inner, {f"swerve.{key}": value for key, value in attributes.items()})

    def end(self, status: int = 0, error: str = "", **attributes: Any) -> None:
        """End the span, with the status of an answer or the type of an error."""
        inner = self.inner
        if status:
            inner.set_attribute("http.response.status_code", status)
        if error or status >= 500:
            inner.set_attribute("error.type", error or str(status))
            inner.set_status(self.tracing.failed)
        for name, value in attributes.items():
            inner.set_attribute(f"swerve.{name}", value)
        inner.end()


#: The span of the request that is being answered; None where there are no spans.
current: ContextVar[Span | None] = ContextVar("current", default=None)


#: The `traceparent` of the request that is being answered, for calls to others; empty without one.
taken_over: ContextVar[bytes] = ContextVar("taken_over", default=b"")


class Child:
    """A span around a block. It is named after the type of an exception that leaves the block."""

    __slots__ = ("span",)

    def __init__(self, span: Span) -> None:
        self.span = span

    def __enter__(self) -> Span:
        return self.span

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        self.span.end(error="" if kind is None else kind.__name__)


class Nothing:
    """Stands for `Child` where there are no spans."""

    __slots__ = ()

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        """Do nothing."""


NOTHING = Nothing()


def inside(name: str, kind: Kind = "internal", **attributes: Any) -> Child | Nothing:
    """Return a span of the present request for a `with`; it costs one look where there are none."""
    span = current.get()
    return NOTHING if span is None else Child(span.child(name, kind, **attributes))


class Aside:
    """No spans in a block: those of the entries of a batch would be too many."""

    __slots__ = ("token",)

    def __enter__(self) -> None:
        self.token = current.set(None)

    def __exit__(self, *_: object) -> None:
        current.reset(self.token)


class Tracing:
    """Makes spans, and sends them to a collector. Raises `SwerveError` where OpenTelemetry is not installed."""

    def __init__(self, config: Section, name: str) -> None:
        if any(not found(module) for module in ("opentelemetry.sdk.trace", "opentelemetry.exporter.otlp.proto.http")):
            raise SwerveError("tracing.endpoint needs OpenTelemetry: install it with `pip install 'swerve[otel]'`")
        from opentelemetry import trace
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # it would log every batch and span that is lost
        self.api = trace
        self.failed = trace.StatusCode.ERROR
        self.kinds = {"server": trace.SpanKind.SERVER, "client": trace.SpanKind.CLIENT, "internal": trace.SpanKind.INTERNAL}
        said = {"service.name": os.environ.get("OTEL_SERVICE_NAME") or name, "service.version": __version__}
        sampler = ParentBased(TraceIdRatioBased(config.sample))
        self.provider = TracerProvider(sampler=sampler, resource=Resource.create(said), shutdown_on_exit=False)
        sender = Sender(OTLPSpanExporter(endpoint=f"{config.endpoint.rstrip('/')}/v1/traces", timeout=PATIENCE))
        self.provider.add_span_processor(BatchSpanProcessor(sender, schedule_delay_millis=EVERY_MS))  # type: ignore[arg-type]
        self.tracer = self.provider.get_tracer("swerve", __version__)

    def request(self, method: str, route: str, parent: Parent | None) -> Span:
        """Begin the span of a request to a route, inside the caller's span."""
        outer = None
        if parent is not None:
            flags = self.api.TraceFlags(parent.flags & self.api.TraceFlags.SAMPLED)
            outer = self.api.NonRecordingSpan(self.api.SpanContext(int(parent.trace, 16), int(parent.span, 16), True, flags))
        said = {"http.request.method": method, **({"http.route": route} if route else {})}
        return self.begin(f"{method} {route}".rstrip(), "server", outer, said)

    def begin(self, name: str, kind: Kind, outer: Any, attributes: dict[str, Any]) -> Span:
        """Begin a span inside another one, or a trace."""
        context = self.api.set_span_in_context(outer or self.api.INVALID_SPAN)
        return Span(self, self.tracer.start_span(name, context, self.kinds[kind], attributes))

    def stop(self) -> None:
        """Send the last spans, for at most two seconds."""
        ending = threading.Thread(target=self.provider.shutdown, name="swerve-tracing", daemon=True)
        ending.start()
        ending.join(STOP_PATIENCE)


class Sender:
    """Sends spans through an exporter, and tells in one line a minute that they cannot be sent."""

    def __init__(self, exporter: Any) -> None:
        self.exporter = exporter
        self.lost, self.told = 0, -QUIET

    def export(self, spans: Any) -> Any:
        """Send spans; what fails is dropped."""
        done = self.exporter.export(spans)
        if done.name != "SUCCESS":
            self.lost += len(spans)
            now = time.monotonic()
            if now - self.told >= QUIET:
                log.warning("spans could not be sent", extra={"spans": self.lost})
                self.lost, self.told = 0, now
        return done

    def shutdown(self) -> None:
        """End the exporter."""
        self.exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Nothing is kept here."""
        return True


def found(module: str) -> bool:
    """Return whether a module is installed, without its import."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def tracing_of(config: Section, name: str) -> Tracing | None:
    """Return what makes spans; None where no endpoint is set."""
    return Tracing(config, name) if config.endpoint else None
