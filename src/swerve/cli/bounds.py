"""`swerve bounds`: the paper's bounds for a problem, and BWC's measured regret on it."""

from __future__ import annotations

import functools
import math
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from swerve import theory
from swerve.bandits import UCB1, Testable
from swerve.classifiers import Hull, Learner, Rectangle
from swerve.cli.common import (
    console,
    figures,
    json_option,
    number,
    progress_bar,
    runs_option,
    seed_option,
    threads_option,
    write_json,
)
from swerve.core.errors import SwerveError
from swerve.core.spec import Gap, Positive, Probability, coerced
from swerve.environments import Traffic
from swerve.policies import BWC
from swerve.simulate import Results, simulate

#: Most arms or features of a record.
MOST = 64
#: Least value of a feature at an event; the box of quiet contexts ends one margin below.
INSIDE = 0.9
#: Click probabilities are drawn from 0 to 0.8: with a larger minimum shift, valid instances are too rare to draw.
LARGEST_SHIFT = 0.75
#: Theorem 5 holds for ε < 1/2 and Theorem 6 (i) for ε < 1/4: larger shifts are evaluated just below the limit.
THEOREM5_SHIFT, THEOREM6_SHIFT = 0.49, 0.249
#: Theorem 2 holds from 2t = 32 on.
THEOREM2_BEGINS = 32
#: Theorem 6 (i) needs three arms.
THEOREM6_ARMS = 3
#: Points of the sphere that the greedy adversary may ask about, and its restarts: enough in up to three dimensions, in a second.
SPHERE_POINTS, TRIES = 200, 4
#: Beyond three features the points no longer cover the sphere.
HULL_FEATURES = 3


@click.command("bounds")
@click.option("--arms", "n", type=click.IntRange(2, MOST), default=5, show_default=True, help="n: results per query.")
@click.option("--horizon", type=click.IntRange(2), default=300_000, show_default=True, help="T: rounds.")
@click.option("--events", "k", type=click.IntRange(0), default=5, show_default=True, help="k: events.")
@click.option("--shift", type=float, default=0.3, show_default=True, help="ε_S: minimum shift of an event.")
@click.option("--gap", type=float, default=0.1, show_default=True, help="Δ: minimum suboptimality of a result.")
@click.option("--features", "d", type=click.IntRange(1, MOST), default=2, show_default=True, help="d: features of a context.")
@click.option("--margin", type=float, default=0.1, show_default=True, help="δ: margin of the concept class.")
@click.option("--factor", "c", type=float, default=4.0, show_default=True, help="c in L = c·n/ε²·ln T.")
@click.option(
    "--failure", type=float, default=0.0, show_default=True,
    help="Probability that some test of the run fails; at c = 4, none of 10,000 tests was measured to fail.",
)  # fmt: skip
@click.option("--measure/--no-measure", default=True, help="Play BWC under the assumptions of Theorem 1 too.  [default: measure]")
@runs_option
@seed_option
@threads_option
@json_option
def command(
    n: int, horizon: int, k: int, shift: float, gap: float, d: int, margin: float, c: float, failure: float,
    measure: bool, runs: int, seed: int, threads: int | None, json_to: str | None,
) -> None:  # fmt: skip
    """Compute the bounds of Theorems 1 to 6 for one query, and BWC's measured regret ÷ bound.

    The measurement draws instances that satisfy Theorem 1's assumptions (one query with its own classifier, k events at least
    2L apart, minimum shift ε_S) and compares each run with the bound for that run's own Δ.
    """
    for name, kind, value in (
        ("shift", Gap, shift), ("gap", Gap, gap), ("margin", Positive, margin), ("factor", Positive, c),
        ("failure", Probability, failure),
    ):  # fmt: skip
        coerced("bounds", name, kind, value)
    length = theory.test_length(n, shift, horizon, c)
    if measure:
        check_measurable(horizon, k, shift, margin, length)
    rectangle = theory.rectangle_diameter(d, margin)

    def r0(t: float, own_gap: float = gap) -> float:
        return theory.ucb1_regret(t, n, own_gap)

    theorem1 = theory.theorem1(horizon, k, rectangle, length, r0, failure)
    printed = theory.theorem1_printed(horizon, k, rectangle, length, r0)
    theorem4 = theory.theorem4(horizon, n, k, shift, gap, rectangle)
    rows: list[dict[str, Any]] = [
        {"name": name, "value": value, "about": about}
        for name, value, about in (
            ("L", length, f"test length, {c:g}·n/ε²·ln T"),
            ("L of the proof", theory.proof_length(n, shift, horizon), "with the constants that Theorem 3 implies"),
            ("d_F rectangles", rectangle, "diameter of APR(d, δ), exact: 1 + d·⌊2/δ⌋"),
            ("FP-complexity, rectangles", forced_alarms(d, margin), "false positives that an adversary forces on Rectangle"),
            ("d_F hyperplanes", theory.hyperplane_bound(d, margin), "at most (1 + 1/δ)^d"),
            ("R0(T)", r0(horizon), "event-free regret of UCB1"),
            ("Theorem 1", theorem1, "BWC with rectangles, corrected bound"),
            ("Theorem 1, printed", printed, "as in the paper"),
            ("Theorem 4", theorem4, "constant C = 19, see docs/theory.md"),
            ("Theorem 5", theory.theorem5(horizon, min(shift, THEOREM5_SHIFT)), "at least, without contexts, one event"),
            *gap_rows(horizon, n, gap),
            *event_rows(horizon, n, k, shift),
            ("Theorem 6 (ii)", theory.theorem6_diameter(horizon, rectangle), "at least, with contexts, one event"),
        )
    ]
    if measure:
        rows += hull_alarms(d, margin) + measured(n, horizon, k, shift, d, margin, length, failure, runs, seed, threads)
    if write_json(json_to, rows):
        return
    table = figures(f"n = {n}, T = {horizon:,}, k = {k}, ε_S = {shift:g}, Δ = {gap:g}, d = {d}, δ = {margin:g}", "what", "value")
    table.add_column("meaning", style="dim")
    for row in rows:
        table.add_row(row["name"], number(float(row["value"])), row["about"])
    console.print(table)
    if 2 * length * (k + 1) > horizon:
        console.print(f"[yellow]k events 2L = {2 * length:,} apart do not fit into T: the theorems do not apply.[/yellow]")


