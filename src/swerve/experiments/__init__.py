"""The paper's experiments as data, and the analyses of their results."""

from swerve.experiments.definition import Cell, Experiment, Setting, run, run_all, total_rounds
from swerve.experiments.tables import FEATURE_TABLE, FIGURE_A, FRACTION_TABLE, interleaved

#: The paper's experiments by name; those with a second order of arrival are followed by it.
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

__all__ = ["EXPERIMENTS", "Cell", "Experiment", "Setting", "run", "run_all", "total_rounds"]
