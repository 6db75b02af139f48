"""Passive change detectors: has this arm's click probability changed, to judge by its rewards alone? One file each."""

from swerve.detectors.blind import Blind
from swerve.detectors.bocpd import BOCPD
from swerve.detectors.cusum import CUSUM
from swerve.detectors.glr import GLR
from swerve.detectors.mucb import MUCB
from swerve.detectors.split import Split
from swerve.detectors.watcher import Watcher

__all__ = ["BOCPD", "CUSUM", "GLR", "MUCB", "Blind", "Split", "Watcher"]
