"""R-BOCPD against weights in exact fractions, forecaster by forecaster; its false alarms and its delay."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st
from twins.detectors import BOCPD as Twin, forecast
from twins.streams import check_watch, stream

from swerve import BOCPD, GLR, Watcher
from swerve.detectors.bocpd import log_evidence
from swerve.detectors.glr import surely_below


@pytest.mark.parametrize(("delta", "every", "levels"), [(0.1, 1, 8), (0.9, 4, 6)])
def test_equals_the_twin_play_by_play(delta, every, levels):
    assert check_watch(Watcher(BOCPD(delta, every, levels), arms=2), Twin(2, delta, every, levels), 500, 3) > 3


@given(st.lists(st.booleans(), max_size=60))
def test_the_closed_form_is_what_the_forecaster_says_step_by_step(clicks):
    exact = forecast([float(click) for click in clicks])
    assert log_evidence(len(clicks), float(sum(clicks))) == pytest.approx(math.log(exact), abs=1e-9)


@given(st.integers(2, 300), st.data(), st.floats(0.1, 20.0))
def test_the_screen_lets_no_alarm_slip(n, data, bar):
    m = data.draw(st.integers(1, n - 1))
    r = data.draw(st.integers(0, m))
    s = r + data.draw(st.integers(0, n - m))
    odds = log_evidence(m, float(r)) + log_evidence(n - m, float(s - r)) - log_evidence(n, float(s))
    if surely_below(n, float(s), m, float(r), bar - math.log(n + 1.0)):
        assert odds <= bar + 1e-9


@pytest.mark.parametrize("chance", [0.05, 0.5, 0.9])
def test_false_alarms_are_rare(chance):
    alarmed = sum(bool(Watcher(BOCPD(delta=0.05)).run(stream(seed, (3000, chance)))) for seed in range(200))
    assert alarmed <= 0.05 * 200


def test_it_is_quicker_than_the_glr_test_of_the_same_delta():
    delays = {"BOCPD": [], "GLR": []}
    for seed in range(60):
        values = stream(seed, (2000 + 13 * seed, 0.7), (600, 0.4))
        for detector in (BOCPD(), GLR()):
            alarm = next(t for t in Watcher(detector).run(values) if t > 2000 + 13 * seed)
            delays[type(detector).__name__].append(alarm - 2000 - 13 * seed)
    assert np.mean(delays["BOCPD"]) < np.mean(delays["GLR"]) < 200


def test_tuning():
    assert BOCPD.tuned(9_999).delta == pytest.approx(0.01)
    assert BOCPD.tuned(30_000).delta == pytest.approx(BOCPD().delta, rel=1e-3)
