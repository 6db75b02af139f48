"""Theorems 5 and 6 as experiments: the growth of regret with T on families of instances that are hard for every policy."""

from __future__ import annotations

import dataclasses
import functools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from swerve.bandits import UCB1, Testable
from swerve.classifiers import Rectangle
from swerve.core.spec import Spec
from swerve.environments import FalsePositives, ManyPhases, SingleEvent, world
from swerve.policies import BWC, Oracle
from swerve.simulate import SharedWorlds, Tick, simulate
from swerve.simulate.devices import CPU, Job, at_once
from swerve.theory import test_length

HORIZONS = (10_000, 31_623, 100_000, 316_228, 1_000_000)  # half a decade apart, for a slope over two decades
RUNS = 10  # per instance, as in the paper's experiments
SPREAD = 5  # instances with an event that are tried, evenly spaced, beside the one without
SINGLE_SHIFT = 0.4  # ε of Theorem 5's family
MANY_PHASES, MANY_ARMS, MANY_SHIFT = 5, 5, 0.2  # of Theorem 6 (i)'s family; arms differ by twice the shift
FALSE_FEATURES, FALSE_MARGIN = 1, 0.25  # of Theorem 6 (ii)'s family: d_F = 8
FALSE_SHIFT = 0.08  # the shift that tests of Theorem 6 (ii)'s family must detect
MARGIN = 0.1  # of the rectangles on the families without contexts of their own
SMALLEST = 1e-9  # regret below this counts as this: log 0 is undefined


@dataclasses.dataclass(frozen=True)
class Family:
    """A lower-bound family: its claim, the instances of a horizon, and the shift that tests must be able to detect."""

    name: str
    title: str
    bound: str
    shift: float
    margin: float
    make: Callable[[int, int], Spec]
    phases: Callable[[int], int]

    def instances(self, horizon: int) -> list[Spec]:
        """Return instance 0 and a few others, evenly spaced; instance 1 has no event and is left out."""
        last = self.phases(horizon)
        numbers = sorted({0, *np.linspace(2, last, SPREAD).round().astype(int).tolist()}) if last >= 2 else [0]
        return [self.make(horizon, number) for number in numbers]

    def policies(self, horizon: int, arms: int) -> dict[str, Spec]:
        """Return UCB1, BWC with L = 4·n/ε²·ln T, and ORA."""
        length = min(test_length(arms, self.shift, horizon), horizon // 2)
        bwc = BWC(Testable(UCB1(), length=length, epsilon=self.shift), Rectangle(margin=self.margin))
        return {"ucb1": UCB1(), "bwc": bwc, "ora": Oracle(UCB1())}


def _single(horizon: int, instance: int) -> Spec:
    return SingleEvent(horizon=horizon, epsilon=SINGLE_SHIFT, instance=instance)


def _many(horizon: int, instance: int) -> Spec:
    return ManyPhases(horizon=horizon, arms=MANY_ARMS, phases=MANY_PHASES, epsilon=MANY_SHIFT)


def _false(horizon: int, instance: int) -> Spec:
    return FalsePositives(horizon=horizon, features=FALSE_FEATURES, margin=FALSE_MARGIN, instance=instance)


FAMILIES = (
    Family(
        "single-event", "Theorem 5: one event, two arms, ε = 0.4", "Ω(ε√T) without contexts", SINGLE_SHIFT, MARGIN, _single,
        lambda horizon: SingleEvent(horizon=horizon, epsilon=SINGLE_SHIFT, instance=0).phases,
    ),
    Family(
        "many-phases", "Theorem 6 (i): 5 phases, 5 arms, gaps 0.4", "Ω(k·n/ε·ln(T/k))", 2 * MANY_SHIFT, MARGIN, _many,
        lambda horizon: 0,
    ),
    Family(
        "false-positives", "Theorem 6 (ii): d_F = 8 contexts that may be events", "Ω(T^(1/3)) or Ω(d_F·ln T)", FALSE_SHIFT,
        FALSE_MARGIN, _false,
        lambda horizon: FalsePositives(horizon=horizon, features=FALSE_FEATURES, margin=FALSE_MARGIN, instance=0).phases,
    ),
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Growth:
    """A policy's regret on its worst instance at each horizon, and the exponent of its growth."""

    family: str
    policy: str
    horizons: tuple[int, ...]
    means: tuple[float, ...]
    sds: tuple[float, ...]
    runs: int

    @property
    def exponent(self) -> float:
        """The slope of log regret over log T."""
        if len(self.horizons) < 2:
            return float("nan")
        return float(np.polyfit(np.log(self.horizons), np.log(np.maximum(self.means, SMALLEST)), 1)[0])

    def as_rows(self) -> Iterator[dict[str, Any]]:
        """Yield the points for JSON."""
        for horizon, mean, sd in zip(self.horizons, self.means, self.sds, strict=True):
            yield {
                "experiment": f"lower-bounds/{self.family}",
                "setting": horizon,
                "policy": self.policy,
                "mean": mean,
                "sd": sd,
                "runs": self.runs,
                "paper": None,
                "ratio": None,
            }


def jobs(horizons: tuple[int, ...]) -> list[tuple[Family, int, str, Spec, Spec]]:
    """Return everything to play: family, horizon, policy's name and spec, instance."""
    out = []
    for family in FAMILIES:
        for horizon in horizons:
            for instance in family.instances(horizon):
                arms = world(instance, 0).arms
                out += [(family, horizon, name, spec, instance) for name, spec in family.policies(horizon, arms).items()]
    return out


def run(
    *,
    runs: int = RUNS,
    seed: int = 0,
    horizons: tuple[int, ...] = HORIZONS,
    threads: int | None = None,
    device: str = CPU,
    out: Path | None = None,
    progress: Callable[[Tick], None] | None = None,
) -> list[Growth]:
    """Play all families at all horizons, on a GPU or a cluster many at once; return each policy's regret on its worst instance."""
    stop = threading.Event()
    todo = jobs(horizons)
    shared = SharedWorlds(instance for *_, instance in todo)

    def play(number: int, device: str) -> tuple[float, float]:
        *_, spec, instance = todo[number]
        with shared.of(instance) as worlds:
            results = simulate(
                spec, instance, runs=runs, seed=seed, points=1, threads=threads, device=device, out=out, progress=progress,
                stop=stop, worlds=worlds,
            )  # fmt: skip
        return float(results.regret.mean()), float(results.regret.std(ddof=1)) if runs > 1 else 0.0

    parts = [Job(functools.partial(play, number), spec, instance, runs) for number, (*_, spec, instance) in enumerate(todo)]
    played = at_once(parts, device, stop)
    worst: dict[tuple[str, str, int], tuple[float, float]] = {}
    for (family, horizon, name, *_), found in zip(todo, played, strict=True):
        key = (family.name, name, horizon)
        worst[key] = max(worst.get(key, (0.0, 0.0)), found)
    return [
        Growth(
            family.name,
            name,
            horizons,
            tuple(worst[family.name, name, horizon][0] for horizon in horizons),
            tuple(worst[family.name, name, horizon][1] for horizon in horizons),
            runs,
        )
        for family in FAMILIES
        for name in ("ucb1", "bwc", "ora")
    ]
