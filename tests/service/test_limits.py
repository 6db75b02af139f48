"""Limits: permits for new queries, and bodies that are refused before they are in memory."""

from __future__ import annotations

import asyncio
import os

import pytest
from hypothesis import given, strategies as st

from swerve.service.admission import Doorkeeper, NewQueries
from swerve.service.http.limits import ClientGone, read_body
from swerve.serving.messages import Refused


def asked(bucket: NewQueries, now: float, session: int = 0) -> bool:
    """Return whether this session gets a permit for a query that was never asked."""
    return bucket.allow(os.urandom(16), session, now)


def known(bucket: NewQueries, now: float) -> bool:
    """Return whether a permit is given for a query that another session has asked before."""
    key = os.urandom(16)
    bucket.door.several(key, int.from_bytes(key[:7], "big") + 3)
    return bucket.allow(key, 2, now)


@pytest.mark.parametrize(("who", "burst"), [(known, 960), (asked, 480)])
def test_a_burst_then_the_rate(who, burst):
    """Queries of a single session have half of the bucket, at the same rate."""
    bucket = NewQueries(960, now=0.0)
    assert sum(who(bucket, 0.0) for _ in range(2000)) == burst
    granted = [who(bucket, t / 64) for t in range(1, 60 * 64 + 1)]  # a minute, 64 tries a second: no rounding
    assert sum(granted) == 960
    assert sum(who(bucket, 1e9) for _ in range(2000)) == burst  # permits are not saved up beyond a minute


def test_what_several_sessions_ask_has_the_other_half():
    bucket = NewQueries(100, now=0.0)
    assert sum(asked(bucket, 0.0, session=7) for _ in range(1000)) == 50
    honest = [os.urandom(16) for _ in range(60)]
    assert not any(bucket.allow(key, session, 0.0) for key in honest for session in (8, 8))  # one session twice
    assert [bucket.allow(key, 9, 0.0) for key in honest] == [True] * 50 + [False] * 10
    assert not bucket.allow(os.urandom(16), 9, 0.0, several=True)
    assert bucket.allow(os.urandom(16), 9, 0.6, several=True)


def test_a_single_permit_is_for_anybody():
    assert asked(NewQueries(1, now=0.0), 0.0)


def test_the_doorkeeper_is_bounded_and_one_session_takes_a_tenth_of_it():
    door = Doorkeeper(most=1000)
    honest = [os.urandom(16) for _ in range(100)]
    for number, key in enumerate(honest):
        assert not door.several(key, 1000 + number)
    for _ in range(5000):  # a flood from one session, and from requests without one
        door.several(os.urandom(16), 7)
        door.several(os.urandom(16), 0)
    assert all(door.several(key, 5) for key in honest)
    for number in range(5000):
        door.several(os.urandom(16), number)
    assert len(door._young) + len(door._old) <= 1000


def test_a_clock_that_jumps_back_neither_gives_nor_takes():
    bucket = NewQueries(60, now=7200.0)
    assert sum(known(bucket, 7200.0) for _ in range(59)) == 59
    assert known(bucket, 3600.0)
    assert not known(bucket, 3600.5)
    assert known(bucket, 3601.1)
    assert not known(bucket, 3601.1)


@given(st.integers(1, 1000), st.lists(st.floats(0, 100), max_size=200))
def test_never_more_than_two_minutes_worth_in_one_minute(per_minute, gaps):
    bucket = NewQueries(per_minute, now=0.0)
    now, given_at = 0.0, []
    for gap in gaps:
        now += gap
        while len(given_at) < 5000 and known(bucket, now):
            given_at.append(now)
    for start in given_at[:: max(len(given_at) // 20, 1)]:
        assert sum(start <= at < start + 60 for at in given_at) <= 2 * per_minute


def body(chunks: list[bytes | None], limit: int, length: bytes | None = None) -> tuple[bytes, int]:
    """Return the result of `read_body`, and the number of chunks that it has requested."""
    taken = 0

    async def receive():
        nonlocal taken
        chunk = chunks[taken]
        taken += 1
        if chunk is None:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": chunk, "more_body": taken < len(chunks)}

    headers = [(b"host", b"x")] + ([(b"content-length", length)] if length is not None else [])
    try:
        return asyncio.run(read_body(headers, receive, limit)), taken
    except Refused as refused:
        refused.taken = taken
        raise


def test_bodies_within_the_limit_come_whole():
    assert body([b"abc"], 3) == (b"abc", 1)
    assert body([b""], 0) == (b"", 1)
    assert body([b"ab", b"", b"c"], 3, b"3") == (b"abc", 3)


@pytest.mark.parametrize(
    ("chunks", "length", "taken"),
    [
        ([b"abcd"], b"4", 0),
        ([b"abcd"], b"9" * 5000, 0),
        ([b"abcd"], b"x", 1),
        ([b"abcd"], None, 1),
        ([b"ab", b"cd", b"ef", b"gh"], None, 2),
        ([b"ab", b"cd", b"ef"], b"2", 2),
    ],
)
def test_larger_ones_are_refused_as_soon_as_that_is_known(chunks, length, taken):
    with pytest.raises(Refused, match="larger than 3 bytes") as caught:
        body(chunks, 3, length)
    assert (caught.value.status, caught.value.taken) == (413, taken)


@pytest.mark.parametrize("chunks", [[None], [b"a", None]])
def test_a_caller_that_goes_away_is_no_request(chunks):
    with pytest.raises(ClientGone):
        body(chunks, 10)
