"""Invented cells, with the regret and counters that a test needs."""

from __future__ import annotations

import numpy as np
import pytest

from swerve import UCB1, Traffic
from swerve.experiments import Cell
from swerve.simulate.results import Plan, Results, Run


@pytest.fixture
def made_up():
    """A function that makes a cell from final regrets."""

    def make(experiment, setting, policy, regrets, paper=None, counts=None):
        runs = [
            Run(seed, np.array([50, 100]), np.array([value / 2, value]), np.array([10.0, 20.0]), counts or {}, {})
            for seed, value in enumerate(regrets)
        ]
        return Cell(experiment, setting, policy, Results(Plan(UCB1(), Traffic(queries=2, impressions=100)), runs), paper)

    return make
