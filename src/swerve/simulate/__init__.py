"""Simulation: policies against environments, fast, paired and reproducible."""

from swerve.simulate.results import Plan, Results, Run
from swerve.simulate.runner import Interrupted, checkpoints, simulate

__all__ = ["Interrupted", "Plan", "Results", "Run", "checkpoints", "simulate"]
