"""The tables of `swerve compare`: a line per policy, a column per fraction, and one over all cells."""

from __future__ import annotations

from collections.abc import Iterator

from rich.markup import escape

from swerve.cli.common import console, figures, number
from swerve.cli.compare_pages import page_cells, page_columns
from swerve.cli.sheets import Sheet
from swerve.cli.simulate import spans
from swerve.experiments.compare_pages import ORACLE
from swerve.experiments.comparison import Comparison, Row

#: Figures are shown in thousands of lost clicks.
THOUSAND = 1e3


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


def sheets(found: Comparison) -> list[Sheet]:
    """Return the tables with one line per policy, for Markdown and LaTeX."""
    out = []
    for name, fractions, lines in tables(found):
        more = page_columns(lines)
        heads = ["regret" if fraction is None else f"{fraction:g}" for fraction in fractions]
        shown = [
            [
                text,
                *[f"{head} ({difference})" if difference else head for head, difference in map(cell, rows)],
                *page_cells(rows),
                ranks(rows),
            ]
            for text, rows in lines
        ]
        out.append(Sheet(name, ["policy", *heads, *more, "rank"], shown))
    if len(found.cells) > 1:
        out.append(Sheet(f"all {len(found.cells)} cells", [*SUMMARY, f"{found.against} better/worse"], summary(found)))
    return out
