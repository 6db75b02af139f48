"""Prove the GPU against the processor and time both: `python tools/gpu_proof.py [--minutes 9]`, on a machine with a GPU.

Every part runs in a process of its own, so that none can hide another's start or compilation; parts that only compile run at the
same time. The table is printed last; with OUT set, everything is written to $OUT/gpu_proof.json, as soon as a part has ended.

`python tools/gpu_proof.py PART ARGUMENT…` runs one part and prints its figures as one line of JSON.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import hashlib
import json
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

PAPER = ("fractions", "features")
#: Policies of the default cells of `swerve compare` that pool nothing, and the one that does.
UNPOOLED = ("oracle-ts", "glr-ts", "cusum-klucb", "ts")
CELL = ("mixed-noisy", 0.5)
PAGES = ("list-ts", "oracle-list", "bubble", "swerve")


# ---------------------------------------------------------------- parts: each returns its figures


def digest(results: Any) -> str:
    """Return a digest of every number of every run."""
    hashed = hashlib.sha256()
    for run in results.runs:
        hashed.update(run.regret.tobytes() + run.clicks.tobytes() + json.dumps(run.counts, sort_keys=True).encode())
    return hashed.hexdigest()[:16]


def about() -> dict[str, Any]:
    """Name the machine."""
    import numba
    import numpy

    from swerve.simulate import gpu

    reason = gpu.missing()
    return {
        "gpu": gpu.name() if reason is None else reason, "cores": os.cpu_count(), "python": sys.version.split()[0],
        "numpy": numpy.__version__, "numba": numba.__version__, "numba-cuda": gpu.version(),
    }  # fmt: skip


def paper(device: str, runs: str) -> dict[str, Any]:
    """Play the paper's tables (b) and (c)."""
    from swerve.experiments import EXPERIMENTS, run

    begun = time.perf_counter()
    cells, seconds = [], {}
    for name in PAPER:
        part = time.perf_counter()
        cells += run(EXPERIMENTS[name], runs=int(runs), device=device)
        seconds[name] = time.perf_counter() - part
    return {
        "seconds": time.perf_counter() - begun, "parts": seconds,
        "digests": {f"{cell.experiment}/{cell.setting:g}/{cell.policy}": digest(cell.results) for cell in cells},
        "cells": [cell.as_row() for cell in cells],
    }  # fmt: skip


def played(policy: str, where: str, fraction: str, device: str, runs: str, queries: str = "100") -> dict[str, Any]:
    """Play one policy on a workload, twice: the first time may compile, and draws the instances."""
    from swerve.environments import workload
    from swerve.experiments.compare import sized, tuning
    from swerve.policies import policy as named
    from swerve.simulate import Worlds, simulate

    problem = sized(where, float(fraction), int(queries), None) if queries != "100" else workload(where, float(fraction))
    worlds, count = Worlds(problem, room=1 << 36), int(runs)
    spec = named(policy, **tuning(problem, 100))
    out: dict[str, Any] = {}
    for name in ("first", "again"):
        begun = time.perf_counter()
        results = simulate(spec, problem, runs=count, seed=100, device=device, worlds=worlds)
        out[f"{name}_seconds"] = time.perf_counter() - begun
    rounds = sum(int(run.rounds[-1]) for run in results.runs)
    shorter = dataclasses.replace(results, runs=results.runs[:4])
    return {
        **out,
        "rounds": rounds,
        "rate": rounds / out["again_seconds"] / 1e9,
        "digest_of_4": digest(shorter),
        "digest": digest(results),
    }


def strides(policy: str, where: str, runs: str, queries: str = "100") -> dict[str, Any]:
    """Time a policy with 1, 4 and 32 threads for each one that plays."""
    from swerve.environments import workload
    from swerve.experiments.compare import sized, tuning
    from swerve.policies import policy as named
    from swerve.simulate import Worlds, gpu, simulate

    problem = sized(where, 0.5, int(queries), None) if queries != "100" else workload(where, 0.5)
    worlds, out = Worlds(problem, room=1 << 36), {}
    spec = named(policy, **tuning(problem, 100))
    for stride in (32, 8, 1):
        gpu.stride_of = lambda tasks, stride=stride: stride
        for _ in range(2):
            begun = time.perf_counter()
            results = simulate(spec, problem, runs=int(runs), seed=100, device="cuda", worlds=worlds)
            out[f"stride {stride}"] = time.perf_counter() - begun
    return {**out, "digest": digest(results)}


