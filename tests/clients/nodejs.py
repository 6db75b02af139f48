"""Programs that run in Node, in tests of the client for JavaScript."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="node is not installed (tools/system-packages nodejs)")


def called(*command: str, cwd: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a command, with more variables; return what it said, whatever its exit status."""
    return subprocess.run(command, cwd=cwd, env={**os.environ, **more}, capture_output=True, text=True, timeout=120, check=False)


def node(*arguments: str, cwd: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """Run Node, which must succeed."""
    assert NODE is not None
    done = called(NODE, *arguments, cwd=cwd, **more)
    assert done.returncode == 0, done.stdout + done.stderr
    return done
