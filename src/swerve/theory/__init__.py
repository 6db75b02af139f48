"""The paper's theory as functions: regret bounds, test lengths, diameters of concept classes, the false-positive game."""

from swerve.theory.bounds import theorem1, theorem1_printed, theorem4, theorem5, theorem6_diameter, theorem6_events, ucb1_regret
from swerve.theory.diameters import finite_diameter, hyperplane_bound, hyperplane_diameter, line_diameter, rectangle_diameter
from swerve.theory.game import Classifier, Score, cube, fp_complexity, greedy, play, quiet, sphere, staircase
from swerve.theory.testing import gap_interval, proof_length, resolution, rough_interval, test_length

__all__ = [
    "Classifier",
    "Score",
    "cube",
    "finite_diameter",
    "fp_complexity",
    "gap_interval",
    "greedy",
    "hyperplane_bound",
    "hyperplane_diameter",
    "line_diameter",
    "play",
    "proof_length",
    "quiet",
    "rectangle_diameter",
    "resolution",
    "rough_interval",
    "sphere",
    "staircase",
    "test_length",
    "theorem1",
    "theorem1_printed",
    "theorem4",
    "theorem5",
    "theorem6_diameter",
    "theorem6_events",
    "ucb1_regret",
]
