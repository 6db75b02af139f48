"""The change test: its posterior against a full enumeration, its Bayes factors, and the drawn sets."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import assume, given, strategies as st
from policies.changing import ROOM, SPEC, arms_of, cases_of, drawn_sets, fresh, play, under_way
from scipy import stats
from twins.change import Arm, Cases, log_marginal

from swerve import ChangeTest, Swerve, SwerveError
from swerve.policies.swerve import draws as draws_file
from swerve.policies.swerve.posterior import (
    MOST,
    SURE,
    begin_change,
    count_click,
    count_play,
    event_odds,
    share_changed,
    still_better,
    suspicion,
    unseen_rise,
)

# ---------------------------------------------------------------- Bayes factors


@given(st.integers(0, 60), st.integers(0, 60), st.permutations([0.0] * 6 + [1.0] * 5), st.booleans(), st.randoms())
def test_the_factor_is_the_closed_form_in_any_order(clicks, skips, values, late, dice):
    """Clicks may come right after their plays or later: the factor depends only on the counts."""
    row = fresh([(clicks, skips), (3, 1)])
    begin_change(SPEC, row, False, 0.0, 0.1, 0.05, 0.995)
    owed = 0
    for value in values:
        count_play(SPEC, row, 0)
        owed += value > 0.0
        while owed and not (late and dice.random() < 0.5):
            count_click(SPEC, row, 0, 1.0)
            owed -= 1
    for _ in range(owed):
        count_click(SPEC, row, 0, 1.0)
    assert (row.new_plays[0], row.new_total[0]) == (11, 5.0)
    assert row.factor[0] == pytest.approx(arms_of(row, 1)[0].factor, rel=1e-9)


def test_the_closed_form_is_a_ratio_of_two_forecasts():
    """The twin's marginal likelihood equals the product of the predictive probabilities, play by play."""
    chance, clicks, skips = 1.0, 0, 0
    for value in (1, 0, 0, 1, 1, 0, 1):
        chance *= (2.5 + clicks if value else 0.7 + skips) / (3.2 + clicks + skips)
        clicks, skips = clicks + value, skips + 1 - value
    assert log_marginal(clicks, skips, 2.5, 0.7) == pytest.approx(math.log(chance), abs=1e-12)


@pytest.mark.parametrize("value", [0.25, 0.5, 0.9])
def test_part_of_a_click_counts_about_as_a_click_with_that_chance(value):
    """There is no closed form: the factor lies between those of a click and of a skip, near their average."""
    factors = []
    for earned in (0.0, value, 1.0):
        row = fresh([(30, 10)])
        begin_change(SPEC, row, False, 0.0, 0.1, 0.05, 0.995)
        for before in (1.0, 0.0, 0.0):
            play(row, 0, before)
        play(row, 0, earned)
        factors.append(float(row.factor[0]))
    skip, part, click = factors
    assert part == pytest.approx(value * click + (1.0 - value) * skip, rel=0.02)
    assert click < part < skip


def test_a_click_for_a_play_before_the_test_goes_to_the_old_record():
    row = fresh([(30, 10)])
    begin_change(SPEC, row, False, 0.0, 0.1, 0.05, 0.995)
    count_click(SPEC, row, 0, 1.0)
    assert (row.old_total[0], row.new_total[0], row.factor[0]) == (31.0, 0.0, 1.0)
    play(row, 0, 1.0)
    count_click(SPEC, row, 0, 1.0)
    assert (row.old_total[0], row.new_total[0]) == (32.0, 1.0)
    for _ in range(50):
        count_click(SPEC, row, 0, 1.0)
    assert (row.old_total[0], row.new_total[0]) == (40.0, 1.0)  # a play earns at most 1, however often its reward is reported


def test_factors_stay_within_their_bounds():
    row = fresh([(1000, 0), (0, 1000)])
    begin_change(SPEC, row, False, 0.0, 0.1, 0.05, 0.995)
    for _ in range(500):
        play(row, 0, 0.0)
        play(row, 1, 0.0)
    assert row.factor[0] == MOST
    assert 1.0 / MOST <= row.factor[1] < 1.0
    for _ in range(500):
        play(row, 1, 1.0)
    assert row.factor[1] == MOST
    assert np.isfinite(row.factor).all()


# ---------------------------------------------------------------- the posterior


