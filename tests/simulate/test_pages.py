"""The page loop: against a plain Python loop, against its own source uncompiled, and in pairs of policies."""

from __future__ import annotations

import math

import numpy as np
import pytest

import swerve
from swerve import UCB1, Pages, SwerveError, simulate
from swerve.core.contract import observe, settle
from swerve.core.pages import order, present, respond
from swerve.core.spec import pack
from swerve.environments import world
from swerve.environments.browsing import browse, ideal, offer, worth
from swerve.environments.worlds import advance
from swerve.simulate import Session
from swerve.simulate.pages import FIRST

SPEC = Pages(queries=3, impressions=1200, results=8, slots=4, features=2, events_low=1, events_high=3, order="uniform")
#: With the sizes of `policies/test_tail.py`: the compiled code of `Listed` is the same.
LISTED = Pages(queries=3, impressions=1200, results=10, slots=4, events_low=1, events_high=3, order="uniform")
NAMES = [
    "given",
    "ts",
    "Top(Thompson())",
    "Listed()",
    "list-ts",
    "oracle-list",
    "glrt-dcm",
    "oracle-bubble",
    "toprank",
    "oracle-ranked-ts",
    "cascade-ts",
]


def made(name):
    return swerve.policy(name, arms=8, horizon=400)


def played(session):
    session.play(len(session.instance.schedule))
    return session


#: The code around pages is the same for every policy; the rivals' own is compiled by the tests of each.
FEW = ("given", "ts", "Top(Thompson())", "Listed()")


@pytest.mark.parametrize(
    "name", [*FEW, *(pytest.param(name, marks=pytest.mark.slow) for name in (*NAMES, "top") if name not in FEW)]
)
def test_compiled_equals_interpreted_to_the_byte(name):
    instance = world(LISTED if name == "Listed()" else SPEC, 1)
    fast, slow = Session(made(name), instance), Session(made(name), instance, compiled=False)
    for session in (fast, slow):
        session.see = True
        session.play(400)
    assert fast.state == slow.state
    assert fast.counts["rounds"] == 400


