"""BubbleRank's safety, TopRank's blocks, ranked bandits' slots."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from bandits.paging import Desk
from twins import clicks as twin

from swerve import Pages, simulate
from swerve.bandits import BubbleRank, RankedThompson, TopRank

ATTRACTION = [0.7, 0.5, 0.35, 0.2, 0.1, 0.05]


def wrong_pairs(order):
    """Return the pairs of arms in the wrong order, where the lower number is the better arm."""
    return sum(order[i] > order[j] for i in range(len(order)) for j in range(i + 1, len(order)))


@pytest.mark.parametrize("model", ["ubm", "pbm", "dcm", "cascade"])
def test_bubble_rank_is_safe_and_sorts(model):
    """Li et al., Lemma 6: a page has at most K/2 more wrong pairs than the given order. In the end the order is right."""
    given = [1, 0, 2, 4, 3, 5]
    desk = Desk(BubbleRank(delta=1e-3), 6, 6)
    for t in range(1, 6001):
        page = desk.page(given)
        assert wrong_pairs(page) <= wrong_pairs(given) + 3
        assert wrong_pairs(desk.row.ranked[:6].tolist()) <= wrong_pairs(given)
        desk.click(*twin.clicks(model, [ATTRACTION[arm] for arm in page], 7, 0, t))
    assert desk.row.ranked[:2].tolist() == [0, 1]


def test_bubble_rank_swaps_only_neighbours_in_turns():
    desk = Desk(BubbleRank(), 7, 5)
    swapped = {0: set(), 1: set()}
    for t in range(200):
        page = desk.page()
        order = list(range(7))
        for slot in range(t % 2, 6, 2):
            if slot < 5 and page[slot] == order[slot + 1]:
                swapped[t % 2].add(slot)
                order[slot], order[slot + 1] = order[slot + 1], order[slot]
        assert page == order[:5], "only neighbours are exchanged"
    assert swapped == {0: {0, 2, 4}, 1: {1, 3}}


def test_bubble_rank_decides_at_its_threshold():
    """An arm that alone is clicked s times of s moves up once s > 2 √(s ln(1/δ)), that is s > 4 ln(1/δ)."""
    delta = 0.1
    desk = Desk(BubbleRank(delta=delta), 2, 2)
    count = 0
    while desk.row.ranked[0] == 0:
        page = desk.page([0, 1])
        if desk.row.t % 2 == 0:
            desk.click(page.index(1))
            count += 1
        desk.settle()
        assert count < 50
    assert count == math.floor(4 * math.log(1 / delta)) + 1


def test_bubble_rank_lets_an_arm_climb_onto_the_page():
    """The arm below the page shares the last slot and enters by its clicks."""
    chances = dict.fromkeys(range(5), 0.05) | {4: 0.9}
    desk, dice = Desk(BubbleRank(delta=0.3), 5, 4), random.Random(3)
    for _ in range(600):
        page = desk.page()
        desk.click(*[slot for slot, arm in enumerate(page) if dice.random() < chances[arm]])
    assert desk.page()[0] == 4 or int(desk.row.ranked[0]) == 4


def test_bubble_rank_appends_new_arms_and_closes_ranks_behind_forgotten_ones():
    desk = Desk(BubbleRank(), 6, 3)
    desk.page([2, 0, 1])
    assert desk.row.ranked[: desk.row.known].tolist() == [2, 0, 1]
    desk.page([5, 1, 0, 2])
    assert desk.row.ranked[: desk.row.known].tolist() == [2, 0, 1, 5]
    desk.evict(0)
    assert desk.row.ranked[: desk.row.known].tolist() == [2, 1, 5]
    assert set(desk.page([2, 1])) == {1, 2}


def test_top_rank_starts_with_one_block_in_uniform_order():
    desk = Desk(TopRank(), 4, 4)
    tops = [desk.page()[0] for _ in range(2000)]
    counts = np.bincount(tops, minlength=4)
    assert (np.abs(counts - 500) < 4.5 * math.sqrt(2000 * 0.25 * 0.75)).all()


def test_top_rank_divides_at_its_threshold_and_keeps_the_beaten_below():
    """An arm that alone is clicked s times of s beats the others once s ≥ √(2 s ln(3.43 √s / δ))."""
    delta = 0.1
    desk = Desk(TopRank(delta=delta), 3, 3)
    count = 0
    while desk.row.beaten[0] == 0:
        page = desk.page()
        desk.click(page.index(2))
        desk.settle()
        count += 1
        assert count < 50
    constant = 4 * math.sqrt(2 / math.pi) / math.erf(math.sqrt(2))
    assert count == next(s for s in range(1, 50) if s >= math.sqrt(2 * s * math.log(constant * math.sqrt(s) / delta)))
    assert all(desk.page()[0] == 2 for _ in range(50))


def test_top_rank_ends_without_regret_on_any_click_model():
    """Lattimore et al., Theorem 1: logarithmic regret for every model in which better results are clicked more."""
    for model in ("cascade", "pbm"):
        problem = Pages(queries=1, impressions=200_000, results=5, slots=3, clicks=model, events_low=0, events_high=0)
        curve = simulate(TopRank(delta=1e-3), problem, runs=3, points=4).curves.mean(axis=0)
        assert curve[3] - curve[1] < 0.5 * curve[0]


def test_ranked_bandits_learn_each_slot_on_its_own():
    """Two intents that share no result: the second slot learns the wish of the people whom the first slot did not serve."""
    wants = [{0}, {1}]
    desk, dice = Desk(RankedThompson(), 4, 2), random.Random(4)
    for _ in range(1500):
        page = desk.page()
        person = wants[dice.random() < 0.4]
        desk.click(*[slot for slot, arm in enumerate(page) if arm in person][:1])
    pages = [tuple(desk.page()) for _ in range(20)]
    assert max(pages, key=pages.count) == (0, 1)


def test_a_wish_that_is_on_the_page_already_earns_nothing():
    desk = Desk(RankedThompson(), 3, 2)
    clashes = 0
    for _ in range(60):
        page = desk.page()
        wish = desk.row.wish[:2].tolist()
        before = desk.row.total.copy()
        desk.click(1)
        desk.settle()
        if wish[1] == page[0]:
            clashes += 1
            assert (desk.row.total[1] == before[1]).all()
        else:
            assert desk.row.total[1, page[1]] == before[1, page[1]] + 1
    assert clashes > 0
