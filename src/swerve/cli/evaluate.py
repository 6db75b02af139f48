"""`swerve evaluate`: what search logs say about shifts, and about what another ranking would have brought."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from swerve.cli.common import errors, json_option, late_progress, logs_argument, need_plots, places, spooled, write_json
from swerve.core.errors import SwerveError
from swerve.simulate.cluster import RAY

if TYPE_CHECKING:
    from swerve.evaluate.lists import Shown
    from swerve.evaluate.tally import Tally


@click.command()
@logs_argument
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
@click.option(
    "--target",
    "names",
    multiple=True,
    help="A ranking to judge: swerve, clicks, given or uniform; repeatable.  [default: those that the log allows]",
)
@click.option(
    "--forecast/--no-forecast", "forecasting", default=True, help="Play policies on a click model of the log.  [default: on]"
)
@places(("cpu", RAY), "Play the forecast here or on a Ray cluster (extra `ray`); the results have the same bytes.")
@json_option
def command(
    logs: tuple[Path, ...],
    form: str | None,
    columns: tuple[str, ...],
    report: Path | None,
    names: tuple[str, ...],
    forecasting: bool,
    device: str,
    json_to: str | None,
) -> None:
    """Read search logs: what they hold, which queries shift, and what another ranking would have brought (docs/evaluate.md).

    Each LOG is a recording of Swerve (the log of a store: a folder, or the address of a store on a server), UBI 1.3.0 (queries and
    events), Vowpal Wabbit dsjson, Open Bandit CSV, or a plain log as JSON lines, CSV or Parquet. Text may be compressed with gzip
    or Zstandard; - is standard input. Files are read as streams. Nothing is dropped silently: lines that cannot be read are counted
    by reason.

    Other rankings are estimated from the log's propensities, and only inside their support. A log without any gets no estimate; the
    forecast is a model, and says so.
    """
    need_reading()
    if report is not None:
        need_plots("--report")
    import msgspec

    from swerve.cli import evaluate_tables as tables
    from swerve.evaluate import shifts
    from swerve.evaluate.forecast import forecast
    from swerve.evaluate.history import Histories
    from swerve.evaluate.judging import Least, judge
    from swerve.evaluate.model import Model
    from swerve.evaluate.readers import common_format
    from swerve.evaluate.tally import Tally
    from swerve.evaluate.targets import check_names, target_of

    check_names(names)
    logs = click.get_current_context().with_resource(spooled(logs))
    tally, histories, least = Tally(), Histories(), Least()
    form = form or common_format(logs)
    for entry in reading("reading", logs, form, columns, tally):
        histories.add(entry)
        least.add(entry)
    facts = tally.facts()
    out: dict[str, Any] = {"format": form, "read": facts}
    if json_to != "-":
        tables.print_read(form, facts)
    if facts["lists"] == 0:
        write_json(json_to, out)
        raise SwerveError(f"no list was read from {', '.join(map(str, logs))} as {form}; see --format and --map")
    found = shifts.find(histories)
    judgements = []
    if facts["lists_with_propensities"]:
        targets = [target_of(name) for name in names or least.usual()]
        judgements = judge(reading("judging", logs, form, columns, Tally()), targets, least.by_slot)
    forecasted = None
    if forecasting and not tally.apart:
        with late_progress() as bar:
            watched = sum(history.lists for _, history in histories)
            forecasted = forecast(
                Model(histories, found),
                facts["lists"] - watched,
                progress=lambda done, total: bar("playing on the model", done, total),
                device=device,
            )
    out["shifts"] = msgspec.to_builtins(found)
    out["would_it_have_helped"] = {
        "randomised": bool(judgements),
        "targets": [msgspec.to_builtins(each) for each in judgements],
    }
    out["forecast"] = None if forecasted is None else msgspec.to_builtins(forecasted)
    if not write_json(json_to, out):
        tables.print_shifts(found)
        tables.print_judgements(judgements)
        if forecasted is not None:
            tables.print_forecast(forecasted)
        elif forecasting:
            tables.print_no_forecast()
    if report is not None:
        from swerve.evaluate import report as pages

        parts = [
            *pages.read_section(form, facts),
            *pages.shifts_section(found, histories, report),
            *pages.judgements_section(judgements),
            *([] if forecasted is None else pages.forecast_section(forecasted, report)),
        ]
        page = pages.write(report, parts, shlex.join(["swerve", *sys.argv[1:]]))
        errors.print(f"report: {page}", soft_wrap=True, highlight=False)


def reading(what: str, logs: tuple[Path, ...], form: str, columns: tuple[str, ...], tally: Tally) -> Iterator[Shown]:
    """Yield the lists of the logs, with a bar by bytes."""
    from swerve.evaluate.readers import read
    from swerve.evaluate.readers.source import size_of

    with Progress(
        TextColumn(what), BarColumn(), DownloadColumn(), TimeRemainingColumn(),
        console=errors, transient=True, disable=not errors.is_terminal,
    ) as bars:  # fmt: skip
        task = bars.add_task(what, total=sum(map(size_of, logs)))
        yield from read(logs, form, columns, tally=tally, progress=lambda done: bars.update(task, completed=done))


def need_reading() -> None:
    """Refuse if msgspec is missing."""
    try:
        import msgspec  # noqa: F401
    except ImportError:
        raise SwerveError("swerve evaluate needs the package msgspec; install Swerve with its extra `service`") from None
