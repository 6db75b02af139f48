"""M-UCB's two windows against sums over the history."""

from __future__ import annotations

import math

import pytest
from twins.detectors import MUCB as Twin
from twins.streams import check_watch, stream

from swerve import MUCB, SwerveError, Watcher


@pytest.mark.parametrize(("window", "threshold"), [(2, 0.3), (12, 2.3), (20, 3.7)])
@pytest.mark.parametrize("fractions", [False, True])
def test_equals_the_twin_play_by_play(window, threshold, fractions):
    """Rewards are multiples of 1/255, which fit into one byte; thresholds lie between the possible sums."""
    alarms = check_watch(Watcher(MUCB(window, threshold), arms=3), Twin(3, window, threshold), 900, 4, fractions)
    assert alarms > 2


def test_the_published_threshold_has_no_false_alarms_and_sees_what_it_promises():
    detector = MUCB.tuned(arms=5, horizon=30_000, window=400)
    assert detector.threshold == pytest.approx(math.sqrt(200 * math.log(2 * 5 * 30_000**2)))
    promised = 2 * detector.threshold / 400  # w/2 · Δ > b
    for seed in range(20):
        assert Watcher(detector).run(stream(seed, (20_000, 0.5))) == []
        alarms = Watcher(detector).run(stream(seed, (1000, 0.9), (400, 0.9 - promised - 0.15)))
        assert len(alarms) == 1
        assert 1000 < alarms[0] <= 1200 + 40


def test_a_window_must_have_two_halves():
    with pytest.raises(SwerveError, match="window = 7 is not allowed; window must be an even number"):
        MUCB(window=7)
