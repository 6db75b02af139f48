"""Experiments: the paper's, as data, and what is read off them."""

from swerve.experiments.contract import Cell, Experiment, Setting, run, total_rounds
from swerve.experiments.tables import FEATURE_TABLE, FIGURE_A, FRACTION_TABLE, interleaved

#: The paper's experiments by name, the second order of arrival beside each that has one.
EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        FIGURE_A,
        interleaved(FIGURE_A),
        FRACTION_TABLE,
        interleaved(FRACTION_TABLE),
        FEATURE_TABLE,
    )
}

__all__ = ["EXPERIMENTS", "Cell", "Experiment", "Setting", "run", "total_rounds"]
