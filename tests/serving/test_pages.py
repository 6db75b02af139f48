"""Pages: every click on a slot counts once, what was really shown replaces the decision's page, orders are steady."""

from __future__ import annotations

import itertools

import msgspec
import numpy as np
import pytest
from hypothesis import given, strategies as st
from serving.scripted import Script, ranker

from swerve.core.examination import SLOTS
from swerve.policies.patient import Patient
from swerve.policies.swerve.listed import Listed
from swerve.service.config.load import resolve
from swerve.service.config.settings import settings_of
from swerve.service.config.toml import Document
from swerve.serving.messages import Refused
from swerve.serving.outcomes import (
    GONE,
    IGNORED,
    KEY_BITS,
    LATE,
    LEARNED,
    MOST_MARKS,
    UNITS,
    Outcome,
    decode,
    encode,
    expected_late,
)
from swerve.serving.people import People
from swerve.serving.requests import Prepared

OFFER = ["a", "b", "c", "d", "e"]
#: The signals of the quickstart: the compiled code is the same.
MADE = settings_of(resolve(Document("", {"signals": {"numbers": {"news": "count"}}}, {})))
SIGNALS = {"senses": MADE.senses, "plan": MADE.plan, "numbers": MADE.numbers}


def totals(script: Script, offer: list[str] = OFFER) -> dict[str, tuple[int, int]]:
    """Plays and clicks over the lifetime, by candidate."""
    place = script.place("q")
    book = place.record.ledger
    return {name: (int(book.plays[place.arms[name]]), int(book.clicks[place.arms[name]])) for name in offer if name in place.arms}


@pytest.fixture(scope="module")
def paged() -> Script:
    """The policy for pages, compiled once, with the signals of the quickstart: the compiled code is the same."""
    return Script(ranker(Patient(Listed(), click_wait=1.0), slots=3, **SIGNALS))


codes = st.lists(st.integers(0, GONE), max_size=SLOTS).map(tuple)
masks = st.integers(0, (1 << SLOTS) - 1)


marks = st.tuples(st.integers(0, SLOTS - 1), st.integers(0, (1 << KEY_BITS) - 1), st.integers(1, UNITS - 1))
several = st.lists(marks, max_size=5) | st.just([(9, (1 << KEY_BITS) - 1, UNITS - 1)] * MOST_MARKS)


@given(
    st.builds(Outcome, st.integers(0, 3), masks, masks, masks, st.booleans(), st.none() | codes, several.map(tuple), masks, masks)
)
def test_an_outcome_is_one_number(outcome):
    assert decode(encode(outcome)) == outcome
    plain = outcome._replace(final=None, marks=())
    assert encode(plain._replace(late=expected_late(plain))) < 1 << 63  # nearly all fit in an integer of the store


def test_a_page_is_filled_and_the_rest_is_as_given():
    script = Script(ranker(slots=3))
    for _ in range(30):
        decided = script.rank("q", OFFER)
        assert sorted(decided.ranking) == OFFER
        assert len(decided.chances) == len(decided.signed.codes) == 3
        assert decided.ranking[3:] == [name for name in OFFER if name not in decided.ranking[:3]]
    assert sum(plays for plays, _ in totals(script).values()) == 30 * 3  # each shown candidate counts a play
    assert len(script.rank("q", OFFER[:2]).chances) == 2  # no more than there are
    assert len(script.rank("q", OFFER, slots=1).chances) == 1


def test_a_click_on_any_slot_is_learned_and_counts_once(paged):
    script = paged
    before = totals(script)
    decided = script.rank("q", OFFER, session="one")
    state = script.place("q").record.policy.tobytes()
    assert script.click(decided, decided.ranking[2]) == LEARNED
    assert script.place("q").record.policy.tobytes() != state
    learnt = script.place("q").record.tobytes()
    for again in (decided.ranking[2], 3, [3, decided.ranking[2]], None):
        outcome = script.respond(decided, again)
        assert (outcome.status, outcome.clicks) == (LEARNED, 0b100)
    assert script.place("q").record.tobytes() == learnt
    assert script.click(decided, [1, 2]) == LEARNED  # a second request for the same decision
    now = totals(script)
    for name in decided.ranking[:3]:
        assert now[name][1] == before.get(name, (0, 0))[1] + 1


