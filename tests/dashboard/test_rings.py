"""The bounded history of one kind of message."""

from __future__ import annotations

import json

from swerve.dashboard.rings import KEPT_BRIEF, KEPT_WHOLE, Ring, wire


def filled(count: int, heavy: tuple[str, ...] = ()) -> Ring:
    ring = Ring(heavy)
    for number in range(1, count + 1):
        data = {"n": number, "list": [number]}
        ring.put(number, b"<%d>" % number, json.dumps(data).encode(), data)
    return ring


def test_what_came_after_a_number_is_there_or_said_to_be_gone():
    ring = filled(KEPT_WHOLE + 10)
    assert ring.lost == 10
    assert ring.since(9) is None
    assert [number for number, _ in ring.since(10)] == list(range(11, KEPT_WHOLE + 11))
    assert ring.since(KEPT_WHOLE + 9) == [(KEPT_WHOLE + 10, b"<%d>" % (KEPT_WHOLE + 10))]
    assert ring.since(KEPT_WHOLE + 10) == []


def test_a_ring_that_begins_late_does_not_know_what_was_before():
    ring = Ring(lost=7)
    assert ring.since(6) is None and ring.since(7) == []


def test_the_past_is_in_brief_and_bounded():
    ring = filled(KEPT_BRIEF + 5, ("list",))
    past = json.loads(b"[" + ring.past() + b"]")
    assert past == [{"n": number} for number in range(6, KEPT_BRIEF + 5)]
    assert json.loads(ring.newest) == {"n": KEPT_BRIEF + 5, "list": [KEPT_BRIEF + 5]}
    assert filled(0).past() == filled(1).past() == b""


def test_a_message_is_three_lines():
    assert wire("x", b'{"a":"\\n"}') == b'event: x\ndata: {"a":"\\n"}\n\n'
