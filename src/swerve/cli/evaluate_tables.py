"""The tables of `swerve evaluate`."""

from __future__ import annotations

from typing import Any

from rich.markup import escape

from swerve.cli.common import NO_CLICKS, console, figures
from swerve.evaluate.estimators import Judgement
from swerve.evaluate.forecast import Forecast, Gain
from swerve.evaluate.report_text import (
    MODEL,
    NO_PROPENSITIES,
    between,
    bound_of,
    break_even_of,
    change_of,
    columns_of,
    estimate_of,
    gain_text,
    instant,
    lift_of,
    volume_of,
)
from swerve.evaluate.shifts import Found

#: Positions that the table shows; JSON has all.
POSITIONS = 10
#: Shifts that the table shows; JSON and the report have all.
SHIFTS = 20
#: Characters of a query or of a change in the table.
WIDTH = 40


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
    if "columns" in read:
        console.print(f"columns: {columns_of(read)}", soft_wrap=True, highlight=False, markup=False)
    if read["lists"] and not read["clicks"]:
        console.print(f"[yellow]{NO_CLICKS}[/yellow]", soft_wrap=True, highlight=False)
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
    if found.shifts:
        table = figures(
            "which queries shift",
            "query",
            "changed between (UTC)",
            "shares of clicks",
            "chance ≤",
            "volume",
            "clicks lost",
            "caught up",
        )
        for shift in found.shifts[:SHIFTS]:
            moved = "*" if shift.moved else ""
            table.add_row(
                short(shift.query), f" {between(shift)}", f" {short(change_of(shift))}", f" {shift.chance:.0e}",
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
        notes.append(f"With too few clicks: {found.too_few:,}; rare, and forgotten to bound the memory: {found.forgotten:,}.")
    if found.shifts:
        notes.append(
            "Clicks lost: by a model of examination, until the log's ranking caught up. *: the ranking moved at that time, and the "
            "clicks may only have followed it."
        )
    console.print(f"[dim]{' '.join(notes)}[/dim]", highlight=False)


def print_judgements(judgements: list[Judgement]) -> None:
    """Print what other rankings would have brought, by the log's propensities."""
    if not judgements:
        console.print(f"[bold]would it have helped?[/bold] {NO_PROPENSITIES}", highlight=False)
        return
    table = figures(
        "would it have helped? (clicks per list, 95 % intervals)",
        "target",
        "estimator",
        "clicks per list",
        "against the log",
        "effective lists",
    )
    for found in judgements:
        for name, each in found.estimates.items():
            table.add_row(
                found.target, f" {name}", f" {estimate_of(each)}", f" {lift_of(each, found.logged)}", f" {each.effective:,.0f}"
            )
    if table.row_count:
        console.print(table)
    else:
        console.print("[bold]would it have helped?[/bold] No target can be judged from this log.", highlight=False)
    for found in judgements:
        inside = f"{100 * min(found.inside, 1.0):.3g} %"
        note = f"no estimate: {found.refused}" if found.refused else f"{inside} of its choice lies inside the log's support"
        warned = f"; [yellow]{escape(found.warning)}[/yellow]" if found.warning else ""
        console.print(f"  {found.target}: {escape(note)}{warned}", soft_wrap=True, highlight=False)


def print_forecast(found: Forecast) -> None:
    """Print what each traffic band gains, by the model."""
    policies = list(found.everything)
    table = figures(
        "forecast by traffic band: a MODEL", "band", "queries", "lists", *(f"{name}" for name in policies), "swerve breaks even"
    )
    for band in found.bands:
        gains = [f" {gain_text(band.gains.get(policy))}" for policy in policies]
        table.add_row(band.name, f" {band.queries:,}", f" {band.lists:,}", *gains, f" {break_even_of(band.gains.get('swerve'))}")
    whole: list[Gain] = [found.everything[policy] for policy in policies]
    lists = sum(band.lists for band in found.bands)
    table.add_row(
        "all", f" {sum(band.queries for band in found.bands):,}", f" {lists:,}", *(f" {gain_text(gain)}" for gain in whole), ""
    )
    console.print(table)
    console.print(f"[dim]{MODEL}[/dim]", highlight=False)


def print_no_forecast() -> None:
    """Say that there is no forecast, and why."""
    console.print(
        "[bold]no forecast[/bold]: the log has results one by one, and does not say which were shown together", highlight=False
    )
