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
from rich.markup import escape

from swerve.cli import INTERRUPTED
from swerve.cli.common import (
    console,
    errors,
    figures,
    json_option,
    load_option,
    need_plots,
    number,
    on_option,
    progress_bar,
    threads_option,
    write_json,
)
from swerve.cli.compare_pages import page_cells, page_columns, print_page_bars, verdict_of
from swerve.cli.simulate import spans
from swerve.core.errors import SwerveError
from swerve.environments import PAGES, RECORDED, WORKLOADS
from swerve.environments.browsing import browse
from swerve.environments.workloads import ADDED
from swerve.experiments.compare import (
    RIVALS,
    Comparison,
    Row,
    Stopped,
    cells_of,
    chosen,
    compare,
    players,
    total_rounds,
    verdicts,
)
from swerve.experiments.compare_pages import ORACLE, PAGE_BARS, check_page_bars

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
#: File types that `--plot` writes.
PICTURES = (".svg", ".png")
BACKSLASH = chr(92)  # an f-string of Python 3.11 must not contain one
#: Figures are shown in thousands of lost clicks.
THOUSAND = 1e3


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


def picture(ctx: click.Context, _: click.Parameter, path: Path | None) -> Path | None:
    """Refuse a plot that cannot be drawn or written, before a long computation begins."""
    if path is None:
        return None
    if path.suffix.lower() not in PICTURES:
        raise SwerveError(f"--plot {path} is not allowed; the FILE must end in {' or '.join(PICTURES)}")
    if not path.parent.is_dir():
        raise NotADirectoryError(f"--plot {path} cannot be written: there is no folder {path.parent}")
    need_plots("--plot")
    return path


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
@click.option("--bars", is_flag=True, help="Check the bars of the policy of --against, cell by cell; exit with 1 if one is missed.")
@load_option
@json_option
def command(
    workloads: tuple[str, ...], places: tuple[str, ...], parts: tuple[str, ...], texts: tuple[str, ...], against: str | None,
    runs: int | None, seed: int, queries: int | None, impressions: int | None, quick: bool, data: Path | None, threads: int | None,
    device: str, out: Path | None, markdown: bool, plot: Path | None, bars: bool, json_to: str | None,
) -> None:  # fmt: skip
    """Play policies on workloads with the same clicks, contexts and events for all, and tell which differences are certain.

    Each cell shows the mean regret ÷ that of `oracle-ts` on the same seeds (`oracle-list` for pages), the mean itself in thousands
    of lost clicks, and the paired difference to the policy of --against with its 95 % interval. Ranks are in the order of the
    fractions.
    """
    if markdown and json_to == "-":
        raise SwerveError("--markdown is not allowed with --json to standard output; use --json FILE")
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
    if not write_json(json_to, [row.as_dict() for row in found.rows]) and found.rows:
        (print_markdown if markdown else print_tables)(found)
    if plot is not None and found.rows:
        from swerve.experiments import compare_plots

        compare_plots.write(found, plot)
    if stopped:
        kept = f"; finished runs are in {out}, repeat the command to continue" if out else "; nothing was kept (see --out)"
        errors.print(f"swerve: interrupted after {len(found.cells)} of {len(cells)} cells{kept}", soft_wrap=True)
        raise click.exceptions.Exit(INTERRUPTED)
    if bars and not print_bars(found, errors if json_to == "-" else console):
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


def cell(row: Row) -> tuple[str, str]:
    """Return the two lines of a row's cell: ratio and mean; difference ± half its interval, with a star if that excludes 0."""
    ratio = "–" if row.ratio is None else f"{row.ratio:.2f}×"
    head = f"{ratio} {number(row.mean / THOUSAND)}k"
    if row.difference is None:
        return head, ""
    sign = "−" if row.difference < 0 else "+"
    text = f"{sign}{number(abs(row.difference) / THOUSAND)}"
    if row.difference_low is not None and row.difference_high is not None:
        text += f" ± {number((row.difference_high - row.difference_low) / (2 * THOUSAND))}{'*' if row.decided else ''}"
    return head, text


def ranks(rows: list[Row]) -> str:
    """Return a policy's ranks in the order of the fractions."""
    return " ".join(str(row.rank) for row in rows)


def portion(fraction: float | None) -> str:
    """Return a fraction as text; a workload made from records has none."""
    return "–" if fraction is None else f"{fraction:g}"