@pytest.mark.parametrize("order", [*itertools.permutations([1, 2, 3]), ([1, 3], 2), (2, [3, 1]), ([1, 2, 3],)])
def test_clicks_one_at_a_time_or_together_end_in_the_same_bytes(order):
    script, whole = (Script(ranker(Patient(Listed(), click_wait=5.0), slots=3, seed=4, **SIGNALS)) for _ in range(2))
    for one in (script, whole):
        for name in range(5):
            one.rank("q", OFFER, session=f"before {name}")
    decided = script.rank("q", OFFER, session="s")
    for clicked in order:
        script.click(decided, clicked)
    whole.click(whole.rank("q", OFFER, session="s"), [1, 2, 3])
    assert script.place("q").record.policy.tobytes() == whole.place("q").record.policy.tobytes()
    assert totals(script) == totals(whole)


def test_what_was_really_shown_takes_the_place_of_the_page(paged):
    script = paged
    decided = script.rank("q", OFFER, session="shown")
    turned = [decided.ranking[3], *decided.ranking[1::-1]]
    before = totals(script)
    outcome = script.respond(decided, 1, shown=turned)  # the first result of what was shown
    assert outcome.status == LEARNED and outcome.clicked == 1 and len(outcome.final) == 3
    assert totals(script)[turned[0]][1] == before[turned[0]][1] + 1
    assert script.respond(decided, turned[2]).clicked == 0b101  # by its id, where it was shown
    assert script.respond(decided, None, shown=decided.ranking[:3]).clicked == 0b001  # clicks are on results, and move with them


def test_a_click_below_what_was_shown_is_told_apart(paged):
    script = paged
    decided = script.rank("q", OFFER, session="below")
    outcome = script.respond(decided, decided.ranking[4])
    assert (outcome.status, outcome.clicked, outcome.outside) == (IGNORED, 0, True)
    assert script.click(decided, 900) == IGNORED  # a position that no page has
    assert script.click(decided, 1) == LEARNED


@pytest.mark.parametrize(("clicked", "shown", "field"), [("y", None, "events[0].result"), (None, ["a", "y"], "shown[1]")])
def test_a_result_that_was_not_on_offer_is_refused_and_nothing_changes(clicked, shown, field):
    script = Script(ranker(slots=3))
    script.rank("q", [*OFFER, "y"])
    decided = script.rank("q", OFFER, step=10.0)
    state = script.place("q").record.tobytes()
    with pytest.raises(Refused) as refused:
        script.click(decided, clicked, shown=shown)
    assert (refused.value.code, refused.value.field) == ("not_offered", field)
    assert script.place("q").record.tobytes() == state


def test_a_result_that_has_come_back_in_another_place_was_on_offer():
    """What is below the page is not in the token: its arm may be another one by now, and the click is no mistake of the caller."""
    script = Script(ranker(arms=8, seed=1))
    eight = [f"doc-{n}" for n in range(8)]
    decided = script.rank("q", eight)
    back = next(name for name in eight if name != decided.ranking[0])
    rest = [name for name in eight if name != back]
    script.rank("q", rest, step=10.0)
    script.rank("q", [*rest, "new"], step=10.0)  # in the place of the one that is not on offer
    assert back not in script.place("q").arms
    gone = script.place("q").arms["new"]
    others = [name for name in eight[::-1] if name != back][:3]
    script.rank("q", [name for name in [*eight, "new"] if name not in (back, *others)], step=10.0)
    script.rank("q", [back], step=10.0)
    assert script.place("q").arms[back] != gone
    decided.signed = decided.signed._replace(offer=decided.signed.offer & ~(1 << script.place("q").arms[back]))
    assert script.click(decided, back) in (IGNORED, LATE)
    assert script.click(script.rank("q", eight, step=10.0), None, shown=[back]) == LEARNED


def test_requests_for_one_query_with_other_candidates_in_a_batch_get_their_own():
    """The row remembers the candidates of one request only."""
    script = Script(ranker(slots=3))
    script.rank("q", OFFER)
    offers = [["a", "b"], ["c", "d", "e"], ["e", "a"], ["b"]]
    raws = [msgspec.Raw(msgspec.json.encode(offer)) for offer in offers]
    place = script.place("q")
    asked = [(place, Prepared(place.key, "q", None, raw, session=f"s{n}", slots=3)) for n, raw in enumerate(raws)]
    for decided, offer in zip(script.ranker.rank(asked, script.now), offers, strict=True):
        assert decided is not None
        assert sorted(decided.ranking) == sorted(offer)
        assert decided.signed.offer == sum(1 << place.arms[name] for name in offer)


