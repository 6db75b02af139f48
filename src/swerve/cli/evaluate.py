"""`swerve evaluate`: what search logs say about shifts, and about what another ranking would have brought."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from swerve.cli.common import console, errors, figures, json_option, write_json
from swerve.core.errors import SwerveError

#: Positions that the table shows; JSON has all.
POSITIONS = 10


@click.command()
@click.argument("logs", metavar="LOG…", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--format", "form", help="Format of the logs: swerve, ubi, dsjson, open-bandit or plain.  [default: by the first lines]"
)
@click.option(
    "--map", "columns", multiple=True, metavar="FIELD=COLUMN", help="Where a field lies, e.g. query=term,shown=hits; repeatable."
)
@json_option
def command(logs: tuple[Path, ...], form: str | None, columns: tuple[str, ...], json_to: str | None) -> None:
    """Read search logs and say what they hold (docs/evaluate.md).

    Each LOG is a recording of Swerve, UBI 1.3.0 (queries and events), Vowpal Wabbit dsjson, Open Bandit CSV, or a plain log as JSON
    lines, CSV or Parquet. Files are read as streams. Nothing is dropped silently: lines that cannot be read are counted by reason.
    """
    need_reading()
    from swerve.evaluate.readers import common_format, read
    from swerve.evaluate.tally import Tally

    tally = Tally()
    form = form or common_format(logs)
    with Progress(
        TextColumn("reading"), BarColumn(), DownloadColumn(), TimeRemainingColumn(),
        console=errors, transient=True, disable=not errors.is_terminal,
    ) as bars:  # fmt: skip
        task = bars.add_task("reading", total=sum(path.stat().st_size for path in logs))
        for _ in read(logs, form, columns, tally=tally, progress=lambda done: bars.update(task, completed=done)):
            pass
    facts = {"format": form, "read": tally.facts()}
    if not write_json(json_to, facts):
        print_read(form, tally.facts())
    refuse_empty(logs, form, tally.facts())


def need_reading() -> None:
    """Refuse if msgspec is missing."""
    try:
        import msgspec  # noqa: F401
    except ImportError:
        raise SwerveError("swerve evaluate needs the package msgspec; install Swerve with its extra `service`") from None


def refuse_empty(logs: tuple[Path, ...], form: str, read: dict[str, Any]) -> None:
    """Refuse logs without a single list, after saying what was dropped."""
    if read["lists"] == 0:
        names = ", ".join(map(str, logs))
        raise SwerveError(f"no list was read from {names} as {form}; see --format and --map")


def instant(at: float | None) -> str:
    """Return a time as text, in UTC.

    >>> instant(0.0), instant(None)
    ('1970-01-01 00:00', '–')
    """
    return "–" if at is None else datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M")


def print_read(form: str, read: dict[str, Any]) -> None:
    """Print what was read and what was dropped."""
    least = "at least " if read["queries_at_least"] else ""
    console.print(
        f"[bold]Read[/bold] as {form}: {read['lines']:,} lines; {read['lists']:,} lists of {least}{read['queries']:,} queries, "
        f"{read['clicks']:,} clicks, {instant(read['first'])} to {instant(read['last'])} UTC; "
        f"{read['lists_with_propensities']:,} lists with propensities",
        soft_wrap=True,
        highlight=False,
    )
    shown, clicked = read["shown_by_position"], read["clicks_by_position"]
    if shown:
        table = figures("by position", "position", "shown", "clicks", "click rate")
        for at in list(shown)[:POSITIONS]:
            table.add_row(at, f" {shown[at]:,}", f" {clicked.get(at, 0):,}", f" {100 * clicked.get(at, 0) / shown[at]:.2f} %")
        console.print(table)
    lost = sum(found["lines"] for found in read["dropped"].values())
    console.print(f"dropped: {lost:,} times" if lost else "dropped: nothing", highlight=False)
    for reason, found in read["dropped"].items():
        console.print(
            f"  {found['lines']:,} × {escape(reason)}; first {escape(found['where'])}: [dim]{escape(found['example'])}[/dim]",
            soft_wrap=True,
            highlight=False,
        )
