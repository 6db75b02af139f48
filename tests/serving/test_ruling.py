"""What operators' rules do to a ranking, and that nothing which they decide is learnt as a choice of the policy."""

from __future__ import annotations

import itertools
import random

import pytest
from serving.scripted import Script, ranker

from swerve.serving.control import Rule
from swerve.serving.outcomes import GONE, IGNORED, LEARNED
from swerve.serving.requests import Decided, Prepared
from swerve.serving.rulebook import RuleBook
from swerve.serving.ruling import Ruled, Ruling

OFFER = ["a", "b", "c", "d", "e"]
#: A policy for one result, whose shows cannot be taken back, and one for pages that waits for late clicks.
POLICIES = {"ts": "ts", "pages": "Patient(Listed(), click_wait=10)"}


def made(spec: str = "ts", slots: int = 3, **more) -> Script:
    return Script(ranker(spec, slots=slots, draws=8, **more))


def book(script: Script, *rules: Rule) -> RuleBook:
    return RuleBook(rules, script.ranker.key_from)


def ruled(script: Script, *rules: Rule, offer: list[str] = OFFER, **more) -> Decided:
    """Rank after rules, as the service does."""
    script.now += 1.0
    place, asked = script.asking("q", offer, **more)
    applied = book(script, *rules).apply(asked, script.now)
    decided = script.ranker.rank([(place, applied)], script.now)[0]
    assert decided is not None
    return decided


def rule(kind, result=None, number=1, query="q", **more) -> Rule:
    return Rule(number, kind, 0.0, result=result, query=query, **more)


def learnt(script: Script) -> bytes:
    """What the policy has learnt about the query, without its random stream."""
    return script.place("q").record.policy.tobytes()


def counts(script: Script) -> dict[str, tuple[int, int, int, int]]:
    place = script.place("q")
    ledger = place.record.ledger
    fields = (ledger.plays, ledger.clicks, ledger.phase_plays, ledger.phase_clicks)
    return {name: tuple(int(one[arm]) for one in fields) for name, arm in place.arms.items()}


@pytest.mark.parametrize("spec", POLICIES.values(), ids=POLICIES.keys())
def test_a_pin_is_where_it_is_pinned_with_a_propensity_of_one(spec):
    script = made(spec)
    for position in (1, 2, 3, 5, 9):
        for _ in range(10):
            decided = ruled(script, rule("pin", "d", position=position))
            assert decided.ranking.index("d") == min(position, len(OFFER)) - 1
            assert sorted(decided.ranking) == OFFER
            assert len(decided.chances) == 3
            if position <= 3:
                assert decided.chances[position - 1] == 1.0
                assert decided.signed.codes[position - 1] == GONE
            assert decided.ruling.marks(decided.ranking) == [Ruled("pin", 1, "d", min(position, 5))]


@pytest.mark.parametrize("spec", POLICIES.values(), ids=POLICIES.keys())
def test_a_blocked_result_is_nowhere(spec):
    script = made(spec)
    for _ in range(10):
        decided = ruled(script, rule("block", "a"), rule("block", "zzz", 2))
        assert sorted(decided.ranking) == ["b", "c", "d", "e"]
        assert decided.ruling.marks(decided.ranking) == [Ruled("block", 1, "a")]
    assert "a" not in script.place("q").arms


def test_a_boost_moves_up_from_where_the_policy_puts_it():
    for up in (1, 2, 3, 9):
        before = made().rank("q", OFFER).ranking
        after = ruled(made(), rule("boost", "d", up=up)).ranking
        assert after.index("d") == max(before.index("d") - up, 0)
        assert [one for one in after if one != "d"] == [one for one in before if one != "d"]


def test_without_a_rule_for_it_a_request_is_the_same_object():
    script = made()
    _, asked = script.asking("q", OFFER)
    for rules in ([], [rule("pin", "a", query="other", position=1)], [rule("block", "zzz", query=None)]):
        assert book(script, *rules).apply(asked, 0.0) is asked
    expired = rule("off", until=5.0)
    assert book(script, expired).apply(asked, 5.0) is asked
    assert book(script, expired).apply(asked, 4.9).ruling.off == 1


