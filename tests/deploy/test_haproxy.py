"""The HAProxy configuration: requests go to the worker of their query at once."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from service.crewed import Crewed, crewed, free_ports
from service.running import Http, until

HERE = Path(__file__).parents[2] / "deploy" / "haproxy"

pytestmark = pytest.mark.skipif(shutil.which("haproxy") is None, reason="haproxy is not installed (Debian: apt install haproxy)")


@contextlib.contextmanager
def balanced(crew: Crewed, folder: Path) -> Iterator[Http]:
    """Yield a connection through HAProxy with the configuration of the repository, on other ports and in another folder."""
    shutil.copytree(HERE, folder)
    port = free_ports(1)
    text = (folder / "haproxy.cfg").read_text().replace("/etc/haproxy", str(folder)).replace("127.0.0.1:8350", f"127.0.0.1:{port}")
    for worker in range(4):
        text = text.replace(f"127.0.0.1:{8360 + worker} ", f"127.0.0.1:{crew.ports + worker} ")
    (folder / "haproxy.cfg").write_text(text)
    with (folder / "log").open("wb") as out:
        child = subprocess.Popen(["haproxy", "-db", "-f", str(folder / "haproxy.cfg")], stdout=out, stderr=out)
    try:
        client = crew.service.client()
        client.port = port

        def there() -> bool:
            assert child.poll() is None, (folder / "log").read_text()
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
        child.wait(10.0)


def passed_on(crew: Crewed) -> float:
    text = crew.clients[0].call("GET", "/metrics").body.decode()
    return sum(float(number) for number in re.findall(r"^swerve_passed_on_total\{.*\} (\S+)$", text, re.M))


def test_requests_go_to_the_worker_of_their_query(tmp_path):
    with crewed(tmp_path / "crew", 4) as crew, balanced(crew, tmp_path / "haproxy") as client:
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
