"""Environments: problems to play on."""

from swerve.environments.catalog import environment, environments
from swerve.environments.contract import World, assemble, world
from swerve.environments.lower_bound import FalsePositives, ManyPhases, OutsideClass, SingleEvent
from swerve.environments.traffic import Traffic

__all__ = [
    "FalsePositives",
    "ManyPhases",
    "OutsideClass",
    "SingleEvent",
    "Traffic",
    "World",
    "assemble",
    "environment",
    "environments",
    "world",
]
