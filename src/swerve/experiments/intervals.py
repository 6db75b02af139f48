"""Confidence intervals of paired figures: Student's, at 95 %."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

CONFIDENCE = 0.95  # of all intervals: the usual level
HALVINGS = 100  # of an interval of angles: more than a float resolves

Values = NDArray[np.float64]


def student_quantile(confidence: float, freedom: int) -> float:
    """Return the t that Student's distribution with `freedom` degrees stays within, both ways, with probability `confidence`.

    For integer degrees of freedom the probability is a finite sum over θ = arctan(t/√ν) (Abramowitz and Stegun, Handbook of
    Mathematical Functions, 1964, 26.7.3 and 26.7.4); θ is found by bisection.

    >>> round(student_quantile(0.95, 19), 4)
    2.093
    """

    def inside(theta: float) -> float:
        square = math.cos(theta) ** 2
        odd = freedom % 2
        term, total = (math.cos(theta) if odd else 1.0), 0.0
        for step in range(1 + odd, freedom, 2):
            total += term
            term *= square * step / (step + 1)
        if odd:
            return (theta + math.sin(theta) * total) * 2.0 / math.pi
        return math.sin(theta) * total

    low, high = 0.0, math.pi / 2.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2.0
        low, high = (middle, high) if inside(middle) < confidence else (low, middle)
    return math.sqrt(freedom) * math.tan(low)


def interval(values: Values) -> tuple[float, float | None, float | None]:
    """Return the mean and the ends of its confidence interval; a single value has no interval."""
    mean = float(values.mean())
    if len(values) < 2:
        return mean, None, None
    half = student_quantile(CONFIDENCE, len(values) - 1) * float(values.std(ddof=1)) / math.sqrt(len(values))
    return mean, mean - half, mean + half


def band(lines: Values) -> tuple[Values, Values | None, Values | None]:
    """Return the mean of curves, one per row, and the ends of its pointwise confidence interval; a single curve has none.

    >>> [each.round(2).tolist() for each in band(np.array([[1.0, 2.0], [1.0, 4.0]]))]
    [[1.0, 3.0], [1.0, -9.71], [1.0, 15.71]]
    """
    mean: Values = lines.mean(axis=0)
    if len(lines) < 2:
        return mean, None, None
    half = student_quantile(CONFIDENCE, len(lines) - 1) * lines.std(axis=0, ddof=1) / math.sqrt(len(lines))
    return mean, mean - half, mean + half


def ratio_of(own: Values, reference: Values) -> tuple[float | None, float | None, float | None]:
    """Return the ratio of two paired means and its interval, to first order: that of mean(own − ratio · reference), scaled."""
    base = float(reference.mean())
    if base <= 0.0:
        return None, None, None
    ratio = float(own.mean()) / base
    _, low, high = interval((own - ratio * reference) / base)
    return ratio, None if low is None else ratio + low, None if high is None else ratio + high
