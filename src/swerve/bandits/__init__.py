"""Bandits for click probabilities that stay the same, and bandits that discount the past. One file each."""

from swerve.bandits.bubble_rank import BubbleRank
from swerve.bandits.cascade_kl_ucb import CascadeKLUCB
from swerve.bandits.cascade_ts import CascadeThompson
from swerve.bandits.dcm_kl_ucb import DCMKLUCB
from swerve.bandits.discounted import DTS, DUCB
from swerve.bandits.exp3s import EXP3S
from swerve.bandits.explore_first import ExploreFirst
from swerve.bandits.forced import Forced
from swerve.bandits.given import Given
from swerve.bandits.kl_ucb import KLUCB
from swerve.bandits.list_thompson import ListThompson
from swerve.bandits.ranked import RankedThompson
from swerve.bandits.testable import Guess, Testable, guesses
from swerve.bandits.thompson import Thompson
from swerve.bandits.top_rank import TopRank
from swerve.bandits.ucb1 import UCB1
from swerve.bandits.windowed import SWTS, SWUCB

__all__ = [
    "DCMKLUCB",
    "DTS",
    "DUCB",
    "EXP3S",
    "KLUCB",
    "SWTS",
    "SWUCB",
    "UCB1",
    "BubbleRank",
    "CascadeKLUCB",
    "CascadeThompson",
    "ExploreFirst",
    "Forced",
    "Given",
    "Guess",
    "ListThompson",
    "RankedThompson",
    "Testable",
    "Thompson",
    "TopRank",
    "guesses",
]
