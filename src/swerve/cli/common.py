"""Shared by the commands: JSON beside every table, progress bars, readable numbers."""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import measure_renderables
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
from swerve.core.loading import load_file
from swerve.core.parse import spec_classes
from swerve.policies import POLICIES
from swerve.simulate import Tick
from swerve.simulate.cluster import RAY, is_ray, need_ray
from swerve.simulate.devices import CPU, CUDA, need_gpu

#: Characters that names and explanations need at least; a table that cannot provide them is printed as a list.
NAME_WIDTH = 12
#: Numbers from here on are printed without decimals; 99.95 would round to 100.0 with one decimal.
WHOLE = 99.95
#: Numbers below this have three significant digits, larger ones one decimal.
SMALL = 10
MB = 1e6  # bytes
MILLION = 1e6
LARGEST_PORT = 65535
#: Of a log without any click.
NO_CLICKS = "no click was read, so that every result counts as skipped; are clicks in another column (--map clicks=COLUMN)?"
#: Characters per line, for measuring without wrapping: more than any cell has.
UNWRAPPED = 10_000
#: The first bytes of a file of SQLite.
SQLITE = b"SQLite format 3\0"
#: Seconds of work before a progress bar appears: shorter work needs none.
PATIENCE = 2.0

console = Console()
errors = Console(stderr=True)


#: File types of plots.
PICTURES = (".svg", ".png")


def file_target(ctx: click.Context, option: click.Parameter, target: str | None) -> str | None:
    """Refuse a FILE that is a policy's name by mistake, or cannot be written, before a long computation begins."""
    if target is None or target == "-":
        return target
    name = option.opts[0]
    named = target.partition("(")[0] in {*POLICIES, *spec_classes()}
    if named or not ({".", "/", os.sep} & set(target)):
        raise SwerveError(
            f"{name} {target} is not allowed; a FILE has a '.' or a '/' in its name and is no policy: "
            f"put {name} last, or use {name} - for standard output"
        )
    path = Path(target)
    if path.is_dir():
        raise IsADirectoryError(f"{name} {target} cannot be written: it is a folder")
    if not path.parent.is_dir():
        raise NotADirectoryError(f"{name} {target} cannot be written: there is no folder {path.parent}")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise PermissionError(f"{name} {target} cannot be written: permission denied")
    return target


def picture(ctx: click.Context, option: click.Parameter, path: Path | None) -> Path | None:
    """Refuse a plot that cannot be drawn or written, before a long computation begins."""
    if path is None:
        return None
    name = option.opts[0]
    if path.suffix.lower() not in PICTURES:
        raise SwerveError(f"{name} {path} is not allowed; the FILE must end in {' or '.join(PICTURES)}")
    if not path.parent.is_dir():
        raise NotADirectoryError(f"{name} {path} cannot be written: there is no folder {path.parent}")
    need_plots(name)
    return path


config_option = click.option(
    "--config",
    "config_file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Configuration in TOML (docs/configuration.md); SWERVE_CONFIG names a default.",
)
json_option = click.option(
    "--json",
    "json_to",
    is_flag=False,
    flag_value="-",
    metavar="[FILE]",
    callback=file_target,
    help="Write the figures as JSON to FILE, or to standard output instead of the table.",
)
regret_plot_option = click.option(
    "--regret-plot", type=click.Path(dir_okay=False, writable=True, path_type=Path), callback=picture, metavar="FILE",
    help="Draw mean regret over rounds with 95 % bands into FILE.svg or FILE.png (extra `report`).",
)  # fmt: skip
seed_option = click.option("--seed", default=0, show_default=True, help="Seed of the first run; run i uses seed + i.")
runs_option = click.option("--runs", type=click.IntRange(1), default=10, show_default=True, help="Number of runs.")
threads_option = click.option("--threads", type=click.IntRange(1), default=None, help="Threads over runs  [default: all cores]")


def device_of(where: str, known: tuple[str, ...]) -> str:
    """Return the device of a value of --on; refuse one that cannot be here before a long computation begins."""
    if is_ray(where):
        need_ray(f"--on {where}")
        return where
    if where not in known:
        raise SwerveError(f"--on {where} is not allowed; it must be {', '.join(known)} or {RAY}:ADDRESS")
    if where == "gpu":
        need_gpu("--on gpu", start=False)
        return CUDA
    return CPU


