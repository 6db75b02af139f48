"""What the commands share: JSON beside every table, a progress bar, numbers for people."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from swerve.core.errors import SwerveError
from swerve.simulate import Tick

console = Console()
errors = Console(stderr=True)

json_option = click.option(
    "--json",
    "json_to",
    is_flag=False,
    flag_value="-",
    metavar="[FILE]",
    help="Write the figures as JSON to FILE, or to standard output in place of the table.",
)
seed_option = click.option("--seed", default=0, show_default=True, help="Seed of the first run; run i uses seed + i.")
runs_option = click.option("--runs", type=click.IntRange(1), default=10, show_default=True, help="Number of runs.")
threads_option = click.option("--threads", type=click.IntRange(1), default=None, help="Threads over runs  [default: all cores]")


def load_files(ctx: click.Context, _: click.Parameter, files: tuple[Path, ...]) -> tuple[Path, ...]:
    """Import a user's own bandits, classifiers and environments, so that they can be named like ours."""
    for path in files:
        found = importlib.util.spec_from_file_location(path.stem, path)
        if found is None or found.loader is None:
            raise SwerveError(f"--load {path} is not allowed; it must be a Python file")
        module = importlib.util.module_from_spec(found)
        sys.modules[path.stem] = module
        found.loader.exec_module(module)
    return files


load_option = click.option(
    "--load",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    callback=load_files,
    expose_value=False,
    is_eager=True,
    help="A Python file with bandits, classifiers or environments of your own (docs/extending.md).",
)


def plain(value: Any) -> Any:
    """`value` for JSON: numbers that JSON does not know become null."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value.item() if hasattr(value, "item") else value


def write_json(target: str | None, data: Any) -> bool:
    """Write `data` where `--json` points; True when it took the table's place on standard output."""
    if target is None:
        return False
    text = json.dumps(plain(data), indent=2, ensure_ascii=False, allow_nan=False)
    if target == "-":
        click.echo(text)
        return True
    Path(target).write_text(text + "\n", encoding="utf-8")
    return False


def number(value: float) -> str:
    """A number for a table: about three significant digits, thousands set apart."""
    if not math.isfinite(value):
        return "–"
    if value == int(value) or abs(value) >= 99.95:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) < 10 else f"{value:.1f}"


def figures(title: str, *headings: str) -> Table:
    """An empty table of figures: names on the left, numbers right-aligned and never cut."""
    out = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=0, title_style="bold")
    out.add_column(headings[0], overflow="fold")
    for heading in headings[1:]:
        out.add_column(heading, justify="right", no_wrap=True)
    return out


class Rate(ProgressColumn):
    """Rounds per second."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed / 1e6:.1f}M rounds/s", style="cyan")


@contextlib.contextmanager
def progress_bar(what: str, total: int) -> Iterator[Callable[[Tick], None]]:
    """A bar on standard error with rate and time left; silent when nobody looks (a pipe, a log)."""
    with Progress(
        SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), Rate(), TimeElapsedColumn(), TimeRemainingColumn(),
        console=errors, transient=True, disable=not sys.stderr.isatty(),
    ) as bars:  # fmt: skip
        task = bars.add_task(what, total=total)
        yield lambda tick: bars.advance(task, tick.rounds)
