"""`swerve reproduce`: runs the paper's experiments and shows our figures beside the printed ones."""

from __future__ import annotations

import dataclasses
import shlex
import sys
import time
from pathlib import Path

import click

from swerve.cli import INTERRUPTED
from swerve.cli.common import (
    console,
    errors,
    need_plots,
    number,
    on_option,
    progress_bar,
    seed_option,
    threads_option,
)
from swerve.cli.sheets import Sheet, one_output, table_options, write_forms
from swerve.cli.simulate import REGRET
from swerve.core.errors import SwerveError
from swerve.experiments import EXPERIMENTS, Cell, Experiment, lower_bounds, run_all, total_rounds
from swerve.experiments.analysis import agreements, breakdown
from swerve.simulate import Interrupted
from swerve.simulate.loop import CAUSES

GROUPS = {
    "figure-a": ["figure-a", "figure-a-interleaved"],
    "fractions": ["fractions", "fractions-interleaved"],
    "features": ["features"],
    "lower-bounds": [],
}
#: `--quick` plays a fifth of the queries, each at full length, and shorter horizons half a decade apart.
QUICK_QUERIES, QUICK_RUNS, QUICK_HORIZONS = 20, 2, (10_000, 31_623, 100_000)
#: Runs per setting, as in the paper.
RUNS = 10
#: Fewer impressions leave queries without a round.
FEWEST_IMPRESSIONS = 1000
THOUSAND = 1e3


@click.command("reproduce")
@click.argument("what", type=click.Choice([*GROUPS, "all"]), default="all")
@click.option("--runs", type=click.IntRange(1), default=None, help=f"Number of runs  [default: {RUNS}; {QUICK_RUNS} with --quick]")
@seed_option
@click.option(
    "--impressions", type=click.IntRange(FEWEST_IMPRESSIONS), default=None,
    help="Impressions in all  [default: 3,000,000 as in the paper]",
)  # fmt: skip
@click.option("--quick", is_flag=True, help="A small version with the same shape, in seconds.")
@click.option("--exp3s", "with_exp3s", is_flag=True, help="Also play EXP3.S in figure (a); the paper omits it, far above.")
@threads_option
@on_option
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), default=Path("runs"), show_default=True,
    help="Folder for finished runs; a second call uses them.",
)  # fmt: skip
@click.option("--report", type=click.Path(file_okay=False, path_type=Path), help="Folder for a page with plots (extra `report`).")
@table_options
def command(
    what: str,
    runs: int | None,
    seed: int,
    impressions: int | None,
    quick: bool,
    with_exp3s: bool,
    threads: int | None,
    device: str,
    out: Path,
    report: Path | None,
    csv_to: str | None,
    latex_to: str | None,
    json_to: str | None,
) -> None:
    """Run the paper's experiments and show our figures beside the printed ones.

    figure-a: cumulative regret over time. fractions: table (b). features: table (c). lower-bounds: regret over T on the families of
    Theorems 5 and 6. all: everything. Each finished run is stored in --out: after an interruption, repeat the command to continue.
    """
    one_output(json=json_to, csv=csv_to, latex=latex_to)
    if report is not None:
        need_plots("--report")
    if impressions is not None and what == "lower-bounds":
        raise SwerveError("--impressions is not allowed with lower-bounds; it has its own horizons")
    start = time.perf_counter()
    wanted = [name for group, names in GROUPS.items() for name in names if what in (group, "all")]
    count = runs or (QUICK_RUNS if quick else RUNS)
    experiments = [tuned(EXPERIMENTS[name], with_exp3s) for name in wanted]
    if quick and impressions is None:
        experiments = [experiment.thinned(QUICK_QUERIES) for experiment in experiments]
    experiments = [experiment.scaled(impressions) for experiment in experiments]
    horizons = QUICK_HORIZONS if quick else lower_bounds.HORIZONS
    families = what in ("lower-bounds", "all")
    total = sum(total_rounds(experiment, count) for experiment in experiments)
    if families:
        total += count * sum(horizon for _, horizon, *_ in lower_bounds.jobs(horizons))
    cells: list[Cell] = []
    growths: list[lower_bounds.Growth] = []
    try:
        with progress_bar(what, total) as tick:
            if experiments:
                cells = run_all(experiments, runs=count, seed=seed, threads=threads, device=device, out=out, progress=tick)
            if families:
                growths = lower_bounds.run(
                    runs=count, seed=seed, horizons=horizons, threads=threads, device=device, out=out, progress=tick
                )
    except (Interrupted, KeyboardInterrupt):
        errors.print(f"swerve: interrupted; finished runs are in {out}, repeat the command to continue")
        raise click.exceptions.Exit(INTERRUPTED) from None
    seconds = time.perf_counter() - start
    rows = [cell.as_row() for cell in cells] + [row for growth in growths for row in growth.as_rows()]
    sheets = [sheet for experiment in experiments for sheet in sheets_of(experiment, cells)] + growth_sheets(growths)
    if not write_forms(json_to, csv_to, latex_to, rows, sheets, REGRET):
        show(experiments, cells, growths)
    if report is not None:
        from swerve.experiments import report as writer

        line = shlex.join(["swerve", *sys.argv[1:]])
        page = writer.write(report, cells, growths, command=line, seed=seed, runs=count, seconds=seconds)
        errors.print(f"report: {page}")


