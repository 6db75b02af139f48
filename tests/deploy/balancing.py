"""A load balancer in front of several workers: a connection through it, and what it has to do."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from service.crewed import Crewed
from service.running import Http, until

#: Seconds for a program to end.
ENDING = 10.0


@contextlib.contextmanager
def balanced(crew: Crewed, command: Sequence[str], port: int, log: Path) -> Iterator[Http]:
    """Yield a connection through a program that listens on a port."""
    with log.open("wb") as out:
        child = subprocess.Popen(command, stdout=out, stderr=out)
    try:
        client = crew.service.client()
        client.port = port

        def there() -> bool:
            assert child.poll() is None, log.read_text()
            with contextlib.suppress(OSError, http.client.HTTPException):
                probe = http.client.HTTPConnection("127.0.0.1", port, timeout=1.0)
                probe.request("GET", "/healthz")
                good = probe.getresponse().status == 200
                probe.close()
                return good
            return False

        until(there)
        yield client
    finally:
        child.terminate()
        child.wait(ENDING)


def passed_on(crew: Crewed) -> float:
    """Return how many requests workers have passed on to each other."""
    text = crew.clients[0].call("GET", "/metrics").body.decode()
    return sum(float(number) for number in re.findall(r"^swerve_passed_on_total\{.*\} (\S+)$", text, re.M))


def check_balanced(crew: Crewed, client: Http) -> None:
    """Check that requests go to the worker of their query at once, and to another one while it is down."""
    asked = [{"query": f"query {number % 6}", "locale": "de" if number >= 6 else None} for number in range(12)]
    first = [client.call("POST", "/v1/rank", {**one, "candidates": ["a", "b"]}) for one in asked]
    assert {answer.status for answer in first} == {200}
    time.sleep(0.1)
    begun = passed_on(crew)  # who asks for metrics asks the other workers
    spent = passed_on(crew) - begun
    before = passed_on(crew)
    for _ in range(3):
        for one, told in zip(asked, first, strict=True):
            answer = client.call("POST", "/v1/rank", {**one, "candidates": ["a", "b"]})
            assert answer.headers["swerve-partition"] == told.headers["swerve-partition"]
            assert client.feedback(answer.json["decision"], "b").json == {"status": "learned"}
    assert passed_on(crew) - before == spent
    for one, told in zip(asked, first, strict=True):
        header = {"Swerve-Partition": told.headers["swerve-partition"]}
        client.call("POST", "/v1/observe", {**one, "shown": ["a", "b"], "events": []}, header)
    assert passed_on(crew) - before == 2 * spent
    for worker, pid in crew.pids().items():
        if worker == int(first[0].headers["swerve-partition"]) % 4:
            os.kill(pid, signal.SIGKILL)
    for _ in range(20):
        answer = client.call("POST", "/v1/rank", {**asked[0], "candidates": ["a", "b"]})
        assert answer.status in (200, 503), json.dumps(answer.json)
    until(lambda: not client.call("POST", "/v1/rank", {**asked[0], "candidates": ["a", "b"]}).json.get("degraded", True), 20.0)
