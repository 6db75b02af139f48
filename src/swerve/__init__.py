"""Swerve re-ranks search results from clicks, and follows when a query's intent shifts.

>>> import swerve
>>> policy = swerve.policy("bwc")
>>> results = swerve.simulate(policy, swerve.Traffic(queries=2, impressions=4000), runs=2)
>>> results.regret.shape
(2,)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from swerve.version import __version__

if TYPE_CHECKING:
    from swerve.bandits import (
        DTS,
        DUCB,
        EXP3S,
        KLUCB,
        SWTS,
        SWUCB,
        UCB1,
        ExploreFirst,
        Forced,
        Testable,
        Thompson,
        guesses,
    )
    from swerve.classifiers import Always, Finite, Hull, Learner, Matrix, Never, QuantileBox, Rectangle, Told
    from swerve.client import AsyncClient, Client
    from swerve.core.errors import SpecError, SwerveError
    from swerve.core.fleet import Decision, Decisions, Fleet
    from swerve.core.page_fleet import PageFleet
    from swerve.core.spec import Spec
    from swerve.detectors import BOCPD, CUSUM, GLR, MUCB, Blind, Split, Watcher
    from swerve.environments import (
        FalsePositives,
        Hurricane,
        ManyPhases,
        OutsideClass,
        Pages,
        Series,
        Shifts,
        SingleEvent,
        Traffic,
        World,
        environment,
        world,
    )
    from swerve.policies import BWC, ChangeTest, Listed, Oracle, Patient, Restarting, Swerve, Trust, policy
    from swerve.signals import Senses
    from swerve.simulate import Results, simulate


#: Name → the package that defines it, imported on first use, so that `swerve --help` does not wait for Numba.
_WHERE = {
    "Always": "swerve.classifiers",
    "AsyncClient": "swerve.client",
    "Client": "swerve.client",
    "Senses": "swerve.signals",
    "Blind": "swerve.detectors",
    "BOCPD": "swerve.detectors",
    "BWC": "swerve.policies",
    "ChangeTest": "swerve.policies",
    "CUSUM": "swerve.detectors",
    "Decision": "swerve.core.fleet",
    "Decisions": "swerve.core.fleet",
    "DTS": "swerve.bandits",
    "DUCB": "swerve.bandits",
    "environment": "swerve.environments",
    "EXP3S": "swerve.bandits",
    "ExploreFirst": "swerve.bandits",
    "FalsePositives": "swerve.environments",
    "Finite": "swerve.classifiers",
    "Fleet": "swerve.core.fleet",
    "PageFleet": "swerve.core.page_fleet",
    "Forced": "swerve.bandits",
    "GLR": "swerve.detectors",
    "guesses": "swerve.bandits",
    "Hull": "swerve.classifiers",
    "Hurricane": "swerve.environments",
    "KLUCB": "swerve.bandits",
    "Learner": "swerve.classifiers",
    "ManyPhases": "swerve.environments",
    "Matrix": "swerve.classifiers",
    "MUCB": "swerve.detectors",
    "Never": "swerve.classifiers",
    "Listed": "swerve.policies",
    "Oracle": "swerve.policies",
    "Pages": "swerve.environments",
    "Patient": "swerve.policies",
    "OutsideClass": "swerve.environments",
    "policy": "swerve.policies",
    "QuantileBox": "swerve.classifiers",
    "Rectangle": "swerve.classifiers",
    "Restarting": "swerve.policies",
    "Results": "swerve.simulate",
    "Series": "swerve.environments",
    "Shifts": "swerve.environments",
    "simulate": "swerve.simulate",
    "SingleEvent": "swerve.environments",
    "Spec": "swerve.core.spec",
    "SpecError": "swerve.core.errors",
    "Split": "swerve.detectors",
    "Swerve": "swerve.policies",
    "SwerveError": "swerve.core.errors",
    "SWTS": "swerve.bandits",
    "SWUCB": "swerve.bandits",
    "Testable": "swerve.bandits",
    "Thompson": "swerve.bandits",
    "Told": "swerve.classifiers",
    "Traffic": "swerve.environments",
    "Trust": "swerve.policies",
    "UCB1": "swerve.bandits",
    "Watcher": "swerve.detectors",
    "World": "swerve.environments",
    "world": "swerve.environments",
}

__all__ = [
    "BOCPD",
    "BWC",
    "CUSUM",
    "DTS",
    "DUCB",
    "EXP3S",
    "GLR",
    "KLUCB",
    "MUCB",
    "SWTS",
    "SWUCB",
    "UCB1",
    "Always",
    "AsyncClient",
    "Blind",
    "ChangeTest",
    "Client",
    "Decision",
    "Decisions",
    "ExploreFirst",
    "FalsePositives",
    "Finite",
    "Fleet",
    "Forced",
    "Hull",
    "Hurricane",
    "Learner",
    "Listed",
    "ManyPhases",
    "Matrix",
    "Never",
    "Oracle",
    "OutsideClass",
    "PageFleet",
    "Pages",
    "Patient",
    "QuantileBox",
    "Rectangle",
    "Restarting",
    "Results",
    "Senses",
    "Series",
    "Shifts",
    "SingleEvent",
    "Spec",
    "SpecError",
    "Split",
    "Swerve",
    "SwerveError",
    "Testable",
    "Thompson",
    "Told",
    "Traffic",
    "Trust",
    "Watcher",
    "World",
    "__version__",
    "environment",
    "guesses",
    "policy",
    "simulate",
    "world",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'swerve' has no attribute {name!r}")
    module = importlib.import_module(_WHERE[name])
    return module if name == "simulate" else getattr(module, name)  # the package `simulate` is itself callable


def __dir__() -> list[str]:
    return sorted([*globals(), *_WHERE])
