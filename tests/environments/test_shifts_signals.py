"""The signals of `Shifts`: their times, missing ones, and contexts with and without a signal."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from environments.shifted import EVERYTHING, SMALL, Rounds, rounds_of
from hypothesis import given, settings, strategies as st
from scipy import stats
from twins import shifts as twins

from swerve import Shifts, SpecError
from swerve.environments import world
from swerve.environments.histories import announce, write_line
from swerve.environments.worlds import blank


def test_a_clean_signal_comes_with_its_event():
    for rounds in rounds_of(SMALL)[0]:
        assert Rounds.at(rounds.signal) == Rounds.at(rounds.told)


@pytest.mark.parametrize(("lead", "lag"), [(300, 0), (0, 300), (40, 2)])
@pytest.mark.parametrize("glide", [0, 30])
def test_moving_signals_moves_nothing_else(lead, lag, glide):
    spec = dataclasses.replace(SMALL, glide_rounds=glide)
    moved, _ = rounds_of(dataclasses.replace(spec, lead_rounds=lead, lag_rounds=lag))
    plain, _ = rounds_of(spec)
    offsets = []
    for one, other in zip(moved, plain, strict=True):
        assert one.chances.tobytes() == other.chances.tobytes()
        assert one.told.tobytes() == other.told.tobytes()
        events, signals = Rounds.at(other.signal), Rounds.at(one.signal)
        assert 1 <= len(signals) <= len(events)
        assert min(signals) >= 2
        for signal in signals:
            assert any(-lead <= signal - event <= lag for event in events)
        for event in events:
            assert any(-lead <= signal - event <= lag for signal in signals)
        if len(events) == 1:
            offsets.append(signals[0] - events[0])
    assert set(offsets) != {0}


def test_leads_and_lags_are_uniform():
    spec = Shifts(
        queries=600,
        impressions=1_200_000,
        shifting_share=1.0,
        events_low=1,
        events_high=1,
        lead_rounds=100,
        lag_rounds=50,
        features=0,
    )
    instance = world(spec, 2)
    offsets = []
    for query in range(600):
        lines = instance.segments[instance.owner == query]
        (event,), (signal,) = (lines["since"][lines[kind] == 1] for kind in ("event", "signal"))
        if 102 <= event <= 1950:  # elsewhere the query's first or last round limits the shift
            offsets.append(signal - event)
    assert len(offsets) > 500
    assert (min(offsets), max(offsets)) == (-100, 50)
    assert stats.kstest((np.array(offsets) + 100.5) / 151, "uniform").pvalue > 0.001


def test_signals_stay_inside_their_query():
    spec = Shifts(queries=30, impressions=30 * 50, shifting_share=1.0, events_high=5, lead_rounds=1000, lag_rounds=1000)
    ends = set()
    for rounds in rounds_of(spec)[0]:
        at = Rounds.at(rounds.signal)
        assert at
        ends |= {at[0], at[-1]}
    assert {2, 50} <= ends  # signals that would lie outside move to the first or last allowed round


CHANCES = {1: [0.1, 0.2, 0.3], 10: [0.9, 0.2, 0.3], 20: [0.1, 0.9, 0.3]}


@settings(max_examples=60)
@given(st.lists(st.integers(2, 30), max_size=6))
def test_signals_are_put_between_the_lines_without_changing_them(signals):
    segments = blank(1, len(CHANCES) + len(signals), 3)[0]
    for i, (since, chances) in enumerate(CHANCES.items(), len(signals)):
        write_line(Shifts(results=3), segments, i, since, since > 1, chances)
    out = segments[: announce(segments, 0, len(signals), len(segments), sorted(signals), len(signals))]
    assert out["since"].tolist() == sorted({*CHANCES, *signals})
    for line in out:
        assert line["chance"][:3].tolist() == CHANCES[max(since for since in CHANCES if since <= line["since"])]
        assert line["event"] == (line["since"] in {10, 20})
        assert line["signal"] == (line["since"] in signals)


def test_silent_events_send_nothing_and_the_others_do():
    spec = dataclasses.replace(SMALL, queries=100, impressions=200_000, silent_share=0.3)
    told = quiet = 0
    for rounds in rounds_of(spec, 3)[0]:
        assert (rounds.signal <= rounds.told).all()
        told += rounds.told.sum()
        quiet += (rounds.told - rounds.signal).sum()
    assert stats.binomtest(int(quiet), int(told), 0.3).pvalue > 0.001
    assert not any(rounds.signal.any() for rounds in rounds_of(dataclasses.replace(SMALL, silent_share=1.0))[0])


def test_bursting_queries_never_shift_and_signal_every_so_often():
    drawn, instance = rounds_of(dataclasses.replace(SMALL, shifting_share=0.3, bursting_share=0.25, burst_every=150))
    bursting = [rounds for rounds in drawn if rounds.signal.any() and not rounds.told.any()]
    assert len(bursting) == 5
    assert (instance.events > 0).sum() == 6
    for rounds in bursting:
        at = Rounds.at(rounds.signal)
        assert 2 <= at[0] <= 151
        assert set(np.diff(at)) == {150}
        assert at[-1] > 2000 - 150
        assert (rounds.chances == rounds.chances[0]).all()


def test_a_signal_leaves_the_box_by_the_margin_and_quiet_rounds_do_not():
    drawn, instance = rounds_of(dataclasses.replace(SMALL, margin=0.2, silent_share=0.2))
    edges = instance.scene[0]["edge"][:10]
    which = set()
    for rounds in drawn:
        outside = rounds.xs - edges
        said = rounds.signal == 1
        assert (outside[said].max(axis=1) >= 0.2).all()
        assert ((outside[said] > 0).sum(axis=1) == 1).all()
        assert (outside[~said] <= 0).all()  # also for silent events
        assert rounds.xs.min() >= 0
        assert rounds.xs.max() <= 1
        which |= set(outside[said].argmax(axis=1).tolist())
    assert which == set(range(10))


def test_spurious_rounds_look_like_signals_as_often_as_asked():
    drawn, instance = rounds_of(dataclasses.replace(SMALL, spurious_share=0.01))
    edges = instance.scene[0]["edge"][:10]
    quiet = np.concatenate([rounds.xs[rounds.told == 0] for rounds in drawn])
    looks = (quiet - edges).max(axis=1)
    assert stats.binomtest(int((looks > 0).sum()), len(quiet), 0.01).pvalue > 0.001
    assert looks[looks > 0].min() >= 0.1


def test_poison_is_the_largest_value_in_the_first_features():
    drawn, instance = rounds_of(dataclasses.replace(SMALL, poison_share=0.02, poisoned_features=3, shifting_share=0.5))
    edges = instance.scene[0]["edge"][:10]
    quiet = np.concatenate([rounds.xs[rounds.told == 0] for rounds in drawn])
    poisoned = (quiet > edges).any(axis=1)
    assert stats.binomtest(int(poisoned.sum()), len(quiet), 0.02).pvalue > 0.001
    assert (quiet[poisoned].max(axis=1) == 1.0).all()
    assert set(quiet[poisoned].argmax(axis=1)) == {0, 1, 2}
    for rounds in drawn:  # announced events stay announced
        assert ((rounds.xs[rounds.signal == 1] - edges).max(axis=1) >= 0.1).all()
    drawn, instance = rounds_of(dataclasses.replace(SMALL, poison_share=1.0, silent_share=1.0))
    for rounds in drawn:  # an event without a signal is not a quiet round
        assert (rounds.xs[rounds.told == 1] <= instance.scene[0]["edge"][:10]).all()
        assert (rounds.xs[rounds.told == 0, 0] == 1.0).all()


def test_only_relevant_features_signal():
    drawn, instance = rounds_of(dataclasses.replace(SMALL, signal_features=2, spurious_share=0.02))
    edges = instance.scene[0]["edge"][:10]
    out = {int(j) for rounds in drawn for j in np.flatnonzero((rounds.xs > edges).any(axis=0))}
    assert out == {0, 1}


def test_edges_swing_by_the_drift_once_a_season():
    spec = dataclasses.replace(SMALL, queries=3, impressions=60_000, shifting_share=0.0, edge_drift=0.3, season_rounds=10_000)
    drawn, instance = rounds_of(spec)
    edges = instance.scene[0]["edge"][:10]
    assert len(set(instance.scene[0]["phase"][:10].tolist())) == 10
    top = np.max([rounds.xs for rounds in drawn], axis=0).reshape(40, 500, 10).max(axis=1)  # 40 parts, 20 per season
    np.testing.assert_allclose(top.max(axis=0), edges + 0.3, atol=0.02)
    assert (top.min(axis=0) < edges - 0.3 + 0.04).all()
    np.testing.assert_allclose(top[:20], top[20:], atol=0.03)


def test_correlation_is_a_common_part():
    def mean_correlation(amount):
        drawn, instance = rounds_of(
            dataclasses.replace(SMALL, queries=2, impressions=8000, shifting_share=0.0, feature_correlation=amount)
        )
        xs = np.concatenate([rounds.xs for rounds in drawn])
        assert (xs <= instance.scene[0]["edge"][:10]).all()
        table = np.corrcoef(xs.T)
        return table[~np.eye(10, dtype=bool)].mean()

    assert abs(mean_correlation(0.0)) < 0.02
    assert mean_correlation(0.8) == pytest.approx(0.64 / (0.64 + 0.04), abs=0.02)  # c²/(c² + (1 − c)²)
    assert mean_correlation(1.0) == pytest.approx(1.0)


def test_contexts_have_documented_keys():
    spec = Shifts(queries=4, impressions=4000, **EVERYTHING)
    drawn, instance = rounds_of(spec, 9)
    for query, rounds in enumerate(drawn):
        for t in range(1, 1001):
            expected = twins.context(spec, 9, query, t, rounds.told[t - 1], rounds.signal[t - 1], instance.scene[0])
            np.testing.assert_allclose(rounds.xs[t - 1], expected, atol=1e-12)


# ---------------------------------------------------------------- missing and extreme values

SPOILT = [
    {"missing_share": 0.2}, {"missing_share": 0.2, "missing_as": "zero"}, {"missing_share": 0.2, "missing_as": "quiet"},
    {"extreme_share": 0.05}, {"extreme_share": 0.05, "extreme_as": "tenfold"}, {"extreme_share": 0.05, "extreme_as": "quiet"},
    {"missing_share": 0.2, "extreme_share": 0.05},
]  # fmt: skip


@pytest.mark.parametrize("spoilt", SPOILT, ids=str)
def test_spoilt_contexts_have_documented_keys(spoilt):
    spec = Shifts(queries=2, impressions=2000, **EVERYTHING, **spoilt)
    drawn, instance = rounds_of(spec, 9)
    for query, rounds in enumerate(drawn):
        for t in range(1, 1001):
            expected = twins.context(spec, 9, query, t, rounds.told[t - 1], rounds.signal[t - 1], instance.scene[0])
            np.testing.assert_allclose(rounds.xs[t - 1], expected, atol=1e-12)


@pytest.mark.parametrize("spoilt", SPOILT, ids=str)
def test_spoiling_changes_only_the_values_that_it_hits_as_often_as_asked(spoilt):
    plain, _ = rounds_of(SMALL, 3)
    drawn, _ = rounds_of(dataclasses.replace(SMALL, **spoilt), 3)
    before, after = (np.concatenate([rounds.xs for rounds in each]) for each in (plain, drawn))
    for one, other in zip(plain, drawn, strict=True):
        assert one.chances.tobytes() == other.chances.tobytes()
        assert one.signal.tobytes() == other.signal.tobytes()
    gone = np.isnan(after)
    other = (after != before) & ~gone
    share = {"nan": gone, "zero": after == 0.0}.get(spoilt.get("missing_as", "nan"), gone)
    if spoilt.get("missing_as") != "quiet":
        assert stats.binomtest(int(share.sum()), share.size, spoilt.get("missing_share", 0.0)).pvalue > 0.001
    if "extreme_share" in spoilt and "extreme_as" not in spoilt:
        assert stats.binomtest(int(other.sum()), other.size, 0.05).pvalue > 0.001
        assert (after[other] == 1.0).all()
    if spoilt.get("extreme_as") == "tenfold":
        np.testing.assert_allclose(after[other], np.minimum(1.0, 10.0 * before[other]))
    if "quiet" in spoilt.values():  # only signals are lost, in as many rounds as their feature is affected
        said = np.concatenate([rounds.signal for rounds in plain]) == 1
        assert not other[~said].any()
        hit = spoilt.get("missing_share", spoilt.get("extreme_share"))
        assert stats.binomtest(int(other[said].any(axis=1).sum()), int(said.sum()), hit).pvalue > 0.001


def test_missing_and_extreme_shares_have_room_for_each_other():
    with pytest.raises(SpecError, match=r"extreme_share = 0\.6 is not allowed; extreme_share must be ≤ 1 − missing_share = 0\.5"):
        Shifts(missing_share=0.5, extreme_share=0.6)
