"""Off-policy estimates of a target ranking's value, in clicks per list, from a log with propensities.

A list has slots k with a click or not, R; the probability with which the log's ranking put this result there, P; and that of the
target, W. The item-position model says that a click depends on the result and its position (Li et al., "Offline evaluation of
ranking policies with click models", KDD 2018), so each slot has its own weight w = W / P, and the value of a list is the sum over
its slots. With one slot these are the estimators for single results.

`replay`
    Rejection: a slot counts with probability c · w, c the smallest P of the slot; the mean of what counts (Li et al., WSDM 2011).
`ips`
    Σ w R, the mean over lists.
`snips`
    Σ w R ÷ Σ w, slot by slot (Swaminathan and Joachims, NIPS 2015).
`dr`
    Doubly robust: Σ D + w (R − Q), where Q is what a reward model expects of the logged result at its slot, and D what it expects
    of the target there (Dudík, Langford and Li, ICML 2011). The model may know only the lists before this one.

Everything is kept as sums, so that a log may have any size. Intervals are normal, to first order (the delta method), from the
covariance of the lists' sums. The mean of w estimates how much of the target's choice the log could have shown: where that, or the
effective sample size, is too small, or no click counts, there is no estimate.
"""

from __future__ import annotations

import math

import msgspec
import numpy as np
from numpy.typing import NDArray

NORMAL = 1.959963984540054  # the quantile of 95 % intervals
#: Effective lists below which no estimate is given: the interval would not hold.
FEWEST = 100.0
#: Share of the target's choice that must lie inside the log's support: the upper end of its interval, and the estimate itself.
INSIDE, SURELY = 0.98, 0.8
#: Standard errors to that upper end. With 1.96, chance alone would refuse some of the targets that lie inside.
REACH = 3.29

#: Rows that are multiplied at a time: BLAS starts threads for larger products, which on a busy machine costs 50 times the product.
CHUNK = 128

Values = NDArray[np.float64]
ESTIMATORS = ("replay", "ips", "snips", "dr")


class Estimate(msgspec.Struct):
    """Clicks per list of a target, with the ends of the 95 % interval, and the same for its difference to the log's own ranking."""

    value: float
    low: float
    high: float
    lift: float
    lift_low: float
    lift_high: float
    effective: float  # lists


class Judgement(msgspec.Struct):
    """All estimates for a target, or the reason why there are none."""

    target: str
    lists: int
    logged: float  # clicks per list in the log
    inside: float  # share of the target's choice inside the log's support
    inside_error: float  # standard error of it
    effective: float
    refused: str | None
    warning: str | None
    estimates: dict[str, Estimate]


class Moments:
    """Sums and products of rows of numbers."""

    def __init__(self, size: int) -> None:
        self.count = 0
        self.sums = np.zeros(size)
        self.products = np.zeros((size, size))

    def add(self, rows: Values) -> None:
        """Add rows."""
        self.count += len(rows)
        self.sums += rows.sum(axis=0)
        for start in range(0, len(rows), CHUNK):
            part = rows[start : start + CHUNK]
            self.products += part.T @ part

    @property
    def means(self) -> Values:
        """The mean of each column."""
        means: Values = self.sums / max(self.count, 1)
        return means

    def error(self, gradient: Values) -> float:
        """Return the standard error of a function of the means with this gradient."""
        if self.count < 2:
            return math.inf
        means = self.means
        spread = (self.products - self.count * np.outer(means, means)) / (self.count - 1)
        return math.sqrt(max(float(gradient @ spread @ gradient), 0.0) / self.count)