@given(under_way())
def test_the_posterior_is_the_enumeration_of_all_cases(test):
    spec, n, row = test
    cases = cases_of(row, n, spec)
    odds, none = event_odds(row)
    exact = cases.odds()
    assert odds == pytest.approx(min(max(exact, 1.0 / SURE if row.found else 0.0), SURE), rel=1e-6, abs=1e-12)
    happened = cases.chance(True)
    for arm in range(n):
        # `share_changed` treats arms as independent; `none` accounts for an event changing at least one
        share = share_changed(row, arm, row.given[arm])
        assert share / (1.0 - none) * happened == pytest.approx(cases.chance(True, (arm,)), rel=1e-6, abs=1e-12)
        stale = share_changed(row, arm, row.anyway[arm]) * (1.0 - happened)
        assert stale == pytest.approx(cases.chance(False, (arm,)), rel=1e-6, abs=1e-12)
    if row.found == 0:
        assert none == pytest.approx(math.prod(1.0 - share_changed(row, arm, row.given[arm]) for arm in range(n)), rel=1e-9)
    else:
        assert none == 0.0


@given(under_way())
def test_a_suspicion_is_exact_once_an_arm_is_known_and_never_too_high(test):
    spec, n, row = test
    cases = cases_of(row, n, spec)
    odds, none = event_odds(row)
    assume(1.0 / SURE < odds < SURE)
    for arm in range(n):
        exact = cases.chance(inside=(arm,))
        if row.found:
            assert suspicion(row, arm, odds) == pytest.approx(exact, rel=1e-6, abs=1e-12)
        else:  # it ignores that an event changes at least one arm, so it is too low by at most the factor 1 − none
            assert exact * (1.0 - none) - 1e-12 <= suspicion(row, arm, odds) <= exact + 1e-12


@given(under_way())
def test_what_is_looked_at_is_the_chance_that_an_arm_has_risen_unseen(test):
    """An event that changed this arm and not the leader, or no event and an earlier suspicion: the arm's share in `select`."""
    spec, n, row = test
    odds, none = event_odds(row)
    assume(odds > 0.0 and (row.found or odds < SURE))
    assume(not row.found or 1.0 / SURE < odds < SURE)
    policy = Swerve(test=spec, look_threshold=0.0, look_probability=0.0)
    leader = int(row.leader)
    rise = odds / (1.0 + odds) * (1.0 - share_changed(row, leader, row.given[leader])) / (1.0 - none)
    cases = cases_of(row, n, spec)
    for arm in range(n):
        share = draws_file.worth_a_look(policy, row, arm, odds, rise)
        exact = 0.0 if arm == leader else cases.chance(True, (arm,), (leader,)) + cases.chance(False, (arm,))
        assert share == pytest.approx(exact, rel=1e-6, abs=1e-12)


def test_a_query_without_a_record_cannot_have_changed():
    row = fresh([])
    begin_change(SPEC, row, False, 0.0, 0.3, 0.3, 0.995)
    assert event_odds(row) == (0.0, 0.0)
    assert row.given.tolist() == [0.0] * ROOM


@pytest.mark.parametrize("clicks", [0, 1, 3, 9, 40])
@pytest.mark.parametrize("top", [0.02, 0.3, 0.9, 1.0 - 1e-6])
def test_what_is_left_of_a_suspicion_is_a_ratio_of_tails(clicks, top):
    row = fresh([(10, 10)])
    row.top = top
    for plays in (clicks, min(clicks + 1, 40), 40):
        row.new_plays[0], row.new_total[0] = plays, float(clicks)
        exact = min(1.0, stats.beta.sf(top, 1 + clicks, 1 + plays - clicks) / (1.0 - top))
        assert still_better(SPEC, row, 0) == pytest.approx(exact, rel=1e-6, abs=1e-300)


def test_after_many_plays_the_average_says_what_is_left_of_a_suspicion():
    row = fresh([(10, 10)])
    row.top, row.new_plays[0] = 0.5, 41
    row.new_total[0] = 20.0
    assert still_better(SPEC, row, 0) == 0.0
    row.new_total[0] = 21.0
    assert still_better(SPEC, row, 0) == 1.0


