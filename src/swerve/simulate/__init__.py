"""Simulation: policies against environments, compiled, paired and reproducible."""

import sys
from types import ModuleType
from typing import Any

from swerve.simulate.results import Plan, Results, Run
from swerve.simulate.runner import Interrupted, Tick, checkpoints, simulate
from swerve.simulate.sessions import Session
from swerve.simulate.worlds import SharedWorlds, Worlds

__all__ = ["Interrupted", "Plan", "Results", "Run", "Session", "SharedWorlds", "Tick", "Worlds", "checkpoints", "simulate"]


class _Callable(ModuleType):
    """Make `swerve.simulate` both this package and the function of the same name, whichever is imported first."""

    def __call__(self, *args: Any, **kwargs: Any) -> Results:
        return simulate(*args, **kwargs)


sys.modules[__name__].__class__ = _Callable
