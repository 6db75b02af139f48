"""The guess: against a recount of the history at any round and at round L, and against the truth."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from testability import wrong_guesses
from twins import splitmix
from twins.duel import check_duel, mask_of
from twins.kl_ucb import KLUCB as KLUCBTwin
from twins.oracle import Plain
from twins.testable import Testable as Twin, guess_of_round
from twins.thompson import Thompson as ThompsonTwin
from twins.ucb1 import UCB1 as UCB1Twin

from swerve import KLUCB, UCB1, Fleet, SwerveError, Testable, Thompson
from swerve.bandits import guesses
from swerve.core.contract import guess, played


def same_guess(fleet, twin, now):
    if played(fleet.policy, fleet.table[0]) < fleet.policy.length:
        return  # the copy of the counts at ⌊L/2⌋ is "the last half" only from round L on
    plus, minus = guess(fleet.policy, fleet.table[0])
    assert (int(plus), int(minus)) == tuple(map(mask_of, twin.bandit.guess())), f"round {now}"


BANDITS = {
    "ucb1": (UCB1(), UCB1Twin),
    "kl_ucb": (KLUCB(), KLUCBTwin),
    "thompson": (Thompson(), lambda n: ThompsonTwin(n, splitmix.words(splitmix.named(6, "policy", 0)))),
}


@pytest.mark.parametrize("name", BANDITS)
@pytest.mark.parametrize("length", [1, 41, 60])
@pytest.mark.parametrize("ways", [{}, {"changing": True, "evictions": 0.03}])
def test_plays_as_its_bandit_and_guesses_as_the_twin(name, length, ways):
    bandit, make = BANDITS[name]
    twin = type("Bandit", (Plain,), {"evict": lambda self, arm: self.bandit.evict(arm)})(Twin(make(5), length, 0.3))
    fleet = Fleet(Testable(bandit, length=length, epsilon=0.3), queries=1, arms=5, seed=6)
    check_duel(fleet, twin, length + 30, seed=5, check=same_guess, **ways)


@settings(max_examples=60)
@given(st.data(), st.integers(1, 6), st.floats(0.05, 0.95))
def test_guesses_of_a_recorded_run_equal_a_recount(data, n, epsilon):
    arms = data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=40))
    rewards = data.draw(st.lists(st.sampled_from([0.0, 1.0, 0.5]), min_size=len(arms), max_size=len(arms)))
    found = guesses(arms, rewards, n, epsilon)
    assert len(found) == len(arms)
    for t, (plus, minus) in enumerate(found, start=1):
        assert (set(plus), set(minus)) == guess_of_round(arms, rewards, t, n, epsilon), f"round {t}"


@pytest.mark.parametrize("length", [7, 50])
def test_the_kernel_at_round_l_equals_the_library_call(length):
    fleet = Fleet(Testable(UCB1(), length=length, epsilon=0.4), queries=1, arms=4)
    dice = np.random.default_rng(length)
    arms, rewards = [], []
    for _ in range(length):
        decision = fleet.select(0)
        value = float(dice.random() < 0.2 * (1 + decision.arm))
        if value:
            fleet.reward(0, decision)
        arms.append(decision.arm)
        rewards.append(value)
    assert played(fleet.policy, fleet.table[0]) == length
    plus, minus = guess(fleet.policy, fleet.table[0])
    last = guesses(arms, rewards, 4, 0.4)[-1]
    assert (int(plus), int(minus)) == (mask_of(last.plus), mask_of(last.minus))


def test_thresholds_belong_to_the_right_side():
    # averages 0.5, 0.4 and 0.3; ε = 0.4: exactly ε/4 below is still "optimal", exactly ε/2 below is in neither set
    arms = [0] * 10 + [1] * 10 + [2] * 10 + [0] * 70
    rewards = [1, 0] * 5 + [1] * 4 + [0] * 6 + [1] * 3 + [0] * 7 + [1, 0] * 35
    last = guesses(arms, rewards, 3, 0.4)[-1]
    assert (set(last.plus), set(last.minus)) == guess_of_round(arms, rewards, 100, 3, 0.4)
    exact = guesses([0] * 4 + [1] * 4 + [0] * 8, [1] * 4 + [1, 1, 1, 0] + [1] * 8, 2, 0.5)[-1]
    assert exact.minus == frozenset()  # Δ̂ = ε/2 is not more than ε/2
    near = guesses([0] * 8 + [1] * 8 + [0] * 16, [1] * 8 + [1] * 7 + [0] + [1] * 16, 2, 0.5)[-1]
    assert near.plus == frozenset({0, 1})  # Δ̂ = ε/4 is not more than ε/4


@pytest.mark.parametrize(
    ("arms", "rewards", "words"),
    [([0, 1], [1.0], "one length"), ([0, 3], [1, 1], "0 … 2"), ([[0]], [[1]], "one length"), ([0.5], [1], "whole")],
)
def test_records_that_make_no_sense_are_refused(arms, rewards, words):
    with pytest.raises(SwerveError, match=words):
        guesses(arms, rewards, 3, 0.3)


@pytest.mark.parametrize(("n", "epsilon", "words"), [(3, 0.0, "epsilon = 0.0"), (3, 1.0, "epsilon = 1.0"), (0, 0.3, "n = 0")])
def test_a_guess_needs_arms_and_a_shift_it_can_see(n, epsilon, words):
    with pytest.raises(SwerveError, match=f"^guesses: {words} is not allowed"):
        guesses([0], [1.0], n, epsilon)


@pytest.mark.parametrize("family", ["edge", "uniform"])
def test_at_four_times_the_length_guesses_are_right(family):
    """(L, ε)-testable at L = 4·n/ε²·ln T. The slow test has the full count, and shorter lengths, which fail."""
    assert math.ceil(4 * 5 / 0.3**2 * math.log(30_000)) == 2291
    assert wrong_guesses(4.0, 2500, family) <= 1


def test_the_count_of_wrong_guesses_can_fail():
    assert wrong_guesses(0.25, 500) > 20
