"""Pages from Python: what a fleet orders, what clicks change, and what it refuses."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from swerve import Listed, PageFleet, SwerveError, Thompson
from swerve.core.engine import consider
from swerve.core.examination import SLOTS
from swerve.core.pages import order, present, respond
from swerve.evaluate.forecast import ARMS

RATES = (0.1, 0.1, 0.6, 0.1, 0.1)
OFFER = [0, 1, 2, 3, 4]


@pytest.fixture(scope="module")
def fleet():
    """As large as that of a forecast: the compiled code is the same."""
    return PageFleet(Listed(), queries=4, arms=ARMS, features=1, seed=1)


@pytest.mark.usefixtures("uncompiled")
def test_it_learns_from_clicks_below_the_top(fleet):
    draw = random.Random(3)
    tops = 0
    for t in range(400):
        page = fleet.order(0, given=OFFER, x=[draw.uniform(0.0, 0.3)], now=float(t))
        clicks = [slot for slot, arm in enumerate(page.arms) if draw.random() < 0.8**slot * RATES[arm]]
        assert fleet.respond(0, page, clicks) == bool(clicks)
        tops += t >= 300 and page.arms[0] == 2
    assert tops > 90


def test_it_is_the_verbs_byte_for_byte(fleet):
    """Against plain Python: the compiled calls add nothing of their own."""
    one, other = (PageFleet(Listed(), queries=1, arms=ARMS, features=1, seed=7) for _ in range(2))
    draw = random.Random(2)
    given = np.array([3, 1, 0, 4, 2])
    for t in range(60):
        x, now = np.array([draw.uniform(0.0, 0.3)]), float(t)
        page = one.order(0, given=given.tolist(), x=x, slots=3, now=now)
        filled = np.zeros(3, np.int64)
        consider(other.policy, other.table[0], other.pools, 0, other.writer, x, 0, now)
        assert order(other.policy, other.table[0], other.pools[0], given, filled, now) == 3
        seen = present(other.policy, other.table[0], other.pools[0], filled, t + 1, now)
        assert page.arms == filled.tolist()
        clicks = [slot for slot in range(3) if draw.random() < 0.3]
        if clicks:
            mask = sum(1 << slot for slot in clicks)
            respond(other.policy, other.table[0], other.pools[0], filled, seen, 0, filled, mask, t + 1, now, now)
        one.respond(0, page, clicks)
        assert one.table.tobytes() == other.table.tobytes()


def test_clicks_one_by_one_and_what_was_really_shown(fleet):
    page = fleet.order(1, given=OFFER, x=[0.1], now=1.0)
    assert fleet.respond(1, page, [1])
    assert not fleet.respond(1, page, [1])  # a repeat
    assert fleet.respond(1, page, [3])
    assert page.clicks == [1, 3]
    first, clicked = page.arms[0], page.arms[1]
    assert fleet.respond(1, page, [], shown=[clicked, first])
    assert (page.arms, page.clicks) == ([clicked, first], [0])


def test_pages_of_an_earlier_start_teach_nothing(fleet):
    page = fleet.order(2, given=OFFER, x=[0.1], now=1.0)
    fleet.restart(2)
    assert not fleet.respond(2, page, [0])


def test_any_policy_fills_a_page():
    fleet = PageFleet(Thompson(), queries=1, arms=4)
    page = fleet.order(0, given=[3, 2, 1], slots=2)
    assert len(page.arms) == 2
    assert fleet.respond(0, page, [0])
    assert int(fleet.table[0].total.sum()) == 1


def test_what_is_refused(fleet):
    with pytest.raises(SwerveError, match="given"):
        fleet.order(0, given=[1, 1], x=[0.1])
    with pytest.raises(SwerveError, match="slots"):
        fleet.order(0, x=[0.1], slots=11)
    with pytest.raises(SwerveError, match="now"):
        fleet.order(0, x=[0.1], now=float("nan"))
    page = fleet.order(0, given=OFFER, x=[0.1])
    with pytest.raises(SwerveError, match="clicks"):
        fleet.respond(0, page, [5])


def test_many_pages_in_one_call_end_in_the_bytes_of_order_and_respond(uncompiled):
    rng = np.random.default_rng(5)
    one, many = (PageFleet(Listed(), queries=3, arms=6, features=1, seed=2) for _ in range(2))
    asked, given, finals, times, pages = [], [], [], [], []
    for number in range(60):
        query, offered = int(rng.integers(3)), rng.permutation(6)[: rng.integers(1, 7)].tolist()
        slots = int(rng.integers(1, 5))
        page = one.order(query, offered, [math.nan], slots=slots, now=float(number))
        pages.append(page.arms)
        shown, clicks = rng.permutation(6)[: rng.integers(1, 5)].tolist(), []
        if number % 4 == 0:
            shown = list(page.arms)
        if number % 5:
            clicks = [slot for slot in range(len(shown)) if rng.random() < 0.3]
            one.respond(query, page, clicks, shown=shown)
        known = len(shown) if number % 5 else -1
        asked.append([query, len(offered), min(slots, len(offered)), known, sum(1 << slot for slot in clicks)])
        given.append(offered + [0] * (6 - len(offered)))
        finals.append(shown + [0] * (SLOTS - len(shown)))
        times.append(float(number))
    for part in (slice(0, 1), slice(1, 60)):
        found = many.replay(np.array(asked[part]), np.array(given[part]), np.array(finals[part]), np.array(times[part])).tolist()
        assert [[arm for arm in page if arm >= 0] for page in found] == pages[part]
    assert many.table.tobytes() == one.table.tobytes()
    assert many.pools.tobytes() == one.pools.tobytes()