def test_a_rise_is_unseen_until_somebody_looks():
    row = fresh([(80, 20), (10, 90), (20, 80)])
    begin_change(SPEC, row, False, 0.0, 0.1, 0.05, 0.995)
    for _ in range(30):
        play(row, 0, 1.0)
    assert unseen_rise(SPEC, row) == pytest.approx(1.0)  # the leader's clicks are no evidence about it
    for arm, one_in in ((1, 10), (2, 5)):
        before = unseen_rise(SPEC, row)
        for t in range(60):
            play(row, arm, float(t % one_in == 0))
        assert unseen_rise(SPEC, row) < 0.7 * before
    assert unseen_rise(SPEC, row) < 0.2
    cases = cases_of(row, 3)
    some, none = [cases.chance(True, outside=(0,)), cases.chance(True, outside=(0, 1, 2))]
    prior = Cases([Arm(arm.old, (0.0, 0.0), arm.given, 0.0, arm.slab) for arm in arms_of(row, 3)], float(row.odds))
    exact = (some - none) / prior.chance(True, outside=(0,)) / (cases.chance(False) / prior.chance(False))
    assert unseen_rise(SPEC, row) == pytest.approx(exact)


# ---------------------------------------------------------------- slabs


@given(st.floats(0.005, 0.995), st.floats(0.05, 0.95), st.floats(0.05, 0.95))
def test_slabs_follow_the_leader(level, fall, upset):
    """A changed leader has `fall` times its mean on average; any other changed arm is better than it with probability `upset`."""
    spec = ChangeTest(fall_factor=fall, overtake_probability=upset)
    row = fresh([(int(10_000 * level), 10_000 - int(10_000 * level)), (0, 50)], spec)
    assume(row.old_total[0] > 0)
    begin_change(spec, row, False, 0.0, 0.1, 0.05, 0.995)
    assert row.leader == 0
    assert spec.a / (spec.a + row.fall) == pytest.approx(fall * row.top)
    assert stats.beta.sf(row.top, 1.0, row.rise) == pytest.approx(upset, rel=1e-9)


# ---------------------------------------------------------------- drawn sets


@pytest.mark.parametrize("found", [0, 1])
def test_a_bold_test_plays_on_sets_drawn_from_the_posterior(monkeypatch, found):
    n, dice = 4, random.Random(5)
    row = fresh([(160, 40), (40, 160), (50, 150), (60, 140)])
    begin_change(SPEC, row, False, 0.0, 0.3, 0.25, 0.995)
    row.anyway[1], row.anyway[2] = 0.3, 0.1
    row.found = found
    for arm, chance in ((0, 0.65), (1, 0.3), (2, 0.4)):
        for _ in range(3):
            play(row, arm, float(dice.random() < chance))
    assert event_odds(row)[0] >= 1.0
    cases = cases_of(row, n).sets()
    draws = 4000
    seen = drawn_sets(monkeypatch, row, n, draws)
    assert set(seen) <= set(cases)
    likely = sorted((which for which in cases if cases[which] * draws >= 5.0), key=sorted)
    rare = 1.0 - sum(cases[which] for which in likely)
    observed = [seen[which] for which in likely] + [draws - sum(seen[which] for which in likely)]
    expected = [cases[which] * draws for which in likely] + [rare * draws]
    if expected[-1] < 5.0:
        observed, expected = [*observed[:-2], sum(observed[-2:])], [*expected[:-2], sum(expected[-2:])]
    assert len(expected) > 8
    assert stats.chisquare(observed, expected).pvalue > 0.01


def test_the_sets_are_drawn_from_what_the_record_says(monkeypatch):
    """The check above can fail: with other clicks the drawn sets differ."""
    row = fresh([(160, 40), (40, 160), (50, 150), (60, 140)])
    begin_change(SPEC, row, False, 0.0, 0.3, 0.25, 0.995)
    for _ in range(12):
        play(row, 0, 0.0)
    seen = drawn_sets(monkeypatch, row, 4, 300)
    assert sum(count for which, count in seen.items() if 0 in which) > 295


@pytest.mark.parametrize(
    ("named", "words"),
    [
        ({"a": 0.0}, "a must"),
        ({"other_change_probability": 1.0}, "other_change_probability"),
        ({"fall_factor": 0.0}, "fall_factor"),
        ({"decision_confidence": 1.0}, "decision_confidence"),
    ],
)
def test_what_could_not_work_is_refused(named, words):
    with pytest.raises(SwerveError, match=words):
        ChangeTest(**named)
