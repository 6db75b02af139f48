"""One session cannot overturn the clicks of many: the evidence that a session, and requests without one, may add."""

from __future__ import annotations

import random

import pytest
from serving.scripted import Script, ranker

from swerve.serving.ledger import ANONYMOUS
from swerve.serving.outcomes import IGNORED, LATE, LEARNED
from swerve.serving.people import People

pytestmark = pytest.mark.compiled  # thousands of calls each

KEY = b"sixteen letters."
OFFER = ["good", "spam", "other"]
RATES = {"good": 0.6, "spam": 0.05, "other": 0.3}


def honest(script: Script, rankings: int, seed: int = 1) -> None:
    """Let people ask once each, and click the result they like."""
    draw = random.Random(seed)
    for number in range(rankings):
        decided = script.rank("q", OFFER, session=f"person {seed} {number}")
        top = decided.ranking[0]
        script.click(decided, top if draw.random() < RATES[top] else None, step=0.5)


def spam_share(script: Script, rankings: int = 300) -> float:
    """Return the share of new people who see the spam on top."""
    return sum(script.rank("q", OFFER, session=f"later {number}").ranking[0] == "spam" for number in range(rankings)) / rankings


def counts(script: Script) -> tuple[list[int], list[int]]:
    """Return the plays and clicks that the policy has learnt, in the given order."""
    place = script.place("q")
    book = place.record.ledger
    arms = [place.arms[name] for name in OFFER]
    return [int(book.phase_plays[arm]) for arm in arms], [int(book.phase_clicks[arm]) for arm in arms]


@pytest.mark.parametrize("session", ["attacker", None])
def test_one_person_does_not_put_spam_on_top_of_what_two_thousand_made(session):
    """One session asks 1,400 times and clicks only the spam, whenever it is on top."""
    script = Script(ranker("ts"))
    honest(script, 2000)
    before = counts(script)
    for _ in range(1400):
        decided = script.rank("q", OFFER, session=session)
        script.click(decided, "spam" if decided.ranking[0] == "spam" else None, step=0.5)
    added = sum(counts(script)[0]) - sum(before[0])
    assert added <= (len(OFFER) if session else ANONYMOUS + 0.1 * 2000)
    assert spam_share(script) < 0.05


def test_without_the_bound_one_person_does(tmp_path):
    """Without the bound the same attack succeeds, which shows that the bound is needed."""
    script = Script(ranker("ts", per_session=0))
    honest(script, 100)
    for _ in range(1400):
        decided = script.rank("q", OFFER, session="attacker")
        script.click(decided, "spam" if decided.ranking[0] == "spam" else None, step=0.5)
    assert spam_share(script) > 0.5


def test_a_session_is_heard_once_on_each_result_in_a_phase():
    script = Script(ranker("ts"))
    said = []
    for _ in range(30):
        decided = script.rank("q", OFFER, session="s")
        said.append((decided.ranking[0], script.click(decided, decided.ranking[0])))
    plays, clicks = counts(script)
    assert plays == clicks == [1 if name in dict(said) else 0 for name in OFFER]
    for name in OFFER:
        outcomes = [outcome for top, outcome in said if top == name]
        assert outcomes == [LEARNED] * min(len(outcomes), 1) + [IGNORED] * (len(outcomes) - 1)
    totals = script.place("q").record.ledger
    assert totals.plays.sum() == totals.clicks.sum() == 30  # the totals count everything


def test_who_clicks_at_the_second_look_is_heard():
    script = Script(ranker("ts"))
    first = script.rank("q", ["only"], session="s")
    second, third = (script.rank("q", ["only"], session="s") for _ in range(2))
    assert (first.signed.evidence, second.signed.evidence) == (True, False)
    assert script.click(second, "only") == LEARNED
    assert script.click(first, "only") == IGNORED
    assert script.click(third, None) == IGNORED
    book = script.place("q").record.ledger
    assert (int(book.phase_plays[0]), int(book.phase_clicks[0])) == (1, 1)


def test_another_phase_another_query_and_another_session_are_heard():
    script = Script(ranker("ts"))
    decided = script.rank("q", ["only"], session="s")
    assert script.click(decided, "only") == LEARNED
    assert script.rank("q", ["only"], session="t").signed.evidence
    assert script.rank("p", ["only"], session="s").signed.evidence
    assert not script.rank("q", ["only"], session="s").signed.evidence
    script.ranker.shift(script.place("q"), script.now)
    late = script.click(script.rank("q", ["only"], session="s"), "only")
    assert late == LEARNED
    assert not script.rank("q", ["only"], session="s").signed.evidence


def test_a_candidate_that_takes_the_place_of_another_is_heard():
    """Evidence is remembered by result, not by arm."""
    script = Script(ranker("ts", arms=2, forget=1.0))
    script.rank("q", ["a"], session="s")
    script.rank("q", ["b"], session="s")
    assert script.rank("q", ["c"], session="s", step=10.0).signed.evidence  # on the arm of "a"
    assert not script.rank("q", ["b"], session="s").signed.evidence


def test_requests_without_a_session_count_fully_where_nobody_sends_one():
    script = Script(ranker("ts"))
    for _ in range(200):
        script.click(script.rank("q", OFFER), None)
    assert sum(counts(script)[0]) == 200


def test_requests_without_a_session_add_a_share_where_others_have_one():
    script = Script(ranker("ts"))
    honest(script, 100)
    said = [script.click(script.rank("q", OFFER), None) for _ in range(200)]
    allowed = ANONYMOUS + 100 // 10
    assert said == [LEARNED] * allowed + [IGNORED] * (200 - allowed)
    honest(script, 50, seed=2)  # each session allows a tenth of a unit without a session
    assert [script.click(script.rank("q", OFFER), None) for _ in range(10)] == [LEARNED] * 5 + [IGNORED] * 5
    script.ranker.shift(script.place("q"), script.now)
    said = [script.click(script.rank("q", OFFER), None) for _ in range(30)]
    assert said == [LEARNED] * ANONYMOUS + [IGNORED] * (30 - ANONYMOUS)


def test_clicks_without_a_session_on_a_page_that_is_no_evidence_are_ignored():
    script = Script(ranker("ts"))
    honest(script, 100)
    allowed = ANONYMOUS + 100 // 10
    pages = [script.rank("q", OFFER) for _ in range(allowed + 20)]
    _, before = counts(script)
    said = [script.click(decided, 1) for decided in pages]
    assert said == [LEARNED] * allowed + [IGNORED] * 20
    assert sum(counts(script)[1]) == sum(before) + allowed


def test_several_units_for_a_session():
    script = Script(ranker("ts", per_session=3))
    said = [script.click(script.rank("q", ["only"], session="s"), "only") for _ in range(5)]
    assert said == [LEARNED] * 3 + [IGNORED] * 2


def test_ignored_yields_to_late():
    script = Script(ranker("ts"))
    script.rank("q", ["only"], session="s")
    again = script.rank("q", ["only"], session="s")
    script.ranker.shift(script.place("q"), script.now)
    assert script.click(again, "only") == LATE


def test_what_is_kept_of_sessions_is_bounded():
    people = People(ranker("ts").settings, most=100)
    for number in range(1, 1000):
        people.shown(number, KEY, 1, [5])
    kept = [number for number in range(1, 1000) if people.spent_by(number, KEY)]
    assert 50 <= len(kept) <= 100 and kept[-1] == 999
