"""Policies: bandits made to notice that things change."""

from swerve.policies.bwc import BWC
from swerve.policies.catalog import POLICIES, Problem, policy
from swerve.policies.oracle import Oracle
from swerve.policies.restarting import Restarting

__all__ = ["BWC", "POLICIES", "Oracle", "Problem", "Restarting", "policy"]
