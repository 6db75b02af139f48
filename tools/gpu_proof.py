"""Prove the GPU against the processor and time both: `python tools/gpu_proof.py [--minutes 9]`, on a machine with a GPU.

Every part runs in a process of its own, so that none can hide another's start or compilation; parts that only compile run at the
same time. The table is printed last; with OUT set, everything is written to $OUT/gpu_proof.json, as soon as a part has ended.

`python tools/gpu_proof.py PART ARGUMENT…` runs one part and prints its figures as one line of JSON.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import math
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from gpu_parts import CELL, PAPER, PARTS, RESIZED, UNPOOLED, catalogue

TEN = 10  # runs of the paper


class Proof:
    """The parts, their figures, and the time that is left."""

    def __init__(self, minutes: float) -> None:
        self.end = time.monotonic() + 60.0 * minutes
        self.found: dict[str, Any] = {}

    def run(self, part: str, *arguments: str, most: float = 1e9) -> dict[str, Any]:
        """Run a part in a process of its own, unless the time is up."""
        name = " ".join((part, *arguments))
        left = min(most, self.end - time.monotonic())
        begun = time.monotonic()
        if left < 5.0:
            figures: dict[str, Any] = {"error": "no time left"}
        else:
            try:
                done = subprocess.run(
                    [sys.executable, __file__, part, *arguments], capture_output=True, text=True, timeout=left, check=False
                )
                lines = done.stdout.strip().splitlines()
                figures = json.loads(lines[-1]) if lines and lines[-1].startswith("{") else {"error": done.stderr[-1500:]}
            except subprocess.TimeoutExpired:
                figures = {"error": f"not done after {left:.0f} s"}
        figures["process_seconds"] = time.monotonic() - begun
        self.found[name] = figures
        print(f"[{time.monotonic() - begun:6.1f} s] {name}: {json.dumps(figures)[:300]}", flush=True)
        if os.environ.get("OUT"):
            Path(os.environ["OUT"], "gpu_proof.json").write_text(json.dumps(self.found, indent=1))
        return figures

    def at_once(self, jobs: Iterable[tuple[str, ...]], workers: int, most: float) -> None:
        """Run parts at the same time."""
        with concurrent.futures.ThreadPoolExecutor(workers) as executor:
            list(executor.map(lambda job: self.run(*job, most=most), jobs))


def prove(minutes: float) -> None:
    """Run everything, the most important first, and print the table."""
    proof = Proof(minutes)
    proof.run("about")
    # compile everything that is timed below, on all cores at once; small sizes of the same record types
    warm = [("state", name) for name in ("ucb1", RESIZED["bwc"], "exp3s", "ora")]
    proof.at_once(
        [("paper", "cuda", str(TEN)), ("paper", "cpu", "1"), ("played", "swerve", *map(str, CELL), "cuda", "1", "2"),
         *[("played", name, *map(str, CELL), "cuda", "1", "2") for name in UNPOOLED],
         *[("played", name, *map(str, CELL), "cpu", "1", "2") for name in (*UNPOOLED, "swerve")], *warm],
        os.cpu_count() or 1, 200.0,
    )  # fmt: skip
    proof.run("bits")
    proof.run("timeline", "10")
    ten = proof.run("paper", "cuda", "10")
    thousand = proof.run("paper", "cuda", "1000", most=150.0)
    cores = proof.run("paper", "cpu", "10", most=120.0)
    name, fraction = str(CELL[0]), str(CELL[1])
    for policy in UNPOOLED:
        proof.run("played", policy, name, fraction, "cuda", "200", most=60.0)
        proof.run("played", policy, name, fraction, "cpu", "16", most=60.0)
    proof.run("strides", "ts", name, "10", most=40.0)
    proof.run("strides", "swerve", name, "64", "4", most=80.0)
    proof.run("played", "swerve", name, fraction, "cpu", "64", "4", most=40.0)
    proof.at_once([("state", each) for each in catalogue() if ("state", each) not in warm], os.cpu_count() or 1, 240.0)
    print_table(proof, ten, thousand, cores)


def print_table(proof: Proof, ten: dict[str, Any], thousand: dict[str, Any], cores: dict[str, Any]) -> None:
    """Print what was found, briefly."""
    print("\n=== " + json.dumps(proof.found.get("about", {})))
    for title, figures in (("paper, 10 runs, GPU", ten), ("paper, 1,000 runs, GPU", thousand), ("paper, 10 runs, cores", cores)):
        print(f"{title:28} {figures.get('seconds', 'failed')!s:.6} s, with the process {figures['process_seconds']:.1f} s")
    both = [key for key in ten.get("digests", {}) if key in cores.get("digests", {})]
    wrong = [key for key in both if ten["digests"][key] != cores["digests"][key]]
    print(f"paper, 10 runs: {len(both) - len(wrong)} of {len(both)} cells have the bytes of the processor; others: {wrong}")
    name, fraction = map(str, CELL)
    for policy in UNPOOLED:
        on, off = (proof.found.get(f"played {policy} {name} {fraction} {where}", {}) for where in ("cuda 200", "cpu 16"))
        if "rate" in on and "rate" in off:
            same = on["digest_of_4"] == off["digest_of_4"]
            rates = f"GPU {on['rate']:7.3f} G rounds/s, cores {off['rate']:6.3f}, {on['rate'] / off['rate']:5.1f} ×"
            print(f"{policy:14} {rates}, same bytes: {same}")
    for title, spans in proof.found.get("timeline 10", {}).get("spans", {}).items():
        print(f"{title:44} {spans}")
    print_cells(thousand)
    for key, figures in proof.found.items():
        if key.startswith("strides"):
            print(key, {part: f"{value:.2f}" for part, value in figures.items() if part.startswith("stride")})
    states = {key.split()[1]: figures for key, figures in proof.found.items() if key.startswith("state")}
    cases = [(key, case) for key, figures in states.items() for case in figures.values() if isinstance(case, dict)]
    bad = sorted({key for key, case in cases if case["differs"]} | {key for key, figures in states.items() if "error" in figures})
    equal = sum(not case["differs"] for _, case in cases)
    print(f"states of {len(states)} policies: {equal} of {len(cases)} small batches equal; policies that differ or failed: {bad}")


def print_cells(figures: dict[str, Any]) -> None:
    """Print the paper's tables as Markdown: the mean regret in thousands and its 95 % interval, and below it the paper's figure.

    The last number is the distance of the paper's figure from our mean, in standard errors of a mean of ten runs.
    """
    cells = figures.get("cells", [])
    for name in PAPER:
        own = [cell for cell in cells if cell["experiment"] == name]
        settings = list(dict.fromkeys(cell["setting"] for cell in own))
        print(f"\n| {name} | " + " | ".join(f"{setting:g}" for setting in settings) + " |")
        print("|---" * (1 + len(settings)) + "|")
        for policy in dict.fromkeys(cell["policy"] for cell in own):
            line = []
            for cell in own:
                if cell["policy"] == policy:
                    mean, sd, runs, printed = (cell[key] for key in ("mean", "sd", "runs", "paper"))
                    away = (printed - mean) / (sd * math.sqrt(1 / TEN + 1 / runs))
                    line.append(
                        f"{mean / 1e3:.2f} ± {1.96 * sd / math.sqrt(runs) / 1e3:.2f}<br>{printed / 1e3:.1f} · {away:+.1f}".replace(
                            "-", "−"
                        )
                    )
            print(f"| {policy} | " + " | ".join(line) + " |")


def main() -> None:
    """Run all parts, or the one that is named."""
    if len(sys.argv) > 1 and sys.argv[1] in PARTS:
        try:
            print(json.dumps(PARTS[sys.argv[1]](*sys.argv[2:])))
        except Exception:
            print(json.dumps({"error": traceback.format_exc()[-1500:]}))
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=9.0, help="time for everything (9)")
    prove(parser.parse_args().minutes)


if __name__ == "__main__":
    main()
