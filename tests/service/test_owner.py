"""One process owns a store: a second one is refused with the reason, and the first goes on."""

from __future__ import annotations

import sys

import forking


def test_a_second_process_on_the_same_database_is_refused_and_the_first_goes_on(served, client):
    answer = client.rank("q", ["a", "b"]).json
    command = [sys.executable, "-m", "swerve", "serve", "--config", str(served.file)]
    done = forking.run(*command)
    assert done.returncode == 2
    assert done.stdout == ""  # it never listened
    lines = done.stderr.splitlines()
    assert len(lines) == 1
    assert str(served.database) in lines[0]
    assert f"is in use by process {served.child.pid} since" in lines[0]
    client = served.client()  # the old connection may have been closed as idle
    assert client.feedback(answer["decision"], answer["ranking"][0]).json == {"status": "learned"}
    assert not client.rank("q", ["a", "b"]).json["degraded"]


def test_after_a_kill_the_next_process_owns_it(served):
    served.kill()
    client = served.start().client()
    assert not client.rank("q", ["a", "b"]).json["degraded"]


def test_a_taken_port_is_named(served, tmp_path):
    command = [
        sys.executable, "-m", "swerve", "serve", "--port", str(served.port), "--store", f"sqlite:///{tmp_path}/other.db"
    ]  # fmt: skip
    done = forking.run(*command)
    assert done.returncode == 2
    assert f"cannot listen on 127.0.0.1 port {served.port}" in done.stderr and "--port 0" in done.stderr
