"""Analysis of the paper's experiments: agreement with the printed figures, and the causes of regret."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np

from swerve.experiments.definition import Cell
from swerve.simulate.loop import CAUSES

#: The ratios to the printed figures that each row may have. BWC has no lower limit: less regret than printed is no disagreement.
WITHIN = {"ora": (0.85, 1.15), "ucb1": (0.70, 1.30), "exp3s": (0.75, 1.25), "bwc": (0.0, 1.25)}
#: Regret of UCB1 is linear in the fraction; the printed 114.9k at 1/4 lies above both neighbours and cannot fit them.
OUTLIERS = {("fractions", 0.25, "ucb1")}
#: BWC must come near in most cells of both tables: at most this ratio, in this many of all nine cells.
NEAR, NEAR_CELLS, ALL_CELLS = 1.15, 6, 9
#: A line fits two points exactly, so linearity needs a third.
FEWEST_POINTS = 3
#: The fraction whose printed figure cannot fit the line.
QUARTER = 0.25


@dataclasses.dataclass(frozen=True)
class Agreement:
    """One claim about our figures compared with the paper's, and whether it holds."""

    claim: str
    holds: bool
    detail: str


def by_key(cells: list[Cell]) -> dict[tuple[str, float, str], Cell]:
    """Return the cells by (experiment, setting, policy)."""
    return {(cell.experiment, cell.setting, cell.policy): cell for cell in cells}


def agreements(cells: list[Cell]) -> list[Agreement]:
    """Compare each row with the printed one, and the order of the algorithms with the paper's."""
    out = []
    compared = [cell for cell in cells if cell.ratio is not None and cell.experiment in ("fractions", "features")]
    for name, (low, high) in WITHIN.items():
        row = [c for c in compared if c.policy == name and (c.experiment, c.setting, name) not in OUTLIERS]
        if row:
            ratios = [c.ratio or 0.0 for c in row]
            outside = [f"{c.setting:g}: {c.ratio:.2f}" for c in row if not low <= (c.ratio or 0.0) <= high]
            claim = f"{name}: at most {high:g} × the paper's" if low == 0.0 else f"{name}: {low:g} to {high:g} × the paper's"
            out.append(
                Agreement(
                    claim,
                    not outside,
                    f"{min(ratios):.2f} … {max(ratios):.2f}" + (f"; outside at {', '.join(outside)}" if outside else ""),
                )
            )
    bwc = [c for c in compared if c.policy == "bwc"]
    if len(bwc) >= ALL_CELLS:
        near = sum(c.ratio is not None and c.ratio <= NEAR for c in bwc)
        out.append(Agreement("bwc: at most 1.15 × in six of nine", near >= NEAR_CELLS, f"{near} of {len(bwc)}"))
    if compared:
        wrong = disorders(compared)
        out.append(
            Agreement("the order ORA ≤ BWC ≤ UCB1 ≤ EXP3.S wherever the paper has it", not wrong, "; ".join(wrong) or "everywhere")
        )
    return out


def disorders(cells: list[Cell]) -> list[str]:
    """Return where two neighbours in the paper's order are reversed in our figures."""
    table, out = by_key(cells), []
    order = ("ora", "bwc", "ucb1", "exp3s")
    for experiment, setting in sorted({(c.experiment, c.setting) for c in cells}):
        for better, worse in itertools.pairwise(order):
            a, b = table.get((experiment, setting, better)), table.get((experiment, setting, worse))
            if a and b and a.paper is not None and b.paper is not None and a.paper <= b.paper and a.mean > b.mean:
                out.append(f"{experiment} {setting:g}: {better} {a.mean:,.0f} > {worse} {b.mean:,.0f}")
    return out


@dataclasses.dataclass(frozen=True)
class Breakdown:
    """Regret of one policy at one setting, by cause (mean over runs)."""

    experiment: str
    setting: float
    policy: str
    regret: float
    causes: dict[str, float]
    counts: dict[str, float]


def breakdown(cells: list[Cell], policy: str = "bwc") -> list[Breakdown]:
    """Return the causes of a policy's regret, by setting."""
    out = []
    for cell in cells:
        if cell.policy == policy:
            causes = {name: float(cell.results.count(f"regret_{name}").mean()) for name in CAUSES}
            names = ("events", "true_alarms", "false_alarms", "misses", "unseen", "wrong_false_labels")
            counts = {name: float(cell.results.count(name).mean()) for name in names}
            out.append(Breakdown(cell.experiment, cell.setting, policy, cell.mean, causes, counts))
    return out


def linearity(cells: list[Cell], policy: str = "ucb1") -> tuple[float, float] | None:
    """Return R² of our regret as a line over the fraction, and the line's value at a quarter; None with under three points."""
    row = sorted((c.setting, c.mean) for c in cells if c.policy == policy and c.experiment == "fractions")
    if len(row) < FEWEST_POINTS:
        return None
    x, y = np.array(row).T
    slope, start = np.polyfit(x, y, 1)
    residual = y - (start + slope * x)
    return float(1.0 - (residual**2).sum() / ((y - y.mean()) ** 2).sum()), float(start + slope * QUARTER)
