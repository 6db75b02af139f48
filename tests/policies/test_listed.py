"""Result pages: one slot without a prior is Swerve, clicks in any order give the same bytes, the given order comes first."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given as drawn, settings, strategies as st

from swerve.core.contract import RESTARTED, reward, select, show, testing as is_testing
from swerve.core.engine import consider
from swerve.core.fleet import Fleet
from swerve.core.pages import order, present, present_and_respond, redraw, respond
from swerve.core.tables import full_mask
from swerve.detectors.split import log_bayes
from swerve.policies import Oracle, Patient
from swerve.policies.swerve.credit import below_of, judge_diversity, seen_slots, surely_one_intent
from swerve.policies.swerve.examination import pair_of
from swerve.policies.swerve.listed import Listed
from swerve.policies.swerve.placing import sort_page
from swerve.policies.swerve.policy import Swerve
from swerve.policies.swerve.posterior import plays_in, rescale, total_in
from swerve.policies.top import Top

ARMS, FEATURES = 6, 2


def fleet(spec: Any) -> Fleet:
    return Fleet(spec, queries=1, arms=ARMS, features=FEATURES, seed=3)


def chances(t: int) -> list[float]:
    """Click probabilities that change after 150 rounds."""
    return [0.6, 0.3, 0.2, 0.1, 0.1, 0.05] if t < 150 else [0.05, 0.3, 0.2, 0.7, 0.1, 0.05]


def contexts(t: int, draw: random.Random) -> np.ndarray[Any, Any]:
    return np.array([draw.uniform(0.0, 0.3), 0.9 if t in (90, 150) else draw.uniform(0.0, 0.3)])


def test_one_slot_without_a_prior_is_swerve_byte_for_byte():
    alone, listed = fleet(Swerve()), fleet(Listed(Swerve(), prior_plays=0))
    draw = random.Random(1)
    page = np.zeros(1, np.int64)
    arms = np.arange(ARMS)
    opened = 0
    for t in range(400):
        x, now = contexts(t, draw), float(t)
        consider(alone.policy, alone.table[0], alone.pools, 0, alone.writer, x, 0, now)
        consider(listed.policy, listed.table[0], listed.pools, 0, listed.writer, x, 0, now)
        arm = select(alone.policy, alone.table[0], alone.pools[0], full_mask(ARMS), now)
        show(alone.policy, alone.table[0], arm, now)
        assert order(listed.policy, listed.table[0], listed.pools[0], arms, page, now) == 1
        assert page[0] == arm
        seen = present(listed.policy, listed.table[0], listed.pools[0], page, t, now)
        if draw.random() < chances(t)[arm]:
            reward(alone.policy, alone.table[0], arm, 1.0, now, now + 0.5)
            respond(listed.policy, listed.table[0], listed.pools[0], page, seen, 0, page, 1, t, now, now + 0.5)
        opened += int(alone.table[0]["open"])
        inside = listed.table[0]["bandit"]
        assert all(inside[name].tobytes() == alone.table[0][name].tobytes() for name in inside.dtype.names)
    assert opened > 20


@drawn(st.lists(st.sampled_from([0.1, 0.2, 0.3]), min_size=ARMS, max_size=ARMS), st.permutations(range(ARMS)), st.data())
def test_pages_are_sorted_by_mean_then_by_given_position_whatever_the_last_page_was(
    means: list[float], offered: list[int], data: st.DataObject
):
    row = fleet(Listed()).table[0]
    given = np.array(offered[: data.draw(st.integers(1, ARMS))])
    slots = data.draw(st.integers(1, len(given)))
    row["page"][:] = data.draw(st.lists(st.sampled_from([*range(ARMS), 255]), min_size=10, max_size=10))
    available = 0
    for position, arm in enumerate(given.tolist()):
        row["spare"][arm], row["spot"][arm] = means[arm], position
        available |= 1 << arm
    page = np.zeros(slots, np.int64)
    sort_page(row, given, available, page, slots)
    expected = sorted(given.tolist(), key=lambda arm: -means[arm])  # stable
    assert page.tolist() == expected[:slots]
    assert [int(row["spot"][arm]) for arm in expected] == [min(slot, slots) for slot in range(len(expected))]


def test_the_scales_of_the_samplers_are_those_of_the_counts_after_every_response():
    one = fleet(Listed())
    draw = random.Random(5)
    page, given = np.zeros(4, np.int64), np.arange(ARMS)
    several = opened = 0
    for t in range(400):
        now = float(t)
        consider(one.policy, one.table[0], one.pools, 0, one.writer, contexts(t, draw), 0, now)
        order(one.policy, one.table[0], one.pools[0], given, page, now)
        seen, before = present(one.policy, one.table[0], one.pools[0], page, t, now), 0
        clicked = [slot for slot in range(4) if draw.random() < chances(t)[page[slot]]]
        for slot in draw.sample(clicked, len(clicked)):  # clicks come one by one, and slots between become seen or unseen
            after = before | 1 << slot
            seen = respond(one.policy, one.table[0], one.pools[0], page, seen, before, page, after, t, now, now)
            several, before = several + (before != 0), after
        state = one.table[0]["bandit"]
        opened += int(state["open"])
        kept = state["test"].copy()
        for arm in page:
            rescale(one.policy.bandit.test, state["test"], arm)
        assert state["test"].tobytes() == kept.tobytes()
    assert several > 50
    assert opened > 20


@pytest.mark.parametrize(
    "spec", [Listed(), Patient(Listed()), Oracle(Listed()), Top(Swerve())], ids=lambda spec: type(spec).__name__
)
def test_a_page_whose_clicks_are_known_ends_in_the_bytes_of_present_and_respond(spec: Any):
    one, two = fleet(spec), fleet(spec)
    draw = random.Random(11)
    pages, given = (np.zeros(5, np.int64), np.zeros(5, np.int64)), np.arange(ARMS)
    opened = clicked = mixed = 0
    for t in range(400):
        now, x = float(t), contexts(t, draw)
        for each, page in zip((one, two), pages, strict=True):
            consider(each.policy, each.table[0], each.pools, 0, each.writer, x, int(t == 150), now)
            order(each.policy, each.table[0], each.pools[0], given, page, now)
        page = pages[0]
        assert page.tolist() == pages[1].tolist()
        lucky = draw.random()  # shared by all slots of a page: clicks come together, as with mixed intents
        clicks = sum(1 << slot for slot in range(5) if lucky < chances(t)[page[slot]] and draw.random() < 0.8)
        seen = present(one.policy, one.table[0], one.pools[0], page, t, now)
        if clicks:
            seen = respond(one.policy, one.table[0], one.pools[0], page, seen, 0, page, clicks, t, now, now)
        assert present_and_respond(two.policy, two.table[0], two.pools[0], page, clicks, t, now) == seen
        assert one.table.tobytes() == two.table.tobytes()
        assert one.pools.tobytes() == two.pools.tobytes()
        clicked += clicks != 0
        opened += int(is_testing(spec, one.table[0]))
        mixed += isinstance(spec, Listed) and bool(one.table[0]["mixed"])
    assert clicked > 100
    if isinstance(spec, Listed):  # its shorter way has gone through tests and mixed intents
        assert opened > 20
        assert mixed > 20


def evidence_of_intents(row: Any) -> float:
    test, found = row["bandit"]["test"], 0.0
    for arm in range(len(row["rank"])):
        below, clicks = below_of(row, arm)
        if below > 0.0:
            found += max(log_bayes(float(plays_in(test, arm)), total_in(test, arm), below, clicks), -1.0)
    return found


@pytest.mark.parametrize("looked", [True, False])
def test_whether_a_skipped_slot_was_seen_depends_on_the_last_click_above_it(looked: bool):
    """Everybody looks at the slot below the last click at one distance, and nobody does at the others."""
    one = fleet(Listed())
    page, clicks = np.arange(4), 0b0011  # the first two are clicked, so that the last click is one above slot 2
    pages = one.pools[0].pages
    for last in (-1, 0, 1):
        at = pair_of(2, last)
        pages.expected[at] = 1e12
        pages.clicks[at] = 2e12 if (last == 1) == looked else 0.0
    for number in range(50):
        seen = seen_slots(one.policy, one.table[0], one.pools[0], page, clicks, number, False)
        assert seen & 0b0111 == (0b0111 if looked else 0b0011)


@drawn(st.data())
def test_intents_are_judged_by_the_sum_of_all_evidence_also_where_a_bound_decides(data: st.DataObject):
    row = fleet(Listed()).table[0]
    test = row["bandit"]["test"]
    for arm in range(ARMS):
        plays = data.draw(st.integers(0, 2000))
        below = data.draw(st.integers(0, plays))
        chance, other = data.draw(st.floats(0.0, 1.0)), data.draw(st.sampled_from([0.0, 0.02, 0.1, -0.1]))
        clicks = np.floor(below * min(max(chance + other, 0.0), 1.0))
        test["old_plays"][arm] = plays
        test["old_total"][arm] = clicks + np.floor((plays - below) * chance * 4096) / 4096
        row["below_plays"][arm], row["below_clicks"][arm] = below, clicks
    expected = evidence_of_intents(row)
    judge_diversity(Listed(), row)
    assert row["mixed"] == (expected > 0.0)
    assert not (surely_one_intent(row) and expected > 0.0)


def test_the_bound_decides_that_a_usual_query_has_one_intent():
    row = fleet(Listed()).table[0]
    row["bandit"]["test"]["old_plays"][:ARMS], row["bandit"]["test"]["old_total"][:ARMS] = 400, 120.0
    row["below_plays"][:ARMS], row["below_clicks"][:ARMS] = 200.0, 66.0
    assert evidence_of_intents(row) == -ARMS
    assert surely_one_intent(row)
    row["below_clicks"][:ARMS] = 20.0
    assert evidence_of_intents(row) > 0.0
    assert not surely_one_intent(row)


@pytest.mark.parametrize("slots", [1, 4, 6])
def test_another_page_is_drawn_as_order_would_draw_it(slots: int):
    """`redraw` after `order` gives the page that `order` gives on a copy of the row from before, with the same random stream."""
    one, copy = fleet(Listed()), fleet(Listed())
    draw = random.Random(7)
    given = np.array([2, 0, 1, 3, 4, 5])
    page, other, expected = (np.zeros(slots, np.int64) for _ in range(3))
    differing = 0
    for t in range(300):
        x, now = contexts(t, draw), float(t)
        consider(one.policy, one.table[0], one.pools, 0, one.writer, x, 0, now)
        before = one.table.copy()
        order(one.policy, one.table[0], one.pools[0], given, page, now)
        after = one.table.tobytes()
        for _ in range(3):
            word = np.uint64(draw.getrandbits(64))
            copy.table[:] = before
            copy.table[0]["bandit"]["rng"] = word
            assert order(one.policy, copy.table[0], one.pools[0], given, expected, now) == slots
            assert redraw(one.policy, one.table[0], given, page, other, word) == slots
            assert other.tolist() == expected.tolist()
            differing += other.tolist() != page.tolist()
        assert one.table.tobytes() == after
        seen = present(one.policy, one.table[0], one.pools[0], page, t, now)
        clicks = sum(1 << slot for slot, arm in enumerate(page) if draw.random() < chances(t)[arm])
        if clicks:
            respond(one.policy, one.table[0], one.pools[0], page, seen, 0, page, clicks, t, now, now)
    assert differing > 50


PARTS = st.lists(st.integers(0, 4), min_size=1, max_size=4, unique=True)


@settings(max_examples=40)
@drawn(PARTS, st.randoms(use_true_random=False), st.integers(0, 60))
def test_clicks_in_any_order_and_splitting_end_in_the_same_bytes(clicked: list[int], shuffle: random.Random, rounds: int):
    """This holds while no other page of the query is shown in between."""
    once, split = fleet(Listed()), fleet(Listed())
    draw = random.Random(5)
    given = np.array([2, 0, 1, 3, 4, 5])
    page = np.zeros(5, np.int64)
    for t in range(rounds + 1):
        x, now = contexts(t + 85, draw), float(t)
        after = 0
        for slot in range(5):
            if draw.random() < 0.2:
                after |= 1 << slot
        if t == rounds:
            after = sum(1 << slot for slot in clicked)
        for one in (once, split):
            consider(one.policy, one.table[0], one.pools, 0, one.writer, x, 0, now)
            assert order(one.policy, one.table[0], one.pools[0], given, page, now) == 5
            seen = present(one.policy, one.table[0], one.pools[0], page, t, now)
            if t < rounds or one is once:
                if after:
                    respond(one.policy, one.table[0], one.pools[0], page, seen, 0, page, after, t, now, now)
            else:
                parts = clicked[:]
                shuffle.shuffle(parts)
                before = 0
                for slot in parts:
                    respond(one.policy, one.table[0], one.pools[0], page, seen, before, page, before | 1 << slot, t, now, now)
                    before |= 1 << slot
        assert once.table.tobytes() == split.table.tobytes()


def test_a_new_query_starts_with_the_given_order():
    one = fleet(Listed())
    page = np.zeros(5, np.int64)
    given = np.array([4, 2, 0, 5, 1])
    same = 0
    for seed in range(50):
        one = Fleet(Listed(), queries=1, arms=ARMS, features=FEATURES, seed=seed)
        order(one.policy, one.table[0], one.pools[0], given, page, 0.0)
        assert sorted(page.tolist()) == sorted(given.tolist())
        same += page[0] == 4
    assert same >= 40


def test_an_event_is_reported_once_however_many_results_it_changes():
    """Each further verdict began a phase of the service: 11 of 22 alarms of the demo's `tomato` were false."""
    one = fleet(Listed(prior_plays=0))
    state, draw = one.table[0].bandit, random.Random(4)
    page, given = np.zeros(ARMS, np.int64), np.arange(ARMS)
    first, further, silent = 0, 0, 0
    for t in range(900):
        rates = [0.7, 0.1, 0.5, 0.1, 0.3, 0.05] if t < 400 else [0.05, 0.6, 0.1, 0.5, 0.02, 0.4]
        before, since = int(state.test.moved), int(state.since)
        report = consider(one.policy, one.table[0], one.pools, 0, one.writer, np.full(FEATURES, 0.1), 0, float(t))
        if state.open and int(state.since) == since and int(state.test.moved) & ~before:
            first += before == 0 and report & RESTARTED != 0
            further += before != 0
            silent += before != 0 and report & RESTARTED == 0
        order(one.policy, one.table[0], one.pools[0], given, page, float(t))
        seen = present(one.policy, one.table[0], one.pools[0], page, t, float(t))
        after = sum(1 << slot for slot in range(ARMS) if draw.random() < rates[page[slot]])
        if after:
            respond(one.policy, one.table[0], one.pools[0], page, seen, 0, page, after, t, float(t), float(t))
    assert first >= 1
    assert further >= 2
    assert silent == further


@pytest.mark.parametrize("slots", [1, 3, 5])
def test_a_page_never_shows_a_result_twice(slots: int):
    one = fleet(Listed())
    draw = random.Random(2)
    page = np.zeros(slots, np.int64)
    for t in range(300):
        given = np.array(draw.sample(range(ARMS), 5))
        consider(one.policy, one.table[0], one.pools, 0, one.writer, contexts(t, draw), 0, float(t))
        filled = order(one.policy, one.table[0], one.pools[0], given, page, float(t))
        shown = page[:filled].tolist()
        assert filled == slots
        assert len(set(shown)) == slots
        assert set(shown) <= set(given.tolist())
        seen = present(one.policy, one.table[0], one.pools[0], page, t, float(t))
        after = sum(1 << slot for slot in range(slots) if draw.random() < chances(t)[page[slot]])
        if after:
            respond(one.policy, one.table[0], one.pools[0], page, seen, 0, page, after, t, float(t), float(t))
        test = one.table[0]["bandit"]["test"]
        assert (test["old_total"] <= test["old_plays"]).all()
        assert (test["new_total"] <= test["new_plays"]).all()
