"""A click model fitted to a log: attractiveness of each result of a query, between its shifts, under the position-based curve.

It is a model, not the log. What it says about results that the log's ranking seldom showed, or showed low, is mostly its prior: the
mean attractiveness of results at that rank of the log's own ranking, counted as so many examinations as the spread between results
of the same rank suggests (the method of moments of DerSimonian and Laird, Control. Clin. Trials 7, 1986).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from swerve.core.examination import SLOTS
from swerve.evaluate.history import CLICKED, CURVE, EXAMINED, LISTED, Histories, History
from swerve.evaluate.shifts import Found, splits_of

#: Results of a query that are played: those that the log's ranking showed best.
MOST_PLAYED = 20
#: Limits of the prior's weight, in examinations.
LIGHTEST, HEAVIEST = 1.0, 1e4
CURVE_VALUES = np.array(CURVE)

Values = NDArray[np.float64]


def in_order(terms: Values) -> float:
    """Return a sum that is added from the first term to the last, and so has the same bits on every processor.

    >>> in_order(np.array([0.5, 0.25]))
    0.75
    """
    return float(np.cumsum(terms)[-1])


@dataclasses.dataclass(slots=True)
class Segment:
    """A query between two shifts: its results in the order of the log's own ranking."""

    lists: int
    slots: int
    results: NDArray[np.int64]  # as numbered by the query's history
    clicks: Values
    examined: Values
    attractive: Values

    @property
    def logged(self) -> float:
        """Clicks per list of the log's own ranking, by the model."""
        return in_order(self.attractive * self.examined) / self.lists

    def value(self, order: NDArray[np.int64]) -> float:
        """Return the clicks per list of an order of `results`, by their indexes."""
        return in_order(self.attractive[order] * CURVE_VALUES[: len(order)])


def segments_of(history: History, bar: float) -> Iterator[Segment]:
    """Yield the parts of a query between its shifts, without attractiveness."""
    bins, table = history.all_bins(), history.table()
    cuts = [0, *(split for _, split, _, _ in splits_of(bins, table, bar)), len(bins)]
    for low, high in pairwise(cuts):
        sums, lists = table[low:high].sum(axis=0), sum(each.lists for each in bins[low:high])
        shown = np.flatnonzero(sums[:, LISTED] > 0)
        if lists == 0 or not len(shown):
            continue
        order = shown[np.argsort(-sums[shown, EXAMINED], kind="stable")][:MOST_PLAYED]
        slots = int(np.clip(round(float(sums[:, LISTED].sum()) / lists), 1, min(SLOTS, len(order))))
        clicks, examined = sums[order, CLICKED], np.maximum(sums[order, EXAMINED], 1e-9)
        yield Segment(lists, slots, order, clicks, examined, clicks / examined)


class Model:
    """All segments of a log."""

    def __init__(self, histories: Histories, found: Found) -> None:
        self.queries: dict[str, list[Segment]] = {}
        for query, history in histories:
            segments = list(segments_of(history, found.bar()))
            if segments:
                self.queries[query] = segments
        self.means = np.zeros(MOST_PLAYED)
        self.weight = HEAVIEST
        self._shrink()

    def _shrink(self) -> None:
        """Find the prior, and draw every attractiveness towards it."""
        clicks, examined = np.zeros(MOST_PLAYED), np.zeros(MOST_PLAYED)
        for segment in self.segments():
            clicks[: len(segment.clicks)] += segment.clicks
            examined[: len(segment.clicks)] += segment.examined
        overall = float(clicks.sum() / max(examined.sum(), 1e-9))
        self.means = np.clip(np.where(examined > 0, clicks / np.maximum(examined, 1e-9), overall), 0.0, 1.0)
        excess = scale = 0.0
        for segment in self.segments():
            mean = self.means[: len(segment.clicks)]
            rate = segment.clicks / segment.examined
            excess += float((segment.examined * (rate - mean) ** 2 - mean * (1.0 - mean)).sum())
            scale += float(segment.examined.sum())
        between = excess / max(scale, 1e-9)
        noise = overall * (1.0 - overall)
        self.weight = float(np.clip(noise / between - 1.0, LIGHTEST, HEAVIEST)) if between > 0.0 else HEAVIEST
        for segment in self.segments():
            prior = self.weight * self.means[: len(segment.clicks)]
            segment.attractive = np.minimum((segment.clicks + prior) / (segment.examined + self.weight), 1.0)

    def segments(self) -> Iterator[Segment]:
        """Yield all segments."""
        for segments in self.queries.values():
            yield from segments
