"""The click model of a log, and what policies gain on it by traffic band."""

from __future__ import annotations

import numpy as np
import pytest

from swerve.evaluate import forecast as forecasts, shifts
from swerve.evaluate.forecast import LEAST_QUERIES, break_even, forecast, gain_of
from swerve.evaluate.history import CURVE, Histories
from swerve.evaluate.lists import Shown
from swerve.evaluate.model import Model
from swerve.evaluate.report_text import gain_text


def model_of(queries, seed=1):
    """A model of a log: by query, parts of so many lists with the attractiveness of the results, in the order that is shown."""
    rng = np.random.default_rng(seed)
    histories = Histories()
    for query, parts in queries.items():
        for lists, attractive in parts:
            for _ in range(lists):
                draws = rng.random(len(attractive)) < np.array(attractive) * CURVE[: len(attractive)]
                histories.add(Shown(0.0, query, [f"r{i}" for i in range(len(attractive))], (np.flatnonzero(draws) + 1).tolist()))
    return Model(histories, shifts.find(histories))


def test_the_model_finds_attractiveness_and_shifts():
    found = model_of({"q": [(3000, [0.5, 0.3, 0.1]), (3000, [0.1, 0.3, 0.8])]}).queries["q"]
    assert [segment.slots for segment in found] == [3, 3]
    assert found[0].lists == pytest.approx(3000, abs=150)
    assert found[0].attractive == pytest.approx([0.5, 0.3, 0.1], abs=0.05)
    assert found[1].attractive == pytest.approx([0.1, 0.3, 0.8], abs=0.05)
    assert found[0].logged == pytest.approx(np.dot([0.5, 0.3, 0.1], CURVE[:3]), abs=0.05)
    assert found[1].value(np.array([2, 1, 0])) == pytest.approx(np.dot([0.8, 0.3, 0.1], CURVE[:3]), abs=0.06)


def test_results_that_do_not_differ_are_drawn_to_the_mean():
    """Of 100 queries with equal results the spread is noise, so the prior is heavy; where results differ it is light."""
    same = model_of({f"q{n}": [(30, [0.3, 0.3])] for n in range(100)})
    rng = np.random.default_rng(5)
    differ = model_of({f"q{n}": [(30, rng.choice([0.05, 0.9], 2))] for n in range(100)})
    assert same.weight > 100
    assert differ.weight < 5
    assert np.std([segment.attractive[0] for segment in same.segments()]) < 0.03


def traffic():
    rng = np.random.default_rng(7)
    queries = {"head 1": [(700, [0.6, 0.2, 0.1]), (700, [0.1, 0.2, 0.7])], "head 2": [(1200, [0.2, 0.5, 0.2])]}
    queries |= {f"torso {n}": [(120, rng.permutation([0.6, 0.1, 0.1]))] for n in range(10)}
    queries |= {f"tail {n}": [(4, rng.permutation([0.6, 0.1, 0.1]))] for n in range(30)}
    return model_of(queries)


def test_bands_gain_by_how_often_their_queries_are_asked():
    found = forecast(traffic(), unwatched=50, policies=("clicks", "best"))
    bands = {band.name: band for band in found.bands}
    assert [(band.queries, band.lists) for band in found.bands] == [(2, 2600), (10, 1200), (30, 170)]
    assert [band.played_lists for band in found.bands] == [2600, 1200, 120]
    for band in found.bands:
        best, clicks = band.gains["best"], band.gains["clicks"]
        assert best.breaks_even == 1
        assert clicks.percent <= best.percent
        if band.played_queries < LEAST_QUERIES:
            assert band.name == "head" and clicks.percent_low is clicks.percent_high is None
            assert gain_text(clicks).endswith(" % (too few queries)")
        else:
            assert clicks.percent_low <= clicks.percent <= clicks.percent_high
        assert clicks.per_list == pytest.approx(clicks.percent / 100 * band.logged, rel=1e-6)
    assert bands["head"].gains["clicks"].percent > 0.0
    assert bands["torso"].gains["clicks"].percent > bands["tail"].gains["clicks"].percent
    mixed = sum(band.gains["best"].per_list * band.lists for band in found.bands) / sum(band.lists for band in found.bands)
    assert found.everything["best"].per_list == pytest.approx(mixed)
    assert found.everything["best"].percent_low is None  # a band without an interval leaves none for all
    assert "not a measurement" in found.model


def test_swerve_plays_on_the_model(uncompiled):
    """With a shift and a wrong order Swerve gains on the log's own ranking, and stays below what knows the model."""
    model = model_of({"q": [(150, [0.1, 0.7, 0.1])], "r": [(100, [0.1, 0.1, 0.8])]})
    (band,) = [band for band in forecast(model, policies=("swerve", "best")).bands if band.played_queries]
    assert 0.0 < band.gains["swerve"].percent < band.gains["best"].percent


def test_long_queries_are_shortened_and_bands_are_sampled(monkeypatch):
    monkeypatch.setattr(forecasts, "MOST_LISTS", 100)
    monkeypatch.setattr(forecasts, "PLAYED", 250)
    found = forecast(traffic(), policies=("best",))
    assert [(band.played_queries, band.played_lists) for band in found.bands] == [(2, 200), (2, 200), (30, 120)]


def test_break_even_is_where_gains_stay_above_zero():
    dip = np.array([-1.0] + [0.1] * 99)
    assert break_even([dip]) == 20
    assert break_even([np.full(10, -0.1)]) is None
    assert break_even([np.full(3, 0.1)]) == 1
    one = gain_of([np.array([0.1, 0.1])], np.array([1.0]))
    assert (one.percent, one.percent_low, one.per_list) == (pytest.approx(20.0), None, pytest.approx(0.1))
