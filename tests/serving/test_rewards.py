"""Events with weights: any order and splitting ends in the same bytes, sums are capped, and the draw of a click is unbiased."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from serving.checking import refused
from serving.scripted import Script, ranker

from swerve.core.examination import SLOTS
from swerve.policies import Listed, Patient
from swerve.serving.messages import Event
from swerve.serving.outcomes import IGNORED, LATE, LEARNED, MOST_MARKS, UNITS, Outcome, decode, encode
from swerve.serving.ranker import Ranker
from swerve.serving.replay import ticket_of
from swerve.serving.requests import Decided
from swerve.serving.rewards import Rewards, added, drawn, uniform

OFFER = ["a", "b", "c", "d"]
WEIGHTS = (("click", 0.2), ("cart", 0.5), ("purchase", 1.0), ("dwell", 0.3))
SIGNALS: dict[str, Any] = {"plan": (0, 1, 2, 5), "numbers": ("news",)}


def paged(**changes: Any) -> Script:
    return Script(ranker(Patient(Listed(), click_wait=5.0), slots=3, seed=4, **{"weights": WEIGHTS, **SIGNALS, **changes}))


def tell(script: Script, decided: Decided, *events: Event, shown: list[str] | None = None) -> Outcome:
    """Report events; what is kept of the decision goes through its number, as in the store."""
    ticket, number = ticket_of(decided, script.ranker.life), decided.signed.number
    kept = script.outcomes.get(number)
    before = decode(encode(kept)) if kept else Outcome(0, ticket.seen)
    place = script.ranker.rows.places[decided.signed.key]
    script.outcomes[number] = script.ranker.feedback(place, ticket, number, before, events, shown, script.now)
    return script.outcomes[number]


def state_of(made: Ranker) -> tuple[bytes, bytes]:
    return b"".join(place.record.tobytes() for place in made.rows), made.pools.tobytes()


KINDS = [kind for kind, _ in WEIGHTS]
events = st.lists(
    st.builds(
        Event,
        st.sampled_from(KINDS),
        position=st.integers(1, 4),
        id=st.none() | st.sampled_from(["e1", "e2"]),
        value=st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0]),
    ),
    max_size=12,
)


@settings(deadline=None, max_examples=60)
@given(events, st.randoms(use_true_random=False), st.integers(0, 50))
def test_any_order_splitting_and_repetition_ends_in_the_same_bytes(said, chance, skipped):
    """Each way has a ranker of its own; `skipped` makes it another decision, with other draws."""
    ends = []
    for way in range(3):
        script = paged()
        script.ranker.issued = skipped
        for name in range(3):
            script.rank("q", OFFER, session=f"before {name}")
        decided = script.rank("q", OFFER, session="s")
        order = list(said)
        if way:
            chance.shuffle(order)
            order += chance.choices(order, k=3) if order else []
        while order:
            size = len(order) if way == 0 else chance.randint(1, len(order))
            outcome = tell(script, decided, *order[:size])
            del order[:size]
        kept = script.outcomes.get(decided.signed.number, Outcome(0, 0))
        script.rank("q", OFFER, session="after", step=30.0)  # the policy has learnt the page by now
        ends.append((*state_of(script.ranker), kept._replace(status=0), kept.reward()))
    assert ends[1:] == ends[:1] * 2
    assert not said or outcome.reward() <= 3.0


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_events_add_up_to_a_click_at_most(order):
    script = paged()
    decided = script.rank("q", OFFER)
    three = [Event("cart", position=2), Event("dwell", position=2, value=0.5), Event("cart", position=2, id="another")]
    worth = [0.5, 0.15, 0.5]
    total = 0.0
    for index in order:
        outcome = tell(script, decided, three[index])
        total += worth[index]
        assert outcome.reward() == pytest.approx(min(total, 1.0))
    assert (outcome.clicked, outcome.marks, outcome.status) == (0b10, (), LEARNED)
    assert tell(script, decided, Event("purchase", position=2)) == outcome  # there is no more to earn


def test_repeats_count_once_by_id_or_else_by_kind_and_the_highest_value_counts():
    script = paged()
    decided = script.rank("q", OFFER)
    dwell = [Event("dwell", position=1, value=value) for value in (0.2, 0.6, 0.4)]
    assert [tell(script, decided, event).reward() for event in dwell] == pytest.approx([0.06, 0.18, 0.18])
    named = [Event("dwell", position=1, id=name, value=0.2) for name in ("x", "x", "y")]
    assert [tell(script, decided, event).reward() for event in named] == pytest.approx([0.24, 0.24, 0.3])
    assert tell(script, decided, Event("click", position=1, value=0.0)).reward() == pytest.approx(0.3)


def test_marks_move_with_their_results_and_go_with_those_that_were_not_shown():
    script = paged()
    decided = script.rank("q", OFFER)
    first, second, third = decided.ranking[:3]
    tell(script, decided, Event("click", first), Event("cart", second))
    outcome = tell(script, decided, shown=[second, third])
    assert outcome.reward() == pytest.approx(0.5)
    assert [slot for slot, _, _ in outcome.marks] == [0]
    assert tell(script, decided, Event("cart", second, id="once more")).reward() == 1.0


def test_a_plain_click_leaves_what_it_always_left():
    """Without weights, and with weights that a click does not have, outcomes and records are the same numbers and bytes."""
    plain, weighted = paged(weights=(("click", 1.0),)), paged(weights=(("click", 1.0), ("cart", 0.5)))
    kept = []
    for script in (plain, weighted):
        for number in range(20):
            decided = script.rank("q", OFFER, session=f"s{number}")
            tell(script, decided, *(Event("click", position=1 + number % 3),) if number % 2 else ())
        kept.append((*state_of(script.ranker), [encode(outcome) for outcome in script.outcomes.values()]))
    assert kept[0] == kept[1]
    assert max(kept[0][2]) < 1 << 40


def test_the_draw_is_unbiased_monotone_and_independent_of_the_slots_that_count_as_seen():
    trials = 20_000
    for units in (1, 100, 500, 999):
        share = sum(drawn([(0, 7, units)], number, [5]) for number in range(trials)) / trials
        p = units / UNITS
        assert abs(share - p) < 4.5 * math.sqrt(p * (1 - p) / trials)
    for number in range(200):
        clicks = [drawn([(0, 7, units)], number, [5]) for units in range(1, UNITS)]
        assert clicks == sorted(clicks)
    words = [uniform(number, code) for number in range(300) for code in range(30)]
    assert len(set(words)) == len(words)
    pairs = [(uniform(number, 1) >> 63, uniform(number, 2) >> 63) for number in range(trials)]
    assert abs(sum(a == b for a, b in pairs) / trials - 0.5) < 4.5 * 0.5 / math.sqrt(trials)


def test_more_partial_events_than_are_kept_are_refused_and_nothing_changes():
    script = paged(weights=(("dwell", 0.001), ("click", 1.0)))
    decided = script.rank("q", OFFER)
    most = [Event("dwell", position=1, id=str(number)) for number in range(MOST_MARKS)]
    outcome = tell(script, decided, *most)
    state = state_of(script.ranker)
    trouble = refused(tell, script, decided, Event("dwell", position=2))
    assert (trouble.status, trouble.code, trouble.field) == (422, "too_many", "events")
    assert state_of(script.ranker) == state
    assert script.outcomes[decided.signed.number] == outcome
    assert refused(tell, script, decided, Event("buy", position=2)).code == "unknown_event"


def test_the_policy_learns_the_worth_of_events_and_not_their_number():
    """Carts are worth half a click: a result with as many carts as another has clicks is shown, but not preferred."""
    script = Script(ranker("ts", seed=1, weights=(("click", 1.0), ("cart", 0.5)), per_session=0))
    for number in range(3000):
        decided = script.rank("q", ["carts", "clicks"])
        if number % 2:
            tell(script, decided, Event("cart" if decided.ranking[0] == "carts" else "click", position=1))
    place = script.place("q")
    book = place.record.ledger
    carts, clicks = (int(book.clicks[place.arms[name]]) / int(book.plays[place.arms[name]]) for name in ("carts", "clicks"))
    assert carts < 0.4 < clicks


def test_units_are_whole_and_rounded():
    rewards = Rewards({"click": 1.0, "cart": 1 / 3})
    assert rewards.units_of(Event("cart", "a"), 0) == 333
    assert added([], [(0, 1, 333), (0, 2, 333), (0, 3, 333)], 0)[1] == 0
    assert added([], [(0, 1, 334), (0, 2, 333), (0, 3, 333)], 0)[1] == 1


SLOTS_OF_ANY = st.integers(0, 1023)
MARKS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 2**32 - 1), st.integers(1, UNITS - 1)), max_size=3)
OUTCOMES = st.builds(
    Outcome,
    st.sampled_from([LEARNED, LATE, IGNORED]),
    *[SLOTS_OF_ANY] * 3,
    st.booleans(),
    st.none() | st.tuples(SLOTS_OF_ANY, SLOTS_OF_ANY),
    MARKS.map(tuple),
    SLOTS_OF_ANY,
    SLOTS_OF_ANY,
)


@given(OUTCOMES)
def test_an_outcome_comes_back_from_its_number(outcome):
    assert decode(encode(outcome)) == outcome


def test_where_all_events_had_one_status_the_number_is_short():
    """Such a number has 64 bits at most, and is what it was before late events were kept apart."""
    for status, late in ((LEARNED, 0), (LATE, 0b11), (IGNORED, 0)):
        number = encode(Outcome(status, 7, 0b11, 0b11, late=late))
        assert number == ((0b11 << SLOTS | 0b11) << SLOTS | 7) << 3 | status
