"""What is known of sessions: bounded, the last ones for sure, the same as a plain table would know, and forgotten on demand."""

from __future__ import annotations

import random
from typing import Any

import pytest
from serving.scripted import Script, ranker

from swerve.serving.kernels import LEFT, OWNER
from swerve.serving.people import People, Spent, key_of, words_of

pytestmark = pytest.mark.compiled
OFFER = ["a", "b", "c"]


def keys(count: int) -> list[bytes]:
    rng = random.Random(5)
    return [rng.randbytes(16) for _ in range(count)]


class Plain:
    """Units of evidence in a dictionary, without a bound: what `People` must agree with while nothing has been dropped."""

    def __init__(self, limit: int) -> None:
        self.limit, self.known = limit, dict[tuple[int, bytes], Spent]()

    def shown(self, person: int, key: bytes, phase: int, results: list[int]) -> None:
        spent = self.known.get((person, key))
        if spent is None or spent.phase != phase:
            spent = self.known[person, key] = Spent(phase, list(results))
        else:
            spent.shows += results
        spent.use(results[0], self.limit)

    def shown_instead(self, person: int, key: bytes, phase: int, results: list[int]) -> None:
        spent = self.known.get((person, key))
        if spent is not None and spent.phase == phase:
            spent.shows += [result for result in results if spent.shows.count(result) < self.limit]

    def clicked(self, person: int, key: bytes, phase: int, result: int, shown: bool) -> bool:
        spent = self.known.get((person, key))
        if spent is None or spent.phase != phase:
            return shown
        if spent.clicks.count(result) >= spent.shows.count(result):
            return False
        spent.clicks += (result,)
        return True


@pytest.mark.parametrize("limit", [1, 2])
def test_evidence_is_what_a_plain_table_would_hold(limit: int):
    rng, some = random.Random(limit), keys(4)
    people, plain = People(ranker("ts", per_session=limit).settings), Plain(limit)
    for _ in range(3000):
        person, key, phase = rng.choice([1, 7, 2**64 - 1]), rng.choice(some), rng.choice([1, 1, 2])
        results = rng.sample(range(1, 9), 3)
        what = rng.random()
        if what < 0.3:
            people.shown(person, key, phase, list(results))
            plain.shown(person, key, phase, results)
        elif what < 0.4:
            people.shown_instead(person, key, phase, results)
            plain.shown_instead(person, key, phase, results)
        else:
            expected = plain.clicked(person, key, phase, results[0], shown=what < 0.7)
            assert people.clicked(person, key, phase, results[0], shown=what < 0.7) == expected
        found, known = people.spent_by(person, key), plain.known.get((person, key))
        assert (found is None) == (known is None)
        if found is not None and known is not None:
            assert (found.phase, found.results, sorted(found.shows)) == (known.phase, known.results, sorted(known.shows))


def test_a_session_that_goes_on_to_another_query_is_noted_once_and_in_time():
    """Reformulations are counted for the query before, on the same shelf and on another one, within the window."""
    script = Script(ranker("ts", arms=16, reformulation=60.0))
    seen: list[tuple[int, int]] = []
    packing = script.ranker.packing
    decide = packing.decide_columns

    def spied(shelf: Any, common: Any, asks: Any, *rest: Any, **more: Any) -> int:
        made: int = decide(shelf, common, asks, *rest, **more)
        seen.append((int(asks[0, LEFT]), int(asks[0, OWNER])))
        return made

    packing.decide_columns = spied  # type: ignore[method-assign]
    wide = [f"r{number}" for number in range(12)]
    for query, offer, step in (("p", OFFER, 1.0), ("q", OFFER, 1.0), ("q", OFFER, 1.0), ("wide", wide, 1.0), ("p", OFFER, 61.0)):
        script.rank(query, offer, session="s", step=step)
    place = script.place("p")
    assert [row for row, _ in seen] == [-1, place.index, -1, -1, -1]


def test_the_last_sessions_are_known_and_no_more_than_the_bound():
    people, some = People(ranker("ts").settings, most=64), keys(1)
    for person in range(1, 500):
        people.shown(person, some[0], 1, [5])
        for recent in range(max(1, person - 31), person + 1):
            assert people.spent_by(recent, some[0]) is not None
    assert sum(people.spent_by(person, some[0]) is not None for person in range(1, 500)) <= 64
    assert len(people._asides) <= 64


def test_what_is_used_stays():
    people, some = People(ranker("ts").settings, most=64), keys(1)
    people.shown(1, some[0], 1, [5])
    for person in range(2, 500):
        people.shown(person, some[0], 1, [6])
        if person % 16 == 0:
            people.shown(1, some[0], 1, [5])
    spent = people.spent_by(1, some[0])
    assert spent is not None and spent.shows == [5] * (1 + 31)


def test_a_query_is_forgotten_and_no_other():
    people, some = People(ranker("ts").settings, most=1000), keys(20)
    for person in range(1, 20):
        for key in some:
            people.shown(person, key, 1, [5, 6])
    assert people.known() == set(some)
    people.forget(some[:7])
    assert people.known() == set(some[7:])
    for person in range(1, 20):
        for key in some:
            assert (people.spent_by(person, key) is None) == (key in some[:7])
        people.shown(person, some[0], 2, [7])
        assert people.spent_by(person, some[0]).shows == [7]  # type: ignore[union-attr]


def test_the_last_query_of_a_session_is_forgotten_and_no_page_of_others():
    script = Script(ranker("ts", arms=16, steady=60.0))
    for number in range(30):
        script.rank(f"q{number % 3}", OFFER if number % 3 else [f"r{n}" for n in range(12)], session=f"s{number}")
    people, gone = script.ranker.people, script.place("q0").key
    others = {key for key in people.known() if key != gone}
    pages = people.pages[people.pages[:, :, 0] != 0]
    people.forget([gone])
    assert people.known() == others
    assert len(people.pages[people.pages[:, :, 0] != 0]) == len(pages) - 10


def test_keys_are_words():
    for key in keys(5):
        assert key_of(words_of(key)) == key
