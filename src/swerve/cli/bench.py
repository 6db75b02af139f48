"""`swerve bench`: measures speed and size."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from swerve.bench import Row, run_kernels
from swerve.cli.common import console, errors, figures, json_option, need_service, number, write_json

#: Column of a benchmark's table that names the reference.
REFERENCE = 3


@contextlib.contextmanager
def spinner(first: str) -> Iterator[Callable[[str], None]]:
    """Show what is measured now, and for how long the run has lasted; yield the function that says so."""
    columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as bars:
        task = bars.add_task(first, total=None)
        yield lambda what: bars.update(task, description=what)


@click.group("bench")
def command() -> None:
    """Measure how fast and how small Swerve is, beside references timed in the same run."""


@command.command("kernels")
@click.option("--quick", is_flag=True, help="Fewer repetitions: under 45 seconds.")
@json_option
def kernels(quick: bool, json_to: str | None) -> None:
    """Measure the kernels beside a plain C loop, SciPy and other libraries: interleaved, median of several repetitions.

    A ratio below 1 means faster or smaller than the reference. For the Python calls the ratio is decisions per second over those
    of the fastest peer.
    """
    with spinner("benchmark") as progress:
        rows = run_kernels(quick=quick, progress=progress)
    report("kernels", rows, json_to)


@command.command("signals")
@click.option("--quick", is_flag=True, help="Fewer queries and weeks: a first look.")
@click.option(
    "--data", type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder of recorded series, instead of the variable SWERVE_DATA.",
)  # fmt: skip
@json_option
def signals(quick: bool, data: Path | None, json_to: str | None) -> None:
    """Measure the signals: false alarms, bursts found, delay, alarms per burst, the effect on a policy, cost and size.

    Traffic is synthetic and seeded, at 1 to 1,000 requests an hour; with --data, also real series with labelled bursts.
    """
    from swerve.bench.signals import measure

    with spinner("signals") as progress:
        lines = measure(quick, data, progress)
    if write_json(json_to, [line.as_dict() for line in lines]):
        return
    for columns in dict.fromkeys(line.columns for line in lines):
        table = figures("signals", "what", *columns, "", "note")
        for line in lines:
            if line.columns == columns:
                table.add_row(line.name, *(number(value) for value in line.values), line.unit, line.note)
        console.print(table)


@command.command("service")
@click.option("--quick", is_flag=True, help="Fewer queries, shorter turns, no large store: about a minute.")
@click.option("--seconds", type=click.FloatRange(0, min_open=True), help="Length of one turn.  [default: 3; quick: 1]")
@click.option("--queries", type=click.IntRange(1), help="Number of different queries.  [default: 100000; quick: 20000]")
@click.option("--rounds", type=click.IntRange(1), help="Turns of each server.  [default: 9; quick: 3]")
@click.option(
    "--store",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Folder for the stores of the run.  [default: the folder for temporary files]",
)
@json_option
def service(
    quick: bool, seconds: float | None, queries: int | None, rounds: int | None, store: Path | None, json_to: str | None
) -> None:
    """Measure the HTTP service beside an echo server of the same stack and payload, in turns, under load from a separate process.

    Higher is better for requests and decisions per second, lower for latency, memory, disk and restart. The whole run also fills a
    store with a million queries, which takes some minutes and about 4 GB of disk.
    """
    need_service("swerve bench service")
    from swerve.bench.service import run_service

    with spinner("service") as progress:
        rows = run_service(
            quick=quick, seconds=seconds, queries=queries, rounds=rounds, store=store,
            progress=progress,
        )  # fmt: skip
    report("service", rows, json_to)


@command.command("proxy")
@click.option("--quick", is_flag=True, help="Shorter turns and fewer of them: about a minute.")
@click.option("--seconds", type=click.FloatRange(0, min_open=True), help="Length of one turn.  [default: 3; quick: 1]")
@click.option("--rounds", type=click.IntRange(1), help="Turns of each server.  [default: 9; quick: 3]")
@json_option
def proxy(quick: bool, seconds: float | None, rounds: int | None, json_to: str | None) -> None:
    """Measure what the proxy adds to an engine's answers, and how many it passes on, beside a stub of an engine alone, in turns.

    Higher is better for requests per second, lower for latency, which is what the proxy adds to the stub's own.
    """
    need_service("swerve bench proxy")
    from swerve.bench.proxy import run_proxy

    with spinner("proxy") as progress:
        rows = run_proxy(quick=quick, seconds=seconds, rounds=rounds, progress=progress)
    report("proxy", rows, json_to)


def report(title: str, rows: list[Row], json_to: str | None) -> None:
    """Print a benchmark's rows as a table or as JSON; exit with status 1 if a bar in the table is missed."""
    data: list[dict[str, Any]] = [row.as_dict() for row in rows]
    if write_json(json_to, data):
        return
    table = figures(title, "what", "value", "ratio", "to", "bar", "")
    table.columns[0].no_wrap = True  # people copy the names
    table.columns[REFERENCE].no_wrap = False
    for row in data:
        verdict = {True: "[green]ok[/green]", False: "[red]missed[/red]", None: ""}[row["ok"]]
        value = "–" if row["value"] is None else f"{number(float(row['value']))} {row['unit']}"
        ratio = "–" if row["ratio"] is None else f"{row['ratio']:.2f}"
        table.add_row(row["name"], value, ratio, row["reference"], " ".join(row["bar"].split()[:2]), verdict)
    console.print(table)
    for row in data:
        if row["note"]:
            console.print(f"[dim]{row['name']}: {row['note']}[/dim]")
    if any(row["ok"] is False for row in data):
        raise click.exceptions.Exit(1)
