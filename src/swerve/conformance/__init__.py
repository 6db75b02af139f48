"""What holds for every policy, classifier, detector and environment, as checks that run on any class: `swerve check FILE`."""

from swerve.conformance.checking import CHECKS, Check, Failed, Outcome, Subject, outcomes
from swerve.conformance.kinds import examples_for, kinds_of

__all__ = ["CHECKS", "Check", "Failed", "Outcome", "Subject", "examples_for", "kinds_of", "outcomes"]
