"""Plots of a comparison: every ratio to the oracle with its interval, a panel per fraction, a line per workload."""

from __future__ import annotations

import textwrap
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from swerve.experiments.compare_pages import ORACLE
from swerve.experiments.comparison import Comparison

COLOURS = ("#2563b0", "#d97b4f", "#2a9d5c", "#8e6bbf", "#b5342c", "#7a7a7a", "#c79a1e", "#3aa6a6", "#d26ba0", "#5b4a3f")
MARKERS = "osD^vPX<>*"
#: Labels of the logarithmic axis of ratios, and how many fit without overlapping.
MARKS = (0.1, 0.2, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000)
MOST_MARKS = 7
#: Largest factors by which an interval extends below its ratio, and by which it may widen the axis.
LONGEST, SHOWN = 1000.0, 1.5
#: Height of a policy's line and of the gap between workloads, in inches.
LINE, GAP = 0.11, 0.16
#: Inches of a panel, and of the margins for labels (left) and for titles and legend (above and below).
PANEL_WIDTH, SIDE, HEAD = 3.1, 1.6, 1.4
#: Factor of empty space at both ends of the axis.
ROOM = 1.1
#: Characters per line of a legend entry.
LEGEND_WIDTH = 40
NORMAL, SMALL = 10, 9  # font sizes in points
RESOLUTION = 150  # dots per inch of a PNG


def marks_within(low: float, high: float) -> list[float]:
    """Return the marks of a logarithmic axis from `low` to `high`, thinned evenly around 1 if there are too many."""
    inside = [mark for mark in MARKS if low <= mark <= high]
    step = -(-len(inside) // MOST_MARKS) or 1
    start = inside.index(1) % step if 1 in inside else 0
    return inside[start::step]


def ratios(comparison: Comparison) -> Figure:
    """Plot regret ÷ the oracle's with 95 % intervals; left of the line is better than the oracle."""
    workloads = list(dict.fromkeys(name for name, _ in comparison.cells))
    fractions = list(dict.fromkeys(fraction for _, fraction in comparison.cells))
    policies = comparison.policies
    height = len(workloads) * (len(policies) * LINE + GAP)
    figure, panels = plt.subplots(
        1,
        len(fractions),
        figsize=(SIDE + PANEL_WIDTH * len(fractions), height + HEAD),
        sharey=True,
        squeeze=False,
        layout="constrained",
    )
    step = LINE / (len(policies) * LINE + GAP)
    kinds = {"pages" if row.paged else "as they are" for row in comparison.rows if row.fraction is None}
    without = " and ".join(sorted(kinds))
    for axes, fraction in zip(panels[0], fractions, strict=True):
        ends = [1.0]
        for index, name in enumerate(policies):
            points = []
            for line, where in enumerate(workloads):
                row = next((r for r in comparison.rows if (r.workload, r.fraction, r.policy) == (where, fraction, name)), None)
                if row is not None and row.ratio is not None and row.ratio > 0.0:
                    # a logarithmic axis has no 0, and a wide interval must not compress the others: it may leave the panel
                    low = row.ratio if row.ratio_low is None else max(row.ratio_low, row.ratio / LONGEST)
                    high = row.ratio if row.ratio_high is None else row.ratio_high
                    points.append((row.ratio, line + (index - (len(policies) - 1) / 2) * step, row.ratio - low, high - row.ratio))
                    ends += [max(low, row.ratio / SHOWN), high]
            x, y, below, over = np.array(points).reshape(-1, 4).T
            axes.errorbar(
                x, y, xerr=[below, over], fmt=MARKERS[index % len(MARKERS)], color=COLOURS[index % len(COLOURS)], markersize=3.6,
                elinewidth=1.2, label=textwrap.fill(name, LEGEND_WIDTH),
            )  # fmt: skip
        axes.set_xscale("log")
        axes.set_xlim(min(ends) / ROOM, max(ends) * ROOM)
        axes.axvline(1.0, color="#555555", linewidth=0.8, zorder=0)
        axes.xaxis.set_major_locator(FixedLocator(marks_within(*axes.get_xlim())))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.grid(axis="x", color="#dddddd", linewidth=0.6)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_title(without if fraction is None else f"{fraction:g} of the queries shift", fontsize=NORMAL, loc="left")
        for line in range(1, len(workloads)):
            axes.axhline(line - 0.5, color="#eeeeee", linewidth=0.8, zorder=0)
    panels[0][0].set_yticks(range(len(workloads)), workloads)
    panels[0][0].set_ylim(len(workloads) - 0.5, -0.5)
    oracles = " or ".join(dict.fromkeys(row.oracle for row in comparison.rows)) or ORACLE
    figure.supxlabel(f"regret ÷ {oracles}'s, 95 % intervals of {comparison.runs} paired runs", fontsize=NORMAL)
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside upper center", ncols=min(len(policies), 2 * len(fractions)), frameon=False, fontsize=SMALL
    )
    return figure


def write(comparison: Comparison, path: Path) -> None:
    """Write the plot to a file; the suffix of `path` selects the format."""
    figure = ratios(comparison)
    figure.savefig(path, dpi=RESOLUTION)
    plt.close(figure)
