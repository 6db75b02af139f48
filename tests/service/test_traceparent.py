"""`traceparent` of a request: validated, and in the log lines of that request alone; no extra is needed."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from service.running import SRC, Running, running, until

from swerve.service.tracing import parent_in, parent_of

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
GOOD = f"00-{TRACE}-{SPAN}-01"


@pytest.mark.parametrize("good", [GOOD, f"00-{TRACE}-{SPAN}-00", f"cc-{TRACE}-{SPAN}-03", f"cc-{TRACE}-{SPAN}-01-what-ever"])
def test_a_good_one_is_read(good):
    parent = parent_of(good.encode())
    assert (parent.trace, parent.span, parent.flags, parent.sent) == (TRACE, SPAN, int(good[53:55], 16), good.encode())


@pytest.mark.parametrize(
    "bad",
    [
        "", "00", GOOD.upper(), GOOD[:-1], f"{GOOD}0", f"{GOOD}-more", f" {GOOD}", f"{GOOD}\n", f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01", f"00-{TRACE}-{'0' * 16}-01", f"00-{TRACE}-{SPAN}-0g", f"00-{TRACE[:-1]}-{SPAN}-01",
        f"cc-{TRACE}-{SPAN}-01x", f"00_{TRACE}-{SPAN}-01",
    ],
)  # fmt: skip
def test_a_malformed_one_is_ignored(bad):
    assert parent_of(bad.encode()) is None


def test_two_are_malformed_too():
    assert parent_in([(b"traceparent", GOOD.encode())]) is not None
    assert parent_in([(b"traceparent", GOOD.encode())] * 2) is None


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with running(tmp_path_factory.mktemp("traced"), {"log": {"access": "all"}, "server": {"hosts": ["here"]}}) as made:
        yield made


def lines(service: Running, **wanted: str) -> list[dict]:
    """Return the log lines with these fields."""
    said = [json.loads(line) for line in service.stderr().splitlines() if line.startswith("{")]
    return [line for line in said if all(line.get(name) == value for name, value in wanted.items())]


def test_its_trace_is_in_the_log_lines_of_the_request_on_both_ways(service):
    client = service.client()
    body = {"query": "traced", "candidates": ["a", "b"]}
    for identity in ("long", "short", "shorter"):  # the first makes a row: the long way
        answer = client.call("POST", "/v1/rank", body, {"traceparent": GOOD, "x-request-id": identity})
        assert answer.status == 200
    click = {"decision": answer.json["decision"], "events": [{"kind": "click", "result": "a"}]}
    assert client.call("POST", "/v1/feedback", click, {"traceparent": GOOD, "x-request-id": "click"}).status == 200
    client.call("POST", "/v1/rank", body, {"x-request-id": "without"})  # on the same connection
    client.call("POST", "/v1/rank", body, {"traceparent": GOOD.upper(), "x-request-id": "malformed"})
    client.call("GET", "/readyz", headers={"x-request-id": "also"})
    until(lambda: len(lines(service, request="also")) == 1)
    for identity in ("long", "short", "shorter", "click"):
        (line,) = lines(service, message="request", request=identity)
        assert line["trace"] == TRACE
    for identity in ("without", "malformed", "also"):
        (line,) = lines(service, message="request", request=identity)
        assert "trace" not in line


def test_its_trace_is_in_the_log_lines_of_refused_requests(service):
    client = service.client()
    sent = {"traceparent": GOOD}
    assert client.call("POST", "/v1/rank", {"query": 3}, {**sent, "x-request-id": "wrong"}).status == 422
    assert client.call("POST", "/v1/rank", {}, {**sent, "x-request-id": "elsewhere", "host": "rebound"}).status == 421
    until(lambda: len(lines(service, request="elsewhere")) == 1)
    assert lines(service, request="wrong")[0]["trace"] == TRACE
    assert lines(service, request="elsewhere", message="turned away")[0]["trace"] == TRACE


def test_pages_of_listed_origins_may_send_it(tmp_path):
    origin = "https://shop.example.com"
    with running(tmp_path, {"server": {"origins": [origin]}}) as made:
        asked = {"origin": origin, "access-control-request-method": "POST", "access-control-request-headers": "traceparent"}
        allowed = made.client().call("OPTIONS", "/v1/rank", headers=asked).headers["access-control-allow-headers"].split(", ")
        assert {"traceparent", "tracestate"} <= set(allowed)


def test_opentelemetry_is_not_imported_without_an_endpoint():
    code = (
        "import sys; import swerve.service.http.server, swerve.proxy.run; from swerve.service.tracing import tracing_of; "
        "from swerve.service.config.sections import Tracing; assert tracing_of(Tracing(), 'x') is None; "
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={"PYTHONPATH": SRC}, check=True)
    assert done.stdout.strip() == "[]"


def test_an_endpoint_without_the_extra_is_told_before_anything_is_made(tmp_path):
    code = (
        "import sys; sys.modules['opentelemetry.sdk'] = None; from swerve.cli import main; "
        "sys.argv = ['swerve', 'serve', '--port', '0', '--store', sys.argv[1]]; main()"
    )
    env = {"PYTHONPATH": SRC, "SWERVE__TRACING__ENDPOINT": "http://127.0.0.1:1", "HOME": str(tmp_path)}
    store = tmp_path / "swerve.db"
    done = subprocess.run([sys.executable, "-c", code, str(store)], capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 2
    assert done.stderr.strip().endswith("tracing.endpoint needs OpenTelemetry: install it with `pip install 'swerve[otel]'`")
    assert not store.exists()
