"""The parts of tools/gpu_proof.py: each plays or compiles something, and returns its figures."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import platform
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PAPER = ("fractions", "features")
#: Policies of the default cells of `swerve compare` that pool nothing, and the one that does.
UNPOOLED = ("oracle-ts", "glr-ts", "cusum-klucb", "ts")
CELL = ("mixed-noisy", 0.5)
#: Queries, and rounds of each, of batches that the simulator of a GPU can play.
SMALL = (3, 300)
#: The hull's domain is a ball, which must hold the contexts; shorter tests let BWC learn in few rounds.
RESIZED = {"bwc-hull": "bwc-hull(radius=4, length=20)", "bwc": "bwc(length=20)"}
#: In a kernel's assembly: a product and a sum in one rounding, and functions whose last place differs from the processor's.
BAD = re.compile(r"\bfma\.\w+\.f64|__nv_\w+")


def catalogue() -> list[str]:
    """Return all policies of the catalogue, with settings in which they can play small problems."""
    from swerve.policies import POLICIES

    return [RESIZED.get(name, name) for name in POLICIES]


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
    if device == "cuda":
        from swerve.core import gpu_driver

        gpu_driver.begin()  # as the command does
    from swerve.experiments import EXPERIMENTS, run_all

    begun = time.perf_counter()
    cells = run_all([EXPERIMENTS[name] for name in PAPER], runs=int(runs), device=device)
    return {
        "seconds": time.perf_counter() - begun,
        "digests": {f"{cell.experiment}/{cell.setting:g}/{cell.policy}": digest(cell.results) for cell in cells},
        "cells": [{**cell.as_row(), "error": cell.error} for cell in cells],
    }


def played(policy: str, where: str, fraction: str, device: str, runs: str, queries: str = "100") -> dict[str, Any]:
    """Play one policy on a workload, twice: the first time may compile, and draws the instances."""
    from swerve.environments import workload
    from swerve.experiments.compare import sized, tuning
    from swerve.policies import policy as named
    from swerve.simulate import Worlds, simulate

    problem = sized(workload(where, float(fraction)), int(queries) if queries != "100" else None, None)
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


def compared(runs: str) -> dict[str, Any]:
    """Play the default cells of `swerve compare` on the GPU."""
    from swerve.cli.compare import DEFAULT_POLICIES, chosen_workloads
    from swerve.experiments.compare import compare

    begun = time.perf_counter()
    found = compare(DEFAULT_POLICIES, chosen_workloads(()), runs=int(runs), device="cuda")
    rows = [(row.workload, row.fraction, row.policy, row.ratio, row.ratio_low, row.ratio_high, row.seconds) for row in found.rows]
    return {"seconds": time.perf_counter() - begun, "rows": rows}


def strides(policy: str, where: str, runs: str, queries: str = "100", rounds: str = "30000", *tried: str) -> dict[str, Any]:
    """Time a policy with so many threads for each one that plays."""
    from swerve.environments import workload
    from swerve.experiments.compare import sized, tuning
    from swerve.policies import policy as named
    from swerve.simulate import Worlds, gpu, simulate

    problem = sized(workload(where, 0.5), int(queries), int(queries) * int(rounds))
    worlds, out = Worlds(problem, room=1 << 36), {}
    spec = named(policy, **tuning(problem, 100))
    simulate(spec, problem, runs=1, seed=100, device="cuda", worlds=Worlds(problem))
    for stride in map(int, tried or ("32", "8", "1")):
        gpu.stride_of = lambda tasks, stride=stride: stride
        for _ in range(2):
            begun = time.perf_counter()
            results = simulate(spec, problem, runs=int(runs), seed=100, device="cuda", worlds=worlds)
            out[f"stride {stride}"] = time.perf_counter() - begun
    return {**out, "digest": digest(results)}


def problems(queries: int, rounds: int) -> list[Any]:
    """Return an environment for each way to spread the work: queries one after the other, in any order, and pages."""
    from swerve.environments import Pages, Traffic

    traffic = Traffic(queries=queries, impressions=queries * rounds, shifting_share=0.5, features=6)
    half = max(2, queries // 2)
    return [
        traffic,
        dataclasses.replace(traffic, order="uniform"),
        Pages(queries=half, impressions=half * max(1, rounds // 2), results=10, slots=4, features=4),
    ]


def tuned(policy: str, problem: Any, drawn: Any) -> Any:
    """Return a policy of the catalogue for a problem; None if it cannot play there: pages and one slot differ."""
    from swerve.core.errors import SwerveError
    from swerve.experiments.compare_pages import page_tuning
    from swerve.policies import policy as named
    from swerve.simulate.results import Plan
    from swerve.simulate.runner import check

    try:
        spec = named(policy, arms=drawn.arms, horizon=int(drawn.rounds.max()), **page_tuning(problem))
        check(Plan(spec, problem), 1, None)
    except SwerveError:
        return None
    return spec


def state(policy: str, queries: str = "12", rounds: str = "2000") -> dict[str, Any]:
    """Compare the bytes of rows, pools, cursors, counters and curves of a small batch with those of the processor."""
    from swerve.core.errors import SwerveError
    from swerve.environments import world
    from swerve.simulate import Session, spread
    from swerve.simulate.results import Plan
    from swerve.simulate.runner import checkpoints

    out: dict[str, Any] = {}
    for number, problem in enumerate(problems(int(queries), int(rounds))):
        worlds = [world(problem, seed) for seed in range(4 if int(queries) > SMALL[0] else 2)]
        spec = tuned(policy, problem, worlds[0])
        if spec is None:
            out[str(number)] = "not for this problem"
            continue
        try:
            sessions = [Session(spec, drawn) for drawn in worlds]
            marks = checkpoints(len(worlds[0].schedule), 5)
            curves = [[(session.play(int(mark)), session.regret)[1] for mark in marks] for session in sessions]
        except SwerveError as error:  # what the processor refuses
            out[str(number)] = f"not played: {error}"
            continue
        begun, plan = time.perf_counter(), Plan(spec, problem)
        batch = spread.Batch(plan, spread.instances_for(plan, worlds.__getitem__, len(worlds)), marks)
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


def small(*policies: str) -> dict[str, Any]:
    """Compare small batches with the interpreted loop, for the simulator of a GPU (NUMBA_ENABLE_CUDASIM=1)."""
    from swerve.core.engine import Entry

    Entry.bind = lambda entry, *specs, variant="": entry.plain  # type: ignore[method-assign]
    return {policy: state(policy, *map(str, SMALL)) for policy in policies}


def ptx(*policies: str) -> dict[str, Any]:
    """Compile to the GPU's assembly without a GPU: no contraction (fma), no function of NVIDIA's library (__nv_…)."""
    import numpy as np

    from swerve.environments import world
    from swerve.simulate import gpu, spread
    from swerve.simulate.gpu_compiler import translated
    from swerve.simulate.results import Plan
    from swerve.simulate.runner import checkpoints

    gpu.on_device = np.ascontiguousarray  # only the types matter
    gpu.empty = lambda shape, dtype: np.zeros(shape, dtype)  # type: ignore[misc]
    gpu.put, gpu.wait = lambda out, begin, array: None, lambda: None  # type: ignore[misc]
    gpu.kind_of = lambda it: (it.dtype, it.ndim) if isinstance(it, np.ndarray) else type(it)  # type: ignore[misc]
    found: dict[str, Any] = {}
    for policy in policies:
        for number, problem in enumerate(problems(*SMALL)):
            drawn = world(problem, 0)
            spec = tuned(policy, problem, drawn)
            if spec is None:
                continue
            plan = Plan(spec, problem)
            batch = spread.Batch(plan, spread.instances_for(plan, [drawn].__getitem__, 1), checkpoints(len(drawn.schedule), 5))
            function, arguments = batch.kernel()
            kinds = [gpu.kind_of(item) for item in (1, *arguments(np.arange(batch.tasks), np.repeat(batch.fresh, batch.tasks)))]
            _, text = translated(function, kinds, (9, 0), "asm")
            found[f"{policy} {number}"] = {"way": batch.way, "size": len(text), "bad": sorted(set(BAD.findall(text)))}
    return found


def bits() -> dict[str, Any]:
    """Compute digests of elementary functions, which tests/core/test_elementary.py pins, and of drawn instances."""
    import numpy as np

    from swerve.core import elementary
    from swerve.core.engine import Entry
    from swerve.environments import world

    @Entry
    def tabulate(xs: Any, ys: Any, out: Any) -> None:
        for i in range(len(xs)):
            out[0, i] = elementary.log(xs[i])
            out[1, i] = elementary.exp(ys[i])
            out[2, i] = elementary.log1p(xs[i])
            out[3, i] = elementary.power(xs[i], ys[i])
            out[4, i] = elementary.sine(ys[i])

    steps = np.arange(1, 200_001, dtype=np.float64)
    xs, ys, out = steps / 65536, (steps - 100_000) / 1024, np.zeros((5, len(steps)))
    tabulate.bind()(xs, ys, out)
    names = ("log", "exp", "log1p", "power", "sine")
    digests = {name: hashlib.sha256(line.tobytes()).hexdigest()[:16] for name, line in zip(names, out, strict=True)}
    for number, problem in enumerate(problems(12, 2000)):
        drawn = world(problem, 7)
        hashed = hashlib.sha256()
        for table in (drawn.schedule, drawn.cursors, drawn.segments, drawn.scene):
            hashed.update(table.tobytes())
        digests[f"world {number}"] = hashed.hexdigest()[:16]
    return {"machine": platform.processor() or platform.machine(), "model": model_name(), **digests}


def model_name() -> str:
    """Return the processor's name."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")


