"""Programs in processes of their own, each with a cache of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import swerve

SOURCE = Path(swerve.__file__).parent.parent

DECIDE = """
from swerve import Fleet
from {module} import {cls}
fleet = Fleet({cls}(), queries=1, arms=3)
print(fleet.select(0).arm, sum(fleet._select_one.stats.cache_hits.values()))
"""


def run(code, tmp_path, *, source=SOURCE, **environment):
    """Run a program in a separate process with its own cache; return its output and errors."""
    settings = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join([str(source), str(tmp_path)]),
        "SWERVE_CACHE_DIR": str(tmp_path / "cache"),
        "PYTHONDONTWRITEBYTECODE": "1",
        **environment,
    }
    settings = {name: value for name, value in settings.items() if value is not None}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=120,
        env=settings,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split(), done.stderr
