"""Policies: bandits made to notice that things change."""

from swerve.policies.bwc import BWC
from swerve.policies.catalog import POLICIES, Problem, policy
from swerve.policies.oracle import Oracle

__all__ = ["BWC", "POLICIES", "Oracle", "Problem", "policy"]
