"""Compare the rows of `swerve bench kernels` between two source trees: `python tools/compare_kernels.py OLD_SRC NEW_SRC [ROW …]`.

Each tree runs in processes of its own, and both take turns at every row, so that a slow moment of the machine affects both. Times
are processor time. Some turns later new processes take over: where code and tables happen to lie in memory differs by process and
is worth several per cent. A row's ratio is the median over the processes of new ÷ old, each the least of its turns; the spread is
the smallest and the largest of these ratios. `naive-c-loop` is the same C code in both and shows how far from 1 chance alone leads.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

SAME_IN_BOTH = ("python-loop", "c-cached-loop", "peer-")  # rows that run no code of the trees
CALL_SECONDS = 0.02  # a row with shorter calls repeats them, for the clock's sake
NANO = 1e9


def contenders(folder: Path) -> dict[str, Any]:
    """Return what the benchmark of this process's tree would time, by name."""
    from swerve.bench import kernels, timing

    found: dict[str, Any] = {}

    def note(reference: Any, others: Any, repeats: int, **_: Any) -> dict[str, Any]:
        for contender in (reference, *others):
            name = contender.name if contender.name not in ("ts", "one slot") else f"{contender.name} beside {others[0].name}"
            found.setdefault(name, contender)
        return {contender.name: timing.Pairs([1.0], [1.0]) for contender in others}

    kernels.interleave = note  # type: ignore[assignment]
    effort = kernels.QUICK

    def say(text: str) -> None:
        pass

    kernels.loop_rows(kernels.Reference(folder), effort, say)
    parts: list[Callable[..., Any]] = [kernels.bandit_rows, kernels.swerve_rows, kernels.api_rows]
    for part in (*parts, *filter(None, [getattr(kernels, "page_rows", None)])):
        part(effort, say)
    return {name: contender for name, contender in found.items() if not name.startswith(SAME_IN_BOTH)}


def serve() -> None:
    """Time one call of each row that is named on a line of the input; answer nanoseconds per unit."""
    with tempfile.TemporaryDirectory() as folder:
        known = contenders(Path(folder))
        print(json.dumps(list(known)), flush=True)
        for line in sys.stdin:
            contender = known[line.strip()]
            spent, calls = 0.0, 0
            while spent < CALL_SECONDS:
                call = contender.prepare()
                begun = time.process_time()
                call()
                spent += time.process_time() - begun
                calls += 1
            print(spent / calls / contender.units * NANO, flush=True)


class Tree:
    """A process that times the rows of one source tree, inside a `with` block."""

    def __init__(self, source: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": str(source)}
        command = [sys.executable, __file__, "--serve"]
        self.process = subprocess.Popen(command, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.rows: list[str] = json.loads(self._answer())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()

    def _answer(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"the process for {self.process.args!r} ended: {self.process.wait()}")
        return line

    def time(self, name: str) -> float:
        """Return the nanoseconds of one unit of a row."""
        assert self.process.stdin is not None
        print(name, file=self.process.stdin, flush=True)
        return float(self._answer())


def main() -> None:
    """Print the ratio of each row that both trees have."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=5, help="pairs of processes (5)")
    parser.add_argument("--turns", type=int, default=9, help="turns of a pair (9)")
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("rows", nargs="*", help="regular expressions; default: every row")
    asked = parser.parse_args()
    least: dict[str, list[tuple[float, float]]] = {}
    for _ in range(asked.processes):
        with Tree(asked.old.resolve()) as old, Tree(asked.new.resolve()) as new:
            both = [name for name in new.rows if name in old.rows]
            chosen = [name for name in both if not asked.rows or any(re.fullmatch(row, name) for row in asked.rows)]
            times: dict[str, list[tuple[float, float]]] = {name: [] for name in chosen}
            for turn in range(asked.turns + 1):
                for name in chosen:
                    pair = (old.time(name), new.time(name))
                    if turn > 0:  # the first one may compile
                        times[name].append(pair)
            for name, pairs in times.items():
                least.setdefault(name, []).append((min(pair[0] for pair in pairs), min(pair[1] for pair in pairs)))
    print(f"{'row':42}{'old ns':>10}{'new ns':>10}{'ratio':>8}  spread")
    for name, pairs in least.items():
        ratios = [new / old for old, new in pairs]
        olds, news = (statistics.median(pair[side] for pair in pairs) for side in (0, 1))
        print(f"{name:42}{olds:10.2f}{news:10.2f}{statistics.median(ratios):8.3f}  {min(ratios):.3f} … {max(ratios):.3f}")


if __name__ == "__main__":
    serve() if sys.argv[1:] == ["--serve"] else main()
