"""kill -9 during commits: acknowledged batches are stored, and no batch is stored in part."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from store.rows import key, row

from swerve.store import open_store

WRITER = Path(__file__).with_name("writer.py")


def killed_after(url: str, commits: int) -> int:
    """Let a process write and kill it after some commits; return the last version that it reported as durable."""
    child = subprocess.Popen([sys.executable, str(WRITER), url], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    said = [child.stdout.readline() for _ in range(commits)]
    child.kill()  # during a later commit
    rest, _ = child.communicate()
    return int([*said, *rest.splitlines()][-1])


def test_kill_9_loses_nothing_that_was_acknowledged_and_leaves_nothing_half(tmp_path):
    url = f"sqlite:///{tmp_path}/swerve.db"
    before = 0
    for commits in (1, 40, 173):
        acknowledged = killed_after(url, commits)
        assert acknowledged >= before + commits
        store = open_store(url)
        rows = store.load([key(i) for i in range(3)])
        version = rows[0].version
        assert version in (acknowledged, acknowledged + 1)  # one more commit may have succeeded before its answer
        assert rows == [row(i, version, level=version % 5, size=2200) for i in range(3)]
        ids = {v * 100 + i: i for v in range(1, version + 2) for i in range(3)}
        assert store.outcomes(list(ids)) == {number: i for number, i in ids.items() if number < (version + 1) * 100}
        assert store.groups() == {("count", "0"): str(version).encode()}
        assert store.count() == 3
        assert store._reader.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        store.close()
        before = version
