"""Limits: permits for new queries, and bodies that are refused before they are kept."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swerve.service.admission import NewQueries
from swerve.service.http.limits import ClientGone, read_body
from swerve.serving.messages import Refused


def test_a_burst_of_a_minute_then_the_rate():
    bucket = NewQueries(960, now=0.0)
    assert sum(bucket.allow(0.0) for _ in range(2000)) == 960
    assert bucket.wait() == 1 / 16
    granted = [bucket.allow(t / 64) for t in range(1, 60 * 64 + 1)]  # a minute, 64 tries a second: no rounding
    assert sum(granted) == 960
    assert sum(bucket.allow(1e9) for _ in range(2000)) == 960  # permits are not saved up beyond a minute


def test_a_clock_that_jumps_back_neither_gives_nor_takes():
    bucket = NewQueries(60, now=7200.0)
    assert sum(bucket.allow(7200.0) for _ in range(59)) == 59
    assert bucket.allow(3600.0)
    assert not bucket.allow(3600.5)
    assert bucket.allow(3601.1)
    assert not bucket.allow(3601.1)


@given(st.integers(1, 1000), st.lists(st.floats(0, 100), max_size=200))
def test_never_more_than_two_minutes_worth_in_one_minute(per_minute, gaps):
    bucket = NewQueries(per_minute, now=0.0)
    now, given_at = 0.0, []
    for gap in gaps:
        now += gap
        while len(given_at) < 5000 and bucket.allow(now):
            given_at.append(now)
    for start in given_at[:: max(len(given_at) // 20, 1)]:
        assert sum(start <= at < start + 60 for at in given_at) <= 2 * per_minute


def body(chunks: list[bytes | None], limit: int, length: bytes | None = None) -> tuple[bytes, int]:
    """What `read_body` returns, and how many chunks it has asked for."""
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
