"""Policies by name, as in `swerve simulate bwc`."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
from collections.abc import Callable
from typing import NamedTuple

from swerve.bandits import (
    DCMKLUCB,
    DTS,
    DUCB,
    EXP3S,
    KLUCB,
    SWTS,
    SWUCB,
    UCB1,
    BubbleRank,
    CascadeKLUCB,
    CascadeThompson,
    ExploreFirst,
    Forced,
    Given,
    ListThompson,
    RankedThompson,
    Testable,
    Thompson,
    TopRank,
)
from swerve.classifiers import Hull, Rectangle
from swerve.core.contract import select
from swerve.core.elementary import log
from swerve.core.errors import SwerveError, whole
from swerve.core.parse import parse
from swerve.core.spec import Spec
from swerve.detectors import BOCPD, CUSUM, GLR, MUCB
from swerve.policies.bwc import BWC
from swerve.policies.oracle import Oracle
from swerve.policies.restarting import Restarting
from swerve.policies.restarting_list import RestartingList
from swerve.policies.swerve.listed import PAGE_BANDIT, Listed
from swerve.policies.swerve.policy import Swerve
from swerve.policies.top import Top


class Problem(NamedTuple):
    """The facts that a tuning may depend on: the number of arms, the rounds of one query, the slots of a page and its readers."""

    arms: int = 5
    horizon: int = 30_000
    clicks: str = "ubm"
    slots: int = 1


def ucb1(problem: Problem, alpha: float = 0.5) -> Spec:
    """UCB1: the highest upper confidence bound; it is not told of events."""
    return UCB1(alpha=alpha)


def ucb1_proof(problem: Problem) -> Spec:
    """UCB1 with the constants of the paper's proofs (α = 6, t0 = T): it explores almost uniformly."""
    return UCB1.of_the_proof(problem.horizon)


def klucb(problem: Problem, c: float = 0.0) -> Spec:
    """KL-UCB: confidence bounds that are exact for clicks."""
    return KLUCB(c=c)


def ts(problem: Problem, a: float = 1.0, b: float = 1.0) -> Spec:
    """Thompson sampling with a Beta prior."""
    return Thompson(a=a, b=b)


def exp3s(problem: Problem, gamma: float | None = None, alpha: float | None = None, shifts: int | None = None) -> Spec:
    """EXP3.S: click probabilities may change at any time. Tuned for the horizon, for a number of shifts, or freely."""
    tuned = EXP3S.tuned(problem.arms, problem.horizon, shifts)
    return EXP3S(gamma=tuned.gamma if gamma is None else gamma, alpha=tuned.alpha if alpha is None else alpha)


def ora(problem: Problem, alpha: float = 0.5) -> Spec:
    """ORA: UCB1 restarted at each event by an oracle."""
    return Oracle(UCB1(alpha=alpha))


def oracle_klucb(problem: Problem) -> Spec:
    """KL-UCB restarted at each event by an oracle."""
    return Oracle(KLUCB())


def oracle_ts(problem: Problem) -> Spec:
    """Thompson sampling restarted at each event by an oracle."""
    return Oracle(Thompson())


def swerve(problem: Problem, look_threshold: float | None = None, verdict_after: int = 200, revise_until: int = 1000) -> Spec:
    """Swerve's own policy, the default: alarms are evidence, tests keep the old record, a net finds changes without an alarm."""
    own = Swerve() if problem.slots == 1 else PAGE_BANDIT
    look = own.look_threshold if look_threshold is None else look_threshold
    own = dataclasses.replace(own, look_threshold=look, verdict_after=verdict_after, revise_until=revise_until)
    return own if problem.slots == 1 else Listed(own)


def bwc(problem: Problem, length: int = 200, epsilon: float = 0.3, margin: float = 0.1, alpha: float = 0.5) -> Spec:
    """The paper's BWC: testable UCB1 and the safe rectangle."""
    return BWC(Testable(UCB1(alpha=alpha), length=length, epsilon=epsilon), Rectangle(margin=margin))


def bwc_hull(
    problem: Problem, length: int = 200, epsilon: float = 0.3, margin: float = 0.1, max_points: int = 512, radius: float = 1.0
) -> Spec:
    """BWC with the safe classifier for hyperplanes: the convex hull of harmless contexts."""
    return BWC(Testable(UCB1(), length=length, epsilon=epsilon), Hull(margin=margin, max_points=max_points, radius=radius))


def bwc_klucb(problem: Problem, length: int = 200, epsilon: float = 0.3, margin: float = 0.1) -> Spec:
    """BWC over KL-UCB."""
    return BWC(Testable(KLUCB(), length=length, epsilon=epsilon), Rectangle(margin=margin))


def bwc_ts(problem: Problem, length: int = 200, epsilon: float = 0.3, margin: float = 0.1) -> Spec:
    """BWC over Thompson sampling."""
    return BWC(Testable(Thompson(), length=length, epsilon=epsilon), Rectangle(margin=margin))