@pytest.mark.parametrize("value", ["gain", "click"])
@pytest.mark.parametrize("name", ["given", "oracle-list", "ts"])
def test_every_figure_equals_that_of_a_plain_loop(name, value):
    """A loop in Python over pages sums values, clicks, changes and waits, from the verbs alone."""
    spec = Pages(**{**vars(SPEC), "value": value})
    instance = world(spec, 2)
    session = played(Session(made(name), instance))
    policy, env = pack(made(name))[0], pack(spec)[0]
    team = Session(made(name), instance, compiled=False).fleet  # only its tables are used
    cursors, scene, segments = instance.cursors.copy(), instance.scene[0], instance.segments
    given, page = np.zeros(8, np.int64), np.zeros(4, np.int64)
    x = np.zeros(2)
    regret = top_regret = 0.0
    clicks = searches = churn = 0
    last, waiting = {}, {}
    harm = {query: [0.0, 0.0] for query in range(3)}
    waits = []
    for t, query in enumerate(instance.schedule):
        cursor, row, pool, delta = cursors[query], team.table[query], team.pools[0], team.pools[1]
        event = int(advance(env, scene, segments, cursor))
        offer(env, scene, segments, cursor, given)
        settle(policy, row, pool, delta, float(t))
        observe(policy, row, pool, delta, x, event, float(t))
        assert order(policy, row, pool, given, page, float(t)) == 4
        assert len(set(page.tolist())) == 4
        seen = present(policy, row, pool, page, cursor.t, float(t))
        mask = int(browse(env, scene, segments, cursor, page))
        if mask:
            respond(policy, row, pool, page, seen, 0, page, mask, cursor.t, float(t), float(t))
        value_now, best_now = (float(worth(env, scene, segments, cursor, page)), float(ideal(env, scene, segments, cursor)))
        regret += best_now - value_now
        chance = segments[cursor.segment].chance
        top_regret += float(chance.max() - chance[page[0]])
        clicks += bin(mask).count("1")
        searches += mask > 0
        churn += sum(a != b for a, b in zip(last.get(query, page.tolist()), page.tolist(), strict=True))
        last[query] = page.tolist()
        if cursor.t <= FIRST:
            usual = float(worth(env, scene, segments, cursor, given[:4]))
            harm[query][0] += usual - value_now
            harm[query][1] += usual
        if event:
            waits += [math.inf] if query in waiting else []
            waiting[query] = int(cursor.t)
        if query in waiting and value_now >= 0.95 * best_now:
            waits.append(int(cursor.t) - waiting.pop(query))
    waits += [math.inf] * len(waiting)
    shares = [100 * lost / usual for lost, usual in harm.values()]
    counts = session.counts
    assert counts["regret"] == pytest.approx(regret)
    assert counts["top_regret"] == pytest.approx(top_regret)
    assert (counts["clicks"], counts["searches"], counts["events"]) == (clicks, searches, instance.k)
    assert counts["churn"] == pytest.approx(churn / 1200)
    assert counts["harm"] == pytest.approx(np.mean(shares))
    assert counts["harm_p90"] == pytest.approx(np.quantile(shares, 0.9))
    assert counts["recovered"] == sorted(waits)[(len(waits) - 1) // 2]
    assert sum(counts[f"regret_{cause}"] for cause in ("learning", "testing", "false_alarm", "unseen", "missed")) == pytest.approx(
        regret
    )


def test_pieces_of_a_run_equal_the_whole():
    instance = world(SPEC, 3)
    whole, parts = Session(made("oracle-list"), instance), Session(made("oracle-list"), instance)
    whole.play(1200)
    for stop in (1, 500, 1200):
        parts.play(stop)
    assert whole.state == parts.state


def test_runs_of_different_policies_are_paired():
    """The same events at the same rounds, and the same clicks for the same pages."""
    results = [simulate(made(name), SPEC, runs=2, points=3) for name in ("given", "ts", "oracle-list")]
    assert len({tuple(found.count("events")) for found in results}) == 1
    one, other = (played(Session(made("given"), world(SPEC, 4))) for _ in range(2))
    assert one.state == other.state
    # `Given` inside `Oracle` shows the same pages and is told of events: it gets the same clicks
    told = played(Session(swerve.policy("Oracle(Given())"), world(SPEC, 4)))
    assert told.counts["clicks"] == one.counts["clicks"] > 0
    assert told.cursors.tobytes() == one.cursors.tobytes()


def test_the_given_order_harms_nobody_and_a_perfect_one_loses_nothing():
    quiet = Pages(**{**vars(SPEC), "engine": 0.0, "events_low": 0, "events_high": 0})
    found = simulate(made("given"), quiet, runs=2, points=2)
    assert found.regret.tolist() == [0.0, 0.0]
    assert found.count("harm").tolist() == found.count("churn").tolist() == [0.0, 0.0]
    assert np.isnan(found.count("recovered")).all(), "without events there is no recovery"
    noisy = simulate(made("given"), SPEC, runs=2, points=2)
    assert noisy.count("harm").tolist() == [0.0, 0.0]
    assert (noisy.regret > 0).all()
    assert np.isinf(noisy.count("recovered")).any(), "an order that never adapts does not recover"


def test_runs_are_stored_and_read_back(tmp_path):
    fresh = simulate(made("oracle-list"), SPEC, runs=1, points=2, out=tmp_path)
    again = simulate(made("oracle-list"), SPEC, runs=1, points=2, out=tmp_path)
    assert len(list(tmp_path.iterdir())) == 1
    assert again.runs[0].counts == fresh.runs[0].counts
    assert again.count("harm").tolist() == fresh.count("harm").tolist()


def test_the_loop_is_part_of_a_plans_digest():
    from swerve.simulate.loop import play
    from swerve.simulate.pages import play_pages
    from swerve.simulate.results import entry_of

    assert entry_of(SPEC) is play_pages
    assert entry_of(swerve.Traffic()) is play


@pytest.mark.usefixtures("uncompiled")
def test_a_context_outside_the_domain_stops_the_run():
    """The hull's domain is the unit ball; contexts with two features of up to 1 can lie outside it."""
    policy = swerve.policy("bwc-hull(length=20, radius=0.1)", arms=8, horizon=400)
    with pytest.raises(SwerveError, match="outside the domain"):
        simulate(policy, SPEC, runs=1)


def test_a_policy_for_one_slot_plays_the_top_and_leaves_the_rest():
    """With the default verbs, the lower slots have the given order without the top."""
    session = Session(UCB1(), world(SPEC, 5), compiled=False)
    for stop in range(1, 60):
        session.play(stop)
        query = int(session.instance.schedule[stop - 1])
        given = session.instance.segments[session.cursors[query]["segment"]]["given"][:8].tolist()
        page = session.notes[query]["page"][:4].tolist()
        assert page[1:] == [arm for arm in given if arm != page[0]][:3]
