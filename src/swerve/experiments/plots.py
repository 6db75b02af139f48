"""Plots of the paper's experiments: the figure, both tables as bars, regret by cause, and growth with T."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from swerve.experiments.analysis import Breakdown
from swerve.experiments.definition import Cell
from swerve.experiments.lower_bounds import FAMILIES, Growth

COLOURS = {"ora": "#2a9d5c", "bwc": "#2563b0", "ucb1": "#c0392b", "exp3s": "#8e6bbf"}
LABELS = {"ora": "ORA", "bwc": "BWC", "ucb1": "UCB1", "exp3s": "EXP3.S"}
CAUSE_COLOURS = {
    "learning": "#9bbfdd",
    "testing": "#4f8fc0",
    "false_alarm": "#e8b04a",
    "unseen": "#d97b4f",
    "missed": "#b5342c",
}
CAUSE_LABELS = {
    "learning": "learning a fresh segment",
    "testing": "inside the tests of true alarms",
    "false_alarm": "false alarms",
    "unseen": "events inside tests",
    "missed": "events missed after wrong labels",
}
#: Sizes in inches: of a curve, of a chart of bars, of a panel of growth.
CURVE, BARS, PANEL = (7.2, 4.2), (8.8, 4.2), (4.1, 4.0)
MILLION, THOUSAND = 1e6, 1e3
NORMAL, SMALL = 10, 9  # font sizes in points
BAND = 0.15  # opacity of a band of one standard deviation
TITLE_WIDTH = 80  # characters per line of a title
GROUP = 0.8  # share of the axis that a group of bars takes; the rest separates groups
BAR = 0.92  # share of its slot that a bar takes
STACKED_BAR = 0.62
RESOLUTION = 150  # dots per inch of a PNG


def heading(axes: Any, title: str) -> None:
    """Set a title at the left, wrapped so that nothing is cut off."""
    axes.set_title(textwrap.fill(title, TITLE_WIDTH), fontsize=NORMAL, loc="left")


def tidy(axes: Any) -> None:
    """Remove needless lines from a plot."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)


def curves(cells: list[Cell], title: str) -> Figure:
    """Plot cumulative regret over time: the mean, and a band of one standard deviation over the runs."""
    figure, axes = plt.subplots(figsize=CURVE)
    for cell in cells:
        rounds, lines = cell.results.rounds / MILLION, cell.results.curves / THOUSAND
        mean = lines.mean(axis=0)
        spread = lines.std(axis=0, ddof=1) if len(lines) > 1 else np.zeros_like(mean)
        axes.plot(np.r_[0.0, rounds], np.r_[0.0, mean], color=COLOURS[cell.policy], label=LABELS[cell.policy], linewidth=2)
        axes.fill_between(rounds, mean - spread, mean + spread, color=COLOURS[cell.policy], alpha=BAND, linewidth=0)
    axes.set(xlabel="impressions (millions)", ylabel="cumulative regret (thousands)", ylim=(0, None))
    axes.set_xlim(0, max(cell.results.rounds[-1] for cell in cells) / MILLION)
    heading(axes, title)
    axes.legend(frameon=False, loc="upper left")
    tidy(axes)
    figure.tight_layout()
    return figure


def table_bars(cells: list[Cell], title: str, axis: str) -> Figure:
    """Plot final regret by setting: ours as bars with standard deviations, the paper's as diamonds."""
    settings = sorted({cell.setting for cell in cells})
    policies = [name for name in COLOURS if any(cell.policy == name for cell in cells)]
    figure, axes = plt.subplots(figsize=BARS)
    width = GROUP / len(policies)
    for index, name in enumerate(policies):
        row = {cell.setting: cell for cell in cells if cell.policy == name}
        x = np.arange(len(settings)) + (index - (len(policies) - 1) / 2) * width
        axes.bar(x, [row[s].mean / THOUSAND for s in settings], width * BAR, color=COLOURS[name], label=LABELS[name],
                 yerr=[row[s].sd / THOUSAND for s in settings], error_kw={"elinewidth": 1, "ecolor": "#555555"})  # fmt: skip
        printed = [(at, (row[s].paper or 0.0) / THOUSAND) for at, s in zip(x, settings, strict=True) if row[s].paper is not None]
        if printed:
            label = "the paper's" if index == 0 else None
            at, height = np.array(printed).T
            axes.scatter(at, height, marker="D", s=26, color="white", edgecolor="black", zorder=3, label=label)
    axes.set_xticks(np.arange(len(settings)), [f"{s:g}" for s in settings])
    axes.set(xlabel=axis, ylabel="final regret (thousands)")
    heading(axes, title)
    axes.legend(frameon=False, fontsize=SMALL, loc="center left", bbox_to_anchor=(1.0, 0.5))
    tidy(axes)
    figure.tight_layout()
    return figure


def stacked(rows: list[Breakdown], title: str, axis: str) -> Figure:
    """Plot regret by cause, one bar per setting."""
    figure, axes = plt.subplots(figsize=BARS)
    floor = np.zeros(len(rows))
    for cause, colour in CAUSE_COLOURS.items():
        heights = np.array([row.causes[cause] for row in rows]) / THOUSAND
        axes.bar(range(len(rows)), heights, STACKED_BAR, bottom=floor, color=colour, label=CAUSE_LABELS[cause])
        floor += heights
    axes.set_xticks(range(len(rows)), [f"{row.setting:g}" for row in rows])
    axes.set(xlabel=axis, ylabel="regret of BWC (thousands)")
    heading(axes, title)
    # beside the bars and in their order: bars of equal height leave no free corner
    axes.legend(frameon=False, fontsize=SMALL, loc="center left", bbox_to_anchor=(1.0, 0.5), reverse=True)
    tidy(axes)
    figure.tight_layout()
    return figure


def growth(rows: list[Growth]) -> Figure:
    """Plot the regret of the worst instance over T, log-log, with the fitted exponents in the legend."""
    figure, panels = plt.subplots(1, len(FAMILIES), figsize=(PANEL[0] * len(FAMILIES), PANEL[1]))
    for axes, family in zip(np.atleast_1d(panels), FAMILIES, strict=True):
        for row in rows:
            if row.family == family.name:
                label = f"{LABELS[row.policy]}: T^{row.exponent:.2f}"
                axes.loglog(row.horizons, row.means, "o-", color=COLOURS[row.policy], label=label, markersize=4)
        axes.set(xlabel="T")
        axes.set_title(f"{family.title}\n{family.bound}", fontsize=SMALL, loc="left")
        axes.legend(frameon=False, fontsize=SMALL)
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
        tidy(axes)
    np.atleast_1d(panels)[0].set_ylabel("regret of the worst instance")
    figure.tight_layout()
    return figure


def save(figure: Figure, folder: Path, name: str) -> Path:
    """Write a figure as PNG and SVG; return the path of the SVG, which pages embed."""
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / f"{name}.png", dpi=RESOLUTION)
    figure.savefig(folder / f"{name}.svg")
    plt.close(figure)
    return folder / f"{name}.svg"