class Weighted:
    """Moments of one kind of weights: w R, w, whether the slot is there, and R, for each slot."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.moments = Moments(4 * slots)

    def add(self, clicks: Values, weights: Values, there: Values) -> None:
        """Add lists: a row each, a column for each slot; absent slots have zeros."""
        self.moments.add(np.hstack([weights * clicks, weights, there, clicks]))

    def parts(self) -> tuple[Values, Values, Values, Values]:
        """Return the means of w R, w, presence and R by slot."""
        one, two, three, four = np.split(self.moments.means, 4)
        return one, two, three, four

    def effective(self) -> float:
        """Return Kish's effective sample size of the weights, in lists."""
        k = self.slots
        total, squares = self.moments.sums[k : 2 * k].sum(), np.diag(self.moments.products)[k : 2 * k].sum()
        slots = self.moments.means[2 * k : 3 * k].sum()
        return float(total * total / squares / slots) if squares > 0.0 and slots > 0.0 else 0.0

    def clicked(self) -> bool:
        """Return whether any click has a weight. Without one, the intervals would have no width."""
        return bool(self.moments.sums[: self.slots].any())

    def inside(self) -> tuple[float, float]:
        """Return the mean weight of a slot, and its standard error."""
        _, weight, there, _ = self.parts()
        slots = float(there.sum())
        if slots <= 0.0:
            return 0.0, math.inf
        share, zero = float(weight.sum()) / slots, np.zeros(self.slots)
        one = np.ones(self.slots) / slots
        return share, self.moments.error(np.concatenate([zero, one, -share * one, zero]))

    def plain(self) -> Estimate:
        """Return the mean of Σ w R."""
        one, zero = np.ones(self.slots), np.zeros(self.slots)
        value = float(self.parts()[0].sum())
        return self._estimate(value, np.concatenate([one, zero, zero, zero]))

    def normalised(self) -> Estimate:
        """Return Σ w R ÷ Σ w, slot by slot, each weighted by how often the slot is there."""
        earned, weight, there, _ = self.parts()
        live = weight > 0.0
        safe = np.where(live, weight, 1.0)
        rate = np.where(live, earned / safe, 0.0)
        slope = np.where(live, there / safe, 0.0)
        return self._estimate(float((there * rate).sum()), np.concatenate([slope, -slope * rate, rate, np.zeros(self.slots)]))

    def _estimate(self, value: float, gradient: Values) -> Estimate:
        logged = float(self.parts()[3].sum())
        against = gradient.copy()
        against[3 * self.slots :] -= 1.0
        return estimate(value, self.moments.error(gradient), value - logged, self.moments.error(against), self.effective())


def estimate(value: float, error: float, lift: float, lift_error: float, effective: float) -> Estimate:
    """Return an estimate with its intervals, from standard errors."""
    half, other = NORMAL * error, NORMAL * lift_error
    return Estimate(value, value - half, value + half, lift, lift - other, lift + other, effective)


class Estimation:
    """Estimates of one target, from lists in any number of parts."""

    def __init__(self, target: str, least: Values, seed: int = 0) -> None:
        """`least` has the smallest propensity of each slot in the whole log."""
        self.target, self.least = target, np.asarray(least, float)
        self.slots = len(self.least)
        self.weighted, self.accepted = Weighted(self.slots), Weighted(self.slots)
        self.robust = Moments(2)  # Σ D + w (R − Q) and Σ R of each list
        self._rng = np.random.default_rng(seed)

    def add(self, clicks: Values, propensities: Values, target: Values, logged_value: Values, target_value: Values) -> None:
        """Add lists, a row each: R, P, W, Q and D of each slot. P is NaN for slots that a list does not have."""
        there = ~np.isnan(propensities)
        weights = np.where(there, target / np.where(there, propensities, 1.0), 0.0)
        clicked = np.where(there, clicks, 0.0)
        present = there.astype(float)
        self.weighted.add(clicked, weights, present)
        chances = weights * np.where(np.isfinite(self.least), self.least, 0.0)
        counts = (self._rng.random(chances.shape) < chances).astype(float)
        self.accepted.add(clicked, counts, present)
        robust = np.where(there, target_value + weights * (clicked - logged_value), 0.0).sum(axis=1)
        self.robust.add(np.column_stack([robust, clicked.sum(axis=1)]))

    def judge(self) -> Judgement:
        """Return the estimates, or why there are none."""
        inside, error = self.weighted.inside()
        effective, lists = self.weighted.effective(), self.weighted.moments.count
        out = Judgement(self.target, lists, float(self.weighted.parts()[3].sum()), inside, error, effective, None, None, {})
        percent = f"{100 * min(inside, 1.0):.3g} %"
        if lists == 0:
            out.refused = "no list has propensities"
        elif inside + REACH * error < INSIDE or inside < SURELY:
            out.refused = (
                f"the log's ranking could have shown only about {percent} of what this target shows: outside, nothing is known"
            )
        elif effective < FEWEST:
            out.refused = (
                f"the lists count like {effective:.3g} that the target made itself; fewer than {FEWEST:g} carry no estimate"
            )
        elif not self.weighted.clicked():
            out.refused = "there is no click on what this target shows: without any, the interval of an estimate has no width"
        if out.refused is not None:
            return out
        if inside - NORMAL * error > 2.0 - INSIDE:
            out.warning = (
                f"the mean weight is {inside:.3g} ± {NORMAL * error:.2g} instead of 1: the propensities do not fit the log"
            )
        elif inside + NORMAL * error < 1.0:
            out.warning = (
                f"about {percent} of what the target shows lies inside the log's support: the rest counts as if it had no clicks"
            )
        value, logged = self.robust.means
        robust = estimate(
            float(value), self.robust.error(np.array([1.0, 0.0])), float(value - logged), self.robust.error(np.array([1.0, -1.0])),
            effective,
        )  # fmt: skip
        out.estimates = {"ips": self.weighted.plain(), "snips": self.weighted.normalised(), "dr": robust}
        if self.accepted.effective() >= FEWEST and self.accepted.clicked():
            out.estimates = {"replay": self.accepted.normalised(), **out.estimates}
        return out