def tuned(experiment: Experiment, with_exp3s: bool) -> Experiment:
    """Add EXP3.S to figure (a) if requested."""
    if with_exp3s and "curve" in experiment.tags:
        return dataclasses.replace(experiment, policies={**experiment.policies, "exp3s": "exp3s"})
    return experiment


def sheets_of(experiment: Experiment, cells: list[Cell]) -> list[Sheet]:
    """Return an experiment's tables: its figures beside the printed ones, and where the regret of BWC comes from."""
    own = [cell for cell in cells if cell.experiment == experiment.name]
    lines = [
        [
            f"{cell.setting:g}", cell.policy, f"{number(cell.mean)} ± {number(cell.sd)}", number(cell.error),
            "–" if cell.paper is None else number(cell.paper), "–" if cell.ratio is None else f"{cell.ratio:.2f}",
        ]
        for cell in own
    ]  # fmt: skip
    out = [Sheet(experiment.title, (experiment.axis, "policy", "regret ± sd", "se", "paper", "ratio"), lines)]
    rows = breakdown(own)
    if len(rows) > 1:
        heads = (experiment.axis, "regret", *[cause.replace("_", " ") for cause in CAUSES])
        parts = [
            [f"{row.setting:g}", f"{row.regret / THOUSAND:.1f}", *[f"{row.causes[cause] / THOUSAND:.1f}" for cause in CAUSES]]
            for row in rows
        ]
        out.append(Sheet("where BWC's regret comes from (thousands)", heads, parts))
    return out


def growth_sheets(growths: list[lower_bounds.Growth]) -> list[Sheet]:
    """Return the table of the lower bounds, if they were played."""
    if not growths:
        return []
    lines = [[g.family, g.policy, *[number(mean) for mean in g.means], f"{g.exponent:.2f}"] for g in growths]
    heads = ("family", "policy", *[f"{h:,}" for h in growths[0].horizons], "exponent")
    return [Sheet("regret of the worst instance over T", heads, lines)]


def show(experiments: list[Experiment], cells: list[Cell], growths: list[lower_bounds.Growth]) -> None:
    """Print the tables in the terminal."""
    for experiment in experiments:
        for sheet in sheets_of(experiment, cells):
            console.print(sheet.as_figures())
    for claim in agreements(cells):
        mark = "[green]holds[/green]" if claim.holds else "[red]does not hold[/red]"
        console.print(f"{mark}  {claim.claim}  [dim]({claim.detail})[/dim]")
    for sheet in growth_sheets(growths):
        console.print(sheet.as_figures())
