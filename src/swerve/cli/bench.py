"""`swerve bench`: how fast, how small."""

from __future__ import annotations

from typing import Any

import click
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from swerve.bench import run_kernels
from swerve.cli.common import console, errors, figures, json_option, number, write_json


@click.group("bench")
def command() -> None:
    """How fast and how small Swerve is, beside references timed in the same run."""


@command.command("kernels")
@click.option("--quick", is_flag=True, help="Fewer repetitions: under 45 seconds.")
@json_option
def kernels(quick: bool, json_to: str | None) -> None:
    """The kernels beside a plain C loop, SciPy and other libraries, interleaved, median of several.

    A ratio below 1 is faster or smaller than the reference; for the Python calls it is decisions per second over the fastest
    peer's.
    """
    with Progress(
        SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn(),
        console=errors, transient=True, disable=not errors.is_terminal,
    ) as bars:  # fmt: skip
        task = bars.add_task("benchmark", total=None)
        rows = run_kernels(quick=quick, progress=lambda what: bars.update(task, description=what))
    data: list[dict[str, Any]] = [row.as_dict() for row in rows]
    if write_json(json_to, data):
        return
    table = figures("kernels", "what", "value", "ratio", "to", "bar", "")
    table.columns[0].no_wrap = True  # names that one copies
    table.columns[3].no_wrap = False
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
