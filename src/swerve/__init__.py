"""Swerve keeps the right search result on top when a query's intent shifts.

>>> import swerve
>>> policy = swerve.policy("bwc")
>>> results = swerve.simulate(policy, swerve.Traffic(queries=2, impressions=4000), runs=2)
>>> results.regret.shape
(2,)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from swerve.bandits import EXP3S, KLUCB, UCB1, ExploreFirst, Testable, Thompson, guesses
    from swerve.classifiers import Always, Finite, Hull, Learner, Matrix, Never, Rectangle, Told
    from swerve.core.errors import SpecError, SwerveError
    from swerve.core.fleet import Decision, Decisions, Fleet
    from swerve.core.spec import Spec
    from swerve.environments import FalsePositives, ManyPhases, OutsideClass, SingleEvent, Traffic, World, environment, world
    from swerve.policies import BWC, Oracle, policy
    from swerve.simulate import Results, simulate

__version__ = "0.1.0"

#: Name → the package that holds it, imported when the name is first used: `swerve --help` need not wait for Numba.
_WHERE = {
    "BWC": "swerve.policies",
    "EXP3S": "swerve.bandits",
    "KLUCB": "swerve.bandits",
    "UCB1": "swerve.bandits",
    "Always": "swerve.classifiers",
    "Decision": "swerve.core.fleet",
    "Decisions": "swerve.core.fleet",
    "ExploreFirst": "swerve.bandits",
    "FalsePositives": "swerve.environments",
    "Finite": "swerve.classifiers",
    "Fleet": "swerve.core.fleet",
    "Hull": "swerve.classifiers",
    "Learner": "swerve.classifiers",
    "ManyPhases": "swerve.environments",
    "Matrix": "swerve.classifiers",
    "Never": "swerve.classifiers",
    "Oracle": "swerve.policies",
    "OutsideClass": "swerve.environments",
    "Rectangle": "swerve.classifiers",
    "Results": "swerve.simulate",
    "SingleEvent": "swerve.environments",
    "Spec": "swerve.core.spec",
    "SpecError": "swerve.core.errors",
    "SwerveError": "swerve.core.errors",
    "Testable": "swerve.bandits",
    "Thompson": "swerve.bandits",
    "Told": "swerve.classifiers",
    "Traffic": "swerve.environments",
    "World": "swerve.environments",
    "environment": "swerve.environments",
    "guesses": "swerve.bandits",
    "policy": "swerve.policies",
    "simulate": "swerve.simulate",
    "world": "swerve.environments",
}

__all__ = [
    "BWC",
    "EXP3S",
    "KLUCB",
    "UCB1",
    "Always",
    "Decision",
    "Decisions",
    "ExploreFirst",
    "FalsePositives",
    "Finite",
    "Fleet",
    "Hull",
    "Learner",
    "ManyPhases",
    "Matrix",
    "Never",
    "Oracle",
    "OutsideClass",
    "Rectangle",
    "Results",
    "SingleEvent",
    "Spec",
    "SpecError",
    "SwerveError",
    "Testable",
    "Thompson",
    "Told",
    "Traffic",
    "World",
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
    return module if name == "simulate" else getattr(module, name)  # the package `simulate` can be called itself


def __dir__() -> list[str]:
    return sorted([*globals(), *_WHERE])
