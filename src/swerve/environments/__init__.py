"""Environments: problems to play on."""

from swerve.environments.contract import World, assemble, world
from swerve.environments.traffic import Traffic

__all__ = ["Traffic", "World", "assemble", "world"]
