"""Regret curves: mean regret over rounds with 95 % bands, a panel per cell, a line per policy."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from swerve.experiments.compare_plots import COLOURS, LEGEND_WIDTH, NORMAL, RESOLUTION, SMALL
from swerve.experiments.comparison import Curves
from swerve.experiments.intervals import band

#: Inches of a panel, panels in a line, and inches for the legend.
PANEL, ACROSS, LEGEND = (3.6, 2.8), 3, 0.6
SHADE = 0.18  # opacity of a band
TITLE_WIDTH = 44  # characters per line of a panel's title
UNITS = ((1e6, "M"), (1e3, "k"))


def short(value: float, _: object = None) -> str:
    """Return a number for an axis.

    >>> short(250_000), short(1.5e6), short(40)
    ('250k', '1.5M', '40')
    """
    for unit, letter in UNITS:
        if abs(value) >= unit:
            return f"{value / unit:g}{letter}"
    return f"{value:g}"


def regret_curves(panels: Mapping[str, Mapping[str, Curves]]) -> Figure:
    """Plot every cell's curves: the mean over the runs, and the pointwise 95 % interval of that mean if there are several runs."""
    columns = min(ACROSS, math.isqrt(len(panels) - 1) + 1)
    lines = -(-len(panels) // columns)
    figure, grid = plt.subplots(
        lines, columns, figsize=(PANEL[0] * columns, PANEL[1] * lines + LEGEND), squeeze=False, layout="constrained"
    )
    policies = list(dict.fromkeys(name for own in panels.values() for name in own))
    runs: set[int] = set()
    for axes, (title, own) in zip(grid.flat, panels.items(), strict=False):
        for name, (rounds, curves) in own.items():
            colour = COLOURS[policies.index(name) % len(COLOURS)]
            mean, low, high = band(curves)
            axes.plot(np.r_[0, rounds], np.r_[0.0, mean], color=colour, linewidth=1.6, label=textwrap.fill(name, LEGEND_WIDTH))
            if low is not None and high is not None:
                axes.fill_between(np.r_[0, rounds], np.r_[0.0, low], np.r_[0.0, high], color=colour, alpha=SHADE, linewidth=0)
            runs.add(len(curves))
        axes.set_title(textwrap.fill(title, TITLE_WIDTH), fontsize=NORMAL, loc="left")
        axes.set_xlim(0, max(int(rounds[-1]) for rounds, _ in own.values()))
        axes.set_ylim(0, None)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(MaxNLocator(5))
            axis.set_major_formatter(FuncFormatter(short))
        axes.grid(color="#dddddd", linewidth=0.6)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    for axes in grid.flat[len(panels) :]:
        axes.set_visible(False)
    shaded = f"; bands: 95 % of the mean of {min(runs)} runs" if min(runs) > 1 else ""
    figure.supxlabel(f"rounds{shaded}", fontsize=NORMAL)
    figure.supylabel("regret, lost clicks", fontsize=NORMAL)
    handles, labels = grid.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=min(len(policies), 2 * columns), frameon=False, fontsize=SMALL)
    return figure


def write(panels: Mapping[str, Mapping[str, Curves]], path: Path) -> None:
    """Write the plot to a file; the suffix of `path` selects the format."""
    figure = regret_curves(panels)
    figure.savefig(path, dpi=RESOLUTION)
    plt.close(figure)
