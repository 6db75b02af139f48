"""Shadow mode without a service: it learns what observed rankings teach, and notes what the policy would have shown."""

from __future__ import annotations

import random

import pytest
from serving.scripted import Script, ranker

from swerve.serving.outcomes import LEARNED
from swerve.serving.ruling import Ruling

OFFER = ["a", "b", "c", "d", "e"]
POLICIES = {"ts": "ts", "pages": "Patient(Listed(), click_wait=10)"}
specs = pytest.mark.parametrize("spec", POLICIES.values(), ids=POLICIES.keys())


def made(spec: str, **more) -> Script:
    return Script(ranker(spec, slots=3, seed=4, **more))


@specs
def test_it_learns_what_the_same_rankings_teach_when_something_else_made_them(spec):
    shadowed, observed, draw = made(spec, shadow=True), made(spec), random.Random(1)
    for step in range(200):
        one = shadowed.rank("q", OFFER, session=f"s{step}")
        other = observed.rank("q", OFFER, session=f"s{step}", as_given=True)
        assert one.ranking == other.ranking == OFFER and one.chances == [1.0] * 3
        if draw.random() < 0.5:
            assert shadowed.click(one, 1) == observed.click(other, 1) == LEARNED
    assert shadowed.place("q").record.tobytes() == observed.place("q").record.tobytes()


@specs
def test_what_it_would_have_shown_is_what_it_shows_when_it_serves(spec):
    """From equal states, which rankings in the given order have taught: the third result is clicked, the others are not."""
    for seed in range(10):
        shadowed, serving = (Script(ranker(spec, slots=3, seed=seed, shadow=shadow)) for shadow in (True, False))
        for script in (shadowed, serving):
            for _ in range(60):
                script.click(script.rank("q", ["c", "a", "b"], as_given=True), "c")
                script.click(script.rank("q", ["a", "b", "c"], as_given=True), None)
        choice, decided = shadowed.rank("q", OFFER).choice, serving.rank("q", OFFER)
        assert choice == decided.ranking[:3] and decided.choice is None
        assert choice != OFFER[:3] or spec == "ts"  # one draw of Thompson sampling may leave the top as it is


@specs
def test_together_is_one_by_one(spec):
    alone, together = made(spec, shadow=True), made(spec, shadow=True)
    names = [f"q{number}" for number in range(6)]
    for _ in range(10):
        alone.now += 1.0
        single = [alone.rank(name, OFFER, step=0.0).choice for name in names]
        together.now += 1.0
        several = together.ranker.rank([together.asking(name, OFFER) for name in names], together.now)
        assert single == [one.choice for one in several]


@specs
def test_rules_hold_for_what_is_shown_and_for_what_would_have_been(spec):
    script = made(spec, shadow=True)
    ruling = Ruling(3, pins=(("p", 2, 1),))
    for _ in range(20):
        decided = script.rank("q", OFFER, slots=2, ruling=ruling)
        assert decided.ranking == ["a", "p", "b", "c", "d", "e"]
        assert decided.choice[1] == "p" and len(decided.choice) == len(set(decided.choice)) == 3
