"""Bandits: which arm to play when nothing changes. One file each."""

from swerve.bandits.exp3s import EXP3S
from swerve.bandits.explore_first import ExploreFirst
from swerve.bandits.kl_ucb import KLUCB
from swerve.bandits.testable import Guess, Testable, guesses
from swerve.bandits.thompson import Thompson
from swerve.bandits.ucb1 import UCB1

__all__ = ["EXP3S", "KLUCB", "UCB1", "ExploreFirst", "Guess", "Testable", "Thompson", "guesses"]
