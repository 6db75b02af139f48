"""`swerve evaluate`: what search logs say about shifts, and about what another ranking would have brought."""

from __future__ import annotations

import contextlib
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from swerve.cli.common import errors, json_option, late_progress, logs_argument, need_plots, places, spooled, write_json
from swerve.core.errors import SwerveError
from swerve.simulate.cluster import RAY, is_ray, ship

if TYPE_CHECKING:
    from swerve.evaluate.estimators import Judgement
    from swerve.evaluate.history import Histories
    from swerve.evaluate.judging import Least
    from swerve.evaluate.lists import Shown
    from swerve.evaluate.tally import Tally

#: The steps of an evaluation on a cluster, and how much of its bar each has.
STEPS = {"reading": 200, "judging": 500, "playing": 300}


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
@places(("cpu", RAY), "Evaluate here or on a Ray cluster (extra `ray`); the results have the same bytes.")
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
    from swerve.evaluate.model import Model
    from swerve.evaluate.readers import common_format
    from swerve.evaluate.targets import check_names

    check_names(names)
    logs = click.get_current_context().with_resource(spooled(logs))
    form = form or common_format(logs)
    evaluating: Here | OnRay = OnRay(logs, form, columns, device) if is_ray(device) else Here(logs, form, columns)
    tally, histories, least = evaluating.read()
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
        judgements = evaluating.judge(names or least.usual(), least)
    forecasted = None
    if forecasting and not tally.apart:
        with evaluating.playing() as progress:
            watched = sum(history.lists for _, history in histories)
            forecasted = forecast(Model(histories, found), facts["lists"] - watched, progress=progress, device=device)
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


class Here:
    """A log that is read and judged by this process."""

    def __init__(self, logs: tuple[Path, ...], form: str, columns: tuple[str, ...]) -> None:
        self.logs, self.form, self.columns = logs, form, columns

    def read(self) -> tuple[Tally, Histories, Least]:
        """Return what was read, the histories of queries, and the smallest propensities."""
        from swerve.evaluate.history import Histories
        from swerve.evaluate.judging import Least
        from swerve.evaluate.tally import Tally

        tally, histories, least = Tally(), Histories(), Least()
        for entry in self._reading("reading", tally):
            histories.add(entry)
            least.add(entry)
        return tally, histories, least

    def judge(self, names: Sequence[str], least: Least) -> list[Judgement]:
        """Return the judgement on each target."""
        from swerve.evaluate.judging import judge
        from swerve.evaluate.tally import Tally
        from swerve.evaluate.targets import target_of

        return judge(self._reading("judging", Tally()), [target_of(name) for name in names], least.by_slot)

    def _reading(self, what: str, tally: Tally) -> Iterator[Shown]:
        """Yield the lists of the logs, with a bar by bytes."""
        from swerve.evaluate.readers import read
        from swerve.evaluate.readers.source import size_of

        with Progress(
            TextColumn(what), BarColumn(), DownloadColumn(), TimeRemainingColumn(),
            console=errors, transient=True, disable=not errors.is_terminal,
        ) as bars:  # fmt: skip
            task = bars.add_task(what, total=sum(map(size_of, self.logs)))
            yield from read(
                self.logs, self.form, self.columns, tally=tally, progress=lambda done: bars.update(task, completed=done)
            )

    @contextlib.contextmanager
    def playing(self) -> Iterator[Callable[[int, int], None]]:
        """Show the progress of the forecast."""
        with late_progress() as bar:
            yield lambda done, total: bar("playing on the model", done, total)


class OnRay:
    """A log that is read and judged in shards on the nodes of a cluster, with one bar for the whole."""

    def __init__(self, logs: tuple[Path, ...], form: str, columns: tuple[str, ...], device: str) -> None:
        from swerve.evaluate.folding import work
        from swerve.evaluate.readers.source import size_of
        from swerve.evaluate.sharding import log_of

        self.log = log_of(logs, form, columns, lambda orders: ship(device, "shard of a log", work, orders))
        self.size = sum(map(size_of, logs))
        self._bars = click.get_current_context().with_resource(late_progress())

    def _at(self, step: str, done: int, total: int) -> None:
        """Show how far a step is, as a part of the whole."""
        before = sum(weight for name, weight in STEPS.items() if list(STEPS).index(name) < list(STEPS).index(step))
        share = STEPS[step] * done / max(total, 1)
        self._bars("evaluating on the cluster", round(before + share), sum(STEPS.values()))

    def read(self) -> tuple[Tally, Histories, Least]:
        """Return what was read, the histories of queries, and the smallest propensities."""
        from swerve.evaluate.sharding import read_shards

        found = read_shards(self.log, lambda done: self._at("reading", done, self.size))
        return found.tally, found.histories(), found.least

    def judge(self, names: Sequence[str], least: Least) -> list[Judgement]:
        """Return the judgement on each target."""
        from swerve.evaluate.sharding import judge_shards

        return judge_shards(self.log, names, least.by_slot, lambda done: self._at("judging", done, self.size))

    @contextlib.contextmanager
    def playing(self) -> Iterator[Callable[[int, int], None]]:
        """Show the progress of the forecast."""
        yield lambda done, total: self._at("playing", done, total)


def need_reading() -> None:
    """Refuse if msgspec is missing."""
    try:
        import msgspec  # noqa: F401
    except ImportError:
        raise SwerveError("swerve evaluate needs the package msgspec; install Swerve with its extra `service`") from None
