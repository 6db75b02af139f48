"""`swerve rules`: pins, blocks, boosts and the kill switch of a running service."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click
from rich.markup import escape

from swerve.cli.common import console, errors, figures, json_option, write_json
from swerve.core.errors import SwerveError

if TYPE_CHECKING:
    from swerve.client import Client
    from swerve.serving.control import Rule

#: Seconds of each unit of a duration.
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhdw])")

#: The forms of an expiry, in words. Unix seconds are those of this century: a smaller number is a duration without its unit.
EXPIRIES = "a duration from now on (90m, 12h, 7d, 2w), a date and time with an offset (2030-12-31T18:00:00Z), or unix seconds"
LEAST_SECONDS = 946_684_800.0
#: The user and the password in an address.
CREDENTIALS = re.compile(r"(?<=://)[^/@]*@")

UNAUTHORISED = 401

F = TypeVar("F", bound=Callable[..., Any])

#: What a rule for a query does not reach.
EXACT = "rules in force; one for a query holds for exactly that text and those parts"
ANOTHER = (
    "the same text with a locale, filter, segment or namespace that the rule does not name is another query, without this rule"
)

url_option = click.option(
    "--url", envvar="SWERVE_URL", default="http://127.0.0.1:8350", show_default=True, show_envvar=True, help="The service."
)
key_option = click.option(
    "--key",
    envvar="SWERVE_API_KEY",
    show_envvar=True,
    help="An API key with the scope operate (to show an experiment: read), if the service needs one.",
)


@contextlib.contextmanager
def client_of(url: str, key: str | None) -> Iterator[Client]:
    """Give a client of the service; its errors are told in one line; where it does not answer, that names its address."""
    try:
        from swerve.client import Client, ClientError, ServiceAway, SwerveClientError
    except ImportError as error:
        raise SwerveError(str(error)) from None
    try:
        with Client(url, key, feedback_timeout=10.0) as client:
            yield client
    except ServiceAway as error:
        raise SwerveError(f"{error} ({CREDENTIALS.sub('...@', url)}; --url names another service)") from None
    except SwerveClientError as error:
        hint = " (--key or SWERVE_API_KEY gives a key)" if error.status == UNAUTHORISED else ""
        raise SwerveError(f"{error}{hint}") from None
    except ClientError as error:
        raise SwerveError(str(error)) from None


def read_until(ctx: click.Context, param: click.Parameter, text: str | None) -> float | str | None:
    """Return an expiry: a duration from now on, unix seconds, or a date and time as it is. Others are refused.

    >>> read_until(None, None, "2030-01-01T00:00:00Z"), read_until(None, None, "1.5e9")
    ('2030-01-01T00:00:00Z', 1500000000.0)
    """
    if text is None:
        return None
    if found := DURATION.fullmatch(text):
        return time.time() + float(found[1]) * UNITS[found[2]]
    with contextlib.suppress(ValueError):
        if float(text) >= LEAST_SECONDS:
            return float(text)
    with contextlib.suppress(ValueError):
        if datetime.fromisoformat(text).tzinfo is not None:
            return text
    raise click.BadParameter(f"{text!r} is no expiry; it must be {EXPIRIES}", ctx, param)


def where_options(command: F, namespace: str = "The namespace; without --query, all its queries.") -> F:
    """Add the options that name a query, or all."""
    options = (
        click.option("--query", help="The query, or key: and its key.  [default: all queries]"),
        click.option("--locale", help="The locale that the query is asked with."),
        click.option("--filter", help="The filter that the query is asked with."),
        click.option("--segment", help="The segment that the query is asked with."),
        click.option("--namespace", help=namespace),
    )
    for option in reversed(options):
        command = option(command)
    return command


def rule_options(command: F) -> F:
    """Add the options of a rule."""
    expiry = click.option("--until", callback=read_until, help=f"When it expires: {EXPIRIES}.  [default: never]")
    note = click.option("--note", help="Why, for people.")
    return where_options(expiry(note(call_options(command))))


def call_options(command: F) -> F:
    """Add the options of every call."""
    return url_option(key_option(json_option(command)))


@click.group("rules")
def command() -> None:
    """Stay in charge of a running service: pin, block and boost results, and switch the policy off (docs/operations.md).

    A rule is in force from the next request on, and durable. Set again, it replaces the one before. A rule for a query holds for
    exactly its text and the parts that are given: with a locale, filter, segment or namespace the text is another query.
    """


@command.command("list")
@call_options
def list_command(url: str, key: str | None, json_to: str | None) -> None:
    """List the rules in force."""
    with client_of(url, key) as client:
        rules = client.rules()
    if write_json(json_to, [as_json(rule) for rule in rules]):
        return
    if not rules:
        console.print("there is no rule")
        return
    table = figures(EXACT, "rule", "id", "where", "until", "set by", "note")
    for column in table.columns[1:]:
        column.justify = "left"
        column.no_wrap, column.overflow = False, "fold"
    for rule in rules:
        cells = (words(rule), str(rule.id), place(rule), when(rule.until), f"{rule.by or '–'}, {when(rule.at)}", rule.note or "")
        table.add_row(*map(escape, cells))
    console.print(table)


@command.command("pin")
@click.argument("result")
@click.argument("position", type=click.IntRange(1))
@rule_options
def pin(result: str, position: int, url: str, key: str | None, json_to: str | None, **where: Any) -> None:
    """Show RESULT at POSITION, from 1."""
    with client_of(url, key) as client:
        tell(client.pin(result, position, **where), json_to)


@command.command("block")
@click.argument("result")
@rule_options
def block(result: str, url: str, key: str | None, json_to: str | None, **where: Any) -> None:
    """Do not show RESULT."""
    with client_of(url, key) as client:
        tell(client.block(result, **where), json_to)


@command.command("boost")
@click.argument("result")
@click.argument("up", type=click.IntRange(1))
@rule_options
def boost(result: str, up: int, url: str, key: str | None, json_to: str | None, **where: Any) -> None:
    """Show RESULT UP positions above the place that the policy gives it."""
    with client_of(url, key) as client:
        tell(client.boost(result, up, **where), json_to)


@command.command("off")
@rule_options
def off(url: str, key: str | None, json_to: str | None, **where: Any) -> None:
    """Switch the policy off, for a query or for everything: the given order is shown, without blocked results."""
    with client_of(url, key) as client:
        tell(client.off(**where), json_to)


@command.command("on")
@where_options
@call_options
def on(url: str, key: str | None, json_to: str | None, **where: Any) -> None:
    """Switch the policy on again: removes the rule `off` for the query, or the one for everything."""
    with client_of(url, key) as client:
        removed = client.on(**where)
    if removed is None:
        raise SwerveError("there is no such rule `off`; `swerve rules list` shows the rules in force")
    tell(removed, json_to, "removed: ")


@command.command("remove")
@click.argument("rule", type=click.IntRange(1))
@call_options
def remove(rule: int, url: str, key: str | None, json_to: str | None) -> None:
    """Remove the rule with the id RULE."""
    with client_of(url, key) as client:
        tell(client.remove_rule(rule), json_to, "removed: ")


def as_json(thing: Any) -> Any:
    """Return a structure of the service as plain values."""
    import msgspec

    return msgspec.to_builtins(thing)


def tell(rule: Rule, json_to: str | None, before: str = "") -> None:
    """Print a rule."""
    if write_json(json_to, as_json(rule)):
        return
    until = "" if rule.until is None else f", until {when(rule.until)}"
    console.print(f"{before}rule {rule.id}: {words(rule)} for {place(rule)}{until}", soft_wrap=True, highlight=False, markup=False)
    if rule.query is not None and not before:
        errors.print(ANOTHER, soft_wrap=True, highlight=False)


def words(rule: Rule) -> str:
    """Return what a rule does."""
    return {
        "pin": f"pin {rule.result} at {rule.position}",
        "block": f"block {rule.result}",
        "boost": f"boost {rule.result} by {rule.up}",
        "off": "off",
    }[rule.kind]


def place(rule: Rule) -> str:
    """Return where a rule holds."""
    if rule.query is None:
        return "all queries" if rule.namespace is None else f"all queries of {rule.namespace}"
    parts = "".join(f" {name}={part}" for name, part in rule.parts.items())
    return f"exactly {rule.query!r}{parts}"


def when(at: float | None, seconds: bool = False) -> str:
    """Return a time for a table.

    >>> when(1.7e9), when(1.7e9, seconds=True), when(None)
    ('2023-11-14 22:13 UTC', '2023-11-14 22:13:20 UTC', '–')
    """
    form = "%Y-%m-%d %H:%M:%S UTC" if seconds else "%Y-%m-%d %H:%M UTC"
    return "–" if at is None else datetime.fromtimestamp(at, UTC).strftime(form)
