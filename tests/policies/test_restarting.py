"""Restarts on detection: against the twin, over any bandit and detector, with late clicks and arms that come and go."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from twins import detectors as twin_detectors, splitmix
from twins.duel import check_duel, same_state
from twins.kl_ucb import KLUCB as KLUCBTwin
from twins.restarting import Forced as ForcedTwin, Restarting as Twin
from twins.thompson import Thompson as ThompsonTwin
from twins.ucb1 import UCB1 as UCB1Twin

from swerve import (
    BOCPD,
    BWC,
    CUSUM,
    EXP3S,
    GLR,
    KLUCB,
    MUCB,
    UCB1,
    Fleet,
    Forced,
    Oracle,
    Restarting,
    SpecError,
    Testable,
    Thompson,
    Told,
    Traffic,
    policy,
    simulate,
)  # fmt: skip

pytestmark = pytest.mark.usefixtures("uncompiled")

# deviations from an average of 8 clicks, less the drift, are multiples of 0.025: the threshold is none, so no rounding decides
DETECTORS = {
    "CUSUM": (CUSUM(8, 0.05, 1.93), lambda n: twin_detectors.CUSUM(n, 8, 0.05, 1.93)),
    "GLR": (GLR(0.5, 1, 8), lambda n: twin_detectors.GLR(n, 0.5, 1, 8)),
    "MUCB": (MUCB(8, 2.5), lambda n: twin_detectors.MUCB(n, 8, 2.5)),
    "BOCPD": (BOCPD(0.5, 2, 8), lambda n: twin_detectors.BOCPD(n, 0.5, 2, 8)),
}


def words():
    return splitmix.words(splitmix.named(9, "policy", 0))


BANDITS = {
    "UCB1": (UCB1(), UCB1Twin),
    "KLUCB": (KLUCB(), KLUCBTwin),
    "Thompson": (Thompson(), lambda n: ThompsonTwin(n, words())),
}


#: One of the combinations also compiled.
DUELS = [
    *itertools.product(DETECTORS, BANDITS),
    pytest.param("GLR", "Thompson", marks=pytest.mark.compiled, id="GLR-Thompson, compiled"),
]


def pair(bandit, detector, scope="all", arms=3):
    ours, theirs = BANDITS[bandit], DETECTORS[detector]
    fleet = Fleet(Restarting(ours[0], theirs[0], scope), queries=1, arms=arms, seed=9)
    return fleet, Twin(ours[1](arms), theirs[1](arms), scope)


@pytest.mark.parametrize(("detector", "bandit"), DUELS)
def test_equals_the_twin_round_by_round(bandit, detector):
    fleet, twin = pair(bandit, detector)
    check_duel(fleet, twin, 400, seed=2, events=0.02)
    assert twin.alarms > 1
    assert twin.starts == 1 + twin.alarms


@pytest.mark.parametrize("ways", [{"changing": True, "evictions": 0.03}, {"delay": 1}, {"delay": 7, "changing": True}])
@pytest.mark.parametrize("detector", ["CUSUM", "GLR"])
def test_equals_the_twin_with_late_clicks_and_arms_that_come_and_go(detector, ways):
    fleet, twin = pair("UCB1", detector)
    check_duel(fleet, twin, 500, seed=4, events=0.02, **ways)
    assert twin.alarms > 0


@pytest.mark.parametrize("ways", [{}, {"changing": True, "evictions": 0.03}])
@pytest.mark.parametrize("detector", DETECTORS)
def test_equals_the_twin_when_the_arm_alone_is_forgotten(detector, ways):
    fleet, twin = pair("UCB1", detector, "arm")
    check_duel(fleet, twin, 500, seed=5, events=0.02, **ways)
    assert twin.alarms > 1
    assert twin.starts == 1


@pytest.mark.parametrize("growing", [False, True])
@pytest.mark.parametrize("order", ["cycle", "random"])
def test_equals_the_twin_over_forced_exploration(order, growing):
    """The forced bandit starts over too, and its rate then grows."""
    start = splitmix.named(9, "policy", 0)
    inner = ThompsonTwin(3, splitmix.words(splitmix.word(start, 1)))
    forced = ForcedTwin(inner, 0.2, order, growing, splitmix.uniforms(start))
    twin = Twin(forced, DETECTORS["CUSUM"][1](3))
    ours = Restarting(Forced(Thompson(), 0.2, order, growing), DETECTORS["CUSUM"][0])
    check_duel(Fleet(ours, queries=1, arms=3, seed=9), twin, 300, seed=6, events=0.02, changing=True)
    assert twin.alarms > 1


@pytest.mark.parametrize("bandit", [UCB1(), KLUCB(), Thompson(), EXP3S()], ids=lambda spec: type(spec).__name__)
def test_without_an_alarm_it_is_the_bandit_itself(bandit):
    watched, alone = Fleet(Restarting(bandit, CUSUM(threshold=1e9)), queries=1, arms=3), Fleet(bandit, queries=1, arms=3)
    for t in range(300):
        one, two = watched.select(0, now=t), alone.select(0, now=t)
        assert one.arm == two.arm
        if (7 * t + one.arm) % 3 == 0:
            watched.reward(0, one, now=t)
            alone.reward(0, two, now=t)
    assert same_state(watched.table["bandit"], alone.table)


def test_a_click_from_before_the_restart_is_not_learnt():
    fleet = Fleet(Restarting(UCB1(), CUSUM(3, 0.0, 0.5)), queries=1, arms=1)
    last = None
    for t in range(8):
        decision = fleet.select(0, now=t)
        if last is not None and decision.start > last.start:
            break
        if t < 5:
            fleet.reward(0, decision, now=t)
        last = decision
    else:
        raise AssertionError("no restart")
    before = fleet.table.tobytes()
    assert fleet.reward(0, last) is False
    assert fleet.table.tobytes() == before


def test_a_late_click_reaches_the_detector_once_if_at_all():
    fleet = Fleet(Restarting(UCB1(), GLR()), queries=1, arms=2)
    first = fleet.select(0)  # arm 0
    second = fleet.select(0)  # arm 1: the play of arm 0 is complete, without a click
    fleet.reward(0, first)
    fleet.reward(0, second)
    fleet.reward(0, second)  # reported twice
    fleet.select(0)
    detector = fleet.table[0].detector
    assert detector.plays[:2].tolist() == [1, 1]
    assert detector.total[:2].tolist() == [0.0, 1.0]
    assert fleet.table[0].bandit.total[:2].tolist() == [1.0, 1.0]


def test_a_restart_by_hand_starts_the_detector_over_too():
    fleet = Fleet(Restarting(UCB1(), GLR()), queries=1, arms=2)
    for t in range(20):
        last = fleet.select(0, now=t)
    fleet.restart(0)
    assert not fleet.table[0].detector.plays.any()
    assert fleet.reward(0, last) is False
    assert fleet.select(0).start == last.start + 1


def test_starts_of_the_bandit_inside_count_too():
    inner = BWC(Testable(UCB1(), length=3), Told())
    fleet = Fleet(Restarting(inner, CUSUM(threshold=1e9)), queries=1, arms=2, features=1)
    first = fleet.select(0, [0.0], now=0.0)
    for t in range(1, 6):
        last = fleet.select(0, [0.0], now=float(t))
    assert last.start > first.start
    assert fleet.reward(0, first) is False


@pytest.mark.compiled
def test_the_simulation_counts_restarts():
    environment = Traffic(queries=3, impressions=12_000, shifting_share=1.0, best_low=0.8, best_high=0.9, order="uniform")
    runs = simulate(policy("glr-ts", horizon=4000), environment, runs=2, threads=1).runs
    assert all(0 < run.counts["restarts"] <= 2 * run.counts["events"] for run in runs)


@pytest.mark.compiled
def test_it_pays_where_things_change_and_costs_nothing_where_they_do_not():
    """Restarts reduce regret where intent changes, and cost nothing where it does not, on a part of the workload `clear`."""

    def regret(name, shifting):
        environment = Traffic(
            queries=20, impressions=400_000, shifting_share=shifting, best_low=0.6, best_high=0.9, other_low=0.05, other_high=0.4,
            order="uniform", features=0,
        )  # fmt: skip
        return simulate(policy(name), environment, runs=3, threads=1, points=1).regret

    quiet, shifting = {}, {}
    for name in ("ts", "glr-ts", "bocpd-ts", "oracle-ts"):
        quiet[name], shifting[name] = regret(name, 0.0).mean(), regret(name, 0.5).mean()
    for name in ("glr-ts", "bocpd-ts"):
        assert quiet[name] <= 1.01 * quiet["ts"]
        assert shifting[name] < 0.2 * shifting["ts"]
        assert shifting[name] < 2.5 * shifting["oracle-ts"]


def test_names_in_the_catalog_are_what_they_say():
    made = policy("cusum-klucb", arms=5, horizon=30_000)
    assert made == Restarting(KLUCB(), CUSUM(100, 0.1, 10.0), "arm")
    assert policy("glr-ts", horizon=9_999) == Restarting(Thompson(), GLR.tuned(9_999))
    theory = policy("glr-klucb-theory", arms=5, horizon=30_000)
    assert theory.bandit.rate == pytest.approx(np.sqrt(5 * np.log(30_000) / 30_000))
    assert theory.bandit.rate_grows
    assert policy("cusum-ucb-theory(shifts=6)", horizon=30_000).detector.threshold == pytest.approx(np.log(5_000))
    assert policy("mucb-theory", horizon=100).bandit.rate == 1.0  # with a horizon too short for the theory it always explores


def test_what_is_no_bandit_or_no_detector_is_refused():
    with pytest.raises(SpecError, match="detector must be a detector, such as GLR"):
        Restarting(UCB1(), UCB1())
    with pytest.raises(SpecError, match="bandit must be a bandit, such as UCB1"):
        Restarting(GLR(), GLR())
    with pytest.raises(SpecError, match="scope must be one of all, arm"):
        Restarting(UCB1(), GLR(), "some")
    assert Oracle(Restarting(UCB1(), GLR())).bandit.detector == GLR()
