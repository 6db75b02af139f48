"""A collector of OpenTelemetry spans over HTTP, as services send them."""

from __future__ import annotations

import contextlib
import gzip
import http.server
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

trace_service_pb2 = pytest.importorskip(
    "opentelemetry.proto.collector.trace.v1.trace_service_pb2", reason="the extra swerve[otel] is not installed"
)
pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="the extra swerve[otel] is not installed")

KINDS = {1: "internal", 2: "server", 3: "client"}


@dataclass(frozen=True)
class Seen:
    """A span that arrived."""

    service: str
    name: str
    kind: str
    trace: str
    id: str
    parent: str
    attributes: dict[str, Any]
    failed: bool
    begun: int
    ended: int


class Collector:
    """What was collected; `status` is the answer to the next exports."""

    def __init__(self, port: int) -> None:
        self.port, self.spans, self.raw, self.status = port, list[Seen](), b"", 200

    def of(self, trace: str) -> dict[str, Seen]:
        """Return the spans of a trace, by service, name and kind; each must be there once."""
        found = [span for span in self.spans if span.trace == trace]
        named = {f"{span.service} {span.name} {span.kind}": span for span in found}
        assert len(named) == len(found), found
        return named

    def take(self, body: bytes) -> None:
        self.raw += body
        for resource in trace_service_pb2.ExportTraceServiceRequest.FromString(body).resource_spans:
            service = valued(resource.resource.attributes)["service.name"]
            for span in (span for scope in resource.scope_spans for span in scope.spans):
                self.spans.append(
                    Seen(
                        service, span.name, KINDS[span.kind], span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex(),
                        valued(span.attributes), span.status.code == 2, span.start_time_unix_nano, span.end_time_unix_nano,
                    )
                )  # fmt: skip


def valued(attributes: Any) -> dict[str, Any]:
    """Return attributes as plain values."""
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in attributes}


@contextlib.contextmanager
def collector() -> Iterator[Collector]:
    """Yield a collector on a port of its own."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            if made.status == 200:
                assert self.path == "/v1/traces"
                made.take(body)
            self.send_response(made.status)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made = Collector(server.server_address[1])
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
