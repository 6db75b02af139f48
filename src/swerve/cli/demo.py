"""`swerve demo`: Swerve, the paper's BWC, those who are told and one who notices nothing, head to head."""

from __future__ import annotations

import click
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from swerve.cli.common import console, figures, json_option, number, runs_option, seed_option, write_json
from swerve.cli.simulate import draw, need_plotext, row, table
from swerve.demo.head_to_head import Standing, head_to_head
from swerve.environments import Traffic
from swerve.policies import policy

#: In the order of the table: ours, who is told over the same sampling, and the paper's three.
PLAYERS = ("swerve", "oracle-ts", "ora", "bwc", "ucb1")


def live_table(standings: list[Standing]) -> Table:
    """The standings as they are now."""
    out = figures(
        "100 queries, a quarter of them shifting: who keeps the right result on top?", "policy", "progress", "regret so far"
    )
    for standing in standings:
        bar = ProgressBar(total=standing.total, completed=standing.done, width=30)
        out.add_row(standing.name, bar, number(standing.mean))
    return out


@click.command("demo")
@runs_option
@seed_option
@json_option
def command(runs: int, seed: int, json_to: str | None) -> None:
    """Swerve and BWC (both learn to notice), two that are told of every event, and UCB1 (notices nothing) on the same traffic.

    swerve is Swerve's own policy, oracle-ts Thompson sampling that is told; bwc is the paper's algorithm, ora UCB1 that is told.
    100 queries, 3 million impressions, 5 results each; a quarter of the queries shift 1 to 10 times. A live table, then the
    figures and a plot.
    """
    if json_to != "-":
        need_plotext("the demo's plot")
    environment = Traffic(shifting=0.25)
    policies = {name: policy(name, arms=environment.results, horizon=environment.rounds_per_query) for name in PLAYERS}
    with Live(console=console, transient=True, refresh_per_second=10) as live:
        ended = head_to_head(
            policies, environment, rounds=environment.impressions, runs=runs, seed=seed,
            look=lambda standings: live.update(live_table(standings)),
        )  # fmt: skip
    results = {standing.name: standing.results for standing in ended if standing.results is not None}
    rows = [row(standing.name, results[standing.name], standing.seconds, False) for standing in ended]
    if write_json(json_to, rows):
        return
    console.print(table(rows, "a quarter of the queries shifting", runs))
    draw(results)
    swerve, told, ora, bwc, ucb1 = (float(results[name].regret.mean()) for name in PLAYERS)
    console.print(
        f"Of the {number(ucb1 - ora)} clicks that UCB1 loses to not knowing of the shifts, BWC wins back {number(ucb1 - bwc)} "
        f"({(ucb1 - bwc) / (ucb1 - ora):.0%}), with no labels."
    )
    console.print(
        f"Swerve loses {number(swerve)} in all, {swerve / told:.2f} × what Thompson sampling loses that is told of every shift."
    )
