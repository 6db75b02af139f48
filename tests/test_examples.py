"""Every script of examples/ runs, and its output shows the promised effect. Search pages (`*_search.py`): test_web_examples.py."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SCRIPTS = sorted(path for path in (ROOT / "examples").glob("*.py") if not path.stem.endswith("_search"))


def numbers(pattern: str, text: str) -> list[float]:
    """Return the numbers that a pattern finds, in order."""
    return [float(found.replace(",", "")) for found in re.findall(pattern, text)]


def library_bandit(text: str) -> None:
    (ours,), (theirs,) = numbers(r"swerve: ([\d,]+) clicks lost", text), numbers(r"ts: ([\d,]+) clicks lost", text)
    assert 0 < ours < theirs / 3
    assert re.search(r"^ *3500 +encyclopedia", text, re.M) and re.search(r"^ *4000 +storm-track", text, re.M)


def own_bandit(text: str) -> None:
    assert re.search(r"three decisions: \[[0-3], [0-3], [0-3]\]", text)
    alone, with_classifier, with_oracle = numbers(r": ([\d,]+) clicks lost", text)
    assert 0 < with_oracle < with_classifier < alone


def simulate_shift(text: str) -> None:
    lost = {name: float(value.replace(",", "")) for name, value in re.findall(r"^([\w-]+) +([\d,]+)  ", text, re.M)}
    assert set(lost) == {"oracle-ts", "swerve", "bwc", "glr-ts", "ucb1"}
    assert lost["swerve"] < lost["bwc"] < lost["ucb1"]
    assert numbers(r"(\d+) shifts a run", text)[0] > 0


def serve_and_click(text: str) -> None:
    plays = {name: int(count) for name, count in re.findall(r"^  ([\w-]+) +(\d+) times on top", text, re.M)}
    assert sum(plays.values()) == 200
    assert max(plays, key=lambda name: plays[name]) == "big-cat"
    assert "last ranking:  ['big-cat'" in text
    assert "the last alarm: signal operator, verdict true, phase 2" in text


def own_signals(text: str) -> None:
    assert re.search(r"^alarm: news at (0\.\d+|1\.00), verdict true", text, re.M)
    before, storm = (dict(re.findall(r"'([\w-]+)': (\d+)", line)) for line in text.splitlines()[:2])
    assert int(before["encyclopedia"]) > int(before["storm-track"])
    assert int(storm["encyclopedia"]) < int(storm["storm-track"])


def replay_log(text: str) -> None:
    (base,) = numbers(r"own order: CTR ([\d.]+)%", text)
    gained = dict(re.findall(r"^(\w+) +CTR ([\d.]+)%", text, re.M))
    assert set(gained) == {"swerve", "bwc", "ts"}
    assert float(gained["swerve"]) > base + 3.0


#: By script: a check of its output.
SHOWN: dict[str, Callable[[str], None]] = {
    one.__name__: one for one in (library_bandit, own_bandit, simulate_shift, serve_and_click, own_signals, replay_log)
}


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_it_runs(script, tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONWARNINGS": "error"}
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert not any(tmp_path.iterdir()), "an example must leave no files behind"
    SHOWN[script.stem](done.stdout)


def test_each_is_listed_and_known_here():
    listed = re.findall(r"^\| \[(\w+)\.py\]", (ROOT / "examples" / "README.md").read_text(encoding="utf-8"), re.M)
    pages = [path.stem for path in (ROOT / "examples").glob("*_search.py")]
    assert sorted(listed) == sorted([*SHOWN, *pages])
    assert [script.stem for script in SCRIPTS] == sorted(SHOWN)
