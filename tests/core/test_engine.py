"""The compiled entry points: one call equals its parts, and compiled equals interpreted, byte by byte."""

from __future__ import annotations

import numpy as np
import pytest

from swerve import BWC, UCB1, Fleet, Rectangle, Testable, Thompson
from swerve.core import engine
from swerve.core.engine import NOT_FINITE, OUTSIDE

BOX = BWC(Testable(UCB1(), length=20), Rectangle(margin=0.2))
N, D = 4, 2


def make(policy=BOX, queries=1, **more):
    return Fleet(policy, queries=queries, arms=N, features=D, seed=3, **more)


def bytes_of(fleet):
    return fleet.table.tobytes(), fleet.pools.tobytes()


def traffic(rounds, queries=1, seed=0):
    dice = np.random.default_rng(seed)
    return dice.integers(0, queries, rounds), dice.random((rounds, D)), dice.random((rounds, N)) < np.linspace(0.1, 0.8, N)


@pytest.mark.parametrize("policy", [UCB1(), BOX])
def test_step_equals_reward_then_select(policy):
    apart, fused = make(policy), make(policy)
    _, xs, clicks = traffic(150)
    one = two = None
    for t, x in enumerate(xs):
        if t == 0:
            one, two = apart.select(0, x, now=t), fused.select(0, x, now=t)
        else:
            value = float(clicks[t - 1, one.arm])
            if value:
                apart.reward(0, one, value, now=t)
            one = apart.select(0, x, now=t)
            two = fused.step(0, two, value, x, now=t)
        assert one == two
    assert bytes_of(apart) == bytes_of(fused)


@pytest.mark.parametrize("policy", [UCB1(), BOX])
def test_many_equals_one_by_one_in_order(policy):
    single, batch = make(policy, queries=5), make(policy, queries=5)
    for start in range(4):
        rows, xs, clicks = traffic(60, queries=5, seed=start)
        times = np.arange(60.0) + 100 * start
        told = rows == 2
        offers = np.where(rows == 1, 0b0111, 0b1111)
        one = [
            single.select(int(q), x, now=t, told=bool(e), available=int(o))
            for q, x, t, e, o in zip(rows, xs, times, told, offers, strict=True)
        ]
        many = batch.select_many(rows, xs, now=times, told=told, available=offers)
        assert many.arms.tolist() == [d.arm for d in one]
        assert many.starts.tolist() == [d.start for d in one]
        assert many.shown.tolist() == [d.shown for d in one]
        values = clicks[np.arange(60), many.arms].astype(float)
        learnt = sum(single.reward(int(q), d, v, now=1e3) for q, d, v in zip(rows, one, values, strict=True))
        assert batch.update_many(rows, many, values, now=1e3) == learnt
        assert bytes_of(single) == bytes_of(batch)


def test_many_are_all_decided_or_none():
    fleet = make()
    xs = np.array([[0.1, 0.1], [0.2, np.inf], [0.3, 0.3]])
    out = np.zeros(3, np.int64)
    done = engine.select_many.bind(BOX)(
        fleet.params, fleet.table, np.zeros(3, np.int64), fleet.pools, fleet.groups, fleet.writer,
        xs, np.zeros(3, np.int64), np.full(3, 15), np.zeros(3), out,
    )  # fmt: skip
    assert done == 1
    assert out.tolist()[1] == NOT_FINITE
    assert fleet.table[0].bandit.bandit.t == 0


def test_a_refused_context_changes_nothing():
    fleet = make()
    fleet.select(0, [0.1, 0.2])
    before = bytes_of(fleet)
    select = engine.select_one.bind(BOX)
    for x, code in (([np.inf, 0.0], NOT_FINITE), ([np.nan, -np.inf], NOT_FINITE), ([1.5, 0.0], OUTSIDE), ([np.nan, 1.5], OUTSIDE)):
        args = (fleet.params, fleet.table, 0, fleet.pools, 0, fleet.writer, np.array(x), False, 15, 0.0)
        assert select(*args) == code == engine.select_one.plain(*args)
    assert bytes_of(fleet) == before


def fields(code):
    """Return the fields of a decision's code: arm, generation, start."""
    return code & 63, code >> 6 & 255, code >> 14


@pytest.mark.parametrize("policy", [BOX, Thompson()])
def test_compiled_entries_equal_their_plain_source(policy):
    fast, slow = make(policy, queries=2), make(policy, queries=2)
    entries = {name: getattr(engine, name) for name in ("select_one", "update_one", "step_one", "restart_one", "evict_one")}
    rows, xs, clicks = traffic(200, queries=2)
    for t, (i, x) in enumerate(zip(rows.tolist(), xs, strict=True)):
        out = []
        for fleet, pick in ((fast, lambda e: e.bind(policy)), (slow, lambda e: e.plain)):
            call = {name: pick(entry) for name, entry in entries.items()}
            state = (fleet.params, fleet.table, i)
            pools = (fleet.pools, fleet.groups[i], fleet.writer)
            code = call["select_one"](*state, *pools, x, False, 15, float(t))
            # each play is rewarded once: the first by the next step, the second by an update
            again = call["step_one"](
                *state, *pools, *fields(code), float(clicks[t, code & 63]), float(t), x, t % 50 == 0, 7, t + 0.5
            )
            learnt = call["update_one"](*state, *fields(again), float(clicks[-t, again & 63]), t + 0.5, t + 0.5)
            if t % 60 == 59:
                call["evict_one"](*state, 2)
            if t == 150:
                call["restart_one"](*state)
            out.append((code, bool(learnt), again))
        assert out[0] == out[1], f"round {t}"
        assert bytes_of(fast) == bytes_of(slow), f"round {t}"


def test_batch_entries_equal_their_plain_source():
    fast, slow = make(queries=3), make(queries=3)
    rows, xs, clicks = traffic(150, queries=3)
    times = np.arange(150.0)
    many = fast.select_many(rows, xs, now=times)
    codes = np.zeros(150, np.int64)
    engine.select_many.plain(
        slow.params,
        slow.table,
        rows,
        slow.pools,
        slow.groups,
        slow.writer,
        xs,
        np.zeros(150, np.int64),
        np.full(150, 15),
        times,
        codes,
    )
    assert (many.arms == codes & 63).all()
    assert (many.starts == codes >> 14).all()
    assert not many.generations.any()
    values = clicks[np.arange(150), many.arms].astype(float)
    learnt = engine.update_many.plain(slow.params, slow.table, rows, *fields(codes), values, times, times)
    assert learnt == fast.update_many(rows, many, values, now=times)
    assert bytes_of(fast) == bytes_of(slow)


def test_a_click_of_another_start_is_not_learnt():
    fleet = make()
    decision = fleet.select(0, [0.1, 0.1])
    before = bytes_of(fleet)
    assert not fleet.reward(0, decision._replace(start=decision.start + 1))
    assert bytes_of(fleet) == before
    assert fleet.reward(0, decision)
    assert bytes_of(fleet) != before
