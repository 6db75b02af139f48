"""The part of a comparison that concerns result pages: the oracle of a workload, the figures of pages in a row, and their bars."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from swerve.core.errors import SwerveError
from swerve.core.examination import CLICKS
from swerve.core.spec import Spec
from swerve.environments import WORKLOADS, environment, workload
from swerve.environments.browsing import browse
from swerve.environments.workloads import base_name
from swerve.experiments.intervals import Values, interval
from swerve.simulate import Results

if TYPE_CHECKING:
    from swerve.experiments.comparison import Comparison

#: The policy that ratios refer to: it is told of every event, and its bandit is the best of ours without contexts.
ORACLE = "oracle-ts"
#: The same for pages: it also knows how people read them.
PAGE_ORACLE = "oracle-list"
#: The given order, which differences may always be taken to.
GIVEN = "given"

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


#: Counts of which a row has the mean, and the difference to the policy `against`, run by run.
PAIRED = {"clicks": "gained", "searches": "searches_gained"}


def click_figures(problem: Spec, own: dict[str, Values], reference: dict[str, Values] | None) -> dict[str, Any]:
    """Return a row's clicks and searches with a click, and how many more they are than the reference's; none without pages."""
    if not browse.knows(problem):
        return {}
    out: dict[str, Any] = {}
    for count, gained in PAIRED.items():
        mean, low, high = (None, None, None) if reference is None else interval(own[count] - reference[count])
        out |= {count: float(own[count].mean()), gained: mean, f"{gained}_low": low, f"{gained}_high": high}
    return out


def page_totals(problem: Spec, results: Results) -> dict[str, Values]:
    """Return the counts of every run that are compared run by run; none without pages."""
    return {count: results.count(count) for count in PAIRED} if browse.knows(problem) else {}


# ---------------------------------------------------------------- the bars

#: What a bar limits. `top` is the attractiveness lost on the top slot ÷ that of `oracle-ts`, which plays the top alone.
MEASURES = {
    "ratio": "regret ÷ oracle-list",
    "harm": "harm, %",
    "harm_p90": "harm p90, %",
    "recovered": "impressions to recover",
    "top": "top slot ÷ oracle-ts",
}
MOST_HARM, MOST_HARM_P90 = 1.0, 3.0  # % of the given order's value


def page_bars() -> dict[str, dict[str, float]]:
    """Return the largest allowed figures of one default setting of a policy, by workload and measure."""
    harmless = {"harm": MOST_HARM, "harm_p90": MOST_HARM_P90}
    out: dict[str, dict[str, float]] = {}
    for name, ratios in {
        "page-clear": (0.86, 0.94, 0.82, 0.78), "page-mixed": (0.59, 0.71, 0.62, 0.55), "page-intents": (0.48, 0.50, 0.59, 0.59),
    }.items():  # fmt: skip
        for clicks, ratio in zip(CLICKS, ratios, strict=True):
            out[f"{name}(clicks={clicks})"] = {"ratio": ratio, **harmless}
    out["page-clear(clicks=ubm)"] |= {"recovered": 160.0, "top": 0.20}
    out["page-mixed(clicks=ubm)"] |= {"recovered": 35.0, "top": 0.20}
    return {
        **out,
        "page-clear-noisy": {"ratio": 0.95, "top": 0.35},
        "page-mixed-noisy": {"ratio": 0.72, "top": 0.35},
        "page-intents-noisy": {"ratio": 0.60},
        "page-quiet-noisy": {"ratio": 0.80},
        "page-clear(engine=inf)": {"ratio": 1.1},
        "page-clear(candidates=64)": {"ratio": 0.70},
        "page-mixed(candidates=64)": {"ratio": 0.70},
        "page-clear(click_scale=0.333)": {"ratio": 0.95, **harmless},
        "page-mixed(click_scale=0.333)": {"ratio": 0.70, **harmless},
        "page-clear(silent_share=1)": {"ratio": 1.15},
        "page-intents(silent_share=1)": {"ratio": 0.70},
    }


PAGE_BARS = page_bars()


@dataclasses.dataclass(frozen=True)
class PageVerdict:
    """One bar of the policy `against` on a workload with pages. A figure that is not known (None) misses its bar."""

    workload: str
    measure: str
    value: float | None
    bar: float

    @property
    def holds(self) -> bool:
        """Whether the figure is small enough."""
        return self.value is not None and self.value <= self.bar


def bars_of(name: str) -> dict[str, float]:
    """Return the bars of a workload or environment, however its text is written; none if it has none."""
    wanted = workload(name) if base_name(name) in WORKLOADS else environment(name)
    return next((bars for text, bars in PAGE_BARS.items() if workload(text) == wanted), {})


def page_verdicts(comparison: Comparison) -> list[PageVerdict]:
    """Return the verdicts of the cells with pages for the policy `against`."""
    names = [name for name, part in comparison.cells if comparison.row(name, part, comparison.against).paged]
    return [
        PageVerdict(name, measure, page_measure(comparison, name, measure), bar)
        for name in names
        for measure, bar in bars_of(name).items()
    ]


def page_measure(comparison: Comparison, name: str, measure: str) -> float | None:
    """Return the figure of the policy `against` that a bar limits."""
    row = comparison.row(name, None, comparison.against)
    if measure != "top":
        value: float | None = getattr(row, measure)
        return value
    told = comparison.row(name, None, ORACLE).top_regret
    return row.top_regret / told if row.top_regret is not None and told else None


def check_page_bars(names: list[str], policies: list[str], subject: str) -> None:
    """Refuse bars of pages that the policies are not enough for, before anything is played."""
    needed = [subject, *([ORACLE] if any("top" in bars_of(name) for name in names) else [])]
    missing = [text for text in needed if text not in policies]
    if missing:
        raise SwerveError(f"the bars of pages also need the policies {', '.join(missing)}")


def no_bars(names: list[str]) -> bool:
    """Return whether none of these workloads or environments with pages has a bar."""
    return not any(bars_of(name) for name in names)
