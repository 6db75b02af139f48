"""The policy Swerve: alarms are evidence, not truth."""

from swerve.policies.swerve.policy import Swerve
from swerve.policies.swerve.posterior import ChangeTest
from swerve.policies.swerve.trust import Trust

__all__ = ["ChangeTest", "Swerve", "Trust"]
