"""The part of a comparison that concerns result pages: the oracle of a workload, and the figures of pages in a row."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from swerve.core.spec import Spec
from swerve.environments.browsing import browse
from swerve.simulate import Results

#: The policy that ratios refer to: it is told of every event, and its bandit is the best of ours without contexts.
ORACLE = "oracle-ts"
#: The same for pages: it also knows how people read them.
PAGE_ORACLE = "oracle-list"

#: The figures of which a row has the mean over the runs.
MEANS = ("harm", "harm_p90", "churn", "top_regret")


def oracle_of(problem: Spec) -> str:
    """Return the policy that ratios refer to."""
    return PAGE_ORACLE if browse.knows(problem) else ORACLE


def page_tuning(problem: Spec) -> dict[str, Any]:
    """Return the parameters that policies for pages are tuned to; none without pages."""
    return {"clicks": getattr(problem, "clicks", "ubm"), "slots": getattr(problem, "slots", 1)} if browse.knows(problem) else {}


def page_figures(problem: Spec, results: Results) -> dict[str, Any]:
    """Return the figures of pages for a row; none without pages."""
    if not browse.knows(problem):
        return {}
    median = float(np.median(results.count("recovered")))
    means = {name: float(results.count(name).mean()) for name in MEANS}
    return {**means, "recovered": median if math.isfinite(median) else None}