def bwc_explore_first(problem: Problem, length: int = 200, epsilon: float = 0.3, margin: float = 0.1) -> Spec:
    """BWC over the simple testable bandit: random arms for L rounds, then UCB1."""
    return BWC(ExploreFirst(UCB1(), length=length, epsilon=epsilon), Rectangle(margin=margin))


def glr_ts(problem: Problem, check_every: int = 1, scope: str = "all") -> Spec:
    """Thompson sampling restarted when a GLR test detects a change."""
    return Restarting(Thompson(), GLR.tuned(problem.horizon, check_every), scope)


def glr_klucb(problem: Problem, check_every: int = 1, scope: str = "all") -> Spec:
    """KL-UCB restarted when a GLR test detects a change, without forced exploration."""
    return Restarting(KLUCB(), GLR.tuned(problem.horizon, check_every), scope)


def glr_ucb1(problem: Problem, check_every: int = 1, scope: str = "all") -> Spec:
    """UCB1 restarted when a GLR test detects a change, without forced exploration."""
    return Restarting(UCB1(), GLR.tuned(problem.horizon, check_every), scope)


def cusum_klucb(problem: Problem, warmup: int = 100, drift: float = 0.1, threshold: float = 10.0, scope: str = "arm") -> Spec:
    """KL-UCB that forgets an arm when CUSUM detects a change, without forced exploration."""
    return Restarting(KLUCB(), CUSUM(warmup, drift, threshold), scope)


def cusum_ucb(problem: Problem, warmup: int = 100, drift: float = 0.1, threshold: float = 10.0, scope: str = "arm") -> Spec:
    """UCB1 that forgets an arm when CUSUM detects a change, without forced exploration."""
    return Restarting(UCB1(), CUSUM(warmup, drift, threshold), scope)


def cusum_ts(problem: Problem, warmup: int = 100, drift: float = 0.1, threshold: float = 10.0, scope: str = "arm") -> Spec:
    """Thompson sampling that forgets an arm when CUSUM detects a change."""
    return Restarting(Thompson(), CUSUM(warmup, drift, threshold), scope)


def mucb(problem: Problem, window: int = 200) -> Spec:
    """M-UCB without its forced exploration: UCB1 restarted when two windows differ."""
    return Restarting(UCB1(), MUCB.tuned(problem.arms, problem.horizon, window))


def bocpd_ts(problem: Problem, check_every: int = 1) -> Spec:
    """Thompson sampling restarted when restarted BOCPD detects a change."""
    return Restarting(Thompson(), BOCPD.tuned(problem.horizon, check_every))


def glr_klucb_theory(problem: Problem) -> Spec:
    """GLR-klUCB as published: forced exploration at rate √(K ln T / T) that grows with each restart."""
    rate = math.sqrt(problem.arms * log(problem.horizon) / problem.horizon)
    return Restarting(Forced(KLUCB(), min(1.0, rate), rate_grows=True), GLR.tuned(problem.horizon))


def cusum_ucb_theory(problem: Problem, shifts: int = 1) -> Spec:
    """CUSUM-UCB as published: h = ln(T/Υ), random forced exploration at rate √(Υ/T · ln(T/Υ)); only the changed arm restarts."""
    shifts = whole("shifts", shifts, 1, problem.horizon)
    rate = math.sqrt(shifts / problem.horizon * log(problem.horizon / shifts))
    return Restarting(Forced(UCB1(), min(1.0, rate), order="random"), CUSUM.tuned(problem.horizon, shifts), scope="arm")


def mucb_theory(problem: Problem, shifts: int = 1, window: int = 200) -> Spec:
    """M-UCB as published: forced exploration in turn at rate √(Υ K (2b + 3√w) / (2T))."""
    shifts = whole("shifts", shifts, 1, problem.horizon)
    detector = MUCB.tuned(problem.arms, problem.horizon, window)
    rate = math.sqrt(shifts * problem.arms * (2.0 * detector.threshold + 3.0 * math.sqrt(window)) / (2.0 * problem.horizon))
    return Restarting(Forced(UCB1(), min(1.0, rate)), detector)


def sw_ucb(problem: Problem, shifts: int = 1) -> Spec:
    """SW-UCB: UCB from the last plays only, the published window for this many shifts."""
    return SWUCB.tuned(problem.horizon, shifts)


def d_ucb(problem: Problem, shifts: int = 1) -> Spec:
    """D-UCB: UCB from discounted plays, the published discount for this many shifts."""
    return DUCB.tuned(problem.horizon, shifts)


def sw_ts(problem: Problem, shifts: int = 1) -> Spec:
    """SW-TS: Thompson sampling from the last plays only."""
    return SWTS.tuned(problem.horizon, shifts)


def d_ts(problem: Problem, shifts: int = 1) -> Spec:
    """D-TS: Thompson sampling from discounted plays."""
    return DTS.tuned(problem.horizon, shifts)


def given(problem: Problem) -> Spec:
    """The given order of a page, never changed."""
    return Given()


