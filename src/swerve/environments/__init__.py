"""Environments: problems for policies to play on."""

from swerve.environments.catalog import environment, environments
from swerve.environments.hurricane import Hurricane
from swerve.environments.lower_bound import FalsePositives, ManyPhases, OutsideClass, SingleEvent
from swerve.environments.shifts import Shifts
from swerve.environments.traffic import Traffic
from swerve.environments.workloads import RECORDED, WORKLOADS, workload
from swerve.environments.worlds import World, assemble, world

__all__ = [
    "RECORDED",
    "WORKLOADS",
    "FalsePositives",
    "Hurricane",
    "ManyPhases",
    "OutsideClass",
    "Shifts",
    "SingleEvent",
    "Traffic",
    "World",
    "assemble",
    "environment",
    "environments",
    "workload",
    "world",
]