def test_the_rule_of_a_query_goes_before_that_of_all_and_a_block_before_a_pin():
    script = made()
    _, asked = script.asking("q", OFFER)
    rules = [
        rule("pin", "a", 1, query=None, position=3),
        rule("pin", "a", 2, position=2),
        rule("pin", "b", 3, position=1),
        rule("block", "b", 4, query=None),
        rule("boost", "a", 5, up=1),
    ]
    found = book(script, *rules).apply(asked, 0.0).ruling
    assert (found.pins, found.blocks, found.boosts) == ((("a", 2, 2),), (("b", 4),), ())
    off = book(script, *rules, rule("off", None, 6, query=None)).apply(asked, 0.0)
    assert off.ruling == Ruling(3, blocks=(("b", 4),), off=6) and off.ids() == ["a", "c", "d", "e"]


def test_two_pins_for_one_position_are_in_the_order_of_their_ids():
    script = made()
    pins = [rule("pin", "c", 2, position=1), rule("pin", "d", 1, position=1), rule("pin", "e", 3, position=2)]
    assert ruled(script, *pins).ranking[:3] == ["d", "c", "e"]


def test_what_is_pinned_on_top_is_not_learnt_and_neither_is_what_it_displaces():
    """A policy for one result learns from the top alone, and there the rule decides."""
    script = made("ts")
    ruled(script, rule("pin", "d", position=1))
    for _ in range(50):
        decided = ruled(script, rule("pin", "d", position=1))
        assert script.click(decided, "d") == IGNORED
        assert script.click(decided, 1) == IGNORED  # the same click, by its position: a repeat
    assert int(script.place("q").record.policy.plays.sum()) == 0
    assert "d" not in script.place("q").arms


def test_a_pin_below_the_top_leaves_the_choice_of_the_top_to_the_policy():
    """To the byte: the policy chooses among the others as if the pinned result were not there."""
    pinned, without = made("ts"), made("ts")
    draw = random.Random(1)
    for _ in range(100):
        one = ruled(pinned, rule("pin", "d", position=2))
        other = without.rank("q", ["a", "b", "c", "e"])
        assert one.ranking[0] == other.ranking[0] and one.ranking[1] == "d"
        if draw.random() < 0.4:
            assert pinned.click(one, 1) == without.click(other, 1) == LEARNED
    assert learnt(pinned) == learnt(without)


def test_a_boost_to_the_top_is_not_learnt():
    script = made("ts")
    for _ in range(50):
        decided = ruled(script, rule("boost", "e", up=10))
        assert decided.ranking[0] == "e" and decided.chances[0] == 1.0
        assert script.click(decided, "e") == IGNORED
    assert int(script.place("q").record.policy.plays.sum()) == 0


def test_slots_below_a_pin_are_learnt_as_those_in_which_they_were_shown():
    """A ruled page teaches what the same page teaches that something else has shown, with an unknown result in the pinned slot."""
    spec, draw = POLICIES["pages"], random.Random(2)
    pinned, told = made(spec), made(spec)
    for step in range(300):
        one = ruled(pinned, rule("pin", "d", position=1), session=f"s{step}")
        other = told.rank("q", ["a", "b", "c", "e"], slots=2, session=f"s{step}")
        assert one.ranking[1:3] == other.ranking[:2]
        told.respond(other, None, shown=["unknown", *other.ranking[:2]])
        if draw.random() < 0.5:
            clicked = one.ranking[draw.choice([1, 2])]
            assert pinned.click(one, clicked) == told.click(other, clicked) == LEARNED
    assert learnt(pinned) == learnt(told)
    assert {name: seen for name, seen in counts(pinned).items() if name != "d"} == counts(told)


def test_a_page_of_pins_alone_teaches_nothing():
    spec = POLICIES["pages"]
    script = made(spec)
    pins = [rule("pin", name, number, position=number) for number, name in enumerate("abc", 1)]
    before = ruled(script, *pins)
    for _ in range(20):
        decided = ruled(script, *pins)
        assert decided.ranking[:3] == ["a", "b", "c"] and decided.chances == [1.0] * 3
        assert script.click(decided, ["a", 2, "c"]) == IGNORED
    assert before.signed.codes[:3] == (GONE,) * 3
    assert all(seen == (0, 0, 0, 0) for seen in counts(script).values())
    assert int(script.place("q").record.policy.plays.sum()) == 0