def check_measurable(horizon: int, k: int, shift: float, margin: float, length: int) -> None:
    """Refuse settings that the measurement cannot draw, by the names of the options."""
    if 2 * length * (k + 1) > horizon:
        raise SwerveError(
            f"horizon = {horizon} is not allowed; {k} events at least 2L = {2 * length} rounds apart need a horizon ≥ "
            f"{2 * length * (k + 1)} (or use --no-measure)"
        )
    for name, value, most in (("margin", margin, INSIDE), ("shift", shift, LARGEST_SHIFT)):
        if value > most:
            raise SwerveError(f"{name} = {value:g} is not allowed; {name} must be ≤ {most:g} to be measured (or use --no-measure)")


def gap_rows(horizon: int, n: int, gap: float) -> list[tuple[str, float, str]]:
    """Return Theorem 2 at t = T: the interval for Δ if its estimate equals Δ."""
    if 2 * horizon < THEOREM2_BEGINS:
        return []
    resolution = theory.resolution(horizon, n, horizon)
    low, high = theory.gap_interval(gap, resolution)
    about = f"Theorem 2 at t = T, estimate Δ_t = Δ, δ(T) = {number(resolution)}"
    return [("Δ(u) at least", low, about), ("Δ(u) at most", high, about)]


def event_rows(horizon: int, n: int, k: int, shift: float) -> list[tuple[str, float, str]]:
    """Return Theorem 6 (i), which needs three arms or more, one event or more, and ε below 1/4."""
    if n < THEOREM6_ARMS or not 1 <= k <= horizon:
        return []
    epsilon = min(shift, THEOREM6_SHIFT)
    value = theory.theorem6_events(horizon, n, k, epsilon)
    return [("Theorem 6 (i)", value, f"at least, known events; shape k·n/ε·ln(T/k), C = 1, ε = {epsilon:g}")]


def hull_alarms(d: int, margin: float) -> list[dict[str, Any]]:
    """Count the false positives that a greedy adversary forces on the real hull classifier, with up to three features.

    The truth is a hyperplane of the class that cuts off a cap of height 2δ: without a truth, the adversary would ask `Hull` about
    contexts that none of its concepts allows.
    """
    if d > HULL_FEATURES:
        return []

    def concept(x: NDArray[np.float64]) -> int | None:
        height = float(x[0]) - (1.0 - margin)
        return -1 if height <= -margin else (1 if height >= margin else None)

    hull = Learner(Hull(margin=margin), d)
    score = theory.play(hull, theory.greedy(hull, theory.sphere(d, SPHERE_POINTS), concept, tries=TRIES), concept)
    about = "false positives of Hull against a greedy adversary on the sphere"
    return [{"name": "FP-complexity, hyperplanes", "value": score.false_positives, "about": f"at least; {about}"}]


def forced_alarms(d: int, margin: float) -> int:
    """Count the false positives that the best adversary against rectangles forces on the real classifier."""
    box = Learner(Rectangle(margin=margin), d)
    return theory.play(box, theory.staircase(d, margin), theory.quiet).false_positives


def measured(
    n: int, horizon: int, k: int, shift: float, d: int, margin: float, length: int, failure: float,
    runs: int, seed: int, threads: int | None,
) -> list[dict[str, Any]]:  # fmt: skip
    """Measure BWC's regret on instances that satisfy the theorem's assumptions, beside each instance's own bound."""
    environment = Traffic(
        queries=1, impressions=horizon, results=n, shifting_share=1.0, events_low=k, events_high=k, minimum_shift=shift,
        minimum_event_distance=2 * length, features=d, margin=margin, edge_low=INSIDE - margin, edge_high=INSIDE - margin,
    )  # fmt: skip
    policy = BWC(Testable(UCB1(), length=length, epsilon=shift), Rectangle(margin=margin))
    with progress_bar("BWC", runs * horizon) as tick:
        results: Results = simulate(policy, environment, runs=runs, seed=seed, threads=threads, progress=tick)
    diameter = theory.rectangle_diameter(d, margin)
    ratios = []
    for run in results.runs:
        own = float(run.facts["gap"])
        bound = theory.theorem1(horizon, k, diameter, length, functools.partial(theory.ucb1_regret, n=n, gap=own), failure)
        ratios.append(run.regret[-1] / bound)
    counters = results.summary()["counters"]
    spread = float(np.std(results.regret, ddof=1)) if len(results.runs) > 1 else math.nan
    return [
        {
            "name": "measured regret",
            "value": float(results.regret.mean()),
            "about": f"BWC, mean of {runs} runs, sd {number(spread)}" if runs > 1 else "BWC, 1 run",
        },
        {
            "name": "measured ÷ Theorem 1",
            "value": float(np.mean(ratios)),
            "about": f"each with its own Δ; the largest {max(ratios):.2g}",
        },
        {"name": "false alarms", "value": counters["false_alarms"], "about": f"at most d_F = {diameter}"},
        {"name": "missed events", "value": counters["misses"], "about": "a safe classifier misses none"},
    ]
