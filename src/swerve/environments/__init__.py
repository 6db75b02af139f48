"""Environments: problems for policies to play on."""

from swerve.environments.catalog import environment, environments
from swerve.environments.hurricane import Hurricane
from swerve.environments.lower_bound import FalsePositives, ManyPhases, OutsideClass, SingleEvent
from swerve.environments.pages import Pages
from swerve.environments.series import Series
from swerve.environments.shifts import Shifts
from swerve.environments.traffic import Traffic
from swerve.environments.workloads import PAGES, RECORDED, WORKLOADS, add_workload, takes_fraction, workload
from swerve.environments.worlds import World, assemble, unannounced, world

__all__ = [
    "PAGES",
    "RECORDED",
    "WORKLOADS",
    "FalsePositives",
    "Hurricane",
    "ManyPhases",
    "OutsideClass",
    "Pages",
    "Series",
    "Shifts",
    "SingleEvent",
    "Traffic",
    "World",
    "add_workload",
    "assemble",
    "environment",
    "environments",
    "takes_fraction",
    "unannounced",
    "workload",
    "world",
]
