"""Any policies on any workloads, with the same luck for all of them: ratios, paired differences and ranks.

A cell is a workload at a fraction of shifting queries, or without one (None) where what shifts was recorded. Every policy plays the
same seeds there, and a seed is the same clicks, contexts and events to all of them, so that differences are taken run by run:
most of the spread between runs is the instance's, and it cancels. Intervals are Student's, at 95 %.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from swerve.core.errors import SwerveError, shown, whole
from swerve.core.spec import Spec, field_types
from swerve.environments import RECORDED, workload, world
from swerve.policies import policy
from swerve.simulate import Interrupted, Tick, simulate

#: The policy that ratios are taken to: it is told of every event, and its bandit is the best of ours without contexts.
ORACLE = "oracle-ts"
CONFIDENCE = 0.95

#: What one default setting of a policy has to reach: the largest allowed ratio to the oracle, by workload and fraction.
BARS: dict[tuple[str, float], float] = {
    (name, fraction): bar
    for name, bars in {
        "clear": (1.05, 1.0, 0.95),
        "clear-noisy": (1.15, 1.25, 1.5),
        "mixed": (1.05, 1.1, 1.4),
        "mixed-noisy": (1.15, 2.5, 2.8),
        "low": (1.05, 1.1, 1.3),
        "uniform": (1.05, 1.1, 1.3),
    }.items()
    for fraction, bar in zip((0.0, 0.1, 0.5), bars, strict=True)
}
#: Policies that read no contexts, which it must not lose to where anything shifts: no paired interval above 0.
RIVALS = ("glr-ts", "cusum-klucb", "ts")

Cell = tuple[str, float | None]
Cells = dict[Cell, Spec]
Regrets = NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class Row:
    """One policy in one cell. What one run cannot tell (`sd`, intervals) is None.

    `ratio` is its mean regret ÷ the oracle's. `difference` is the mean regret of the policy `against` − its own: below 0 when the
    policy `against` does better; None in that policy's own row. `rank` counts from 1, the least regret; equal means share one.
    """

    workload: str
    fraction: float | None
    policy: str
    mean: float
    sd: float | None
    runs: int
    seed: int
    ratio: float | None
    ratio_low: float | None
    ratio_high: float | None
    against: str
    difference: float | None
    difference_low: float | None
    difference_high: float | None
    rank: int
    seconds: float

    @property
    def decided(self) -> int:
        """−1 when the whole interval of the difference lies below 0, 1 when it lies above, else 0."""
        if self.difference_low is not None and self.difference_low > 0.0:
            return 1
        return -1 if self.difference_high is not None and self.difference_high < 0.0 else 0

    def as_dict(self) -> dict[str, Any]:
        """The row as JSON has it."""
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class Standing:
    """A policy over all cells. `better`, `worse`: in how many cells the policy `against` was so for certain."""

    policy: str
    ratio: float | None  # geometric mean: a ratio of 2 and one of 1/2 balance
    worst: float | None
    where: str
    rank: float
    better: int
    worse: int


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Who did how well where. `regrets` holds every run's final regret, the oracle's too, for whoever wants other figures."""

    policies: tuple[str, ...]
    against: str
    runs: int
    seed: int
    rows: list[Row]
    regrets: dict[tuple[str, float | None, str], Regrets]

    @property
    def cells(self) -> list[Cell]:
        """Workload and fraction of every cell, in the order of play."""
        return list(dict.fromkeys((row.workload, row.fraction) for row in self.rows))

    def row(self, name: str, fraction: float | None, text: str) -> Row:
        """The row of a policy in a cell."""
        for row in self.rows:
            if (row.workload, row.fraction, row.policy) == (name, fraction, text):
                return row
        raise SwerveError(f"{text} did not play {named(name, fraction, ' at ')}")

    def standings(self) -> list[Standing]:
        """Each policy over all cells, the best mean rank first."""
        out = []
        for name in self.policies:
            own = [row for row in self.rows if row.policy == name]
            rated = [(row.ratio, row) for row in own if row.ratio is not None and row.ratio > 0.0]
            worst, at = max(rated, key=lambda pair: pair[0]) if rated else (None, None)
            mean = math.exp(sum(math.log(ratio) for ratio, _ in rated) / len(rated)) if rated else None
            where = "" if at is None else named(at.workload, at.fraction)
            rank = sum(row.rank for row in own) / len(own) if own else math.nan
            better, worse = (sum(row.decided == sign for row in own) for sign in (-1, 1))
            out.append(Standing(name, mean, worst, where, rank, better, worse))
        return sorted(out, key=lambda standing: standing.rank)


def named(name: str, fraction: float | None, between: str = " ") -> str:
    """A cell in words."""
    return name if fraction is None else f"{name}{between}{fraction:g}"


