"""Held-out requests without a service: the given order, learnt as rankings that something else made, with a token and its arm."""

from __future__ import annotations

import random

import pytest
from serving.scripted import KEY, Script, ranker

from swerve.serving.holdout import CONTROL, TREATED
from swerve.serving.outcomes import LEARNED
from swerve.serving.replay import ticket_of
from swerve.serving.ruling import Ruling
from swerve.serving.tokens import Tokens

OFFER = ["a", "b", "c", "d", "e"]
POLICIES = {"ts": "ts", "pages": "Patient(Listed(), click_wait=10)"}
specs = pytest.mark.parametrize("spec", POLICIES.values(), ids=POLICIES.keys())
HELD = {"control": True, "arm": CONTROL}


def made(spec: str, **more) -> Script:
    return Script(ranker(spec, slots=3, seed=4, **more))


@specs
def test_it_teaches_what_the_same_rankings_teach_when_something_else_made_them(spec):
    held, observed, draw = made(spec), made(spec), random.Random(1)
    for step in range(200):
        one = held.rank("q", OFFER, session=f"s{step}", **HELD)
        other = observed.rank("q", OFFER, session=f"s{step}", as_given=True)
        assert one.ranking == other.ranking == OFFER and one.chances == [1.0] * 3 and one.choice is None
        if draw.random() < 0.5:
            assert held.click(one, 1) == observed.click(other, 1) == LEARNED
    assert held.place("q").record.tobytes() == observed.place("q").record.tobytes()


@specs
def test_arms_may_alternate_in_one_call(spec):
    """Together is one by one, and only held-out requests have the given order for sure."""
    alone, together = made(spec), made(spec)
    arms = [CONTROL, TREATED, TREATED, CONTROL]
    for _ in range(20):
        alone.now += 1.0
        single = [alone.rank(f"q{k}", OFFER, step=0.0, arm=arm, control=arm == CONTROL) for k, arm in enumerate(arms)]
        together.now += 1.0
        asked = [together.asking(f"q{k}", OFFER, arm=arm, control=arm == CONTROL) for k, arm in enumerate(arms)]
        several = together.ranker.rank(asked, together.now)
        assert [one.ranking for one in single] == [one.ranking for one in several]
        assert [one.signed.arm for one in several] == arms
        assert all(one.ranking == OFFER for one, arm in zip(several, arms, strict=True) if arm == CONTROL)
    assert alone.place("q1").record.tobytes() == together.place("q1").record.tobytes()


def test_the_token_has_the_arm_and_one_without_has_none():
    script = made("ts")
    tokens = Tokens((KEY,), script.ranker.life)
    for arm in (0, CONTROL, TREATED):
        decided = script.rank("q", OFFER, arm=arm, control=arm == CONTROL)
        ticket = tokens.read(tokens.sign(decided.signed, script.now))
        assert ticket.arm == arm and ticket.evidence == decided.signed.evidence
        assert ticket.names == ticket_of(decided, script.ranker.life).names


def test_a_page_is_steady_within_its_arm():
    script = made("ts", steady=60.0)
    first = script.rank("q", OFFER, session="s", **HELD)
    again = script.rank("q", OFFER, session="s", **HELD)
    assert again.again and again.signed == first.signed
    treated = script.rank("q", OFFER, session="s", arm=TREATED)  # a ramp came between
    assert not treated.again and treated.signed.arm == TREATED
    guarded = script.rank("q", OFFER, session="s", arm=TREATED, control=True)
    assert not guarded.again and guarded.ranking == OFFER


@specs
def test_rules_hold_for_held_out_requests(spec):
    script = made(spec)
    for _ in range(10):
        decided = script.rank("q", OFFER, slots=2, ruling=Ruling(3, pins=(("p", 2, 1),)), **HELD)
        assert decided.ranking == ["a", "p", "b", "c", "d", "e"] and decided.signed.arm == CONTROL and decided.control
