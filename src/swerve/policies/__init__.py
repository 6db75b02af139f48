"""Policies: bandits made to notice that things change."""

from swerve.policies.bwc import BWC
from swerve.policies.oracle import Oracle

__all__ = ["BWC", "Oracle"]
