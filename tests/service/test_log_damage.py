"""Damage to the log while the service is stopped: acknowledged clicks are never dropped silently."""

from __future__ import annotations

import os
import subprocess
import sys

from service.running import SRC, running

CANDIDATES = ["a", "b", "c", "d"]


def test_a_byte_that_goes_bad_after_a_kill_is_refused_and_the_log_by_hand_goes_on(tmp_path):
    with running(tmp_path) as service:
        client = service.client()
        for number in range(60):
            answer = client.rank(f"query {number % 7}", CANDIDATES).json
            assert client.feedback(answer["decision"], answer["ranking"][0]).json == {"status": "learned"}
        service.kill()
        log = service.database.with_name("swerve.db-wal")
        whole = log.read_bytes()
        bad = bytearray(whole)
        bad[len(bad) // 2] ^= 16
        log.write_bytes(bytes(bad))
        command = [sys.executable, "-m", "swerve", "serve", "--config", str(service.file)]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=60, check=False, env={**os.environ, "PYTHONPATH": SRC}
        )
        assert done.returncode == 2
        assert "commits behind the damage cannot be read" in done.stderr and "restore a backup" in done.stderr
        assert len(done.stderr.splitlines()) == 1
        assert log.read_bytes() == bytes(bad)
        log.write_bytes(whole)  # the refused start changed nothing: with the log repaired, all clicks are there
        client = service.start().client()
        assert sum(sum(client.clicks(f"query {number}").values()) for number in range(7)) == 60
