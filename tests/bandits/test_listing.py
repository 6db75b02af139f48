"""Common parts of bandits for result pages: the open page, and pages by score."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
from bandits.paging import Desk

from swerve.bandits import DCMKLUCB, BubbleRank, CascadeKLUCB, CascadeThompson, ListThompson, RankedThompson, TopRank
from swerve.bandits.listing import by_score, to_first_click, to_last_click

EVERY = pytest.mark.parametrize(
    "policy",
    [ListThompson(), CascadeKLUCB(), DCMKLUCB(), CascadeThompson(), BubbleRank(), TopRank(), RankedThompson()],
    ids=lambda policy: type(policy).__name__,
)


def test_pages_by_score_are_sorted_and_equal_scores_keep_the_given_order():
    dice = random.Random(1)
    for _ in range(200):
        arms, slots = dice.randint(1, 9), dice.randint(1, 10)
        scores = np.array([dice.choice([0.1, 0.2, 0.3, 0.4]) for _ in range(arms)])
        given = np.array(dice.sample(range(arms), dice.randint(1, arms)))
        page = np.full(slots, -7, np.int64)
        filled = by_score(scores, given, page)
        assert page[:filled].tolist() == sorted(given.tolist(), key=lambda arm: -scores[arm])[:slots]
        assert (page[filled:] == -7).all()


def test_how_far_a_page_was_read():
    assert [to_first_click(None, clicks, 4) for clicks in (0b0000, 0b0001, 0b0110, 0b1000)] == [4, 1, 2, 4]
    assert [to_last_click(None, clicks, 4) for clicks in (0b0000, 0b0001, 0b0110, 0b1000)] == [4, 1, 3, 4]


@EVERY
def test_clicks_arrive_in_any_order_and_one_at_a_time_or_together(policy):
    def after(batches):
        desk = Desk(policy, 6, 4)
        for _ in range(8):
            page = desk.page()
            assert len(set(page)) == 4
            for batch in batches:
                assert desk.click(*batch)
        desk.settle()
        return desk.bytes

    states = {after([[slot] for slot in slots]) for slots in itertools.permutations((0, 2, 3))}
    assert states == {after([[0, 2, 3]])}
    assert states != {after([])}


@EVERY
def test_a_click_on_an_earlier_page_is_not_learnt(policy):
    desk = Desk(policy, 6, 4)
    desk.page()
    desk.page()
    state = desk.bytes
    assert not desk.click(1, number=1)
    assert desk.bytes == state
    assert desk.click(1)


@EVERY
def test_a_page_has_only_what_is_on_offer(policy):
    desk, dice = Desk(policy, 8, 4), random.Random(2)
    for _ in range(60):
        given = dice.sample(range(8), dice.randint(1, 8))
        page = desk.page(given)
        assert len(page) == len(set(page)) == min(4, len(given))
        assert set(page) <= set(given)
        desk.click(*[slot for slot in range(len(page)) if dice.random() < 0.3])


@EVERY
def test_an_arm_forgotten_under_an_open_page_gets_none_of_its_clicks(policy):
    """Two histories that differ only in whether the forgotten arm was clicked end in the same bytes."""

    def after(clicked):
        desk = Desk(policy, 5, 3)
        for _ in range(5):
            desk.page()
            desk.click(0)
        page = desk.page()
        desk.evict(page[2])
        desk.click(*([2] if clicked else []))
        desk.settle()
        return desk.row

    one, other = after(clicked=True), after(clicked=False)
    if type(policy) in (CascadeKLUCB, DCMKLUCB, CascadeThompson, ListThompson):
        arm = int(np.setdiff1d(np.arange(5), np.flatnonzero(one.plays[:5]))[0])
        assert one.plays[arm] == other.plays[arm] == one.total[arm] == 0
    elif isinstance(policy, BubbleRank | TopRank):
        assert one.lead.tobytes() == other.lead.tobytes()
    else:
        assert one.total.tobytes() == other.total.tobytes()


@EVERY
def test_after_a_restart_a_policy_plays_as_at_first(policy):
    """A restart leaves nothing but the random stream."""
    desk, fresh = Desk(policy, 6, 4), Desk(policy, 6, 4)
    for _ in range(30):
        desk.page()
        desk.click(0, 2)
    desk.page()
    desk.restart()
    desk.settle()
    desk.row.rng = fresh.row.rng
    desk.number = 0
    for _ in range(20):
        assert desk.page() == fresh.page()
        assert desk.click(1) == fresh.click(1)