class Stopped(Exception):  # noqa: N818 - what happened, not what went wrong
    """A comparison was stopped by hand; `comparison` holds the cells that every policy had finished."""

    def __init__(self, comparison: Comparison) -> None:
        super().__init__(f"stopped after {len(comparison.cells)} finished cells")
        self.comparison = comparison


def student_quantile(confidence: float, freedom: int) -> float:
    """How far from 0, both ways, Student's t with this many degrees of freedom stays with probability `confidence`.

    For whole numbers of degrees the probability is a finite sum over θ = arctan(t/√ν) (Abramowitz and Stegun, Handbook of
    Mathematical Functions, 1964, 26.7.3 and 26.7.4); θ is found by bisection.

    >>> round(student_quantile(0.95, 19), 4)
    2.093
    """

    def inside(theta: float) -> float:
        square = math.cos(theta) ** 2
        odd = freedom % 2
        term, total = (math.cos(theta) if odd else 1.0), 0.0
        for step in range(1 + odd, freedom, 2):
            total += term
            term *= square * step / (step + 1)
        if odd:
            return (theta + math.sin(theta) * total) * 2.0 / math.pi
        return math.sin(theta) * total

    low, high = 0.0, math.pi / 2.0
    for _ in range(100):
        middle = (low + high) / 2.0
        low, high = (middle, high) if inside(middle) < confidence else (low, middle)
    return math.sqrt(freedom) * math.tan(low)


def interval(values: Regrets) -> tuple[float, float | None, float | None]:
    """Mean, and the ends of its confidence interval; one value has none."""
    mean = float(values.mean())
    if len(values) < 2:
        return mean, None, None
    half = student_quantile(CONFIDENCE, len(values) - 1) * float(values.std(ddof=1)) / math.sqrt(len(values))
    return mean, mean - half, mean + half


def ratio_of(own: Regrets, reference: Regrets) -> tuple[float | None, float | None, float | None]:
    """The ratio of two paired means and its interval, to first order: that of the mean of (own − ratio · reference), scaled."""
    base = float(reference.mean())
    if base <= 0.0:
        return None, None, None
    ratio = float(own.mean()) / base
    _, low, high = interval((own - ratio * reference) / base)
    return ratio, None if low is None else ratio + low, None if high is None else ratio + high


def sized(name: str, fraction: float | None, queries: int | None, impressions: int | None) -> Spec:
    """A workload by name, perhaps smaller. Fewer queries alone are each as long as before; a workload of one query stays one."""
    problem = workload(name, fraction)
    if queries is not None and impressions is None:
        whole_size, count = getattr(problem, "impressions", None), getattr(problem, "queries", None)
        if whole_size is not None and count is not None:
            impressions = max(queries, round(whole_size * queries / count))
    changes = {"queries": queries, "impressions": impressions}
    known = field_types(type(problem))
    changes = {field: value for field, value in changes.items() if value is not None and field in known}
    return workload(name, fraction, **changes) if changes else problem


def cells_of(
    workloads: Sequence[str], fractions: Sequence[float], queries: int | None = None, impressions: int | None = None
) -> Cells:
    """The environment of every cell, in the order of play; what is wrong with any of them is said here."""
    for kind, given in (("workloads", workloads), ("fractions", fractions)):
        if not given:
            raise SwerveError(f"{kind} = {given!r} is not allowed; there must be at least one")
    for fraction in fractions:
        if not 0.0 <= fraction <= 1.0:
            raise SwerveError(f"fraction = {shown(fraction)} is not allowed; fraction must be in [0, 1]")
    keys: list[Cell] = []
    for name in workloads:
        keys += [(name, None)] if name in RECORDED else [(name, float(part)) for part in fractions]
    return {(name, part): sized(name, part, queries, impressions) for name, part in keys}


def players(policies: Sequence[str]) -> list[str]:
    """Who plays: the policies, each once, and the oracle, which the ratios need."""
    if not policies:
        raise SwerveError("policies = [] is not allowed; there must be at least one")
    for text in policies:
        policy(text)  # a name that nobody knows is refused before anything is played
    return list(dict.fromkeys([*policies, ORACLE]))


def chosen(policies: Sequence[str], against: str | None) -> str:
    """Whose differences are taken: the first policy unless another is named."""
    if against is not None and against not in (*policies, ORACLE):
        raise SwerveError(f"against = {against!r} is not allowed; it must be one of the policies: {', '.join(policies)}")
    return against or policies[0]


def total_rounds(cells: Cells, policies: Sequence[str], runs: int) -> int:
    """How many rounds a comparison plays, for a progress bar."""
    return runs * len(players(policies)) * sum(int(getattr(problem, "impressions", 0)) for problem in cells.values())


