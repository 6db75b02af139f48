"""Definition of an experiment as data (settings, policies, the paper's figures), and the function that runs any of them."""

from __future__ import annotations

import dataclasses
import functools
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from swerve.core.errors import SwerveError
from swerve.core.spec import Spec
from swerve.environments import Traffic
from swerve.policies import policy
from swerve.simulate import Results, SharedWorlds, Tick, simulate
from swerve.simulate.devices import CPU, Job, at_once

#: Impressions of each query in the paper's experiments.
PER_QUERY = 30_000


@dataclasses.dataclass(frozen=True)
class Setting:
    """One column of a table: the number above it, and its environment."""

    value: float
    environment: Spec


@dataclasses.dataclass(frozen=True)
class Experiment:
    """One of the paper's experiments. `paper` maps (setting, policy) to the published final regret."""

    name: str
    title: str
    axis: str
    settings: tuple[Setting, ...]
    policies: dict[str, str]
    tags: tuple[str, ...]
    paper: dict[tuple[float, str], float] = dataclasses.field(default_factory=dict)
    runs: int = 10  # as in the paper
    points: int = 100  # of a regret curve: smooth at the size of a plot
    spacing: str = "linear"

    @property
    def ids(self) -> list[str]:
        """The stable names of the settings, such as `fractions/3`."""
        return [f"{self.name}/{number}" for number in range(len(self.settings))]

    def scaled(self, impressions: int | None) -> Experiment:
        """Return the experiment with this many impressions in all (None: the published size)."""
        if impressions is None:
            return self
        return self._with(paper={}, impressions=impressions)  # the printed figures do not apply to shorter queries

    def thinned(self, queries: int) -> Experiment:
        """Return the experiment with fewer queries of full length; the printed figures shrink in proportion."""
        share = queries / min(getattr(s.environment, "queries", queries) for s in self.settings)
        paper = {key: share * value for key, value in self.paper.items()}
        return self._with(paper=paper, queries=queries, impressions=queries * PER_QUERY)

    def _with(self, paper: dict[tuple[float, str], float], **changes: Any) -> Experiment:
        settings = []
        for setting in self.settings:
            if not isinstance(setting.environment, Traffic):
                raise SwerveError(f"{self.name}: its size cannot be set, because its settings are horizons")
            settings.append(Setting(setting.value, dataclasses.replace(setting.environment, **changes)))
        return dataclasses.replace(self, settings=tuple(settings), paper=paper)

    def cells(self) -> Iterator[tuple[Setting, str, Spec]]:
        """Yield every setting with every policy, tuned to the setting's problem."""
        for setting in self.settings:
            environment = setting.environment
            arms = int(getattr(environment, "results", 0) or getattr(environment, "arms", 2))
            horizon = int(getattr(environment, "rounds_per_query", PER_QUERY))
            for name, text in self.policies.items():
                yield setting, name, policy(text, arms=arms, horizon=horizon)


@dataclasses.dataclass(frozen=True)
class Cell:
    """The results of one policy at one setting."""

    experiment: str
    setting: float
    policy: str
    results: Results
    paper: float | None = None

    @property
    def mean(self) -> float:
        """Mean final regret."""
        return float(self.results.regret.mean())

    @property
    def sd(self) -> float:
        """Standard deviation over the runs."""
        return float(self.results.regret.std(ddof=1)) if len(self.results.runs) > 1 else 0.0

    @property
    def error(self) -> float:
        """Standard error of the mean."""
        return self.sd / math.sqrt(len(self.results.runs))

    @property
    def ratio(self) -> float | None:
        """Ours ÷ the paper's."""
        return None if self.paper is None else self.mean / self.paper

    def as_row(self) -> dict[str, Any]:
        """Return the cell for JSON."""
        return {
            "experiment": self.experiment,
            "setting": self.setting,
            "policy": self.policy,
            "mean": self.mean,
            "sd": self.sd,
            "runs": len(self.results.runs),
            "paper": self.paper,
            "ratio": self.ratio,
        }


def total_rounds(experiment: Experiment, runs: int) -> int:
    """Return the number of rounds that an experiment plays, for a progress bar."""
    per_setting = sum(int(getattr(s.environment, "impressions", 0)) for s in experiment.settings)
    return runs * len(experiment.policies) * per_setting


def run(experiment: Experiment, **options: Any) -> list[Cell]:
    """Run an experiment; the options are those of `run_all`."""
    return run_all([experiment], **options)


def run_all(
    experiments: Sequence[Experiment],
    *,
    runs: int | None = None,
    seed: int = 0,
    threads: int | None = None,
    device: str = CPU,
    out: Path | None = None,
    progress: Callable[[Tick], None] | None = None,
) -> list[Cell]:
    """Run experiments cell by cell, on a GPU or a cluster many cells at once; runs that are already on disk are read."""
    stop = threading.Event()
    jobs = [(experiment, *cell) for experiment in experiments for cell in experiment.cells()]
    shared = SharedWorlds(setting.environment for _, setting, *_ in jobs)

    def play(number: int, device: str) -> Cell:
        experiment, setting, name, spec = jobs[number]
        with shared.of(setting.environment) as worlds:
            results = simulate(
                spec, setting.environment, runs=runs or experiment.runs, seed=seed, points=experiment.points,
                spacing=experiment.spacing, threads=threads, device=device, out=out, progress=progress, stop=stop, worlds=worlds,
            )  # fmt: skip
        return Cell(experiment.name, setting.value, name, results, experiment.paper.get((setting.value, name)))

    todo = [
        Job(functools.partial(play, number), spec, setting.environment, runs or experiment.runs)
        for number, (experiment, setting, _, spec) in enumerate(jobs)
    ]
    return at_once(todo, device, stop)
