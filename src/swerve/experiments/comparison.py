"""The result of a comparison: a row for each policy in each cell, and standings over all cells."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from swerve.core.errors import SwerveError
from swerve.experiments.compare_pages import ORACLE
from swerve.experiments.intervals import Values, band

Cell = tuple[str, float | None]
Curves = tuple[NDArray[np.int64], Values]


@dataclasses.dataclass(frozen=True)
class Row:
    """One policy in one cell. Figures that a single run cannot give (`sd`, intervals) are None.

    `ratio` is the policy's mean regret ÷ the oracle's. `difference` is the mean regret of the policy `against` − its own: negative
    if the policy `against` does better, None in that policy's own row. `rank` counts from 1, the least regret; equal means share
    a rank.

    The last figures are those of pages, None for other workloads: `harm` is the value lost to the given order in the first 200
    impressions of a query, in % of the given order's, as the mean and the 90th percentile over the queries; `recovered` is the
    median number of impressions until a page is at 95 % of the best again after an event (None: most never are), `churn` the
    number of slots that change from page to page, `top_regret` the attractiveness lost on the top slot alone. Each is the mean over
    the runs, `recovered` the median. `clicks` are the clicks on all slots in a run, and `gained` is their number − that of the
    policy `against`, run by run; None in that policy's own row. `searches` are those with at least one click.
    """

    workload: str
    fraction: float | None
    policy: str
    mean: float
    sd: float | None
    runs: int
    seed: int
    ratio: float | None
    ratio_low: float | None
    ratio_high: float | None
    against: str
    difference: float | None
    difference_low: float | None
    difference_high: float | None
    rank: int
    seconds: float
    oracle: str = ORACLE
    harm: float | None = None
    harm_p90: float | None = None
    recovered: float | None = None
    churn: float | None = None
    top_regret: float | None = None
    clicks: float | None = None
    gained: float | None = None
    gained_low: float | None = None
    gained_high: float | None = None
    searches: float | None = None
    searches_gained: float | None = None
    searches_gained_low: float | None = None
    searches_gained_high: float | None = None

    @property
    def paged(self) -> bool:
        """Whether the figures of pages are there."""
        return self.harm is not None

    @property
    def decided(self) -> int:
        """−1 if the whole interval of the difference lies below 0, 1 if it lies above, otherwise 0."""
        if self.difference_low is not None and self.difference_low > 0.0:
            return 1
        return -1 if self.difference_high is not None and self.difference_high < 0.0 else 0

    def as_dict(self) -> dict[str, Any]:
        """Return the row for JSON."""
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class Standing:
    """A policy over all cells. `better` and `worse` count the cells in which the policy `against` is certainly so."""

    policy: str
    ratio: float | None  # geometric mean: a ratio of 2 and one of 1/2 balance
    worst: float | None
    where: str
    rank: float
    better: int
    worse: int


@dataclasses.dataclass(frozen=True)
class Comparison:
    """The result of a comparison, with every run's final regret and regret curve, the oracle's too, for further analyses.

    A curve is the checkpoints, and the regret at them: one row per run.
    """

    policies: tuple[str, ...]
    against: str
    runs: int
    seed: int
    rows: list[Row]
    regrets: dict[tuple[str, float | None, str], Values]
    curves: dict[tuple[str, float | None, str], Curves] = dataclasses.field(default_factory=dict)

    @property
    def cells(self) -> list[Cell]:
        """The workload and fraction of every cell, in the order of play."""
        return list(dict.fromkeys((row.workload, row.fraction) for row in self.rows))

    def row(self, name: str, fraction: float | None, text: str) -> Row:
        """Return the row of a policy in a cell."""
        for row in self.rows:
            if (row.workload, row.fraction, row.policy) == (name, fraction, text):
                return row
        raise SwerveError(f"{text} did not play {named(name, fraction, ' at ')}")

    def curve(self, row: Row) -> dict[str, Any]:
        """Return a row's mean regret over rounds for JSON, and the ends of its 95 % band, which a single run does not have."""
        rounds, lines = self.curves[row.workload, row.fraction, row.policy]
        mean, low, high = band(lines)
        ends = [None if end is None else end.tolist() for end in (low, high)]
        return {"rounds": rounds.tolist(), "curve": mean.tolist(), "curve_low": ends[0], "curve_high": ends[1]}

    def panels(self) -> dict[str, dict[str, Curves]]:
        """Return the curves of the chosen policies, by cell, for a plot."""
        return {
            named(name, fraction): {text: self.curves[name, fraction, text] for text in self.policies}
            for name, fraction in self.cells
        }

    def standings(self) -> list[Standing]:
        """Return each policy's standing over all cells, the best mean rank first."""
        out = []
        for name in self.policies:
            own = [row for row in self.rows if row.policy == name]
            rated = [(row.ratio, row) for row in own if row.ratio is not None and row.ratio > 0.0]
            worst, at = max(rated, key=lambda pair: pair[0]) if rated else (None, None)
            mean = math.exp(sum(math.log(ratio) for ratio, _ in rated) / len(rated)) if rated else None
            where = "" if at is None else named(at.workload, at.fraction)
            rank = sum(row.rank for row in own) / len(own) if own else math.nan
            better, worse = (sum(row.decided == sign for row in own) for sign in (-1, 1))
            out.append(Standing(name, mean, worst, where, rank, better, worse))
        return sorted(out, key=lambda standing: standing.rank)


def named(name: str, fraction: float | None, between: str = " ") -> str:
    """Return a cell's name."""
    return name if fraction is None else f"{name}{between}{fraction:g}"


class Stopped(Exception):  # noqa: N818 - an event, not an error
    """The user stopped a comparison; `comparison` holds the cells that every policy had finished."""

    def __init__(self, comparison: Comparison) -> None:
        super().__init__(f"stopped after {len(comparison.cells)} finished cells")
        self.comparison = comparison