def compare(
    policies: Sequence[str],
    workloads: Sequence[str],
    fractions: Sequence[float] = (0.0, 0.1, 0.5),
    *,
    runs: int = 20,
    seed: int = 100,
    against: str | None = None,
    queries: int | None = None,
    impressions: int | None = None,
    threads: int | None = None,
    out: str | Path | None = None,
    progress: Callable[[Tick], None] | None = None,
) -> Comparison:
    """Play every policy in every cell on the seeds `seed`, `seed + 1`, …; the oracle plays too, to take ratios to.

    `against` names the policy whose differences are taken (default: the first). `queries` and `impressions` make all workloads
    smaller. With `out`, finished runs are kept in that folder and read by the next call. Ctrl-C raises `Stopped`, which
    carries the cells that were done.

    >>> found = compare(["ts", "ucb1"], ["clear"], [0.5], runs=2, queries=2, impressions=4000, threads=1)
    >>> [(row.policy, row.runs, row.seed) for row in found.rows]
    [('ts', 2, 100), ('ucb1', 2, 100)]
    """
    whole("runs", runs, 1)
    asked = tuple(dict.fromkeys(policies))
    everyone = players(asked)
    subject = chosen(asked, against)
    found = Comparison(asked, subject, runs, seed, [], {})
    try:
        cells = cells_of(workloads, fractions, queries, impressions)
        tunings = {key: tuning(problem, seed) for key, problem in cells.items()}
        for (name, fraction), problem in cells.items():
            regrets, seconds = {}, {}
            for text in everyone:
                start = time.perf_counter()
                spec = policy(text, **tunings[name, fraction])
                results = simulate(spec, problem, runs=runs, seed=seed, threads=threads, out=out, progress=progress)
                regrets[text], seconds[text] = results.regret, time.perf_counter() - start
            found.regrets.update({(name, fraction, text): values for text, values in regrets.items()})
            found.rows.extend(rows_of(name, fraction, asked, subject, seed, regrets, seconds))
    except (Interrupted, KeyboardInterrupt):
        raise Stopped(found) from None
    return found


def tuning(problem: Spec, seed: int) -> dict[str, int]:
    """What a policy may be tuned to. The first instance is drawn for it, and drawn early: one that cannot be is said at once."""
    first = world(problem, seed)
    return {"arms": first.arms, "horizon": int(first.rounds.max())}


def rows_of(
    name: str,
    fraction: float | None,
    asked: Sequence[str],
    against: str,
    seed: int,
    regrets: dict[str, Regrets],
    seconds: dict[str, float],
) -> list[Row]:
    """The rows of one cell, from every player's regrets in the order of the seeds."""
    out = []
    for text in asked:
        own = regrets[text]
        ratio, ratio_low, ratio_high = ratio_of(own, regrets[ORACLE])
        difference, low, high = (None, None, None) if text == against else interval(regrets[against] - own)
        rank = 1 + sum(float(regrets[other].mean()) < float(own.mean()) for other in asked)
        spread = float(own.std(ddof=1)) if len(own) > 1 else None
        out.append(
            Row(
                name, fraction, text, float(own.mean()), spread, len(own), seed, ratio, ratio_low, ratio_high,
                against, difference, low, high, rank, seconds.get(text, 0.0),
            )
        )  # fmt: skip
    return out


@dataclasses.dataclass(frozen=True)
class Verdict:
    """Whether the policy `against` reaches its bar in a cell (None: there is none), and the rivals that it loses to for certain."""

    workload: str
    fraction: float | None
    ratio: float | None
    bar: float | None
    above: tuple[str, ...]

    @property
    def within(self) -> bool:
        """Whether the ratio is small enough."""
        return self.bar is None or (self.ratio is not None and self.ratio <= self.bar)

    @property
    def holds(self) -> bool:
        """Whether both conditions hold."""
        return self.within and not self.above


def verdicts(comparison: Comparison) -> list[Verdict]:
    """The bars, cell by cell, for the policy `against`. Where nothing shifts, losing to a rival is allowed."""
    subject = comparison.against
    missing = [name for name in (subject, *RIVALS) if name not in comparison.policies]
    if missing:
        raise SwerveError(f"the bars need the policies {', '.join(missing)} too")
    if comparison.runs < 2:
        raise SwerveError(f"runs = {comparison.runs} is not allowed; the bars need intervals, and these at least 2 runs")
    out = []
    for name, fraction in comparison.cells:
        rivals = [comparison.row(name, fraction, rival) for rival in RIVALS if rival != subject]
        above = tuple(row.policy for row in rivals if fraction != 0.0 and row.decided > 0)
        ratio = comparison.row(name, fraction, subject).ratio
        bar = None if fraction is None else BARS.get((name, fraction))
        out.append(Verdict(name, fraction, ratio, bar, above))
    return out