def state(policy: str) -> dict[str, Any]:
    """Compare the bytes of rows, pools, cursors, counters and curves of a small batch with those of the processor."""
    from swerve.environments import Pages, Traffic, world
    from swerve.experiments.compare_pages import page_tuning
    from swerve.policies import policy as named
    from swerve.simulate import Session, spread
    from swerve.simulate.results import Plan
    from swerve.simulate.runner import checkpoints

    traffic = Traffic(queries=12, impressions=24_000, shifting_share=0.5, features=6)
    problems = [
        traffic,
        dataclasses.replace(traffic, order="uniform"),
        Pages(queries=6, impressions=6000, results=10, slots=4, features=4),
    ]
    out: dict[str, Any] = {}
    for number, problem in enumerate(problems):
        worlds = [world(problem, seed) for seed in range(4)]
        tuned = {"arms": worlds[0].arms, "horizon": int(worlds[0].rounds.max()), **page_tuning(problem)}
        try:
            spec = named(policy, **tuned)
            sessions = [Session(spec, drawn) for drawn in worlds]
            marks = checkpoints(len(worlds[0].schedule), 5)
            curves = [[(session.play(int(mark)), session.regret)[1] for mark in marks] for session in sessions]
        except Exception as error:  # a policy for pages cannot play one slot, and the other way round
            out[str(number)] = f"not played: {type(error).__name__}"
            continue
        begun = time.perf_counter()
        batch = spread.Batch(Plan(spec, problem), spread.Instances(worlds), marks)
        batch.play()
        differing = set()
        for run, session in enumerate(sessions):
            ours = {**session.state, "pools": session.fleet.pools[:-1].tobytes()}
            theirs = batch.state(run)
            differing |= {name for name in ours if ours[name] != theirs[name]}
        if batch.curves()[0].tolist() != curves:
            differing.add("curves")
        out[str(number)] = {
            "way": batch.way,
            "waves": batch.waves,
            "differs": sorted(differing),
            "seconds": time.perf_counter() - begun,
        }
    return out


PARTS: dict[str, Callable[..., dict[str, Any]]] = {
    "about": about, "paper": paper, "played": played, "state": state, "strides": strides,
}  # fmt: skip


# ---------------------------------------------------------------- all parts


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
    from swerve.policies.catalog import POLICIES

    # compile everything that is timed below, on all cores at once; small sizes of the same record types
    warm = [("state", name) for name in ("ucb1", "bwc", "exp3s", "ora")]
    proof.at_once(
        [("paper", "cuda", "1"), ("paper", "cpu", "1"), ("played", "swerve", *map(str, CELL), "cuda", "1", "2"),
         *[("played", name, *map(str, CELL), "cuda", "1", "2") for name in UNPOOLED],
         *[("played", name, *map(str, CELL), "cpu", "1", "2") for name in (*UNPOOLED, "swerve")], *warm],
        os.cpu_count() or 1, 200.0,
    )  # fmt: skip
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
    proof.at_once([("state", each) for each in POLICIES if ("state", each) not in warm], os.cpu_count() or 1, 240.0)
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
    for key, figures in proof.found.items():
        if key.startswith("strides"):
            print(key, {part: f"{value:.2f}" for part, value in figures.items() if part.startswith("stride")})
    states = {key.split()[1]: figures for key, figures in proof.found.items() if key.startswith("state")}
    cases = [(key, case) for key, figures in states.items() for case in figures.values() if isinstance(case, dict)]
    bad = sorted({key for key, case in cases if case["differs"]} | {key for key, figures in states.items() if "error" in figures})
    equal = sum(not case["differs"] for _, case in cases)
    print(f"states of {len(states)} policies: {equal} of {len(cases)} small batches equal; policies that differ or failed: {bad}")


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
