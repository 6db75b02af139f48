"""CUSUM against its twin, and the guarantees of its parameters."""

from __future__ import annotations

import math

import numpy as np
import pytest
from twins.detectors import CUSUM as Twin
from twins.streams import check_watch, stream

from swerve import CUSUM, SwerveError, Watcher


@pytest.mark.parametrize(("warmup", "drift", "threshold"), [(10, 0.1, 2.5), (1, 0.0, 4.3), (25, 0.15, 1.7)])
@pytest.mark.parametrize("fractions", [False, True])
def test_equals_the_twin_play_by_play(warmup, drift, threshold, fractions):
    alarms = check_watch(Watcher(CUSUM(warmup, drift, threshold), arms=3), Twin(3, warmup, drift, threshold), 700, 1, fractions)
    assert alarms > 2


def test_a_change_is_seen_after_about_threshold_over_what_exceeds_the_drift():
    delays = []
    for seed in range(100):
        alarms = [t for t in Watcher(CUSUM(400, 0.1, 10.0)).run(stream(seed, (1000, 0.8), (400, 0.3))) if t > 1000]
        delays.append(alarms[0] - 1000)
    assert np.mean(delays) == pytest.approx(10.0 / (0.5 - 0.1), rel=0.15)


def test_a_change_smaller_than_the_drift_is_not_seen():
    steady = [0.5] * 100 + [0.55] * 5000
    assert Watcher(CUSUM(100, 0.1, 10.0)).run(steady) == []
    assert len(Watcher(CUSUM(100, 0.02, 10.0)).run(steady)) == 1


def test_false_alarms_are_rare_when_the_start_is_well_known():
    alarms = sum(len(Watcher(CUSUM(1000, 0.1, 15.0)).run(stream(seed, (10_000, 0.5)))) for seed in range(50))
    assert alarms <= 2


def test_the_published_threshold():
    assert CUSUM.tuned(30_000, 6).threshold == math.log(5000)
    assert CUSUM.tuned(30_000).threshold == CUSUM.tuned(30_000, 0).threshold == math.log(30_000)
    with pytest.raises(SwerveError, match="horizon = 5"):
        CUSUM.tuned(5, 5)
