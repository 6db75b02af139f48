"""The surprise of a count against its own past: for requests, and for counts that the caller sends."""

from __future__ import annotations

import math

from swerve.core.elementary import exp, log
from swerve.core.verbs import kernel

LARGEST = 1e12  # larger counts are clipped: their squares must stay finite
PRIOR_COUNT, PRIOR_HOURS = 0.5, 2.0  # the prior of a rate


@kernel
def surprise(spec, count, hours, past, past_hours, expected):
    """Return the surprise in [0, 1] of `count` in `hours` against the past: a two-sample Poisson deviance.

    The deviance is divided by the overdispersion of real counts, so that one threshold fits any volume.
    """
    rate = (count + past) / (hours + past_hours)
    if count <= hours * rate:
        return 0.0
    deviance = count * log(count / (hours * rate)) + past * log(past / (past_hours * rate))
    return min(1.0, deviance / (1.0 + spec.overdispersion * expected) / spec.full_surprise_deviance)


@kernel
def volume(spec, row, du):
    """Count a request `du` hours of the season's clock after the last one; return its surprise and its weight in the baseline."""
    rate = (row.slow + PRIOR_COUNT) / (row.span + PRIOR_HOURS)
    window = min(max(spec.window_requests / rate, spec.window_hours_low), spec.window_hours_high)
    row.fast = row.fast * exp(-du / window) + 1.0
    level, weight = 0.0, 1.0
    if row.span >= spec.warmup_hours:
        # a decaying sum varies half as much as a count: twice the sum is close to Poisson
        past, past_hours = 2.0 * row.slow + PRIOR_COUNT, 2.0 * row.span + PRIOR_HOURS
        level = surprise(spec, 2.0 * row.fast - 1.0, 2.0 * window, past, past_hours, 2.0 * window * rate)
    if row.span > spec.warmup_hours:
        # winsorised, never frozen: a burst would hide the next one, and a lasting rise must become normal
        weight = min(1.0, spec.burst_cap * (rate + 1.0 / (row.span + PRIOR_HOURS)) * window / row.fast)
    keep = exp(-du / spec.baseline_hours)
    row.slow = row.slow * keep + weight
    row.span = row.span * keep + spec.baseline_hours * (1.0 - keep)
    return level, weight


@kernel
def busyness(spec, row):
    """Return the recent requests per hour on the season's clock."""
    rate = (row.slow + PRIOR_COUNT) / (row.span + PRIOR_HOURS)
    return row.fast / min(max(spec.window_requests / rate, spec.window_hours_low), spec.window_hours_high)


@kernel
def number(spec, row, i, value, du):
    """Return the surprise of a count that comes with each request, such as the articles of the last hour; NaN means none was sent.

    A count is a level that holds until another is sent: level × time enters the baseline, however many requests repeat it.
    """
    level = 0.0
    before = row.number[i]
    if math.isnan(value):
        value = before
    else:
        value = min(max(value, 0.0), LARGEST)
        if row.number_span[i] >= spec.warmup_hours:
            past, past_hours = row.number_slow[i] + PRIOR_COUNT, row.number_span[i] + PRIOR_HOURS
            level = surprise(spec, value, 1.0, past, past_hours, past / past_hours)
    if not math.isnan(before):
        rate = (row.number_slow[i] + PRIOR_COUNT) / (row.number_span[i] + PRIOR_HOURS)
        if row.number_span[i] > spec.warmup_hours:
            before = min(before, spec.burst_cap * (rate + 1.0 / (row.number_span[i] + PRIOR_HOURS)))
        keep = exp(-du / spec.baseline_hours)
        row.number_slow[i] = row.number_slow[i] * keep + before * spec.baseline_hours * (1.0 - keep)
        row.number_span[i] = row.number_span[i] * keep + spec.baseline_hours * (1.0 - keep)
    row.number[i] = value
    return level
