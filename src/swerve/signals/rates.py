"""Rates: the shares of requests that are abandoned or reformulated, and the evidence that a rate has risen.

A click arrives within seconds, an abandonment never does. A rate that counted each answer on arrival would see the clicks first and
everything else in a lump. Requests therefore wait in two buckets, and a bucket is counted as a whole when all its requests have had
their time. There is no timer: the next request closes the buckets.
"""

from __future__ import annotations

import math

from swerve.core.elementary import exp, log
from swerve.core.verbs import kernel
from swerve.signals.senses import ABANDONED, REFORMULATED

SLACK, SLOPE = 0.05, 1.5  # a rate enters its baseline with at most SLOPE · p₀ + SLACK
PRIOR_HITS, PRIOR_REQUESTS = 0.6, 2.0  # the prior of p₀, in requests


@kernel
def tally(spec, row, k, seen, hits):
    """Add `hits` of `seen` requests to the CUSUM of rate k and to its baseline, as if evenly mixed."""
    if seen <= 0:
        return
    hits = min(max(hits, 0), seen)
    known = row.past[k] >= spec.rate_warmup_requests
    p0 = (row.past_hits[k] + PRIOR_HITS) / (row.past[k] + PRIOR_REQUESTS)
    keep = exp(seen * log(spec.recent_rate_retention))
    each = (1.0 - keep) / (seen * (1.0 - spec.recent_rate_retention))
    row.recent_hits[k] = row.recent_hits[k] * keep + hits * each
    row.recent[k] = row.recent[k] * keep + seen * each
    weight = 1.0
    if known:  # before that, p₀ is a guess: it defines neither surprise nor excess
        p1 = spec.odds_factor * p0 / (1.0 + (spec.odds_factor - 1.0) * p0)
        up, down = log(p1 / p0), log((1.0 - p1) / (1.0 - p0))
        row.climb[k] = min(max(row.climb[k] + (hits * up + (seen - hits) * down), 0.0), spec.evidence_ceiling)
        if row.recent_hits[k] > 0.0:
            weight = min(1.0, (SLOPE * p0 + SLACK) * row.recent[k] / row.recent_hits[k])
    keep = exp(seen * log(spec.baseline_rate_retention))
    each = (1.0 - keep) / (seen * (1.0 - spec.baseline_rate_retention))
    row.past_hits[k] = row.past_hits[k] * keep + weight * hits * each
    row.past[k] = row.past[k] * keep + seen * each
    # callers that never send a click are no event, however long that lasts: the baseline must contain the other outcome too
    if row.past[k] - row.past_hits[k] < spec.min_contrary_outcomes:
        row.climb[k] = 0.0


@kernel
def rate_level(spec, row, k):
    """Return how far the rate is above its baseline, in [0, 1]; ½ is a crossing."""
    return row.climb[k] / spec.evidence_ceiling


@kernel
def close_bucket(spec, row, b):
    """Count the requests and answers of a bucket and empty it."""
    asked = row.bucket_requests[2 * b + ABANDONED]
    tally(spec, row, ABANDONED, asked, asked - row.bucket_answers[2 * b + ABANDONED])
    tally(spec, row, REFORMULATED, row.bucket_requests[2 * b + REFORMULATED], row.bucket_answers[2 * b + REFORMULATED])
    for k in range(2):
        row.bucket_requests[2 * b + k] = 0
        row.bucket_answers[2 * b + k] = 0


@kernel
def enter(spec, row, session, now):
    """Add a request that waits for its answer; close the buckets whose time is over."""
    if now < row.opened[0]:  # the clock was set back: treat the bucket as new
        row.opened[0] = math.floor(now)
    if now - row.opened[0] > spec.close_after_seconds:
        close_bucket(spec, row, 1)
        for k in range(2):
            row.bucket_requests[2 + k] = row.bucket_requests[k]
            row.bucket_answers[2 + k] = row.bucket_answers[k]
            row.bucket_requests[k] = 0
            row.bucket_answers[k] = 0
        row.opened[1] = row.opened[0]
        row.opened[0] = math.floor(now)  # callers that keep times in whole seconds must match this bucket
        # no request enters a bucket later than `close_after_seconds`: by now the youngest one has waited that long
        if now - row.opened[1] > 2.0 * spec.close_after_seconds:
            close_bucket(spec, row, 1)
    row.bucket_requests[ABANDONED] += 1
    if session != 0:
        row.bucket_requests[REFORMULATED] += 1


@kernel
def count_answer(row, k, shown):
    """Count an answer to a request shown at that time; requests older than both buckets were counted without it."""
    if shown >= row.opened[0]:
        row.bucket_answers[k] += 1
    elif shown >= row.opened[1]:
        row.bucket_answers[2 + k] += 1