def top(problem: Problem) -> Spec:
    """Swerve's policy on the top slot of a page alone; the other slots keep the given order."""
    return Top(Swerve())


def list_ts(problem: Problem, clicks: str | None = None) -> Spec:
    """Thompson sampling on every slot of a page, with the true click model; it is not told of events."""
    return ListThompson(clicks=problem.clicks if clicks is None else clicks)


def oracle_list(problem: Problem, clicks: str | None = None) -> Spec:
    """Thompson sampling on every slot of a page, with the true click model, restarted at each event by an oracle."""
    return Oracle(list_ts(problem, clicks))


def cascade_klucb(problem: Problem, c: float = 3.0) -> Spec:
    """CascadeKL-UCB: a page of the highest KL-UCB bounds, for people who stop at their first click."""
    return CascadeKLUCB(c=c)


def cascade_ts(problem: Problem) -> Spec:
    """CascadeTS: Thompson sampling on a page, for people who stop at their first click."""
    return CascadeThompson()


def dcm_klucb(problem: Problem, c: float = 3.0) -> Spec:
    """dcmKL-UCB: a page of the highest KL-UCB bounds, for people who may click several results."""
    return DCMKLUCB(c=c)


def glrt_cascade(problem: Problem, c: float = 3.0, exploration: float = 0.0) -> Spec:
    """GLRT-CascadeKL-UCB: CascadeKL-UCB restarted when a GLR test detects a change of any result."""
    return RestartingList(CascadeKLUCB(c=c), GLR.tuned(problem.horizon), exploration=exploration)


def glrt_dcm(problem: Problem, c: float = 3.0, exploration: float = 0.0) -> Spec:
    """GLRT-dcmKL-UCB: dcmKL-UCB restarted when a GLR test detects a change of any result."""
    return RestartingList(DCMKLUCB(c=c), GLR.tuned(problem.horizon), exploration=exploration)


def bubble(problem: Problem, delta: float = 0.5) -> Spec:
    """BubbleRank: neighbours of the given order change places when clicks prove it wrong. A smaller δ is safer and slower."""
    return BubbleRank(delta=delta)


def toprank(problem: Problem, delta: float | None = None) -> Spec:
    """TopRank: blocks of results that clicks have not told apart yet, each in random order; δ = 1/T unless given."""
    return TopRank(delta=1.0 / (problem.horizon + 1.0) if delta is None else delta)


def ranked_ts(problem: Problem) -> Spec:
    """Ranked bandits: Thompson sampling for every slot of a page on its own."""
    return RankedThompson()


def oracle_bubble(problem: Problem, delta: float = 0.5) -> Spec:
    """BubbleRank restarted at each event by an oracle."""
    return Oracle(bubble(problem, delta))


def oracle_ranked_ts(problem: Problem) -> Spec:
    """Ranked bandits restarted at each event by an oracle."""
    return Oracle(ranked_ts(problem))


#: Every policy by its name on the command line.
POLICIES: dict[str, Callable[..., Spec]] = {
    maker.__name__.replace("_", "-"): maker
    for maker in (
        swerve,
        ucb1, ucb1_proof, klucb, ts, exp3s, ora, oracle_klucb, oracle_ts, bwc, bwc_hull, bwc_klucb, bwc_ts, bwc_explore_first,
        glr_ts, glr_klucb, glr_ucb1, cusum_klucb, cusum_ucb, cusum_ts, mucb, bocpd_ts,
        glr_klucb_theory, cusum_ucb_theory, mucb_theory, sw_ucb, d_ucb, sw_ts, d_ts,
        given, top, list_ts, oracle_list, cascade_klucb, cascade_ts, dcm_klucb, glrt_cascade, glrt_dcm,
        bubble, toprank, ranked_ts, oracle_bubble, oracle_ranked_ts,
    )
}  # fmt: skip


def for_problem(maker: Callable[..., Spec], problem: Problem) -> Callable[..., Spec]:
    """Return the recipe with the problem filled in; its signature has the remaining parameters."""
    made = functools.partial(maker, problem)
    signature = inspect.signature(maker)
    setattr(made, "__signature__", signature.replace(parameters=list(signature.parameters.values())[1:]))  # noqa: B010
    return made


def policy(text: str, *, arms: int = 5, horizon: int = 30_000, clicks: str = "ubm", slots: int = 1) -> Spec:
    """Return a policy from text: a name of the catalogue or a composition of classes, with parameters in brackets.

    >>> policy("bwc(length=500)")
    BWC(bandit=Testable(bandit=UCB1(), length=500), classifier=Rectangle())
    >>> policy("Oracle(Thompson(a=2))")
    Oracle(bandit=Thompson(a=2.0))
    """
    problem = Problem(arms, horizon, clicks, slots)
    spec = parse(text, {name: for_problem(maker, problem) for name, maker in POLICIES.items()}, "policy", select)
    if not select.knows(spec):
        raise SwerveError(f"policy = {text!r} is not allowed; {type(spec).__name__} does not choose arms")
    return spec