# ---------------------------------------------------------------- steady orders


def test_a_session_that_repeats_its_request_is_shown_the_same():
    script = Script(ranker(slots=3, steady=60.0))
    first = script.rank("q", OFFER, session="s")
    requests = int(script.place("q").record.ledger.requests)
    for given_order in (OFFER, OFFER[::-1]):  # the order of the search engine may differ between two pages
        again = script.rank("q", given_order, session="s")
        assert again.again and (again.ranking, again.signed, again.at) == (first.ranking, first.signed, first.at)
    assert int(script.place("q").record.ledger.requests) == requests  # no impression
    assert script.click(again, 2) == LEARNED == script.click(first, 2)
    assert sum(clicks for _, clicks in totals(script).values()) == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda script: script.rank("q", OFFER, session="t"),
        lambda script: script.rank("q", OFFER),
        lambda script: script.rank("q", OFFER[:4], session="s"),
        lambda script: script.rank("q", [*OFFER, "f"], session="s"),
        lambda script: script.rank("q", OFFER, session="s", slots=2),
        lambda script: script.rank("q", OFFER, session="s", as_given=True),
        lambda script: script.rank("q", OFFER, session="s", step=61.0),
        lambda script: script.rank("p", OFFER, session="s"),
    ],
    ids=["another session", "no session", "fewer", "more", "other slots", "observed", "later", "another query"],
)
def test_anything_else_is_decided(change):
    script = Script(ranker(slots=3, steady=60.0))
    first = script.rank("q", OFFER, session="s")
    other = change(script)
    assert not other.again and other.signed.number != first.signed.number


def test_a_shift_ends_what_was_steady():
    script = Script(ranker(slots=3, steady=60.0))
    first = script.rank("q", OFFER, session="s")
    script.ranker.shift(script.place("q"), script.now)
    assert script.rank("q", OFFER, session="s").phase == first.phase + 1


def test_in_a_batch_a_session_is_steady_too():
    script = Script(ranker(slots=3, steady=60.0))
    asked = [script.asking("q", OFFER, session="s") for _ in range(3)] + [script.asking("q", OFFER[:2], session="s")]
    one, two, three, other = script.ranker.rank(asked, script.now)
    assert one.signed == two.signed == three.signed != other.signed
    assert (one.again, two.again, other.again) == (False, True, False)
    assert sorted(other.ranking) == OFFER[:2]


def test_what_is_kept_of_steady_orders_is_bounded():
    made = ranker(steady=60.0)
    script = Script(made)
    decided = script.rank("q", OFFER, session="s")
    made.people, key = People(made.settings, most=100), script.place("q").key
    for number in range(1, 1000):
        made.people.keep(number, key, decided)
    kept = [number for number in range(1, 1000) if made.people._at(number, key) is not None]
    assert 50 <= len(kept) <= 100 and kept[-1] == 999
    assert len(made.people._asides) <= 100


# ---------------------------------------------------------------- rankings that Swerve did not make


def test_an_observed_ranking_keeps_its_order_and_teaches():
    script = Script(ranker(seed=5))
    tops = set()
    for number in range(200):
        decided = script.rank("q", ["good", "bad"], session=f"s{number}", as_given=True)
        assert decided.ranking == ["good", "bad"] and decided.chances == [1.0] and decided.explored == -1
        script.click(decided, "good" if number % 2 else None)
        other = script.rank("q", ["bad", "good"], session=f"t{number}", as_given=True)
        script.click(other, None)
    tops = [script.rank("q", ["bad", "good"], session=f"u{number}").ranking[0] for number in range(50)]
    assert np.mean([top == "good" for top in tops]) > 0.95


def test_propensities_are_of_each_slot():
    script = Script(ranker(slots=3, draws=200))
    decided = script.rank("q", OFFER)
    assert len(decided.chances) == 3
    assert 0.1 < decided.chances[0] < 0.35  # one in five, with the error of 200 draws
    assert decided.explored == 0