def tables(found: Comparison) -> Iterator[tuple[str, list[float | None], list[tuple[str, list[Row]]]]]:
    """Yield each workload with its fractions and each policy's rows in their order."""
    for name in dict.fromkeys(name for name, _ in found.cells):
        fractions = [fraction for each, fraction in found.cells if each == name]
        yield name, fractions, [(text, [found.row(name, part, text) for part in fractions]) for text in found.policies]


def legend(found: Comparison) -> str:
    """Return the explanation of a cell."""
    runs = spans(list(range(found.seed, found.seed + found.runs)))
    oracles = " or ".join(dict.fromkeys(row.oracle for row in found.rows)) or ORACLE
    text = (
        f"{runs}. Regret ÷ {oracles}'s, and in thousands; {found.against} − policy in thousands, ± its 95 % interval, "
        "* where that leaves out 0 (below 0: fewer lost clicks than the policy)."
    )
    if any(row.harm is not None for row in found.rows):
        text += (
            " Harm: value lost to the given order in a query's first 200 impressions, mean and 90th percentile of the queries;"
            " recovered: median impressions after an event until a page has 95 % of the best one's value, – if most never have;"
            f" clicks, searches: clicks on all slots, and searches with a click, − {found.against}'s, in % of those,"
            " ± the 95 % interval, * where that leaves out 0."
        )
    return text


def print_tables(found: Comparison) -> None:
    """Print one table per workload and one over all of them."""
    colours = {-1: "green", 0: "dim", 1: "red"}
    for name, fractions, lines in tables(found):
        more = page_columns(lines)
        heads = ["regret" if fraction is None else f"{fraction:g} shifting" for fraction in fractions]
        table = figures(name, "policy", *heads, *more, "rank")
        for text, rows in lines:
            shown = []
            for row in rows:
                head, difference = cell(row)
                head = f"[bold]{head}[/bold]" if row.rank == 1 else head
                # the leading space separates columns, because cells contain spaces
                shown.append(f" {head}\n [{colours[row.decided]}]{difference}[/]" if difference else f" {head}")
            table.add_row(escape(text), *shown, *page_cells(rows), f" {ranks(rows)}")
        console.print(table)
    if len(found.cells) > 1:
        table = figures(f"all {len(found.cells)} cells", *SUMMARY, f"{found.against}\nbetter/worse")
        for line in summary(found):
            table.add_row(escape(line[0]), *line[1:])
        console.print(table)
    console.print(f"[dim]{escape(legend(found))}[/dim]")


SUMMARY = ("policy", "ratio", "worst", "rank")


def summary(found: Comparison) -> list[list[str]]:
    """Return each policy over all cells: geometric mean of ratios, worst ratio, mean rank, counts of certain differences."""
    return [
        [
            s.policy, "–" if s.ratio is None else f"{s.ratio:.2f}×", "–" if s.worst is None else f"{s.worst:.2f}× {s.where}",
            f"{s.rank:.2f}", "" if s.policy == found.against else f"{s.better}/{s.worse}",
        ]
        for s in found.standings()
    ]  # fmt: skip


def print_markdown(found: Comparison) -> None:
    """Print the tables as Markdown."""

    def line(*cells: str) -> str:
        return f"| {' | '.join(each.replace('|', BACKSLASH + '|') for each in cells)} |"

    for name, fractions, lines in tables(found):
        click.echo(f"**{name}**\n")
        more = page_columns(lines)
        heads = ["regret" if fraction is None else f"{fraction:g}" for fraction in fractions]
        click.echo(line("policy", *heads, *more, "rank"))
        click.echo("|---" + "|---:" * (len(fractions) + len(more) + 1) + "|")
        for text, rows in lines:
            shown = [f"{head} ({difference})" if difference else head for head, difference in map(cell, rows)]
            click.echo(line(f"`{text}`", *shown, *page_cells(rows), ranks(rows)))
        click.echo("")
    if len(found.cells) > 1:
        click.echo(f"**all {len(found.cells)} cells**\n")
        click.echo(line(*SUMMARY, f"{found.against} better/worse"))
        click.echo("|---|---:|---:|---:|---:|")
        for policy, *rest in summary(found):
            click.echo(line(f"`{policy}`", *rest))
        click.echo("")
    click.echo(legend(found))


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