def test_propensities_of_the_others_are_those_of_the_policy():
    pinned, without = made(POLICIES["pages"]), made(POLICIES["pages"])
    one = ruled(pinned, rule("pin", "d", position=2))
    other = without.rank("q", ["a", "b", "c", "e"], slots=2)
    assert [one.chances[0], *one.chances[2:]] == other.chances


def test_a_click_on_a_pin_below_the_slots_is_no_click_on_a_foreign_result():
    script = made("ts")
    for _ in range(3):
        script.rank("q", OFFER)  # every result has an arm
    decided = ruled(script, rule("pin", "e", position=5))
    assert script.click(decided, "e") == IGNORED
    decided = ruled(script, rule("block", "e"))
    with pytest.raises(Exception, match="not a result of this decision"):
        script.click(decided, "e")


def test_a_session_sees_a_rule_at_once_and_then_a_steady_page():
    script = Script(ranker("ts", slots=3, steady=100.0))
    free = script.rank("q", OFFER, session="s")
    pin = rule("pin", "d", position=1)
    first, again = ruled(script, pin, session="s"), ruled(script, pin, session="s")
    assert free.ranking != first.ranking and not first.again
    assert again.again and again.ranking == first.ranking
    moved = ruled(script, rule("pin", "d", position=2), session="s")
    assert not moved.again and moved.ranking[1] == "d"
    assert not ruled(script, pin, session="s", offer=["d", "a"]).again


@pytest.mark.parametrize("spec", POLICIES.values(), ids=POLICIES.keys())
def test_together_is_one_by_one(spec):
    alone, together = made(spec), made(spec)
    rules = [rule("pin", "d", position=2), rule("boost", "e", 2, up=2), rule("block", "a", 3)]
    for _ in range(5):
        single = [ruled(alone, *rules), alone.rank("other", OFFER, step=0.0)]
        together.now += 1.0
        pairs = [together.asking("q", OFFER), together.asking("other", OFFER)]
        asked = [(place, book(together, *rules).apply(request, together.now)) for place, request in pairs]
        assert [one.ranking for one in single] == [one.ranking for one in together.ranker.rank(asked, together.now)]
    assert learnt(alone) == learnt(together)


def test_any_rules_on_any_page_hold_for_every_policy():
    """Whatever the rules: pins are in their places, blocks are gone, everything else is there once."""
    draw = random.Random(3)
    for spec, slots in itertools.product(POLICIES.values(), (1, 2, 5, 10)):
        script = made(spec, slots=slots)
        for step in range(60):
            kinds = [draw.choice(["pin", "block", "boost", None]) for _ in OFFER]
            rules = []
            for number, (name, kind) in enumerate(zip(OFFER, kinds, strict=True), 1):
                extra = {"pin": {"position": draw.randint(1, 7)}, "boost": {"up": draw.randint(1, 5)}}.get(kind, {})
                rules += [rule(kind, name, number, **extra)] if kind else []
            if all(kind in ("pin", "block") for kind in kinds):
                continue  # nothing is left to decide: the service answers without the policy
            decided = ruled(script, *rules, session=f"s{step}")
            blocked = {name for name, kind in zip(OFFER, kinds, strict=True) if kind == "block"}
            assert sorted(decided.ranking) == sorted(set(OFFER) - blocked)
            assert len(decided.chances) == min(slots, len(decided.ranking))
            clicked = draw.choice([*decided.ranking, None])
            assert script.click(decided, clicked) in (LEARNED, IGNORED)
        assert all(plays >= clicks >= 0 for plays, clicks, _, _ in counts(script).values())


def test_a_request_keeps_what_it_had_besides_its_candidates():
    script = made()
    _, asked = script.asking("q", OFFER, session="s", signals={"news": 1.0})
    found = book(script, rule("pin", "a", position=1)).apply(asked, 0.0)
    assert isinstance(found, Prepared)
    assert (found.key, found.text, found.session, found.signals) == (asked.key, asked.text, "s", {"news": 1.0})
    assert found.results() == ["b", "c", "d", "e", "a"] and found.slots == 2
