"""Rates: how many requests are abandoned, how many asked again in other words; and when that becomes more than usual.

Clicks come within seconds and abandonment never comes, so a rate that counted each answer as it arrives would see clicks first and
the rest in a lump. Requests therefore wait in two buckets, and a bucket is counted as a whole when all of it has had its time. No
timer closes them: the next request does.
"""

from __future__ import annotations

import math

from swerve.core.verbs import kernel
from swerve.signals.senses import ABANDONED, REFORMULATED

SLACK, SLOPE = 0.05, 1.5  # a rate enters its baseline with at most SLOPE · p₀ + SLACK


@kernel
def tally(spec, row, k, seen, hits):
    """`hits` of `seen` requests: into the CUSUM of rate k and into its baseline, as if evenly mixed."""
    if seen <= 0:
        return
    hits = min(max(hits, 0), seen)
    known = row.past[k] >= spec.rate_warmup_requests
    p0 = (row.past_hits[k] + 0.6) / (row.past[k] + 2.0)
    keep = math.exp(seen * math.log(spec.recent_rate_retention))
    each = (1.0 - keep) / (seen * (1.0 - spec.recent_rate_retention))
    row.recent_hits[k] = row.recent_hits[k] * keep + hits * each
    row.recent[k] = row.recent[k] * keep + seen * each
    weight = 1.0
    if known:  # before, p₀ is a guess: neither a measure of surprise nor one of what is too much
        p1 = spec.odds_factor * p0 / (1.0 + (spec.odds_factor - 1.0) * p0)
        up, down = math.log(p1 / p0), math.log((1.0 - p1) / (1.0 - p0))
        row.climb[k] = min(max(row.climb[k] + (hits * up + (seen - hits) * down), 0.0), spec.evidence_ceiling)
        if row.recent_hits[k] > 0.0:
            weight = min(1.0, (SLOPE * p0 + SLACK) * row.recent[k] / row.recent_hits[k])
    keep = math.exp(seen * math.log(spec.baseline_rate_retention))
    each = (1.0 - keep) / (seen * (1.0 - spec.baseline_rate_retention))
    row.past_hits[k] = row.past_hits[k] * keep + weight * hits * each
    row.past[k] = row.past[k] * keep + seen * each
    # callers who never send a click are no event, however long it lasts: a rate must have had the other outcome too
    if row.past[k] - row.past_hits[k] < spec.min_contrary_outcomes:
        row.climb[k] = 0.0


@kernel
def rate_level(spec, row, k):
    """How far the rate is above its baseline, in [0, 1]; a crossing at ½."""
    return row.climb[k] / spec.evidence_ceiling


@kernel
def close_bucket(spec, row, b):
    """Count what is in a bucket, and empty it."""
    asked = row.bucket_requests[2 * b + ABANDONED]
    tally(spec, row, ABANDONED, asked, asked - row.bucket_answers[2 * b + ABANDONED])
    tally(spec, row, REFORMULATED, row.bucket_requests[2 * b + REFORMULATED], row.bucket_answers[2 * b + REFORMULATED])
    for k in range(2):
        row.bucket_requests[2 * b + k] = 0
        row.bucket_answers[2 * b + k] = 0


@kernel
def enter(spec, row, session, now):
    """A request waits for its answer; buckets that have had their time are closed."""
    if now < row.opened[0]:  # time went back: the bucket is as young as it can be
        row.opened[0] = math.floor(now)
    if now - row.opened[0] > spec.close_after_seconds:
        close_bucket(spec, row, 1)
        for k in range(2):
            row.bucket_requests[2 + k] = row.bucket_requests[k]
            row.bucket_answers[2 + k] = row.bucket_answers[k]
            row.bucket_requests[k] = 0
            row.bucket_answers[k] = 0
        row.opened[1] = row.opened[0]
        row.opened[0] = math.floor(now)  # whoever keeps times in whole seconds means this bucket, not the one before
        # nothing enters a bucket later than `close_after_seconds`: by now the youngest of it has had as much
        if now - row.opened[1] > 2.0 * spec.close_after_seconds:
            close_bucket(spec, row, 1)
    row.bucket_requests[ABANDONED] += 1
    if session != 0:
        row.bucket_requests[REFORMULATED] += 1


@kernel
def count_answer(row, k, shown):
    """Something came of a request shown at that time; what is older than both buckets has been counted without."""
    if shown >= row.opened[0]:
        row.bucket_answers[k] += 1
    elif shown >= row.opened[1]:
        row.bucket_answers[2 + k] += 1
