"""`swerve list`: lists policies, environments and building blocks."""

from __future__ import annotations

import inspect
from typing import Any

import click
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from swerve.cli.common import console, json_option, load_option, write_json
from swerve.core.contract import predict, select, watch
from swerve.core.parse import spec_classes
from swerve.core.spec import Spec, base_of, field_types
from swerve.environments import WORKLOADS, environments
from swerve.environments.workloads import environment_of
from swerve.policies import POLICIES

#: Terminals with fewer columns than this get a list: three columns of text would be unreadable.
NARROW = 70


def summary(thing: Any) -> str:
    """Return the first line of a docstring."""
    return (inspect.getdoc(thing) or "").partition("\n")[0]


def parameters(cls: type[Spec]) -> dict[str, dict[str, Any]]:
    """Return a class's fields with defaults and allowed values."""
    out: dict[str, dict[str, Any]] = {}
    signature = inspect.signature(cls).parameters
    for name, annotation in field_types(cls).items():
        default = signature[name].default
        base, allowed = base_of(annotation)
        kind = str(allowed) if allowed is not None else {Spec: "a spec"}.get(base, getattr(base, "__name__", "a table"))
        out[name] = {"default": None if default is inspect.Parameter.empty else default, "allowed": kind}
    return out


def catalog() -> list[dict[str, Any]]:
    """Return everything that has a name, by kind."""
    rows: list[dict[str, Any]] = []
    for name, maker in POLICIES.items():
        defaults = {key: p.default for key, p in list(inspect.signature(maker).parameters.items())[1:]}
        rows.append({"kind": "policy", "name": name, "about": summary(maker), "parameters": defaults})
    for name, cls in spec_classes().items():
        for kind, verb in (("building block", select), ("classifier", predict), ("detector", watch)):
            if any(base in verb.implementations for base in cls.__mro__):
                fields = {key: field["default"] for key, field in parameters(cls).items()}
                rows.append({"kind": kind, "name": name, "about": summary(cls), "parameters": fields})
    for name, cls in environments().items():
        fields = {key: field["default"] for key, field in parameters(cls).items()}
        rows.append({"kind": "environment", "name": name, "about": summary(cls), "parameters": fields})
    for name, settings in WORKLOADS.items():
        what = environment_of(name).__name__
        rows.append({"kind": "workload", "name": name, "about": f"{what} with", "parameters": settings})
    return rows


@click.command("list")
@click.option(
    "--all", "everything", is_flag=True, help="Also list building blocks, classifiers and detectors, for your own compositions."
)
@load_option
@json_option
def command(everything: bool, json_to: str | None) -> None:
    """List policies, environments and workloads with their parameters and defaults."""
    rows = catalog()
    if write_json(json_to, [{**row, "parameters": {k: _shown(v) for k, v in row["parameters"].items()}} for row in rows]):
        return
    headings = {"policy": "policies"}
    for kind in ("policy", "building block", "classifier", "detector", "environment", "workload"):
        if kind in ("building block", "classifier", "detector") and not everything:
            continue
        if console.width < NARROW:
            console.print(f"[bold underline]{headings.get(kind, kind + 's')}[/bold underline]")
            for row in rows:
                if row["kind"] == kind:
                    console.print(Text(row["name"], style="bold"), Padding(row["about"], (0, 0, 0, 2)))
                    console.print(Padding(Text(listed(row["parameters"]), style="dim"), (0, 0, 0, 2)))
            continue
        table = Table(title=headings.get(kind, kind + "s"), title_justify="left", show_lines=False)
        table.add_column("name", style="bold", no_wrap=True)
        table.add_column("what it is", ratio=1)
        table.add_column("parameters", ratio=1)
        for row in rows:
            if row["kind"] == kind:
                table.add_row(row["name"], row["about"], listed(row["parameters"]))
        console.print(table)
    if not everything:
        console.print(
            "[dim]`swerve list --all` shows the classes that compose, as in 'BWC(Testable(KLUCB()), Rectangle(margin=0.05))'.[/dim]"
        )


def listed(parameters: dict[str, Any]) -> str:
    """Return parameters with their defaults as one line."""
    return ", ".join(k if v is None else f"{k}={_shown(v)}" for k, v in parameters.items()) or "–"


def _shown(value: Any) -> Any:
    return value if isinstance(value, int | float | str | bool) or value is None else repr(value)
