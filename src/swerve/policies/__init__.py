"""Policies: bandits extended to react to changes."""

import swerve.policies.swerve.contributing
import swerve.policies.swerve.holding  # noqa: F401 - both register verbs of Swerve and Listed
from swerve.policies.bwc import BWC
from swerve.policies.catalog import POLICIES, Problem, policy
from swerve.policies.oracle import Oracle
from swerve.policies.patient import Patient
from swerve.policies.restarting import Restarting
from swerve.policies.restarting_list import RestartingList
from swerve.policies.swerve.listed import Listed
from swerve.policies.swerve.policy import Swerve
from swerve.policies.swerve.posterior import ChangeTest
from swerve.policies.swerve.trust import Trust
from swerve.policies.top import Top

__all__ = [
    "BWC",
    "POLICIES",
    "ChangeTest",
    "Listed",
    "Oracle",
    "Patient",
    "Problem",
    "Restarting",
    "RestartingList",
    "Swerve",
    "Top",
    "Trust",
    "policy",
]
