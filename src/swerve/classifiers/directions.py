"""Directions that separate a point from the others, remembered from one search of the nearest point to the next."""

from __future__ import annotations

import math

from swerve.core.verbs import kernel


@kernel
def lowest(points, start, stop, d, x, y):
    """Return the index of the point in points[start:stop] with the least y·(p - x), and that value."""
    least, at = math.inf, start
    # four sums at a time: a single sum waits for its own additions (1.8 times slower at d = 40); the last point may be summed again
    for j in range(start, stop, 4):
        j1, j2, j3 = min(j + 1, stop - 1), min(j + 2, stop - 1), min(j + 3, stop - 1)
        s0 = s1 = s2 = s3 = 0.0
        for k in range(d):
            u, v = y[k], x[k]
            s0 += u * (points[j, k] - v)
            s1 += u * (points[j1, k] - v)
            s2 += u * (points[j2, k] - v)
            s3 += u * (points[j3, k] - v)
        if s0 < least:
            least, at = s0, j
        if s1 < least:
            least, at = s1, j1
        if s2 < least:
            least, at = s2, j2
        if s3 < least:
            least, at = s3, j3
    return at, least


@kernel
def separated(points, count, d, x, bound, work):
    """Return whether a remembered direction shows that every point is farther from x than `bound`."""
    for i in range(work.kept):
        ahead = 0.0
        for k in range(d):
            ahead += work.normals[i, k] * x[k]
        if work.supports[i] - ahead > bound:
            if work.counts[i] != count or work.versions[i] != work.version:  # the points changed: measure this direction again
                _, least = lowest(points, 0, count, d, x, work.normals[i])
                work.passes += 1
                work.supports[i] = least + ahead
                work.counts[i], work.versions[i] = count, work.version
            work.lower = work.supports[i] - ahead
            if work.lower > bound:
                return True
    work.lower = 0.0
    return False


@kernel
def remember(count, d, x, length, least, work):
    """Store the direction `toward` with its support value in place of the oldest one."""
    i, ahead = work.turn, 0.0
    for k in range(d):
        work.normals[i, k] = work.toward[k] / length
        ahead += work.normals[i, k] * x[k]
    work.supports[i] = least / length + ahead
    work.counts[i], work.versions[i] = count, work.version
    work.kept = max(work.kept, i + 1)
    work.turn = i + 1 if i + 1 < work.supports.shape[0] else 0
