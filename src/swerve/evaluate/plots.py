"""Plots of a log: the click shares and the volume of a query around its shifts."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.dates as dates
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from swerve.evaluate.forecast import Forecast
from swerve.evaluate.history import CLICKED, History
from swerve.evaluate.shifts import HOUR, Shift
from swerve.experiments.plots import NORMAL, heading, tidy

COLOURS = ("#2563b0", "#d97b4f", "#2a9d5c", "#8e6bbf", "#b5342c")
#: Inches of a figure, and how much higher the shares are than the volume.
SIZE, HEIGHTS = (7.6, 4.2), (3, 1)
#: Characters of a result's id in a legend.
NAME = 32
OFFSET = 0.12  # between the policies of a band


def query_plot(query: str, history: History, shifts: list[Shift]) -> Figure:
    """Plot the click shares of the results that changed, over time, with the shifts; below them the lists an hour."""
    bins, table = history.all_bins(), history.table()
    if len(bins) > 1 and 2 * bins[-1].clicked < history.width:  # shares of a few clicks at the end would only distract
        bins, table = bins[:-1], table[:-1]
    clicked = np.array([max(each.clicked, 1) for each in bins], float)
    timed = all(each.last > each.first for each in bins[:-1]) and len(bins) > 1 and bins[-1].last >= bins[-1].first
    at: Any = np.arange(len(bins), dtype=float)
    if timed:
        at = [datetime.fromtimestamp((each.first + each.last) / 2.0, UTC) for each in bins]
    figure, (upper, lower) = plt.subplots(2, 1, figsize=SIZE, sharex=True, height_ratios=HEIGHTS, layout="constrained")
    names = list(history.names)
    shown = list(dict.fromkeys(share.result for shift in shifts for share in shift.shares))[: len(COLOURS)]
    for colour, result in zip(COLOURS, shown, strict=False):
        label = result if len(result) <= NAME else result[: NAME - 1] + "…"
        upper.plot(at, table[:, names.index(result), CLICKED] / clicked, color=colour, marker="o", markersize=3, label=plain(label))
    for shift in shifts:
        if timed and shift.until is not None:
            for axes in (upper, lower):
                axes.axvline(datetime.fromtimestamp(shift.until, UTC), color="#555555", linewidth=1, linestyle="--")
    upper.set(ylabel="share of searches with a click", ylim=(0, 1.02))
    heading(upper, plain(query))
    upper.legend(frameon=False, fontsize=NORMAL - 2, loc="center left", bbox_to_anchor=(1.0, 0.5))
    if timed:
        ends = [*(each.first for each in bins[1:]), bins[-1].last]
        rates = [
            each.lists * HOUR / (end - each.first) if end > each.first else np.nan for each, end in zip(bins, ends, strict=True)
        ]
        lower.plot(at, rates, color="#777777")
        lower.set(ylabel="lists an hour", ylim=(0, None))
        lower.xaxis.set_major_formatter(dates.ConciseDateFormatter(lower.xaxis.get_major_locator()))  # type: ignore[no-untyped-call]
    else:
        lower.bar(at, [each.lists for each in bins], color="#bbbbbb")
        lower.set(ylabel="lists", xlabel="bins, in the order of the log")
    for axes in (upper, lower):
        tidy(axes)
    return figure


def bands_plot(found: Forecast) -> Figure:
    """Plot the gains of the policies in each band, with their intervals."""
    figure, axes = plt.subplots(figsize=(SIZE[0], SIZE[1] * 0.8), layout="constrained")
    for index, policy in enumerate(found.everything):
        for place, band in enumerate(found.bands):
            gain = band.gains.get(policy)
            if gain is None or gain.percent is None:
                continue
            reach = 0.0 if gain.percent_high is None else gain.percent_high - gain.percent
            axes.errorbar(place + OFFSET * (index - 1), gain.percent, yerr=reach, fmt="o", color=COLOURS[index], label=policy)
    axes.axhline(0.0, color="#555555", linewidth=0.8)
    axes.set_xticks(range(len(found.bands)), [band.name for band in found.bands])
    axes.set(ylabel="clicks gained, % (model)", xlim=(-0.5, len(found.bands) - 0.5))
    handles = {label: handle for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    axes.legend(handles.values(), handles.keys(), frameon=False, fontsize=NORMAL - 2, loc="center left", bbox_to_anchor=(1.0, 0.5))
    tidy(axes)
    return figure


def plain(text: str) -> str:
    """Return text that Matplotlib takes literally: dollars would begin a formula, and controls have no glyph."""
    return "".join(c if c.isprintable() else " " for c in text).replace("$", r"\$").removeprefix("_")
