"""`swerve experiment`: the experiment of a running service, its share of treated traffic, and what it says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from rich.markup import escape

from swerve.cli.common import console, figures, write_json
from swerve.cli.rules import as_json, call_options, client_of, when

if TYPE_CHECKING:
    from swerve.client import Client
    from swerve.serving.experiment import Effect, Report

FORBIDDEN = 403
VERDICTS = {"helps": "it helps", "hurts": "it hurts", "undecided": "not decided yet"}


def read_share(ctx: click.Context, param: click.Parameter, text: str) -> float:
    """Return a share: a number from 0 to 1, or a percentage.

    >>> read_share(None, None, "5%"), read_share(None, None, "0.5")
    (0.05, 0.5)

    A bare 1 is refused: it may be meant as 1 %.
    """
    try:
        share = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        share = -1.0
    if text == "1":
        raise click.BadParameter("1 may mean 1% or 100%; write one of these", ctx, param)
    if not 0 <= share <= 1:
        raise click.BadParameter(f"{text!r} is no share; it must be from 0 to 1, or from 0% to 100%", ctx, param)
    return share


@click.group("experiment")
def command() -> None:
    """Hold a running service against your own order: a share of the traffic is treated, the rest held out (docs/service.md)."""


@command.command("show")
@click.option("--limit", type=click.IntRange(0, 1000), default=10, show_default=True, help="Segments and queries to list at most.")
@call_options
def show(limit: int, url: str, key: str | None, json_to: str | None) -> None:
    """Show whether it helps, how sure that is, and how long until it is decided. Needs a key with the scope read."""
    with client_of(url, key) as client:
        report = client.experiment(limit)
    if write_json(json_to, as_json(report)):
        return
    tell(report)


@command.command("ramp")
@click.argument("share", callback=read_share)
@click.option("--name", help="Begin an experiment of this name.  [default: the one that runs]")
@click.option("--note", help="Why, for people.")
@click.option("--yes", is_flag=True, help="Do not ask before a new name ends the experiment that runs.")
@call_options
def ramp(share: float, name: str | None, note: str | None, yes: bool, url: str, key: str | None, json_to: str | None) -> None:
    """Treat SHARE of the units (0.05 or 5%) from the next request on. Units that are treated stay so when it rises.

    A --name other than that of the running experiment ends it and drops its counts. The command asks before that, if the key may
    read.
    """
    with client_of(url, key) as client:
        if name and not yes and (running := name_of_running(client)) not in (None, name):
            click.confirm(f"This ends the experiment {running} and drops its counts. Go on?", abort=True, err=True)
        report = client.ramp(share, name=name, note=note)
    if not write_json(json_to, as_json(report)):
        console.print(f"experiment {report.name}: {100 * (report.treated or 0.0):g} % treated", highlight=False, markup=False)


def name_of_running(client: Client) -> str | None:
    """Return the name of the experiment that runs; None if there is none, or the key may not read."""
    from swerve.client import SwerveClientError

    try:
        report = client.experiment(0)
    except SwerveClientError as error:
        if error.status != FORBIDDEN:
            raise
        return None
    return report.name if report.running else None


@command.command("end")
@click.option("--note", help="Why, for people.")
@call_options
def end(note: str | None, url: str, key: str | None, json_to: str | None) -> None:
    """End the experiment: all traffic gets the policy's order, and the counts are dropped. To hold all out, ramp to 0."""
    with client_of(url, key) as client:
        report = client.ramp(name="", note=note)
    if not write_json(json_to, as_json(report)):
        console.print("no experiment runs")


def tell(report: Report) -> None:
    """Print a report."""
    if not report.running or report.outcomes is None or report.arms is None:
        console.print("no experiment runs; `swerve experiment ramp 5% --name NAME` begins one")
        return
    more = report.more_searches
    soon = "" if report.verdict != "undecided" else f"; {'unknown how many' if more is None else f'about {more:,}'} more searches"
    said = f"experiment {report.name}, {100 * (report.treated or 0.0):g} % treated: {VERDICTS[report.verdict or 'undecided']}{soon}"
    console.print(said, highlight=False, markup=False, soft_wrap=True)
    arms = figures("since " + when(report.since), "arm", "searches", "with a click", "clicks", "reward", "visits judged")
    for name, arm in (("treated", report.arms.treated), ("control", report.arms.control)):
        arms.add_row(name, f"{arm.searches:,}", f"{arm.clicked:,}", f"{arm.clicks:,}", f"{arm.reward:,.1f}", f"{arm.visits:,}")
    console.print(arms)
    table = figures(
        "effect per search, 95 % at all times together", "outcome", "treated", "control", "difference", "from", "to", "verdict"
    )
    outcomes = (
        ("reward", report.outcomes.reward),
        ("clicks", report.outcomes.clicks),
        ("abandonment", report.outcomes.abandonment),
    )
    lines = [(line.query or line.name, line.effect) for line in (*(report.segments or ()), *(report.queries or ()))]
    for name, effect in (*outcomes, *lines):
        table.add_row(escape(name), *cells(effect))
    console.print(table)
    for line in report.guarded or ():
        text = f"{line.query or line.name} is back in its given order until {when(line.until)}: {line.why}"
        console.print(text, highlight=False, markup=False, soft_wrap=True)


def cells(effect: Effect) -> tuple[str, ...]:
    """Return the cells of an effect."""
    numbers = (effect.treated, effect.control, effect.difference, effect.low, effect.high)
    return (*("–" if value is None else f"{value:.4f}" for value in numbers), effect.verdict)
