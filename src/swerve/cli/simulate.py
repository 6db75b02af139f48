"""`swerve simulate`: plays policies in an environment and reports their regret."""

from __future__ import annotations

import importlib.util
import time
from pathlib import Path
from typing import Any

import click

from swerve.cli import INTERRUPTED
from swerve.cli.common import (
    console,
    errors,
    load_option,
    number,
    on_option,
    progress_bar,
    regret_plot_option,
    runs_option,
    seed_option,
    threads_option,
)
from swerve.cli.sheets import Sheet, one_output, table_options, write_forms
from swerve.core.errors import SwerveError
from swerve.environments import environment
from swerve.experiments.compare_pages import page_tuning
from swerve.policies import policy
from swerve.simulate import Interrupted, Results, Worlds, simulate

#: Characters of a plot in the terminal: wider ones are hard to read.
PLOT_WIDTH, PLOT_HEIGHT = 110, 24
#: The note below a table in LaTeX.
REGRET = "Regret is in lost clicks."


@click.command("simulate", no_args_is_help=True)
@click.argument("policies", nargs=-1, required=True, metavar="POLICY…")
@click.option(
    "--environment", "-e", "where", default="traffic", show_default=True, help="Environment, e.g. 'traffic(shifting_share=0.5)'."
)
@runs_option
@seed_option
@click.option(
    "--pooling",
    default="shared",
    show_default=True,
    help="Which queries share what they learn: shared, query, or a number of groups.",
)
@click.option("--points", type=click.IntRange(1), default=100, show_default=True, help="Checkpoints of the regret curve.")
@click.option(
    "--spacing", type=click.Choice(["linear", "log"]), default="linear", show_default=True, help="Spacing of the checkpoints."
)
@threads_option
@on_option
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), help="Folder for one Parquet file per run; finished runs are reused."
)
@click.option("--curves", is_flag=True, help="Put the regret curves into the JSON.")
@click.option("--plot", is_flag=True, help="Draw the regret curves in the terminal (extra `demo`).")
@regret_plot_option
@load_option
@table_options
def command(
    policies: tuple[str, ...],
    where: str,
    runs: int,
    seed: int,
    pooling: str,
    points: int,
    spacing: str,
    threads: int | None,
    device: str,
    out: Path | None,
    curves: bool,
    plot: bool,
    regret_plot: Path | None,
    csv_to: str | None,
    latex_to: str | None,
    json_to: str | None,
) -> None:
    """Play each POLICY in RUNS instances of the environment, drawn with the seeds SEED, SEED + 1, …

    A policy is a name (see `swerve list`), optionally with parameters in brackets: bwc, 'bwc(length=500)',
    'Oracle(Thompson())'. Every policy meets the same clicks, contexts and events.
    """
    if curves and json_to is None:
        raise SwerveError("--curves is not allowed without --json: the curves go into the JSON")
    one_output(plot=plot, json=json_to, csv=csv_to, latex=latex_to)
    if plot:
        need_plotext("--plot")
    problem = environment(where)
    worlds = Worlds(problem)
    first = worlds[seed]
    facts = {"arms": first.arms, "horizon": int(first.rounds.max()), **page_tuning(problem)}
    specs = {name: policy(name, **facts) for name in dict.fromkeys(policies)}
    done: dict[str, tuple[Results, float]] = {}
    stopped = False
    for name, spec in specs.items():
        start = time.perf_counter()
        try:
            with progress_bar(name, runs * len(first.schedule)) as tick:
                results = simulate(
                    spec, problem, runs=runs, seed=seed, pooling=pooling, points=points, spacing=spacing, threads=threads,
                    out=out, progress=tick, worlds=worlds, device=device,
                )  # fmt: skip
        except Interrupted as interruption:
            stopped = True
            results = interruption.results
        if results.runs:
            done[name] = (results, time.perf_counter() - start)
        if stopped:
            break
    rows = [row(name, results, seconds, curves) for name, (results, seconds) in done.items()]
    sheets = [sheet(rows, where, runs)] if rows else []
    if not write_forms(json_to, csv_to, latex_to, rows, sheets, REGRET) and rows:
        console.print(sheets[0].as_figures())
        if plot:
            draw({name: results for name, (results, _) in done.items()})
    if regret_plot is not None and done:
        from swerve.experiments import regret_plots

        regret_plots.write({where: {name: (results.rounds, results.curves) for name, (results, _) in done.items()}}, regret_plot)
    if stopped:
        kept = f"; finished runs are in {out}" if out else ""
        errors.print(f"swerve: interrupted after {sum(len(r.runs) for r, _ in done.values())} finished runs{kept}")
        raise click.exceptions.Exit(INTERRUPTED)


