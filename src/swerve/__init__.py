"""Swerve keeps the right search result on top when a query's intent shifts."""

from swerve.bandits import EXP3S, KLUCB, UCB1, ExploreFirst, Testable, Thompson
from swerve.classifiers import Always, Finite, Learner, Matrix, Never, Rectangle, Told
from swerve.core.errors import SpecError, SwerveError
from swerve.core.fleet import Decision, Decisions, Fleet
from swerve.core.spec import Spec
from swerve.environments import Traffic
from swerve.policies import BWC, Oracle
from swerve.simulate import simulate

__version__ = "0.1.0"
