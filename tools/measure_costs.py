"""Measure what a ranking and a click cost one service of the default policy, and print what many of them need.

    python tools/measure_costs.py [REQUESTS]

Processor time is that of the service's process, with 32 requests on their way at once. Appends are those of the log, each synced to
the disk. Docs: docs/operations.md, "What many rankings need".
"""

from __future__ import annotations

import json
import re
import socket
import sys
import time

from measure_crew import CANDIDATES, QUERIES, Service, body_of, owners, served

#: Requests on their way at once; clicks for each ranking of the tables; bytes of an entry are measured by measure_journal.py.
AT_ONCE, CLICKS = 32, 0.4
RATES = (10_000, 1_000_000)
HEAD = b"POST %s HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"


def answer(sock: socket.socket) -> bytes:
    """Read one answer; return its body."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += sock.recv(65536)
    head, _, rest = data.partition(b"\r\n\r\n")
    length = int(re.search(rb"content-length: (\d+)", head.lower())[1])  # type: ignore[index]
    while len(rest) < length:
        rest += sock.recv(65536)
    if b" 200 " not in head:
        raise SystemExit((head + rest).decode())
    return rest


def asked(sockets: list[socket.socket], path: bytes, bodies: list[bytes]) -> list[bytes]:
    """Send requests, `AT_ONCE` at a time; return the answers."""
    out = []
    for start in range(0, len(bodies), AT_ONCE):
        some = bodies[start : start + AT_ONCE]
        for sock, body in zip(sockets, some, strict=False):
            sock.sendall(HEAD % (path, len(body)) + body)
        out += [answer(sock) for sock, _ in zip(sockets, some, strict=False)]
    return out


def appends(sock: socket.socket) -> float:
    """Return how often the log was appended to."""
    sock.sendall(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n")
    found = re.search(rb"^swerve_commits_total(?:\{[^}]*\})? (\S+)", answer(sock), re.M)
    assert found is not None
    return float(found[1])


def measured(service: Service, requests: int) -> tuple[float, float, float, float]:
    """Return the processor time of a ranking and of a click in microseconds, the clicks of an append, and appends a second."""
    sockets = [socket.create_connection(("127.0.0.1", service.port)) for _ in range(AT_ONCE)]
    bodies = [body_of(number % QUERIES, number + 1) for number in range(requests)]
    asked(sockets, b"/v1/rank", bodies[: 2 * QUERIES])
    before = service.seconds()
    answers = asked(sockets, b"/v1/rank", bodies)
    ranking = (service.seconds() - before) / requests * 1e6
    said = [json.loads(one) for one in answers]
    if degraded := [one for one in said if one["degraded"]]:
        print(f"{len(degraded):,} of {requests:,} rankings were degraded: {degraded[0]}", file=sys.stderr)
    event = {"kind": "click", "position": 1}
    clicks = [json.dumps({"decision": one["decision"], "events": [event]}).encode() for one in said if one["decision"]]
    before, began, appended = service.seconds(), time.perf_counter(), appends(sockets[0])
    asked(sockets, b"/v1/feedback", clicks)
    took, appended = time.perf_counter() - began, appends(sockets[0]) - appended
    click = (service.seconds() - before) / len(clicks) * 1e6
    for sock in sockets:
        sock.close()
    return ranking, click, len(clicks) / appended, appended / took


def main() -> None:
    """Measure, and print the tables."""
    requests = int((sys.argv[1:] or ["20000"])[0])
    with served(1, 8481) as service:
        owners(service)
        while b'"still_compiling":[]' not in (service.folder / "log").read_bytes():
            time.sleep(0.5)
        ranking, click, group, rate = measured(service, requests)
    print(f"a ranking of {CANDIDATES} candidates: {ranking:.0f} us of processor time")
    print(f"a click: {click:.0f} us of processor time")
    print(f"an append: {group:.1f} clicks, {rate:.0f} appends a second")
    for number in RATES:
        processors = number * (ranking + CLICKS * click) / 1e6
        print(f"{number:,} rankings/s and {CLICKS * number:,.0f} clicks/s: {processors:,.1f} processors")


if __name__ == "__main__":
    main()
