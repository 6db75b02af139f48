"""`swerve compare`: paired comparisons of policies on the workloads."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource
from rich.console import Console

from swerve.cli import INTERRUPTED
from swerve.cli.common import (
    console,
    errors,
    figures,
    load_option,
    on_option,
    picture,
    progress_bar,
    regret_plot_option,
    threads_option,
)
from swerve.cli.compare_pages import print_page_bars, verdict_of
from swerve.cli.compare_tables import legend, print_tables, sheets
from swerve.cli.sheets import one_output, table_options, write_forms
from swerve.core.errors import SwerveError
from swerve.environments import PAGES, RECORDED, WORKLOADS
from swerve.environments.browsing import browse
from swerve.environments.workloads import ADDED
from swerve.experiments.compare import (
    RIVALS,
    cells_of,
    chosen,
    compare,
    players,
    total_rounds,
    verdicts,
)
from swerve.experiments.compare_pages import PAGE_BARS, check_page_bars, no_bars
from swerve.experiments.comparison import Comparison, Stopped

DEFAULT_POLICIES = ("swerve", "oracle-ts", "glr-ts", "cusum-klucb", "ts")
#: The same for workloads with pages alone.
PAGE_POLICIES = ("swerve", "oracle-ts", "given", "top", "list-ts", "glrt-dcm", "bubble")
#: Names that stand for several workloads: the tail with engines whose top is right in so many of the queries; all pages with bars.
GROUPS = {
    "tail": tuple(f"tail(right_share={share})" for share in (0.2, 0.5, 0.8, 0.95)),
    "page-bars": tuple(PAGE_BARS),
}
DEFAULT_FRACTIONS = ("0", "0.1", "1/2")
#: Workloads made from recorded signals: they need a folder of data, and are played only if named.
NEED_DATA = tuple(RECORDED)
DATA_VARIABLE = "SWERVE_DATA"
#: `--quick` plays a tenth of the queries, each at full length, in few runs; a whole comparison has 20 runs per cell.
QUICK_QUERIES, QUICK_RUNS, RUNS = 10, 3, 20


def separated(texts: Sequence[str]) -> list[str]:
    """Split comma-separated lists, keeping brackets and quotes whole; return each item once.

    >>> separated(["ts,bwc(length=50, margin=0.2)", "ts"])
    ['ts', 'bwc(length=50, margin=0.2)']
    """
    out: list[str] = []
    for text in texts:
        item, depth, quote = "", 0, ""
        for sign in f"{text},":
            if sign == "," and depth <= 0 and not quote:
                out.append(item.strip())
                item = ""
                continue
            item += sign
            if quote or sign in "'\"":
                quote = "" if sign == quote else quote or sign
            else:
                depth += (sign in "([") - (sign in ")]")
        out.append(item.rstrip(",").strip())  # an unclosed bracket; the parser of the item reports it
    return list(dict.fromkeys(item for item in out if item))


def fraction_of(text: str) -> float:
    """Return a fraction from its text.

    >>> fraction_of("1/2"), fraction_of("0.1")
    (0.5, 0.1)
    """
    try:
        return float(Fraction(text))
    except (ValueError, ZeroDivisionError, OverflowError):
        raise SwerveError(f"--fraction {text} is not allowed; it must be a number in [0, 1], such as 0.1 or 1/2") from None


@click.command("compare")
@click.option(
    "--workload", "-w", "workloads", multiple=True, metavar="NAME",
    help="Workload, with parameters in brackets, a comma list, or all  [default: all but pages and those that need --data]",
)  # fmt: skip
@click.option(
    "--environment", "-e", "places", multiple=True, metavar="EXPR",
    help="Environment as in `swerve simulate`, or a comma list: beside the workloads of -w, or alone.",
)  # fmt: skip
@click.option(
    "--fraction", "-f", "parts", multiple=True, default=DEFAULT_FRACTIONS, show_default=True, metavar="F",
    help="Fraction of the queries that shift, or a comma list.",
)  # fmt: skip
@click.option(
    "--policy", "-p", "texts", multiple=True, metavar="NAME",
    help="Policy as in `swerve simulate`, or a comma list  "
    f"[default: {', '.join(DEFAULT_POLICIES)}; for pages alone: {', '.join(PAGE_POLICIES)}]",
)  # fmt: skip
@click.option("--against", metavar="NAME", help="Show the paired differences NAME − policy  [default: the first policy]")
@click.option("--runs", type=click.IntRange(1), default=None, help=f"Number of runs  [default: {RUNS}; {QUICK_RUNS} with --quick]")
@click.option("--seed", default=100, show_default=True, help="Seed of the first run; run i uses seed + i.")
@click.option("--queries", type=click.IntRange(1), default=None, help="Queries of each workload, at full length by default.")
@click.option("--impressions", type=click.IntRange(1), default=None, help="Impressions of each workload, all queries together.")
@click.option("--quick", is_flag=True, help=f"A first look: {QUICK_QUERIES} queries, {QUICK_RUNS} runs.")
@click.option(
    "--data", type=click.Path(exists=True, file_okay=False, path_type=Path),
    help=f"Folder of recorded signals, instead of the variable {DATA_VARIABLE}.",
)  # fmt: skip
@threads_option
@on_option
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), help="Folder for finished runs; a second call uses them.")
@click.option("--markdown", is_flag=True, help="Print the tables as Markdown.")
@click.option(
    "--plot", type=click.Path(dir_okay=False, writable=True, path_type=Path), callback=picture, metavar="FILE",
    help="Draw the ratios into FILE.svg or FILE.png (extra `report`).",
)  # fmt: skip
@regret_plot_option
@click.option("--curves", is_flag=True, help="Put the regret curves with their 95 % bands into the JSON.")
@click.option("--bars", is_flag=True, help="Check the bars of the policy of --against, cell by cell; exit with 1 if one is missed.")
@load_option
@table_options
def command(
    workloads: tuple[str, ...], places: tuple[str, ...], parts: tuple[str, ...], texts: tuple[str, ...], against: str | None,
    runs: int | None, seed: int, queries: int | None, impressions: int | None, quick: bool, data: Path | None, threads: int | None,
    device: str, out: Path | None, markdown: bool, plot: Path | None, regret_plot: Path | None, curves: bool,
    bars: bool, csv_to: str | None, latex_to: str | None, json_to: str | None,
) -> None:  # fmt: skip
    """Play policies on workloads with the same clicks, contexts and events for all, and tell which differences are certain.

    Each cell shows the mean regret ÷ that of `oracle-ts` on the same seeds (`oracle-list` for pages), the mean itself in thousands
    of lost clicks, and the paired difference to the policy of --against with its 95 % interval. Ranks are in the order of the
    fractions.
    """
    one_output(markdown=markdown, json=json_to, csv=csv_to, latex=latex_to)
    if curves and json_to is None:
        raise SwerveError("--curves is not allowed without --json: the curves go into the JSON")
    wheres = separated(places)
    names = [] if wheres and not workloads else chosen_workloads(workloads)
    fractions = list(dict.fromkeys(fraction_of(text) for text in separated(parts)))
    count = runs or (QUICK_RUNS if quick else RUNS)
    if quick and queries is None and impressions is None:
        queries = QUICK_QUERIES
    with data_folder(data):
        need_data([*names, *wheres])
        cells = cells_of(names, fractions, queries, impressions, wheres)
        if not names and given_by_hand("parts"):
            raise SwerveError("--fraction is not allowed without --workload; an environment has its fraction as a parameter")
        paged = list(dict.fromkeys(name for (name, _), problem in cells.items() if browse.knows(problem)))
        policies = separated(texts or (PAGE_POLICIES if all(name in paged for name, _ in cells) else DEFAULT_POLICIES))
        players(policies)
        subject = chosen(policies, against)
        if bars:  # raise before anything is played
            check_page_bars(paged, policies, subject)
            if any(name not in paged for name, _ in cells):
                verdicts(Comparison(tuple(policies), subject, count, seed, [], {}))
            elif no_bars(paged):
                raise SwerveError(f"--bars is not allowed with {', '.join(paged)}: there are no bars for that")
        total = total_rounds(cells, policies, count, seed)
        stopped = False
        try:
            with progress_bar("compare", total) as tick:
                found = compare(
                    policies, names, fractions, runs=count, seed=seed, environments=wheres, against=against, queries=queries,
                    impressions=impressions, threads=threads, device=device, out=out, progress=tick,
                )  # fmt: skip
        except Stopped as stop:
            found, stopped = stop.comparison, True
    rows = [{**row.as_dict(), **(found.curve(row) if curves else {})} for row in found.rows]
    if not write_forms(json_to, csv_to, latex_to, rows, sheets(found), legend(found)) and found.rows:
        if markdown:
            click.echo("\n".join([*(sheet.as_markdown() for sheet in sheets(found)), legend(found)]))
        else:
            print_tables(found)
    if plot is not None and found.rows:
        from swerve.experiments import compare_plots

        compare_plots.write(found, plot)
    if regret_plot is not None and found.rows:
        from swerve.experiments import regret_plots

        regret_plots.write(found.panels(), regret_plot)
    if stopped:
        kept = f"; finished runs are in {out}, repeat the command to continue" if out else "; nothing was kept (see --out)"
        errors.print(f"swerve: interrupted after {len(found.cells)} of {len(cells)} cells{kept}", soft_wrap=True)
        raise click.exceptions.Exit(INTERRUPTED)
    if bars and not print_bars(found, errors if "-" in (json_to, csv_to, latex_to) else console):
        raise click.exceptions.Exit(1)


def given_by_hand(name: str) -> bool:
    """Return whether an option was given, rather than left at its default."""
    return click.get_current_context().get_parameter_source(name) == ParameterSource.COMMANDLINE


def chosen_workloads(texts: Sequence[str]) -> list[str]:
    """Return the names of the workloads to play; without `texts`, all of ours that need neither data nor policies for pages."""
    if not texts:
        return [name for name in WORKLOADS if name not in NEED_DATA and name not in PAGES and name not in ADDED]
    every = [name for name in WORKLOADS if name != "hurricane" and name not in ADDED]  # an alias of hurricane-100k
    groups = {"all": tuple(every), **GROUPS}
    return list(dict.fromkeys(each for name in separated(texts) for each in groups.get(name, (name,))))


def need_data(names: Sequence[str]) -> None:
    """Refuse workloads that need data if no folder of data is named."""
    wanting = [name for name in names if name.partition("(")[0] in NEED_DATA]
    if wanting and not os.environ.get(DATA_VARIABLE):
        raise SwerveError(f"{wanting[0]} needs recorded signals; name their folder with --data or in the variable {DATA_VARIABLE}")


@contextlib.contextmanager
def data_folder(folder: Path | None) -> Iterator[None]:
    """Set the variable to `folder` inside the block."""
    before = os.environ.get(DATA_VARIABLE)
    if folder is not None:
        os.environ[DATA_VARIABLE] = str(folder)
    try:
        yield
    finally:
        if folder is not None:
            os.environ.pop(DATA_VARIABLE)
            if before is not None:
                os.environ[DATA_VARIABLE] = before


def portion(fraction: float | None) -> str:
    """Return a fraction as text; a workload made from records has none."""
    return "–" if fraction is None else f"{fraction:g}"


def print_bars(found: Comparison, where: Console) -> bool:
    """Print the bars cell by cell; return whether all of them hold."""
    paged = print_page_bars(found, where)
    if all(row.paged for row in found.rows):
        return paged
    lines = verdicts(found)
    table = figures(f"bars of {found.against}", "workload", "shifting", "ratio", "bar", f"loses to ({', '.join(RIVALS)})", "")
    for line in lines:
        bar = "–" if line.bar is None else f"≤ {line.bar:g}"
        ratio = "–" if line.ratio is None else f"{line.ratio:.3f}"
        marked: list[Any] = [ratio if line.within else f"[red]{ratio}[/red]", bar, ", ".join(line.above) or "none"]
        table.add_row(line.workload, portion(line.fraction), *marked, verdict_of(line.holds))
    where.print(table)
    good = sum(line.holds for line in lines)
    where.print(f"{good} of {len(lines)} cells hold")
    return good == len(lines) and paged
