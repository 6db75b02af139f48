"""Results of runs: curves, counters, and Parquet files that record their origin."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from swerve.core.engine import Entry
from swerve.core.errors import SwerveError, nearest
from swerve.core.spec import Spec
from swerve.environments.browsing import browse
from swerve.simulate.loop import play
from swerve.simulate.pages import play_pages

#: Hexadecimal digits of a plan's digest in a file name.
DIGITS = 12


def entry_of(environment: Spec) -> Entry:
    """Return the loop that plays an environment: the one for pages if it has pages."""
    return play_pages if browse.knows(environment) else play


@dataclasses.dataclass(frozen=True)
class Plan:
    """Everything that a run's result depends on, except the seed."""

    policy: Spec
    environment: Spec
    pooling: str | int | tuple[int, ...] = "shared"
    points: int = 100
    spacing: str = "linear"

    def as_text(self) -> dict[str, str]:
        """Return the plan as text that `swerve.parse` reads back."""
        return {field.name: str(getattr(self, field.name)) for field in dataclasses.fields(self)}

    @functools.cached_property
    def digest(self) -> str:
        """Return a digest of the plan and of the code that plays it: results of other code have another digest."""
        text = json.dumps([self.as_text(), entry_of(self.environment).digest(self.policy, self.environment)], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:DIGITS]


@dataclasses.dataclass(frozen=True)
class Run:
    """One run: cumulative regret and clicks at the checkpoints, counters at the end, and the facts of its instance."""

    seed: int
    rounds: NDArray[np.int64]
    regret: NDArray[np.float64]
    clicks: NDArray[np.float64]
    counts: dict[str, Any]
    facts: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Results:
    """The runs of one plan, in the order of their seeds."""

    plan: Plan
    runs: list[Run]

    @property
    def rounds(self) -> NDArray[np.int64]:
        """Return the checkpoints."""
        return self.runs[0].rounds

    @property
    def curves(self) -> NDArray[np.float64]:
        """Return the cumulative regret: one row per run, one column per checkpoint."""
        return np.stack([run.regret for run in self.runs])

    @property
    def regret(self) -> NDArray[np.float64]:
        """Return the final regret of each run."""
        return np.array([run.regret[-1] for run in self.runs])

    def count(self, name: str) -> NDArray[np.float64]:
        """Return one counter of all runs: `true_alarms`, `false_alarms`, `misses`, `wrong_false_labels`, `restarts`, …"""
        known = list(self.runs[0].counts) if self.runs else []
        if self.runs and name not in known:
            raise SwerveError(f"unknown counter {name!r}{nearest(str(name), known)} (known: {', '.join(known)})")
        return np.array([run.counts[name] for run in self.runs], dtype=np.float64)

    def summary(self) -> dict[str, Any]:
        """Return mean and standard deviation of the regret, and the mean of every counter. With one run `sd` is None."""
        if not self.runs:
            raise SwerveError("there is nothing to summarise: no run has finished")
        regret = self.regret
        spread = float(regret.std(ddof=1)) if len(regret) > 1 else None
        counters = {name: float(self.count(name).mean()) for name in self.runs[0].counts}
        return {
            **self.plan.as_text(),
            "runs": len(self.runs),
            "seed": self.runs[0].seed,
            "seeds": [run.seed for run in self.runs],
            "mean": float(regret.mean()),
            "sd": spread,
            "counters": counters,
        }


def run_path(folder: Path, plan: Plan, seed: int) -> Path:
    """Return the path of a run's file."""
    return folder / f"{type(plan.policy).__name__.lower()}-{plan.digest}-{seed}.parquet"


def write_run(folder: Path, plan: Plan, run: Run) -> Path:
    """Write a run atomically."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from swerve.version import __version__

    about = {**plan.as_text(), "seed": run.seed, "counts": run.counts, "facts": run.facts, "version": __version__}
    table = pa.table({"round": run.rounds, "regret": run.regret, "clicks": run.clicks})
    table = table.replace_schema_metadata({"swerve": json.dumps(about, sort_keys=True)})
    folder.mkdir(parents=True, exist_ok=True)
    path = run_path(folder, plan, run.seed)
    part = path.with_suffix(f".{os.getpid()}.part")
    pq.write_table(table, part)
    part.replace(path)
    return path


def read_run(folder: Path, plan: Plan, seed: int) -> Run | None:
    """Read a stored run; return None when there is none."""
    path = run_path(folder, plan, seed)
    return read_file(path)[1] if path.exists() else None


def read_file(path: Path) -> tuple[dict[str, Any], Run]:
    """Read a run's file; return its metadata and the run."""
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
        about = json.loads(table.schema.metadata[b"swerve"])
        columns = {name: table[name].to_numpy() for name in ("round", "regret", "clicks")}
    except Exception as error:
        raise SwerveError(f"{path} is not a run of Swerve: {error}; remove it and run again") from error
    return about, Run(about["seed"], columns["round"], columns["regret"], columns["clicks"], about["counts"], about["facts"])
