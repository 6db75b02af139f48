"""Tallies: followed events, and false alarms."""

from __future__ import annotations

from swerve.demo.corpus import Document
from swerve.demo.intents import Event
from swerve.demo.tallies import RECENT_IMPRESSIONS, RECENT_SECONDS, Tallies

HOUR = 3600.0


def tallies() -> Tallies:
    return Tallies(["swerve", "fixed"])


def event(at: float, before: str, after: str, query: str = "q") -> Event:
    old, new = (Document(f"{query}-{name}", query, name, "", name, 0.9, None) for name in (before, after))
    return Event(query, at, old, new)


def serve(
    one: Tallies, count: int, share: float, *, phase: int | None = 1, now: float = 0.0, query: str = "q", cats: float = 0.5
) -> None:
    for _ in range(count):
        one.served(query, now, phase, share, {"cat": cats, "car": 1.0 - cats})


def test_sums_of_a_policy() -> None:
    one = tallies()
    for place, regret in ((0, 0.0), (2, 0.25), (-1, 0.5)):
        one.count("swerve", place, regret)
    line = one.lines["swerve"]
    assert (line.clicks, line.tops, line.regret) == (2, 1, 0.75)
    assert one.lines["fixed"].clicks == 0


def test_clicks_by_slot_for_head_and_tail() -> None:
    """A click on slot 3 of a rare query is there, in all and in the tail, and nowhere else."""
    one = tallies()
    one.count("swerve", 2, 0.25, tail=True)
    one.count("swerve", 0, 0.5)
    one.count("fixed", -1, 0.75, tail=True)
    serve(one, 1, 1.0)
    one.served("rare", 0.0, 1, 1.0, {"cat": 1.0}, tail=True)
    assert one.lines["swerve"].slots == [1, 0, 1, *[0] * 7]
    assert one.tail.lines["swerve"].slots == [0, 0, 1, *[0] * 7]
    assert one.head.lines["swerve"].slots == [1, *[0] * 9]
    assert (one.tail.lines["swerve"].clicks, one.tail.lines["swerve"].regret, one.tail.lines["fixed"].regret) == (1, 0.25, 0.75)
    assert (one.impressions, one.head.impressions, one.tail.impressions) == (2, 1, 1)


def test_followed_is_forty_of_the_next_fifty() -> None:
    one = tallies()
    serve(one, 7, 0.2)
    one.shifted(event(0.0, "a", "b"))
    serve(one, 30, 0.2)
    serve(one, 39, 1.0)
    assert one.shifts[0].impressions is None  # only 39 good impressions so far
    serve(one, 1, 0.9)
    # the last 50 are ten bad and forty good impressions: followed from the 20th impression after the event
    assert one.shifts[0].impressions == 20
    serve(one, 100, 0.1)
    assert one.shifts[0].impressions == 20


def test_nearly_as_good_is_nine_tenths() -> None:
    one = tallies()
    one.shifted(event(0.0, "a", "b"))
    serve(one, 100, 0.89)
    assert one.shifts[0].impressions is None
    serve(one, 50, 0.9)
    assert one.shifts[0].impressions == 90


def test_an_event_that_was_not_followed_before_the_next_one_stays_open() -> None:
    one = tallies()
    one.shifted(event(0.0, "a", "b"))
    serve(one, 45, 1.0)
    one.shifted(event(1.0, "b", "c"))
    serve(one, 50, 1.0)
    assert [shift.impressions for shift in one.shifts] == [None, 0]
    assert one.shifts[0].as_dict() == {"query": "q", "at": 0.0, "from": "a", "to": "b", "from_id": "q-a", "to_id": "q-b"}


def test_queries_are_watched_apart() -> None:
    one = tallies()
    one.shifted(event(0.0, "a", "b"))
    serve(one, 60, 1.0, query="other")
    assert one.shifts[0].impressions is None


def test_a_phase_without_an_event_is_a_false_alarm() -> None:
    one = tallies()
    serve(one, 5, 1.0, phase=3)  # the first phase seen does not count as opened
    assert one.alarms == 0
    serve(one, 5, 1.0, phase=4)
    assert (one.alarms, one.false_alarms) == (1, 1)
    serve(one, 1, 1.0, phase=6)
    assert (one.alarms, one.false_alarms) == (3, 3)


def test_a_phase_soon_after_an_event_is_an_answer() -> None:
    for impressions, later, false in (
        (RECENT_IMPRESSIONS, 2 * RECENT_SECONDS, 0),
        (RECENT_IMPRESSIONS + 1, 2 * RECENT_SECONDS, 1),
        (RECENT_IMPRESSIONS + 1, RECENT_SECONDS, 0),
    ):
        one = tallies()
        serve(one, 1, 1.0)
        one.shifted(event(0.0, "a", "b"))
        serve(one, impressions, 0.0)
        serve(one, 1, 0.0, phase=2, now=later)
        assert (one.alarms, one.off_events, one.false_alarms) == (1, false, false), (impressions, later)


def test_a_phase_after_intent_has_moved_is_an_answer() -> None:
    """Without an event: a tenth of the users want another meaning than when the service last had a reason to open a phase."""
    one = tallies()
    serve(one, 300, 1.0, cats=0.9)
    serve(one, 1, 1.0, phase=2, cats=0.85, now=RECENT_SECONDS)
    assert (one.off_events, one.false_alarms) == (1, 1)
    serve(one, 1, 1.0, phase=3, cats=0.79, now=2 * RECENT_SECONDS)
    assert (one.off_events, one.false_alarms) == (2, 1)
    # phases soon after it share its reason; phases long after it do not
    serve(one, RECENT_IMPRESSIONS, 1.0, phase=4, cats=0.79, now=4 * RECENT_SECONDS)
    assert one.false_alarms == 1
    serve(one, 1, 1.0, phase=5, cats=0.79, now=4 * RECENT_SECONDS)
    assert (one.alarms, one.off_events, one.false_alarms) == (4, 4, 2)


def test_an_event_of_another_query_excuses_nothing() -> None:
    one = tallies()
    serve(one, 1, 1.0)
    one.shifted(event(0.0, "a", "b", "other"))
    serve(one, 1, 1.0, phase=2)
    assert one.false_alarms == 1


def test_degraded_answers_have_no_phase() -> None:
    one = tallies()
    serve(one, 1, 1.0, phase=2)
    serve(one, 3, 0.5, phase=None)
    serve(one, 1, 1.0, phase=2)
    assert (one.impressions, one.degraded, one.alarms) == (5, 3, 0)


def test_phases_are_carried_into_the_next_scenario() -> None:
    before, after = tallies(), tallies()
    serve(before, 1, 1.0, phase=4)
    serve(before, 1, 1.0, phase=None, query="never")
    assert before.phases() == {"q": 4}
    after.carry(before.phases())
    serve(after, 1, 1.0, phase=4)
    assert after.alarms == 0
    serve(after, 1, 1.0, phase=5)
    assert (after.alarms, after.impressions) == (1, 2)
