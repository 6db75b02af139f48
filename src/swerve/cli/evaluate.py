"""`swerve evaluate`: what search logs say about shifts, and about what another ranking would have brought."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from swerve.cli.common import console, errors, figures, json_option, need_plots, write_json
from swerve.core.errors import SwerveError

if TYPE_CHECKING:
    from swerve.evaluate.shifts import Found

#: Positions that the table shows; JSON has all.
POSITIONS = 10
#: Shifts that the table shows; JSON and the report have all.
SHIFTS = 20
#: Characters of a query or of a change in the table.
WIDTH = 40


@click.command()
@click.argument("logs", metavar="LOG…", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--format", "form", help="Format of the logs: swerve, ubi, dsjson, open-bandit or plain.  [default: by the first lines]"
)
@click.option(
    "--map", "columns", multiple=True, metavar="FIELD=COLUMN", help="Where a field lies, e.g. query=term,shown=hits; repeatable."
)
@click.option(
    "--report",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for a self-contained page with plots (extra `report`).",
)
@json_option
def command(logs: tuple[Path, ...], form: str | None, columns: tuple[str, ...], report: Path | None, json_to: str | None) -> None:
    """Read search logs and say what they hold, and which queries shift (docs/evaluate.md).

    Each LOG is a recording of Swerve, UBI 1.3.0 (queries and events), Vowpal Wabbit dsjson, Open Bandit CSV, or a plain log as JSON
    lines, CSV or Parquet. Files are read as streams. Nothing is dropped silently: lines that cannot be read are counted by reason.
    """
    need_reading()
    if report is not None:
        need_plots("--report")
    import msgspec

    from swerve.evaluate import shifts
    from swerve.evaluate.history import Histories
    from swerve.evaluate.readers import common_format, read
    from swerve.evaluate.tally import Tally

    tally, histories = Tally(), Histories()
    form = form or common_format(logs)
    with Progress(
        TextColumn("reading"), BarColumn(), DownloadColumn(), TimeRemainingColumn(),
        console=errors, transient=True, disable=not errors.is_terminal,
    ) as bars:  # fmt: skip
        task = bars.add_task("reading", total=sum(path.stat().st_size for path in logs))
        for entry in read(logs, form, columns, tally=tally, progress=lambda done: bars.update(task, completed=done)):
            histories.add(entry)
    facts = tally.facts()
    found = shifts.find(histories)
    if not write_json(json_to, {"format": form, "read": facts, "shifts": msgspec.to_builtins(found)}):
        print_read(form, facts)
        if facts["lists"]:
            print_shifts(found)
    refuse_empty(logs, form, facts)
    if report is not None:
        from swerve.evaluate import report as pages

        parts = [*pages.read_section(form, facts), *pages.shifts_section(found, histories, report)]
        page = pages.write(report, parts, shlex.join(["swerve", *sys.argv[1:]]))
        errors.print(f"report: {page}", soft_wrap=True, highlight=False)


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


def print_read(form: str, read: dict[str, Any]) -> None:
    """Print what was read and what was dropped."""
    from swerve.evaluate.report_text import instant

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


def short(text: str) -> str:
    """Return text of at most `WIDTH` characters, for a table."""
    text = " ".join(text.replace("\0", " ").split())
    return escape(text if len(text) <= WIDTH else text[: WIDTH - 1] + "…")


def print_shifts(found: Found) -> None:
    """Print the queries that shift."""
    from swerve.evaluate.report_text import bound_of, change_of, instant, volume_of

    if found.shifts:
        table = figures(
            "which queries shift", "query", "until (UTC)", "shares of clicks", "chance ≤", "volume", "clicks lost", "caught up"
        )
        for shift in found.shifts[:SHIFTS]:
            moved = "*" if shift.moved else ""
            table.add_row(
                short(shift.query), f" {instant(shift.until)}", f" {short(change_of(shift))}", f" {shift.chance:.0e}",
                f" {volume_of(shift)}", f" {shift.lost:,.0f}{moved}", f" {instant(shift.caught_up)}",
            )  # fmt: skip
        console.print(table)
        rest = len(found.shifts) - SHIFTS
        if rest > 0:
            console.print(f"… and {rest:,} more: --json and --report have all", highlight=False)
    else:
        console.print("[bold]which queries shift[/bold]: none is listed", highlight=False)
    notes = [bound_of(found)]
    if found.too_few or found.forgotten:
        notes.append(
            f"{found.too_few:,} queries have too few clicks; {found.forgotten:,} rare ones were forgotten to bound the memory."
        )
    if found.shifts:
        notes.append(
            "Clicks lost: by a model of examination, until the log's ranking caught up. *: the ranking moved at that time, and the "
            "clicks may only have followed it."
        )
    console.print(f"[dim]{' '.join(notes)}[/dim]", highlight=False)
