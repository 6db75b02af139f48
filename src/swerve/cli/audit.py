"""`swerve audit`: what operators did on a running service."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from rich.markup import escape

from swerve.cli.common import console, figures, json_option, write_json
from swerve.cli.rules import as_json, client_of, key_option, place, url_option, when, words

if TYPE_CHECKING:
    from swerve.serving.control import Change, Trial


@click.command("audit")
@click.option("--limit", type=click.IntRange(1, 1000), default=100, show_default=True, help="Changes to list at most.")
@url_option
@key_option
@json_option
def command(limit: int, url: str, key: str | None, json_to: str | None) -> None:
    """List what operators did, the latest first: rules set or removed, shifts, ramps, deletions; who, when, and what was before.

    The service keeps the last 1,000 changes.
    """
    with client_of(url, key) as client:
        changes = client.audit(limit)
    if write_json(json_to, [as_json(change) for change in changes]):
        return
    if not changes:
        console.print("nobody has changed anything")
        return
    table = figures("what operators did", "when", "who", "what", "before", "note")
    for column in table.columns[1:]:
        column.justify = "left"
        column.no_wrap, column.overflow = False, "fold"
    for change in changes:
        what, before = told(change)
        table.add_row(*map(escape, (when(change.at, seconds=True), change.by or "–", what, before, note_of(change))))
    console.print(table)


def trial_words(trial: Trial | None) -> str:
    """Return an experiment in words."""
    if trial is None:
        return "no experiment"
    against = "" if trial.control is None else f" against {trial.control}"
    return f"experiment {trial.name}, {100 * trial.treated:g} % treated{against}"


def note_of(change: Change) -> str:
    """Return why it was done, where somebody has said so."""
    rule, trial = change.after or change.before, change.trial_after
    return change.note or (None if rule is None else rule.note) or (None if trial is None else trial.note) or ""


def told(change: Change) -> tuple[str, str]:
    """Return a change, and what was before it, in words."""
    if change.what == "shift":
        return f"shift of {change.query}, phase {change.phase_after}", f"phase {change.phase_before}"
    if change.what == "ramp":
        return f"ramp: {trial_words(change.trial_after)}", trial_words(change.trial_before)
    if change.what == "delete":
        where = change.query or ("all queries" if change.namespace is None else f"all queries of {change.namespace}")
        return f"delete {where if change.result is None else f'{change.result} in {where}'}", "–"
    rule = change.after or change.before
    assert rule is not None, "a rule was set or removed"
    before = "–" if change.before is None else words(change.before)
    until = "" if rule.until is None else f", until {when(rule.until)}"
    return f"{change.what} rule {rule.id}: {words(rule)} for {place(rule)}{until}", before
