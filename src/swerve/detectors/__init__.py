"""Passive change detectors: they judge from an arm's rewards alone whether its click probability has changed. One file each."""

from swerve.detectors.blind import Blind
from swerve.detectors.bocpd import BOCPD
from swerve.detectors.cusum import CUSUM
from swerve.detectors.glr import GLR
from swerve.detectors.mucb import MUCB
from swerve.detectors.split import Split
from swerve.detectors.watcher import Watcher

__all__ = ["BOCPD", "CUSUM", "GLR", "MUCB", "Blind", "Split", "Watcher"]
