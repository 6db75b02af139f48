"""Who lives is judged by signs of life and the observer's own clock; which machine runs which shares follows from that."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import postgres
import pytest
import valkeys
from hypothesis import given, strategies as st

from swerve.service.board import Board, Posted, put
from swerve.service.membership import DEAD_SECONDS, FORGOTTEN_SECONDS, HAVE, MOST_STEP, RUN, Member, Watch
from swerve.store import InUse, StoreError, open_store
from swerve.store.directory import Machine, Owner, Shares
from swerve.store.urls import open_directory

FRESH: dict[str, Callable[[Path], str]] = {"postgresql": postgres.fresh, "valkey": valkeys.fresh}
STEP = 0.25


def machine(address: str = "a:1", beats: int = 1, boot: str = "x") -> Machine:
    return Machine(address, boot, 1, beats, f"process 1 on {address}")


def test_a_machine_whose_signs_stand_still_is_dead_and_lives_again_with_the_next_one():
    watch, now = Watch(), 100.0
    while now < 100.0 + DEAD_SECONDS:
        watch.look({"a:1": machine(beats=int(now))}, now)
        assert watch.lives("a:1") and not watch.lives("b:1")
        now += STEP
    for _ in range(int(DEAD_SECONDS / STEP)):
        watch.look({"a:1": machine(beats=7)}, now)
        assert watch.lives("a:1")
        now += STEP
    watch.look({"a:1": machine(beats=7)}, now)
    assert not watch.lives("a:1")
    watch.look({"a:1": machine(beats=7, boot="y")}, now + STEP)
    assert watch.lives("a:1")


@given(st.lists(st.floats(0.0, 1000.0), max_size=30))
def test_a_pause_of_the_observer_and_an_engine_that_is_away_kill_nobody(pauses):
    """The clock of the observer may stand still or run far between two looks: only looks that it made itself count."""
    watch, now, looked = Watch(), 0.0, 0.0
    sign = {"a:1": machine()}
    watch.look(sign, now)
    for pause in pauses:
        now += pause
        if pause > 500.0:
            watch.missed()
        watch.look(sign, now)
        looked += 0.0 if pause > 500.0 else min(pause, MOST_STEP)
        assert watch.still("a:1") == pytest.approx(looked)


def test_the_board_is_read_when_it_has_changed(tmp_path):
    board = Board(tmp_path / "board")
    assert not board.look() and board.posted == Posted()
    for epoch in (1, 2):
        put(tmp_path / "board", Posted({3: Owner("a:1", epoch)}))
        assert board.look() and not board.look()
        assert board.posted.owners == {3: Owner("a:1", epoch)}
    assert msgspec.json.decode((tmp_path / "board").read_bytes()) == {"owners": {"3": ["a:1", 2, True]}}


class Place:
    """Machines of a test over one directory, with a clock that it moves."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.folder, self.now = url, folder, 0.0
        self.told: dict[str, dict[str, list[int]]] = {}
        self.opened = [open_directory(url)]
        self.opened[0].begin(Shares(4, b"x"))

    def member(self, address: str, boot: str = "x") -> Member:
        self.opened.append(open_directory(self.url))
        told = self.told.setdefault(address, {})
        return Member(
            self.opened[-1], machine(address, 0, boot), 4, self.folder / f"board-{address}", told.__setitem__, lambda: self.now
        )

    def pass_by(self, seconds: float, *members: Member) -> None:
        for _ in range(int(seconds / STEP)):
            self.now += STEP
            for member in members:
                member.step()

    def own(self, address: str, *shares: int) -> None:
        for share in shares:
            epoch = self.opened[0].look().owners.get(share, Owner("", 0)).epoch
            assert self.opened[0].own(share, Owner(address, epoch + 1))


@pytest.fixture(params=sorted(FRESH))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    url = FRESH[request.param](tmp_path)
    open_store(url).close()
    made = Place(url, tmp_path)
    yield made
    for directory in made.opened:
        directory.close()


@pytest.mark.engines
def test_shares_follow_those_who_live(place: Place):
    first, second = place.member("a:1"), place.member("b:1")
    first.step()
    assert place.told["a:1"][RUN] == [0, 1, 2, 3] and place.told["a:1"][HAVE] == []
    place.own("a:1", 0, 1, 2, 3)
    first.step()
    assert place.told["a:1"][HAVE] == [0, 1, 2, 3]
    second.step()
    first.step()
    assert place.told["a:1"][RUN] == [0, 1] and place.told["b:1"][RUN] == [2, 3]
    place.opened[0].let_go(2, 1)
    place.own("b:1", 2, 3)
    place.pass_by(1.0, first, second)
    assert place.told["a:1"][HAVE] == [0, 1] and place.told["b:1"][HAVE] == [2, 3]
    board = Board(place.folder / "board-b:1")
    board.look()
    assert {share: owner.machine for share, owner in board.posted.owners.items()} == {0: "a:1", 1: "a:1", 2: "b:1", 3: "b:1"}
    place.pass_by(DEAD_SECONDS - 1.0, second)
    assert place.told["b:1"][RUN] == [2, 3]
    place.pass_by(2.0, second)
    assert place.told["b:1"][RUN] == [0, 1, 2, 3]
    board.look()
    assert sorted(board.posted.owners) == [2, 3]  # nobody waits for who is dead
    place.pass_by(1.0, first, second)  # it was only slow
    assert place.told["b:1"][RUN] == [2, 3] and place.told["a:1"][RUN] == [0, 1]
    first.leave()
    place.pass_by(STEP, second)
    assert place.told["b:1"][RUN] == [0, 1, 2, 3]


@pytest.mark.engines
def test_a_dead_machine_is_forgotten_in_the_end(place: Place):
    first, second = place.member("a:1"), place.member("b:1")
    first.step()
    place.pass_by(FORGOTTEN_SECONDS - 5.0, second)
    assert "a:1" in place.opened[0].look().machines
    place.pass_by(10.0, second)
    assert "a:1" not in place.opened[0].look().machines


@pytest.mark.engines
def test_who_stands_in_the_way_is_told(place: Place):
    first = place.member("a:1")
    first.join(lambda seconds: None)
    first.step()

    def living(seconds: float) -> None:
        place.pass_by(1.0, first)

    def dead(seconds: float) -> None:
        place.now += seconds

    place.member("b:1", "y").join(dead)  # beside it
    with pytest.raises(InUse, match="each machine has its own"):
        place.member("a:1", "y").join(living)
    with pytest.raises(InUse, match=r"set server\.crew_address on each"):
        place.member("", "y").join(living)
    second = place.member("a:1", "y")
    second.join(dead)  # its start before was killed
    second.step()
    with pytest.raises(InUse, match="each machine has its own"):
        first.step()  # and comes back


@pytest.mark.engines
def test_an_engine_that_is_away_changes_nothing(tmp_path):
    valkeys.needed()
    server = valkeys.ValkeyServer(tmp_path / "server").start()
    try:
        url = server.url("x")
        open_store(url).close()
        place = Place(url, tmp_path)
        first, second = place.member("a:1"), place.member("b:1")
        place.pass_by(1.0, first, second)
        told = {name: dict(what) for name, what in place.told.items()}
        server.kill()
        for _ in range(40):
            place.now += 1.0
            for member in (first, second):
                with pytest.raises(StoreError):
                    member.step()
        server.start()
        for member in (first, second, first):
            member.step()
        assert place.told == told
        for directory in place.opened:
            directory.close()
    finally:
        server.remove()