def row(name: str, results: Results, seconds: float, curves: bool) -> dict[str, Any]:
    """Return one policy's figures."""
    out = {"name": name, **results.summary(), "seconds": seconds}
    if curves:
        out["rounds"] = results.rounds.tolist()
        out["curves"] = results.curves.tolist()
    return out


def spans(seeds: list[int]) -> str:
    """Describe seeds in words.

    >>> spans([3]), spans([0, 1, 2, 5])
    ('1 run, seed 3', 'mean of 4 runs, seeds 0–2, 5')
    """
    parts: list[list[int]] = []
    for seed in sorted(seeds):
        if parts and seed == parts[-1][-1] + 1:
            parts[-1].append(seed)
        else:
            parts.append([seed])
    listed = ", ".join(str(part[0]) if len(part) == 1 else f"{part[0]}–{part[-1]}" for part in parts)
    return f"1 run, seed {listed}" if len(seeds) == 1 else f"mean of {len(seeds)} runs, seeds {listed}"


def title(rows: list[dict[str, Any]], where: str, runs: int) -> str:
    """Return the table's title with the finished runs, by policy if they differ."""
    said = {line["name"]: spans(line["seeds"]) for line in rows}
    if all(len(line["seeds"]) == runs for line in rows):
        return f"{where}: {next(iter(said.values()))}"
    return f"{where}, interrupted ({runs} wanted): " + "; ".join(f"{name} {words}" for name, words in said.items())


def sheet(rows: list[dict[str, Any]], where: str, runs: int) -> Sheet:
    """Return the figures as a table: mean ± standard deviation, and counters as means over runs."""
    lines = []
    for line in sorted(rows, key=lambda r: float(r["mean"])):
        c = line["counters"]
        asked = c["consulted"] > 0
        lines.append([
            line["name"], f"{number(line['mean'])} ± {number(line['sd'])}", f"{c['clicks'] / c['rounds']:.4f}", number(c["events"]),
            f"{number(c['true_alarms'])}/{number(c['false_alarms'])}" if asked else "–", number(c["misses"]) if asked else "–",
            number(c["wrong_false_labels"] + c["wrong_true_labels"]) if asked else "–", number(c["restarts"]),
            f"{line['seconds']:.1f}",
        ])  # fmt: skip
    heads = ("policy", "regret ± sd", "clicks\n/round", "events", "alarms\ntrue/false", "missed", "wrong\nlabels", "restarts", "s")
    return Sheet(title(rows, where, runs), heads, lines)


def need_plotext(what: str) -> None:
    """Refuse a plot if plotext is missing."""
    if importlib.util.find_spec("plotext") is None:
        raise SwerveError(f"{what} needs the package plotext; install Swerve with its extra `demo`")


def draw(results: dict[str, Results]) -> None:
    """Draw the mean regret over rounds in the terminal."""
    import plotext

    plotext.clear_figure()
    colours = ["green", "blue", "red", "magenta", "cyan", "orange"]  # repeated beyond six policies
    for index, (name, result) in enumerate(results.items()):
        curve = [0.0, *result.curves.mean(axis=0).tolist()]
        plotext.plot([0, *result.rounds.tolist()], curve, label=name, marker="braille", color=colours[index % len(colours)])
    plotext.title("cumulative regret")
    plotext.xlabel("round")
    plotext.theme("clear")
    plotext.plotsize(min(console.width, PLOT_WIDTH), PLOT_HEIGHT)
    text = plotext.build()
    click.echo(text if console.is_terminal else plotext.uncolorize(text))
