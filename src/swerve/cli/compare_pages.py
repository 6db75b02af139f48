"""The part of `swerve compare` that concerns result pages: their columns, and the table of their bars."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape

from swerve.cli.common import figures
from swerve.experiments.compare_pages import MEASURES, page_verdicts
from swerve.experiments.comparison import Comparison, Row

RATIOS = ("ratio", "top")  # figures that are shown with three decimals
#: The columns of pages: harm over the queries, impressions until a page is good again, and what is gained over --against.
PAGE_COLUMNS = ("harm", "p90", "recovered", "clicks", "searches")


def gained(total: float | None, more: float | None, low: float | None, high: float | None) -> str:
    """Return by how much a total exceeds that of the policy of --against, in % of that, ± half the interval."""
    if total is None or more is None:
        return ""
    base = (total - more) / 100.0
    if base <= 0.0:
        return "–"
    text = f"{more / base:+.2f} %"
    if low is not None and high is not None:
        text += f" ± {(high - low) / (2.0 * base):.2f}{'*' if low > 0.0 or high < 0.0 else ''}"
    return text


def page_cells(rows: list[Row]) -> list[str]:
    """Return the figures of pages of a policy, one per column; none for other workloads."""
    return [
        text
        for row in rows
        if row.harm is not None and row.harm_p90 is not None
        for text in (
            f"{row.harm:.1f} %",
            f"{row.harm_p90:.1f} %",
            "–" if row.recovered is None else f"{row.recovered:.0f}",
            gained(row.clicks, row.gained, row.gained_low, row.gained_high),
            gained(row.searches, row.searches_gained, row.searches_gained_low, row.searches_gained_high),
        )
    ]


def page_columns(lines: list[tuple[str, list[Row]]]) -> tuple[str, ...]:
    """Return the headings of the figures of pages, if a workload has any."""
    return PAGE_COLUMNS if any(page_cells(rows) for _, rows in lines) else ()


def verdict_of(holds: bool) -> str:
    """Return the word for a bar."""
    return "[green]holds[/green]" if holds else "[red]missed[/red]"


def print_page_bars(found: Comparison, where: Console) -> bool:
    """Print the bars of workloads with pages, if there are any; return whether all of them hold."""
    lines = page_verdicts(found)
    if not lines:
        return True
    table = figures(f"bars of {found.against} on pages", "workload", "figure", "value", "bar", "")
    for line in lines:
        value = "–" if line.value is None else f"{line.value:.3f}" if line.measure in RATIOS else f"{line.value:.1f}"
        table.add_row(escape(line.workload), MEASURES[line.measure], value, f"≤ {line.bar:g}", verdict_of(line.holds))
    where.print(table)
    good = sum(line.holds for line in lines)
    where.print(f"{good} of {len(lines)} bars of pages hold")
    return good == len(lines)