def places(known: tuple[str, ...], text: str) -> Callable[[Any], Any]:
    """Return the option --on of a command that computes in these places."""
    return click.option(
        "--on", "device", metavar=f"[{'|'.join(known)}[:ADDRESS]]", default="cpu", show_default=True, help=text,
        callback=lambda ctx, option, where: device_of(where, known),
    )  # fmt: skip


on_option = places(
    ("cpu", "gpu", RAY),
    "Play on the processor's cores, a GPU (extra `gpu`) or a Ray cluster (extra `ray`); the results have the same bytes.",
)


def load_files(ctx: click.Context, _: click.Parameter, files: tuple[Path, ...]) -> tuple[Path, ...]:
    """Import the user's classes and workloads, so that commands can name them."""
    if files:
        import swerve.environments  # noqa: F401 - it has tables of names that a file may add to
    for path in files:
        load_file(path, "--load")
    return files


load_option = click.option(
    "--load",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    callback=load_files,
    expose_value=False,
    is_eager=True,
    help="A Python file with your own policies, classifiers, environments or workloads (docs/extending.md).",
)


def ask(question: str) -> None:
    """Go on if a person says yes. Without a terminal or an answer the error names the option that goes on without asking."""
    try:
        click.confirm(question, abort=True, err=True)
    except click.Abort:
        if sys.stdin.isatty():
            raise
        raise SwerveError(f"{question} There is no terminal on which to ask; --yes goes on without asking") from None


def need_plots(what: str) -> None:
    """Refuse `what` if matplotlib is missing, before a long computation begins."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise SwerveError(f"{what} needs the package matplotlib; install Swerve with its extra `report`") from None


def need_service(what: str = "the service") -> None:
    """Refuse `what` if the packages of the extra `service` are missing."""
    try:
        import msgspec  # noqa: F401
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise SwerveError(f"{what} needs the package {error.name}; install Swerve with its extra `service`") from None


def plain(value: Any) -> Any:
    """Return `value` for JSON: infinities and NaN become null."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value.item() if hasattr(value, "item") else value


def write_json(target: str | None, data: Any) -> bool:
    """Write `data` to the target of `--json`; return True if it replaces the table on standard output."""
    if target is None:
        return False
    text = json.dumps(plain(data), indent=2, ensure_ascii=False, allow_nan=False)
    if target == "-":
        click.echo(text)
        return True
    Path(target).write_text(text + "\n", encoding="utf-8")
    return False


def counted(count: int, what: str) -> str:
    """Return a count with its noun.

    >>> counted(1, "false alarm"), counted(0, "false alarm"), counted(2_000, "entry")
    ('1 false alarm', '0 false alarms', '2,000 entries')
    """
    several = f"{what.removesuffix('y')}ies" if what.endswith("ry") else f"{what}s"
    return f"{count:,} {what if count == 1 else several}"


def number(value: float | None) -> str:
    """Format a number for a table: about three significant digits, with thousands separators."""
    if value is None or not math.isfinite(value):
        return "–"
    if value == int(value) or abs(value) >= WHOLE:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) < SMALL else f"{value:.1f}"


class Figures(Table):
    """A table that is printed as a list if the terminal is too narrow, so that row names are never cut."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        cells = [list(column.cells) for column in self.columns]
        needed = len(self.columns) + 1  # the spaces between columns
        for column, own in zip(self.columns, cells, strict=True):
            room = measure_renderables(console, options.update(width=UNWRAPPED), [column.header, *own])
            needed += room.maximum if column.no_wrap else min(room.maximum, NAME_WIDTH)
        if needed <= options.max_width:
            yield from super().__rich_console__(console, options)
            return
        yield Text(str(self.title), style="bold")
        for name, *rest in zip(*cells, strict=True):
            yield Text.from_markup(str(name), style="bold")
            block = Table.grid(padding=(0, 2))
            for column, cell in zip(self.columns[1:], rest, strict=True):
                if cell == "":
                    continue
                block.add_row("", " ".join(str(column.header).split()), cell)
            yield block


def figures(title: str, *headings: str) -> Figures:
    """Return an empty table of figures: names on the left, numbers right-aligned and never cut."""
    out = Figures(title=title, title_justify="left", box=SIMPLE_HEAD, padding=0, title_style="bold")
    out.add_column(headings[0], overflow="fold")
    for heading in headings[1:]:
        out.add_column(heading, justify="right", no_wrap=True)
    return out


class Rate(ProgressColumn):
    """Rounds per second."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed / MILLION:.1f}M rounds/s", style="cyan")


