"""Compare `swerve serve` of two source trees under the load of `swerve bench service`: `python tools/compare_service.py OLD NEW`.

OLD and NEW are checkouts. Each runs its own service and its own load in processes of its own, both at the same time; the services
take turns, after each has written its pending rows, so that a slow moment of the machine affects both. A row's ratio is the median
over the rounds of new ÷ old: of answers per second, of the 99th percentile of latency, and of the processor time of the service
for an answer, which other programs on the machine disturb least. `--new-config` has lines for the configuration of NEW alone, such
as `[policy]` and `slots = 1` where OLD fills one slot.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Self

CONNECTIONS, BATCH_CONNECTIONS = 32, 4  # as in swerve.bench.service
SUPPLY = 15_000  # decisions a second of a feedback turn
MICRO = 1e6
ROWS = ("rank", "rank-p99", "rank-batch", "feedback")


class Player:
    """The service of this process's tree, and its load."""

    def __init__(self, folder: Path, queries: int, seconds: float, more: str) -> None:
        from swerve.bench import servers, service

        try:
            self.traffic: Any = importlib.import_module("swerve.bench.service_traffic")
        except ImportError:  # as it was called until 0.2
            self.traffic = importlib.import_module("swerve.bench.traffic")
        self.seconds, self.prepared = seconds, 0
        self.server = servers.service(folder, service.CONFIG + more)
        self.server.__enter__()
        self.server.ready()
        if hasattr(self.server, "whole"):
            self.server.whole()
        self.traffic.begin(queries, 10)
        self.traffic.fill(self.server.port, 0, queries)

    def spent(self) -> float:
        """Return the processor seconds of the service so far."""
        user, system = Path(f"/proc/{self.server.process.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def play(self, row: str, rate: float) -> dict[str, float]:
        """Run one turn of a row."""
        port, entries = self.server.port, 1
        if row == "feedback":
            self.traffic.decide(port, int(SUPPLY * self.seconds))
        self.server.settle()
        before = self.spent()
        if row == "rank":
            turn = self.traffic.rank_turn(port, CONNECTIONS, self.seconds)
        elif row == "rank-p99":
            turn = self.traffic.rank_turn(port, CONNECTIONS, self.seconds, rate)
        elif row == "rank-batch":
            turn, entries = self.traffic.batch_turn(port, BATCH_CONNECTIONS, self.seconds), 100
        else:
            turn = self.traffic.feedback_turn(port, CONNECTIONS, self.seconds)
        self.server.settle()
        spent = self.spent() - before  # with what is written afterwards
        return {"rate": turn.rate * entries, "p99": turn.p99, "cpu": spent / turn.answers / entries * MICRO}


def serve(folder: str, queries: str, seconds: str, more: str) -> None:
    """Answer each line of the input, a row and a rate, by the figures of one turn."""
    player = Player(Path(folder), int(queries), float(seconds), more)
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        row, rate = json.loads(line)
        print(json.dumps(player.play(row, rate)), flush=True)
    player.server.__exit__(None, None, None)


class Tree:
    """A process that plays one source tree, inside a `with` block."""

    def __init__(self, root: Path, folder: Path, asked: argparse.Namespace, more: str) -> None:
        paths = [root / "src", root / "clients" / "python" / "src"]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(str(path) for path in paths if path.is_dir())}
        folder.mkdir()
        command = [sys.executable, __file__, "--serve", str(folder), str(asked.queries), str(asked.seconds), more]
        self.process = subprocess.Popen(command, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()

    def answer(self) -> Any:
        """Return what the process says next."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"the process for {self.process.args!r} ended: {self.process.wait()}")
        return json.loads(line)

    def play(self, row: str, rate: float = 0.0) -> dict[str, float]:
        """Return the figures of one turn."""
        assert self.process.stdin is not None
        print(json.dumps([row, rate]), file=self.process.stdin, flush=True)
        found: dict[str, float] = self.answer()
        return found


def compare(old: Tree, new: Tree, rounds: int, rows: list[str]) -> None:
    """Print each row as soon as it is measured."""
    print(f"{'row':12}{'figure':>18}{'old':>12}{'new':>12}{'new ÷ old':>11}  spread")
    half = 0.0
    for row in rows:
        pairs = []
        for number in range(rounds + 1):
            both = (old, new) if number % 2 else (new, old)
            found = {tree: tree.play(row, half) for tree in both}
            if number > 0:  # the first one warms up
                pairs.append((found[old], found[new]))
        for figure in ("rate", "cpu") if row != "rank-p99" else ("p99",):
            ratios = [after[figure] / before[figure] for before, after in pairs]
            olds, news = (statistics.median(pair[side][figure] for pair in pairs) for side in (0, 1))
            unit = {"rate": "answers/s", "cpu": "µs of processor", "p99": "p99, ms"}[figure]
            scale = 1e3 if figure == "p99" else 1.0
            line = f"{row:12}{unit:>18}{olds * scale:12,.1f}{news * scale:12,.1f}{statistics.median(ratios):11.3f}"
            print(f"{line}  {min(ratios):.3f} … {max(ratios):.3f}", flush=True)
        if row == "rank":
            half = statistics.median(before["rate"] for before, _ in pairs) / 2


def main() -> None:
    """Run both trees and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7, help="turns of each row (7)")
    parser.add_argument("--seconds", type=float, default=2.0, help="of a turn (2)")
    parser.add_argument("--queries", type=int, default=20_000, help="that are asked (20000)")
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=ROWS, help="that are measured; rank-p99 needs rank before it")
    parser.add_argument("--new-config", default="", help="lines for the configuration of NEW")
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="swerve-compare-") as made:
        folder, begun = Path(made), time.perf_counter()
        with (
            Tree(asked.old.resolve(), folder / "old", asked, "") as old,
            Tree(asked.new.resolve(), folder / "new", asked, f"\n{asked.new_config}\n") as new,
        ):
            old.answer(), new.answer()
            print(f"both services are ready after {time.perf_counter() - begun:.0f} s", file=sys.stderr)
            compare(old, new, asked.rounds, list(asked.rows))


if __name__ == "__main__":
    serve(*sys.argv[2:]) if sys.argv[1:2] == ["--serve"] else main()
