"""`swerve demo`: simulated intent shifts and the rankings that follow them, on a page, in the terminal, or as a summary."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import click
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from swerve.cli.common import LARGEST_PORT, console, counted, figures, json_option, need_service, number, write_json
from swerve.core.errors import SwerveError

if TYPE_CHECKING:
    from swerve.demo.server import Demo

#: The policies in the order of the tables, with their descriptions.
POLICIES = {
    "swerve": "Swerve, live",
    "fixed": "the search engine's own order",
    "oracle": "told of every shift",
    "bwc": "BWC, the paper's",
    "ucb1": "UCB1, notices nothing",
}
#: The parts of the traffic that are counted apart.
BANDS = {"head": "famous queries", "tail": "young queries"}
LOOK = 0.5  # seconds between updates in a terminal: often enough to look alive
LINES = 5.0  # seconds between lines if standard output is no terminal
RECENT = 3  # events shown below the live table
SLOW_START = 3.0  # seconds after which a start is probably compiling, and a line says so
HEADLESS_SECONDS = 20.0  # of playing: a scenario at a pace that the service keeps up with
DEFAULT_SPEED = 200.0  # simulated minutes per second: a day takes seven seconds


def standings(state: dict[str, Any], demo: Demo) -> RenderableType:
    """Return the present state of the simulation as a table."""
    table = figures(f"{state['title']}, {state['day']}", "ranking by", "CTR", "clicks lost to the best")
    for name, words in POLICIES.items():
        table.add_row(f"{name}: {words}", f"{state['ctr'][name]:.1%}", number(state["regret"][name]))
    pace = "paused" if state["paused"] else "over" if state["ended"] else f"×{state['reached']:,.0f}"
    below = [f"{state['impressions']:,} impressions, {pace}", against_engine(state)]
    for event, adapted in list(zip(state["events"], state["adapt"], strict=True))[-RECENT:]:
        how = "not followed yet" if adapted["impressions"] is None else f"followed after {adapted['impressions']} impressions"
        below.append(f"“{event['query']}”: now {event['to']}; {how}")
    return Group(Text(f"{demo.address}  (Ctrl-C ends)", style="bold cyan"), table, Text("\n".join(below), style="dim"))


def line(state: dict[str, Any]) -> str:
    """Return the present state of the simulation as one line."""
    ctr = ", ".join(f"{name} {state['ctr'][name]:.1%}" for name in POLICIES)
    return f"{state['day']}: {state['impressions']:,} impressions; CTR {ctr}; {against_engine(state)}"


def against_engine(found: dict[str, Any]) -> str:
    """Return the clicks gained over the search engine's own order, for each part of the traffic.

    >>> against_engine({"head": {"gained_percent": 31.44, "impressions": 4000}, "tail": {"gained_percent": None, "impressions": 0}})
    "clicks beyond the engine's order: famous queries +31.4 %, young queries none yet"
    """
    parts = []
    for part, words in BANDS.items():
        gained = found[part]["gained_percent"]
        parts.append(f"{words} none yet" if gained is None else f"{words} {gained:+.1f} %")
    return f"clicks beyond the engine's order: {', '.join(parts)}"


def lift(experiment: dict[str, Any]) -> list[str]:
    """Return what the experiment says, against the users who were held out.

    >>> arms = {"treated": {"searches": 800}, "control": {"searches": 200}}
    >>> reward = {"difference": 0.151, "low": 0.12, "high": 0.182, "relative": 0.4}
    >>> found = {"running": True, "verdict": "helps", "arms": arms, "outcomes": {"reward": reward}}
    >>> lift(found)
    ['hold-out: 200 of 1,000 searches; clicked searches +15.1 points (+40 %), from +12.0 to +18.2, at any time with 95 %: it helps']
    """
    if not experiment["running"]:  # ended by a person
        return []
    arms, reward = experiment["arms"], experiment["outcomes"]["reward"]
    held = arms["control"]["searches"]
    said = f"hold-out: {held:,} of {held + arms['treated']['searches']:,} searches; "
    if reward["difference"] is None:
        return [said + "nothing to compare yet"]
    low, high, difference = (100 * reward[name] for name in ("low", "high", "difference"))
    share = "" if reward["relative"] is None else f" ({reward['relative']:+.0%})".replace("%", " %")
    words = {"helps": "it helps", "hurts": "it hurts", "undecided": "not decided yet"}[experiment["verdict"]]
    return [
        f"{said}clicked searches {difference:+.1f} points{share}, from {low:+.1f} to {high:+.1f}, at any time with 95 %: {words}"
    ]


def summary(found: dict[str, Any]) -> RenderableType:
    """Return the summary of a finished simulation."""
    title = (
        f"{found['scenario']}: {found['impressions']:,} impressions, {found['days']:.1f} simulated days in {found['seconds']:.0f} s"
    )
    table = figures(title, "ranking by", "CTR", "CTR of the top", "clicks lost to the best")
    for name, words in POLICIES.items():
        top = f"{found['ctr_top'][name]:.1%}"
        table.add_row(f"{name}: {words}", f"{found['ctr'][name]:.1%}", top, number(found["regret"][name]))
    gained, percent = found["ctr_gained"]["points"], found["ctr_gained"]["percent"]
    share = "" if percent is None else f" ({percent:+.0f} %)"
    parts = [f"CTR gained over the search engine's own order: {gained:+.1f} points{share}"]
    for part, words in BANDS.items():
        one = found[part]
        clicks, engine = one["clicks"]["swerve"], one["clicks"]["fixed"]
        percent = "" if one["gained_percent"] is None else f", {one['gained_percent']:+.1f} %"
        parts.append(f"{words}, {one['impressions']:,} impressions: {clicks:,} clicks, {engine:,} with the engine's order{percent}")
    for name in ("swerve", "fixed"):
        parts.append(f"clicks by slot, {name}: {' '.join(f'{clicks:,}' for clicks in found['slots'][name])}")
    for event in found["events"]:
        took = event["impressions"]
        how = "not followed before the next, or the end" if took is None else f"followed after {took} impressions"
        parts.append(f"“{event['query']}” turns to {event['to']}: {how}")
    parts += lift(found["experiment"])
    if found["pinned"] is not None:
        pin = found["pinned"]
        where = f"“{pin['query']}” had {pin['result']} at {pin['position']}"
        parts.append(f"an operator's pin: {pin['searches']:,} searches for {where}")
    parts.append(
        f"{counted(found['alarms'], 'new phase')}, {counted(found['false_alarms'], 'false alarm')} among them; "
        f"{counted(found['degraded'], 'degraded answer')}"
    )
    return Group(table, Text("\n".join(parts)))


def watch(demo: Demo, stop: threading.Event, quiet: bool) -> None:
    """Show the simulation until `stop`: a live table in a terminal, occasional lines elsewhere, nothing if `quiet`."""
    began = time.monotonic()
    announced = False
    if quiet or not console.is_terminal or console.is_dumb_terminal:
        slow = False
        while not stop.wait(LINES if announced else LOOK):
            if demo.state is None and not (quiet or slow) and time.monotonic() - began > SLOW_START:
                console.print("starting: the first start compiles for a minute or two", highlight=False, soft_wrap=True)
                slow = True
            if demo.state is not None and not quiet:
                if not announced:
                    console.print(f"the page: {demo.address}", highlight=False, soft_wrap=True)
                    announced = True
                console.print(line(demo.state), highlight=False, soft_wrap=True)
        return
    with Live(console=console, transient=True, refresh_per_second=2, redirect_stdout=False, redirect_stderr=False) as live:
        while not stop.wait(LOOK):
            if demo.state is None:
                waited = time.monotonic() - began
                waiting = f"starting, {waited:.0f} s"
                if waited > SLOW_START:
                    waiting += " (the first start compiles for a minute or two)"
                live.update(Text(f"{demo.address}  {waiting}" if demo.address else waiting, style="cyan"))
            else:
                live.update(standings(demo.state, demo))


def checked_scenario(ctx: click.Context, _: click.Parameter, name: str) -> str:
    """Refuse an unknown scenario before anything starts."""
    need_demo()
    from swerve.demo import scenarios

    return scenarios.load(name).name


def need_demo() -> None:
    """Refuse the demo if the packages of its extra are missing."""
    need_service("the demo")
    try:
        import httpx  # noqa: F401
        import tantivy  # noqa: F401
    except ImportError as error:
        raise SwerveError(f"the demo needs the package {error.name}; install Swerve with its extra `demo`") from None


@click.command("demo")
@click.option(
    "--scenario", default="hurricane", show_default=True, callback=checked_scenario,
    help="The scenario: hurricane, independence-day, tomato, storm (many shifts at once) or quiet (none).",
)  # fmt: skip
@click.option(
    "--speed", type=click.FloatRange(1, 1000), default=None,
    help="Simulated minutes per second, 1 to 1000.  [default: 200; headless: the whole scenario in --seconds]",
)  # fmt: skip
@click.option(
    "--port", type=click.IntRange(0, LARGEST_PORT), default=None, help="Port; 0 takes any free one.  [default: 8350 if free]"
)
@click.option(
    "--store", metavar="STORE", help="Keep the state here: an address (sqlite:///PATH) or a file.  [default: a temporary folder]"
)
@click.option("--headless", is_flag=True, help="No table: play for --seconds, then print a summary.")
@click.option("--seconds", type=click.FloatRange(1), default=None, help="End after this many seconds of playing.  [headless: 20]")
@click.option(
    "--seed",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="Seed of the simulated users; the live service's rankings also depend on the pace.",
)
@json_option
def command(
    scenario: str, speed: float | None, port: int | None, store: str | None, headless: bool, seconds: float | None, seed: int,
    json_to: str | None,
) -> None:  # fmt: skip
    """See it swerve: a service with its page, a search engine behind it, and simulated users whose intent shifts.

    Open the printed address. The users search a small corpus of ambiguous queries, and the scenario changes which results they
    want. The service is not told of the changes and must detect them. BWC, UCB1, an oracle and the search engine's own order rank
    for the same users. A fifth of the users is held out, for an experiment that says whether it helps.
    """
    from swerve.demo import scenarios
    from swerve.demo.clock import PACE
    from swerve.demo.server import DEFAULT_PORT, FASTEST, SLOWEST, Demo, Options, free_port
    from swerve.store.urls import store_url

    if headless and seconds is None:
        seconds = HEADLESS_SECONDS
    if speed is None:
        fitting = scenarios.load(scenario).length / PACE / seconds if headless and seconds else DEFAULT_SPEED
        speed = min(max(fitting, SLOWEST), FASTEST)
    demo = Demo(Options(scenario, speed, seed, port, None if store is None else store_url(store), seconds))
    if port is None and free_port(None) != DEFAULT_PORT and json_to != "-":
        console.print(f"port {DEFAULT_PORT} is taken: using another free port", highlight=False)
    stop = threading.Event()
    watching = threading.Thread(target=watch, args=(demo, stop, headless and json_to == "-"), name="swerve-terminal", daemon=True)
    watching.start()
    try:
        demo.run()
    finally:
        stop.set()
        watching.join()
    if demo.summary is None:
        raise SwerveError("the demo ended before there was anything to summarise")
    try:
        if write_json(json_to, demo.summary):
            return
    except OSError as error:
        console.print(summary(demo.summary))
        raise SwerveError(f"--json {json_to} cannot be written: {error.strerror or error}") from None
    console.print(summary(demo.summary))