@contextlib.contextmanager
def progress_bar(what: str, total: int) -> Iterator[Callable[[Tick], None]]:
    """Show a bar on standard error with rate and time left; show nothing if standard error is no terminal."""
    with Progress(
        SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), Rate(), TimeElapsedColumn(), TimeRemainingColumn(),
        console=errors, transient=True, disable=not sys.stderr.isatty(),
    ) as bars:  # fmt: skip
        task = bars.add_task(what, total=total)
        yield lambda tick: bars.advance(task, tick.rounds)


@contextlib.contextmanager
def late_progress(after: float = PATIENCE) -> Iterator[Callable[[str, int, int], None]]:
    """Show a bar on standard error for steps of work (name, amount done, total) once the work takes over `after` seconds."""
    bars = Progress(
        SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn(),
        console=errors, transient=True, disable=not errors.is_terminal,
    )  # fmt: skip
    task = bars.add_task("", total=None)
    started = time.monotonic()

    def report(what: str, done: int, total: int) -> None:
        if time.monotonic() - started > after:
            bars.start()
        if bars.tasks[0].description != what:
            bars.reset(task, total=total or None, description=what)
        bars.update(task, completed=done, total=total or None)

    try:
        yield report
    finally:
        bars.stop()


class LogPath(click.Path):
    """The logs that a path or an address names: a store, or the folder of the log of its share 0, stands for the logs of all its
    shares. Those of a store on a server are copied to the folder for temporary files."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the paths."""
        from swerve.store.copies import log_of
        from swerve.store.shares import journal_path, journals_of
        from swerve.store.urls import PREFIX, server_of, share_urls, store_path

        if isinstance(value, str) and ctx is not None and server_of(value) is not None:
            return [ctx.with_resource(log_of(url)) for url in share_urls(value)]
        path = store_path(value) if isinstance(value, str) and value.startswith(PREFIX) else None
        path = path or Path(str(super().convert(value, param, ctx)))
        if is_database(path):
            path = journal_path(path)
        return journals_of(path) if path.is_dir() else [path]


def is_database(path: Path) -> bool:
    """Return whether a file is one of SQLite."""
    try:
        with path.open("rb") as file:
            return file.read(len(SQLITE)) == SQLITE
    except OSError:
        return False


def each_once(ctx: click.Context, param: click.Parameter, found: Any) -> tuple[Path, ...]:
    """Return the paths of all arguments, each folder once: a pattern of the shell names the log of a share besides that of
    share 0."""
    out: list[Path] = []
    for path in found if param.nargs == 1 else [path for paths in found for path in paths]:
        if path not in out or not path.is_dir():
            out.append(path)
    return tuple(out)


#: The argument of commands that read logs.
logs_argument: Callable[[Any], Any] = click.argument(
    "logs",
    metavar="LOG…",
    nargs=-1,
    required=True,
    type=LogPath(exists=True, allow_dash=True, path_type=Path),
    callback=each_once,
)


@contextlib.contextmanager
def spooled(logs: tuple[Path, ...]) -> Iterator[tuple[Path, ...]]:
    """Copy standard input (`-`) to a temporary file, because logs are read more than once; yield the paths to read."""
    from swerve.evaluate.readers.source import SPOOLED

    dashes = [log for log in logs if str(log) == "-"]
    if not dashes:
        yield logs
        return
    if len(dashes) > 1:
        raise SwerveError("- is there twice; standard input can be read once")
    with tempfile.TemporaryDirectory(prefix="swerve-") as folder:
        copy = Path(folder) / SPOOLED
        with copy.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file, 1 << 20)
        yield tuple(copy if str(log) == "-" else log for log in logs)
