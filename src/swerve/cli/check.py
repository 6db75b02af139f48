"""`swerve check`: what holds for every algorithm, checked on the classes of a user's file."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import click
from rich.markup import escape

from swerve.cli.common import console, json_option, write_json
from swerve.core.errors import SwerveError
from swerve.core.loading import load_file

#: The kinds of classes, for an error.
KINDS = "policy (select), classifier (predict), detector (watch) or environment (world)"


@click.command("check")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@json_option
def command(file: Path, json_to: str | None) -> None:
    """Check the policies, classifiers, detectors and environments of FILE: one line for each check, and the reason where one fails.

    The exit status is 0 if everything holds and 1 if not. A class whose fields have no defaults gets plain parts (a bandit, a
    classifier, a detector), or the specs that its class method `examples` returns. Each class is compiled once.
    """
    import swerve.environments  # noqa: F401 - it has tables of names that a file may add to
    from swerve.conformance import examples_for, kinds_of, outcomes

    classes = load_file(file, "FILE")
    kinds = {cls: kinds_of(cls) for cls in classes}
    if not any(kinds.values()):
        named = ", ".join(cls.__name__ for cls in classes) or "no spec"
        raise SwerveError(f"FILE {file} has nothing to check: it defines {named}, and none of it is a {KINDS}")
    rows = []
    for cls, own in kinds.items():
        for kind in own:
            for subject in examples_for(cls):
                if json_to != "-":
                    console.print(f"[bold]{escape(repr(subject.spec))}[/bold], {kind}", soft_wrap=True)
                for outcome in outcomes(kind, subject):
                    rows.append({"spec": repr(subject.spec), **dataclasses.asdict(outcome)})
                    if json_to != "-":
                        mark = "[green]holds[/green] " if outcome.holds else "[red]FAILS[/red] "
                        reason = "" if outcome.holds else f": {outcome.reason}"
                        console.print(f"  {mark} {escape(outcome.check + reason)}", soft_wrap=True)
    failed = sum(not row["holds"] for row in rows)
    if not write_json(json_to, {"file": str(file), "holds": failed == 0, "checks": rows}):
        console.print(f"{len(rows) - failed} of {len(rows)} checks hold")
    if failed:
        raise click.exceptions.Exit(1)
