"""What holds for the directory of every engine that is a server."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st
from store.conftest import ENGINES, SERVERS

from swerve.core.errors import SwerveError
from swerve.store import open_store
from swerve.store.directory import Machine, Owner, Seen, Shares, divided, fair
from swerve.store.shares import Share
from swerve.store.urls import open_directory, share_url, share_urls, shares_at

ONE, TWO = (Machine(f"10.0.0.{number}:8351", "boot", number, 1, f"process {number} on host") for number in (1, 2))
FOUR = Shares(4, b"\0finger\xff")


@pytest.fixture(params=[pytest.param(name, marks=pytest.mark.engines) for name in sorted(SERVERS)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    made: Callable[[Path], str] = ENGINES[request.param]
    return made(tmp_path)


@pytest.fixture
def directory(url: str) -> Iterator[Any]:
    """The directory of a store that is there."""
    open_store(url).close()
    with open_directory(url) as made:
        yield made


def test_the_first_number_of_shares_holds(directory, url):
    assert directory.shares() is None and shares_at(url) is None and share_urls(url) == [url]
    assert directory.begin(FOUR) == FOUR == directory.shares()
    assert directory.begin(Shares(8, b"others")) == FOUR == shares_at(url)


def test_two_that_begin_at_once_come_to_the_same(directory, url):
    found = list[Shares]()

    def begin(count: int) -> None:
        with open_directory(url) as other:
            found.append(other.begin(Shares(count, b"x")))

    threads = [threading.Thread(target=begin, args=(count,)) for count in range(2, 8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 6 and len(set(found)) == 1


def test_machines_come_beat_and_leave(directory, url):
    directory.begin(FOUR)
    assert directory.look() == Seen({}, {})
    directory.beat(ONE)
    directory.beat(TWO)
    directory.beat(ONE._replace(beats=2))
    with open_directory(url) as other:
        assert other.look().machines == {ONE.address: ONE._replace(beats=2), TWO.address: TWO}
        other.leave(ONE.address, "an earlier start")
        assert ONE.address in other.look().machines
        other.leave(ONE.address, ONE.boot)
    assert directory.look().machines == {TWO.address: TWO}


def test_an_owner_of_an_earlier_epoch_is_not_entered(directory):
    directory.begin(FOUR)
    assert directory.own(3, Owner(ONE.address, 5))
    assert not directory.own(3, Owner(TWO.address, 4))
    assert directory.own(3, Owner(TWO.address, 6)) and directory.own(0, Owner("", 1))
    assert directory.look().owners == {0: Owner("", 1), 3: Owner(TWO.address, 6)}


def test_a_share_that_was_let_go_keeps_its_epoch(directory):
    directory.begin(FOUR)
    directory.own(2, Owner(ONE.address, 7))
    directory.let_go(2, 6)  # of the owner before
    assert directory.look().owners[2].there
    directory.let_go(2, 7)
    assert directory.look().owners[2] == Owner(ONE.address, 7, False)
    assert not directory.own(2, Owner(TWO.address, 6)) and directory.own(2, Owner(TWO.address, 8))
    assert directory.look().owners[2] == Owner(TWO.address, 8)


def test_every_share_is_a_store_of_its_own(directory, url):
    directory.begin(Shares(3, b"x"))
    with closing(open_store(share_url(url, Share(2, 3)))) as second:  # share 1 was not begun yet
        assert share_urls(url) == [url, share_url(url, Share(2, 3))]
        second.claim(b"someone")
    with closing(open_store(url)) as first, closing(open_store(share_url(url, Share(1, 3)))) as other:
        assert len({first.store, second.store, other.store}) == 3
        assert share_urls(url) == [share_url(url, Share(number, 3)) for number in range(3)]
    directory.beat(ONE)  # a store that is open, or was, does not change the directory
    assert directory.look().machines == {ONE.address: ONE}


@pytest.mark.parametrize("url", ["postgresql://db/x?schema=" + 60 * "s", "valkey://db?prefix=" + 60 * "p"])
def test_a_name_that_is_too_long_for_shares_is_refused(url):
    assert share_url(url, Share(0, 4)) == url
    with pytest.raises(SwerveError, match="too long"):
        share_url(url, Share(1, 4))


names = st.sampled_from("abcdef")


@given(st.integers(1, 64), st.dictionaries(names, st.integers(1, 64), min_size=1), st.dictionaries(st.integers(0, 63), names))
def test_everyone_gets_a_fair_part_and_keeps_what_it_has_of_it(shares, workers, owners):
    part, out = fair(shares, workers), divided(shares, workers, owners)
    every = sum(workers.values())
    assert sum(part.values()) == shares
    assert all(abs(part[name] - shares * wanted / every) < 1 for name, wanted in workers.items())
    assert sorted(out) == list(range(shares))
    assert {name: sum(one == name for one in out.values()) for name in workers} == part
    for name in workers:  # nobody gets another share while it gives up one
        had = {share for share, owner in owners.items() if owner == name and share < shares}
        gets = {share for share, owner in out.items() if owner == name}
        assert len(had & gets) == min(len(had), part[name])
    assert divided(shares, workers, out) == out
