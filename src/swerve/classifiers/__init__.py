"""Classifiers: they decide whether a context is an event. One file each."""

import swerve.classifiers.contexts  # noqa: F401 - registers verbs of QuantileBox
from swerve.classifiers.constant import Always, Never, Told
from swerve.classifiers.finite import Finite, Matrix
from swerve.classifiers.hull import Hull
from swerve.classifiers.learner import Learner
from swerve.classifiers.quantile import QuantileBox
from swerve.classifiers.rectangle import Rectangle

__all__ = ["Always", "Finite", "Hull", "Learner", "Matrix", "Never", "QuantileBox", "Rectangle", "Told"]