def timeline(runs: str = "10") -> dict[str, Any]:
    """Play the paper on the GPU, and say where the time goes: each part's first begin, last end and total, over all threads."""
    from swerve.core import gpu_driver

    begun = time.perf_counter()
    spans: dict[str, list[tuple[float, float]]] = {}

    def timed(owner: Any, name: str, title: str) -> None:
        plain = getattr(owner, name)

        def wrapped(*arguments: Any, **named: Any) -> Any:
            start = time.perf_counter()
            try:
                return plain(*arguments, **named)
            finally:
                spans.setdefault(title, []).append((start - begun, time.perf_counter() - begun))

        setattr(owner, name, wrapped)

    timed(gpu_driver.Driver, "__init__", "start of the driver")
    gpu_driver.begin()
    from swerve.experiments import EXPERIMENTS, run_all

    spans["import experiments"] = [(0.0, time.perf_counter() - begun)]
    from swerve.simulate import devices, gpu, spread

    timed(devices, "instances_of", "instances")
    timed(spread, "kernel_of", "kernel, its fingerprint")
    timed(spread.Batch, "kernel", "arguments")
    timed(spread.Batch, "_wrong", "joining, with the wait for a wave")
    timed(spread.Batch, "results", "results, with the wait for the kernel")
    timed(gpu.Kernel, "launch", "launches, the first of each with loading")
    timed(gpu.Kernel, "_code", "reading or compiling a kernel")
    waves: list[int] = []
    plain_play = spread.Batch.play

    def play(batch: Any) -> None:
        plain_play(batch)
        waves.append(batch.waves)

    spread.Batch.play = play  # type: ignore[method-assign]
    run_all([EXPERIMENTS[name] for name in PAPER], runs=int(runs), device="cuda")
    table = {
        title: {
            "first": round(min(span[0] for span in lines), 3), "last": round(max(span[1] for span in lines), 3),
            "sum": round(sum(span[1] - span[0] for span in lines), 3), "longest": round(max(s[1] - s[0] for s in lines), 3),
            "calls": len(lines),
        }
        for title, lines in spans.items()
    }  # fmt: skip
    return {"seconds": time.perf_counter() - begun, "waves": sorted(waves), "spans": table}


PARTS: dict[str, Callable[..., dict[str, Any]]] = {
    part.__name__: part for part in (about, bits, compared, paper, played, ptx, small, state, strides, timeline)
}
