"""The ranker alone: candidates come and go, clicks are credited to the right ones, batches equal single requests."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from serving.scripted import Script, ranker

from swerve import Fleet, Thompson
from swerve.core.contract import plays_of
from swerve.serving.outcomes import IGNORED, LATE, LEARNED
from swerve.serving.requests import Prepared
from swerve.serving.responses import NAMES

SEVEN_DAYS = 7 * 86_400.0


def names(count: int, prefix: str = "doc") -> list[str]:
    return [f"{prefix}-{number}" for number in range(count)]


def test_the_chosen_one_comes_first_and_the_rest_as_given():
    script = Script(ranker(seed=3))
    for _ in range(50):
        ranking = script.rank("q", names(5)).ranking
        assert sorted(ranking) == names(5)
        assert [name for name in names(5) if name != ranking[0]] == ranking[1:]


def test_it_decides_as_the_library_does():
    script = Script(ranker(seed=7))
    fleet = Fleet(Thompson(), queries=1, arms=5, seed=7)  # query 0 of this seed has the same random stream
    for t in range(200):
        ours, theirs = script.rank("0", names(5)), fleet.select(0)
        assert ours.ranking[0] == names(5)[theirs.arm]
        if t % 3 == 0:
            assert script.click(ours, ours.ranking[0]) == LEARNED
            fleet.reward(0, theirs)
    record = script.place("0").record.policy
    assert record.tobytes() == fleet.table[0].tobytes()


def test_a_batch_is_the_same_as_single_requests():
    one, many = Script(ranker(seed=1, arms=16)), Script(ranker(seed=1, arms=16))
    rng = np.random.default_rng(0)
    for _ in range(30):
        asked = []
        for _ in range(20):  # queries repeat, offers change, candidates are new, rows grow, sessions go on to other queries
            query = f"q{rng.integers(4)}"
            offer = [f"doc-{number}" for number in rng.permutation(14)[: rng.integers(2, 12)]]
            asked.append((query, offer, f"s{rng.integers(3)}" if rng.random() < 0.5 else None))
        one.now += 10.0
        many.now += 10.0
        singly = [one.ranker.rank([one.asking(query, offer, session=who)], one.now)[0] for query, offer, who in asked]
        together = many.ranker.rank([many.asking(query, offer, session=who) for query, offer, who in asked], many.now)
        assert singly == together
    for query in ("q0", "q1", "q2", "q3"):
        assert one.place(query).record.tobytes() == many.place(query).record.tobytes()


def test_a_row_grows_with_its_candidates_and_forgets_nothing():
    script = Script(ranker(arms=64))
    for _ in range(40):
        decided = script.rank("q", names(6))
        script.click(decided, decided.ranking[0])
    before = {name: (int(n), int(c)) for name, n, c in totals(script)}
    assert script.place("q").shelf.arms == 8
    script.rank("q", names(20))
    place = script.place("q")
    assert place.shelf.arms == 32
    after = {name: (int(n), int(c)) for name, n, c in totals(script)}
    assert {name: after[name] for name in before if name != script_top(script)} == {
        name: before[name] for name in before if name != script_top(script)
    }
    assert sum(n for n, _ in after.values()) == 41


def totals(script: Script) -> list[tuple[str, int, int]]:
    place = script.place("q")
    book = place.record.ledger
    return [(name, book.plays[arm], book.clicks[arm]) for arm, name in enumerate(place.ids) if name is not None]


def script_top(script: Script) -> str:
    """Return the top of the last request."""
    book = script.place("q").record.ledger
    place = script.place("q")
    newest = max(range(len(place.ids)), key=lambda arm: (book.offered[arm], book.phase_plays[arm]))
    return place.ids[newest] or ""


def test_a_new_candidate_starts_fresh_and_the_rest_goes_on():
    script = Script(ranker())
    for _ in range(30):
        decided = script.rank("q", names(3))
        script.click(decided, decided.ranking[0])
    place = script.place("q")
    state = place.record.policy.tobytes()
    phase = int(place.record.ledger.phase)
    script.rank("q", [*names(3), "new"])
    assert place.arms["new"] == 3
    assert int(place.record.ledger.phase) == phase
    spec = script.ranker.settings.policy
    assert sum(int(plays_of(spec, place.record.policy, arm)) for arm in range(3)) >= 30
    assert place.record.policy.tobytes() != state


def test_at_the_limit_the_one_offered_longest_ago_goes():
    script = Script(ranker(arms=8))
    script.rank("q", names(8))
    for number in (0, 1, 2, 3, 4, 6, 7):  # all except doc-5 are offered again
        script.rank("q", [f"doc-{number}"])
    last = script.rank("q", names(8)[:5])
    place = script.place("q")
    old = place.arms["doc-5"]
    script.rank("q", ["new", "doc-0"])
    assert place.arms["new"] == old
    assert "doc-5" not in place.arms
    assert script.click(last, last.ranking[0]) == LEARNED  # the others are unchanged


def test_a_click_for_a_candidate_that_has_gone_is_late_and_not_the_next_ones():
    script = Script(ranker(arms=8, seed=2))
    shown = script.rank("q", ["doc-0"])  # the only candidate is on top
    script.rank("q", names(9)[1:])  # the eight others take all arms
    place = script.place("q")
    assert "doc-0" not in place.arms
    before = place.record.ledger.clicks.copy()
    assert script.click(shown, "doc-0") == LATE
    assert (place.record.ledger.clicks == before).all()


def test_a_place_not_offered_for_long_is_taken_before_the_row_grows():
    script = Script(ranker(arms=64))
    script.rank("q", names(8))
    script.rank("q", names(4), step=SEVEN_DAYS + 1)
    script.rank("q", [*names(4), "new"])
    assert script.place("q").shelf.arms == 8
    assert len([name for name in script.place("q").ids if name]) == 8


def test_more_candidates_than_places_cannot_be_decided():
    made = ranker(arms=8)
    place = made.fresh(made.key_of("q"), "q", 9, 0.0)
    assert place is not None
    assert made.rank([(place, Prepared(place.key, "q", names(9)))], 1.0) == [None]


def test_feedback_of_before_a_shift_that_somebody_told_is_late():
    """The end of a phase alone does not make a click late: a policy that does not start over learns it."""
    script = Script(ranker())
    early = script.rank("q", names(2))
    assert script.ranker.shift(script.place("q"), script.now) == early.phase + 1
    assert script.click(early, early.ranking[0]) == LATE
    book = script.place("q").record.ledger
    arm = script.place("q").arms[early.ranking[0]]
    assert (int(book.clicks[arm]), int(book.phase_clicks[arm])) == (1, 0)  # counted, not learned
    late = script.rank("q", names(2))
    assert script.click(late, late.ranking[0]) == LEARNED
    for _ in range(20):  # so that both are shown again
        script.rank("q", names(2))
    state = script.place("q").record.policy.tobytes()
    assert script.click(early, early.ranking[0]) == LATE
    assert script.place("q").record.policy.tobytes() == state


def test_a_click_below_the_slots_is_no_reward_and_no_abandonment():
    """It is told apart from silence: the senses count the page as clicked, the policy learns nothing."""
    below, silent = Script(ranker()), Script(ranker())
    states = []
    for script, clicked, outcome in ((below, 1, IGNORED), (silent, None, LEARNED)):
        decided = script.rank("q", names(3))
        state = script.place("q").record.policy.tobytes()
        assert script.click(decided, None if clicked is None else decided.ranking[clicked]) == outcome
        assert script.place("q").record.policy.tobytes() == state
        assert int(script.place("q").record.ledger.clicks.sum()) == 0
        states.append(script.place("q").record.senses.tobytes())
    assert states[0] != states[1]


def test_a_propensity_is_the_share_of_draws():
    """Two candidates that nobody knows anything about are equally likely; after many clicks one is nearly certain."""
    script = Script(ranker(draws=50))
    chances = [script.rank(f"q{number}", names(2)).chances[0] for number in range(40)]
    assert 0.45 < np.mean(chances) < 0.6
    for _ in range(300):
        decided = script.rank("known", names(2))
        if decided.ranking[0] == "doc-1":
            script.click(decided, "doc-1")
    assert decided.ranking[0] == "doc-1"
    assert decided.chances[0] > 0.97
    assert decided.explored == -1


def test_draws_do_not_touch_the_decisions():
    with_draws, without = Script(ranker(draws=20)), Script(ranker(draws=0))
    for _ in range(100):
        a, b = with_draws.rank("q", names(5)), without.rank("q", names(5))
        assert a.ranking == b.ranking
        for script, decided in ((with_draws, a), (without, b)):
            if decided.ranking[0] == "doc-2":
                script.click(decided, "doc-2")
    assert with_draws.place("q").record.policy.tobytes() == without.place("q").record.policy.tobytes()


def test_memory_is_bounded_and_written_rows_go_first():
    made = ranker(budget=1 << 20)
    script = Script(made)
    for number in range(2000):
        place = made.fresh(made.key_of(f"q{number}"), f"q{number}", 2, 0.0)
        if place is None:
            break
        if number % 2:
            made.mark(place, 0.0)
    assert made.rows.used <= 1.05 * made.rows.budget
    unwritten = {place.key for _, place in made.unwritten}
    assert unwritten <= set(made.rows.places)  # no unwritten row has left memory
    assert len(made.rows) < 2000
    assert script.ranker is made


@pytest.mark.parametrize("spec", ["ucb1", "bwc(length=20)"])
def test_other_policies_serve_too(spec: str):
    script = Script(ranker(spec, plan=(0, 1)))
    for t in range(120):
        decided = script.rank("q", names(4))
        if t % 2:
            script.click(decided, decided.ranking[0])
    book = script.place("q").record.ledger
    assert int(book.requests) == 120
    assert decided.chances == [1.0] or spec != "ucb1"  # it draws no lots


def test_compiling_leaves_nothing_in_memory():
    made = ranker(arms=8, keep_text=True)
    for shelf in made.rows.shelves:
        made.compile(shelf)
    assert (len(made.rows), made.rows.used, made.issued, len(made.unwritten)) == (0, 0, 0, 0)


def test_a_request_that_finds_no_room_leaves_nothing_of_the_one_before_to_be_repeated():
    """Some of its candidates have taken arms already, so a repeat of the previous request must offer its candidates again."""
    made = ranker(arms=64)
    script, old = Script(made), names(8, "old")
    raw = msgspec.Raw(msgspec.json.encode(old))
    place = script.place("q", 8)
    assert made.rank([(place, Prepared(place.key, "q", old, raw))], script.now) != [None]
    assert place.raw == raw
    made.rows.budget = 0  # no room for a larger record
    assert made.rank([(place, Prepared(place.key, "q", [*old[:4], *names(6, "new")]))], script.now + 1) == [None]
    assert "new-0" in place.arms
    for _ in range(20):
        (decided,) = made.rank([(place, Prepared(place.key, "q", None, raw))], script.now + 2)
        assert decided is not None
        assert decided.signed.names[0] == made.rows.short(decided.ranking[0]) & NAMES
