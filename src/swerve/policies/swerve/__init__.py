"""The policy Swerve: an alarm is evidence for an event, not proof of one."""

from swerve.policies.swerve.policy import Swerve
from swerve.policies.swerve.posterior import ChangeTest
from swerve.policies.swerve.trust import Trust

__all__ = ["ChangeTest", "Swerve", "Trust"]
