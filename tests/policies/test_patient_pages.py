"""Pages that wait for their clicks: any order or splitting of clicks and of what was shown ends in the same bytes."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
from hypothesis import given as drawn, settings, strategies as st

from swerve.core.engine import consider
from swerve.core.fleet import Fleet
from swerve.core.pages import NOT_LEARNT, order, present, respond
from swerve.policies.patient import Patient
from swerve.policies.swerve.listed import Listed

ARMS, FEATURES, SLOTS, WAIT = 6, 2, 5, 10.0
RATES = (0.5, 0.3, 0.2, 0.1, 0.1, 0.05)
#: How users of these tests look at slots.
LOOKS = (1.0, 0.8, 0.6, 0.5, 0.4)


class Query:
    """One query under a patient policy, played by hand."""

    def __init__(self, wait: float = WAIT, seed: int = 3) -> None:
        self.fleet = Fleet(Patient(Listed(), click_wait=wait), queries=1, arms=ARMS, features=FEATURES, seed=seed)
        self.given = np.arange(ARMS)
        self.number = 0

    @property
    def bytes(self) -> bytes:
        return self.fleet.table.tobytes()

    @property
    def record(self) -> Any:
        return self.fleet.table[0].bandit.bandit.test

    def show(self, now: float) -> tuple[Any, int, int]:
        one = self.fleet
        page = np.zeros(SLOTS, np.int64)
        consider(one.policy, one.table[0], one.pools, 0, one.writer, np.full(FEATURES, 0.1), 0, now)
        filled = order(one.policy, one.table[0], one.pools[0], self.given, page, now)
        self.number += 1
        return page[:filled], present(one.policy, one.table[0], one.pools[0], page[:filled], self.number, now), self.number

    def respond(self, page: Any, seen: int, before: int, final: Any, after: int, number: int, shown: float, now: float) -> int:
        one = self.fleet
        return int(respond(one.policy, one.table[0], one.pools[0], page, seen, before, final, after, number, shown, now))


def clicks_on(page: Any, draw: random.Random) -> int:
    return sum(1 << slot for slot, arm in enumerate(page) if draw.random() < LOOKS[slot] * RATES[arm])


@settings(max_examples=25)
@drawn(
    st.lists(st.integers(0, SLOTS - 1), max_size=4, unique=True),
    st.one_of(st.none(), st.permutations(range(SLOTS)).map(lambda order: order[:3])),
    st.randoms(use_true_random=False),
    st.integers(0, 5),
)
def test_events_of_a_waiting_page_in_any_order_end_in_the_same_bytes(
    clicked: list[int], kept: list[int] | None, shuffle: random.Random, between: int
):
    """Also while other pages of the query are shown in between, as long as none of them is handed over."""
    ends = []
    for split in (False, True):
        query, draw = Query(), random.Random(5)
        for t in range(8):  # a record
            page, seen, number = query.show(100.0 * t)
            query.respond(page, seen, 0, page, clicks_on(page, draw), number, 100.0 * t, 100.0 * t + 1.0)
        start = 3000.0
        page, seen, number = query.show(start)
        others = [query.show(start + 0.1 * k) for k in range(between)]
        arms = [int(page[slot]) for slot in clicked]  # clicks are on results, wherever they were shown
        final = page if kept is None else page[kept]

        def mask(of: Any, on: list[int]) -> int:
            return sum(1 << slot for slot, arm in enumerate(of) if arm in on)

        if not split:
            assert query.respond(page, seen, 0, final, mask(final, arms), number, start, start + 2.0) != NOT_LEARNT
        else:
            events: list[int | None] = [*arms, *([None] if kept is not None else [])]
            shuffle.shuffle(events)
            known: list[int] = []
            now_page, now_seen = page, seen
            for event in events:
                before = mask(now_page, known)
                after_page = final if event is None else now_page
                known += [] if event is None else [event]
                now_seen = query.respond(
                    now_page, now_seen, before, after_page, mask(after_page, known), number, start, start + 1.0
                )
                now_page = after_page
        for k, (other, others_seen, others_number) in enumerate(others):
            query.respond(other, others_seen, 0, other, 1, others_number, start + 0.1 * k, start + 3.0)
        ends.append(query.bytes)
    assert ends[0] == ends[1]


def test_after_the_wait_a_record_holds_what_was_clicked():
    query, draw = Query(), random.Random(2)
    clicks = 0
    for t in range(200):
        page, seen, number = query.show(float(t))
        after = clicks_on(page, draw)
        clicks += after.bit_count()
        if after:
            query.respond(page, seen, 0, page, after, number, float(t), t + 0.5)
    query.show(1000.0)
    row = query.fleet.table[0]
    total = float(query.record.old_total.sum() + query.record.new_total.sum())
    prior = float(row.bandit.prior_clicks[row.bandit.prior_plays > 0].sum())
    assert abs(total - prior - clicks) < 1.0
    assert int(row.plays.sum()) <= SLOTS  # only the last page waits
    assert int(query.record.old_plays[0]) > int(query.record.old_plays[5])


def test_a_page_learns_the_same_with_and_without_waiting():
    """With clicks at once, waiting changes when the record learns, not what."""
    totals = []
    for wait in (0.0, 50.0):
        query, draw = Query(wait), random.Random(9)
        query.fleet.pools["bandit"]["pages"]["expected"][:] = 0.0
        for t in range(300):
            page, seen, number = query.show(float(t))
            after = clicks_on(page, draw)
            if after:
                query.respond(page, seen, 0, page, after, number, float(t), float(t))
        query.show(10_000.0)
        test = query.record
        plays = test.old_plays + test.new_plays
        totals.append(((test.old_total + test.new_total) / np.maximum(plays, 1))[:3])
    assert np.abs(totals[0] - totals[1]).max() < 0.12


def test_the_examination_is_learnt_from_pages_that_have_waited():
    """Users here look at lower slots in two of ten pages; the first guess for the second slot is all of them."""
    query, draw = Query(wait=5.0), random.Random(4)
    for t in range(800):
        page, seen, number = query.show(10.0 * t)
        after = sum(1 << slot for slot, arm in enumerate(page) if draw.random() < (1.0 if slot == 0 else 0.2) * RATES[arm])
        if after:
            query.respond(page, seen, 0, page, after, number, 10.0 * t, 10.0 * t + 1.0)
    pages = query.fleet.pools[0].bandit.pages
    assert pages.expected[1] > 20.0  # slot 1, no click above
    assert pages.clicks[1] / pages.expected[1] < 0.7


def test_a_forgotten_result_takes_its_waiting_plays_along():
    query = Query()
    page, seen, number = query.show(0.0)
    arm = int(page[0])
    query.fleet.evict(0, arm)
    assert int(query.fleet.table[0].plays[arm].sum()) == 0
    gone = page.copy()
    gone[0] = -1
    assert query.respond(gone, seen, 0, gone, 2, number, 0.0, 1.0) != NOT_LEARNT
    assert float(query.fleet.table[0].earned[int(page[1])].sum()) == 1.0
    assert int(query.fleet.table[0].plays[arm].sum()) == 0
