"""Regret on two small problems from the literature, against the figures published for them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from swerve import CUSUM, KLUCB, Forced, Restarting, Spec, Thompson
from swerve.environments.worlds import assemble, context
from swerve.simulate.runner import Session

T, K, BREAKS, RUNS = 5000, 3, 4, 300

#: Besson, "Multi-players bandit algorithms for Internet of Things networks" (thesis, 2019), chapter 6: click probabilities of three
#: arms, one line per 1000 rounds; in problem 1 one arm changes at a time, in problem 2 all arms do.
PROBLEMS = {
    1: [[0.3, 0.5, 0.9], [0.3, 0.2, 0.9], [0.3, 0.2, 0.1], [0.7, 0.2, 0.1], [0.7, 0.5, 0.1]],
    2: [[0.4, 0.5, 0.9], [0.5, 0.4, 0.7], [0.6, 0.3, 0.5], [0.7, 0.2, 0.3], [0.8, 0.1, 0.1]],
}

#: The same chapter's tuning of CUSUM-klUCB: M = 150, ε = 0.1, h = ln(T / Υ), random exploration at rate √(Υ ln(T / Υ) / T), local.
CUSUM_KLUCB = Restarting(
    Forced(KLUCB(), math.sqrt(BREAKS * math.log(T / BREAKS) / T), "random"), CUSUM(150, 0.1, math.log(T / BREAKS)), "arm"
)

#: The chapter's table of mean final regret over 1000 runs.
PUBLISHED = {
    ("klUCB", 1): (KLUCB(), 270),
    ("klUCB", 2): (KLUCB(), 162),
    ("Thompson", 1): (Thompson(), 493),
    ("Thompson", 2): (Thompson(), 388),
    ("CUSUM-klUCB", 1): (CUSUM_KLUCB, 148),
    ("CUSUM-klUCB", 2): (CUSUM_KLUCB, 152),
}


class Piecewise(Spec):
    """An environment without contexts."""


@context.register(Piecewise)
def _(spec, scene, cursor, event, x):
    return


def regret(policy: Spec, problem: int) -> float:
    """Return the mean final regret; each run is one query, played one after the other."""
    history = [(1 + number * T // 5, chances) for number, chances in enumerate(PROBLEMS[problem])]
    schedule = np.repeat(np.arange(RUNS), T).astype(np.int32)
    world = assemble(Piecewise(), 0, arms=K, features=0, histories=[history] * RUNS, schedule=schedule)
    session = Session(policy, world, "query")
    session.play(RUNS * T)
    return session.regret / RUNS


@pytest.mark.parametrize(("name", "problem"), PUBLISHED, ids=lambda part: str(part))
def test_agrees_with_the_published_figure(name, problem):
    """Within 12 %: the standard error of 300 runs is up to 2 %, and the published CUSUM was evaluated only every ten plays."""
    policy, published = PUBLISHED[name, problem]
    assert regret(policy, problem) == pytest.approx(published, rel=0.12)
