"""`swerve experiment`: the experiment of a running service, its share of treated traffic, and what it says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from rich.markup import escape

from swerve.cli.common import ask, console, figures, write_json
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
            ask(f"This ends the experiment {running} and drops its counts. Go on?")
        report = client.ramp(share, name=name, note=note)
    if not write_json(json_to, as_json(report)):
        console.print(f"experiment {report.name}: {100 * (report.treated or 0.0):g} % treated", highlight=False, markup=False)


def name_of_running(client: Client) -> str | None:
    """Return the name of the experiment that runs; None if there is none, or the key may not read."""
    report = last_report(client)
    return report.name if report is not None and report.running else None


def last_report(client: Client) -> Report | None:
    """Return the report of the experiment; None if the key may not read it."""
    from swerve.client import SwerveClientError

    try:
        return client.experiment()
    except SwerveClientError as error:
        if error.status != FORBIDDEN:
            raise
        return None


@command.command("end")
@click.option("--note", help="Why, for people.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@call_options
def end(note: str | None, yes: bool, url: str, key: str | None, json_to: str | None) -> None:
    """End the experiment: all traffic gets the policy's order, and the counts are dropped. To hold all out, ramp to 0.

    The last report is printed first, and the command asks before the counts are dropped. A key that may not read gets no report.
    """
    with client_of(url, key) as client:
        last = last_report(client)
        if last is not None and not last.running:
            if not write_json(json_to, as_json(last)):
                console.print("no experiment runs")
            return
        if last is not None and json_to is None:
            tell(last)
        if not yes:
            name = "the experiment" if last is None else f"the experiment {last.name}"
            ask(f"End {name} and drop its counts?")
        ended = client.ramp(name="", note=note)
    if not write_json(json_to, as_json(ended if last is None else last)):
        console.print("the experiment has ended: all traffic gets the policy's order")


def tell(report: Report) -> None:
    """Print a report."""
    if not report.running or report.outcomes is None or report.arms is None:
        console.print("no experiment runs; `swerve experiment ramp 5% --name NAME` begins one")
        return
    more = report.more_searches
    needed = "how many more searches it takes is not known yet" if more is None else f"about {more:,} more searches"
    soon = "" if report.verdict != "undecided" else f"; {needed}"
    alone = alone_because(report)
    against = "" if report.control is None else f" against {report.control}"
    said = f"experiment {report.name}, {100 * (report.treated or 0.0):g} % treated{against}: "
    say(said + VERDICTS[report.verdict or "undecided"] + (f"; {alone}" if alone else soon))
    if report.open:
        say(
            f"{report.open:,} visits wait to be judged, the first at {when(report.judged_at, seconds=True)}: "
            f"{duration(report.judged_after or 0.0)} after its first search"
        )
    arms = figures("since " + when(report.since), "arm", "searches", "with a click", "clicks", "reward", "visits judged")
    for name, arm in (("treated", report.arms.treated), ("control", report.arms.control)):
        numbers = (f"{arm.searches:,}", f"{arm.clicked:,}", f"{arm.clicks:,}", f"{arm.reward:,.1f}", f"{arm.visits:,}")
        arms.add_row(name, *(numbers if arm.searches else ("–",) * len(numbers)))
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
    say("difference weighs a visit by the share treated at its time, as ramps need; early it can differ from treated − control")
    for line in report.guarded or ():
        back = "its given order" if report.control is None else "the control's order"
        say(f"{line.query or line.name} is back in {back} until {when(line.until)}: {line.why}")


def say(text: str) -> None:
    """Print a sentence as it is."""
    console.print(text, highlight=False, markup=False, soft_wrap=True)


def alone_because(report: Report) -> str | None:
    """Return why there is nothing to compare now; None if there is."""
    if report.treated == 1.0:
        return "nothing is compared: at 100 % treated no unit is held out"
    if report.treated == 0.0:
        return "nothing is compared: at 0 % treated every unit is held out"
    return None


def duration(seconds: float) -> str:
    """Return a time span in words.

    >>> duration(1200.0), duration(0.2), duration(90.0), duration(86400.0)
    ('20 minutes', '0.2 seconds', '90 seconds', '24 hours')
    """
    for unit, size in (("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:g} {unit}"
    return f"{seconds:g} seconds"


def cells(effect: Effect) -> tuple[str, ...]:
    """Return the cells of an effect."""
    numbers = (effect.treated, effect.control, effect.difference, effect.low, effect.high)
    return (*("–" if value is None else f"{value:.4f}" for value in numbers), effect.verdict)
