"""`swerve config`: checks a configuration of the service, or shows the effective one."""

from __future__ import annotations

import dataclasses
import json
import re
import textwrap
from pathlib import Path
from typing import Any

import click

from swerve.cli.common import json_option, need_service, write_json

need_service("`swerve config`")

import msgspec  # noqa: E402

from swerve.service.config.load import ConfigError, all_fields, load, policy_of, senses_of, signal_names  # noqa: E402
from swerve.service.config.sections import Config  # noqa: E402

#: Characters per line of a comment in the TOML that `show` prints.
WIDTH = 110


@click.group("config")
def command() -> None:
    """The configuration of `swerve serve`: a TOML file (docs/configuration.md has every field)."""


@command.command("check")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@json_option
def check(file: Path, json_to: str | None) -> None:
    """Report every error in FILE with its line; the exit status is 0 if FILE can be used and 1 if not.

    The environment is applied as by the service; nothing is started or written.
    """
    try:
        config = load(file)
    except ConfigError as error:
        found = [{"line": one.line, "key": one.key, "message": one.message} for one in error.troubles]
        if not write_json(json_to, {"file": str(file), "ok": False, "errors": found}):
            click.echo("\n".join(error.lines()))
        raise click.exceptions.Exit(1) from None
    if not write_json(json_to, {"file": str(file), "ok": True, "errors": []}):
        signals = ", ".join(signal_names(config)) or "none"
        click.echo(f"{file}: right. Policy {policy_of(config)}; signals {signals}; store {config.store.url}")


@command.command("show")
@click.argument("file", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@json_option
def show(file: Path | None, json_to: str | None) -> None:
    """Print the effective configuration as TOML: FILE (default: the file in SWERVE_CONFIG), the environment, and the defaults.

    The output is a valid configuration file, except that the hashes of API keys are left out.
    """
    config = load(file)
    if not write_json(json_to, effective(config)):
        click.echo(as_toml(config), nl=False)


def effective(config: Config) -> dict[str, Any]:
    """Return every field with its value, by section, without the hashes of API keys."""
    out: dict[str, Any] = msgspec.to_builtins(config)
    del out["signals"]["tuning"]
    out["signals"] |= dataclasses.asdict(senses_of(config))
    out["security"]["api_keys"] = [
        {name: value for name, value in msgspec.to_builtins(key).items() if name != "hash"} for key in config.security.api_keys
    ]
    return out


def as_toml(config: Config) -> str:
    """Return `effective` as a commented TOML file."""
    values = effective(config)
    lines: list[str] = []
    section = ""
    for field in all_fields():
        if field.section not in values:  # the fields of an API key are shown with the key
            continue
        if field.section != section:
            section = field.section
            lines += ["", f"[{section}]"]
        lines += textwrap.wrap(field.meaning, WIDTH, initial_indent="# ", subsequent_indent="# ")
        value = values[section][field.name]
        if field.name == "api_keys":
            lines += [f"# API key {toml(key['name'])} (hash not shown), scopes = {toml(key['scopes'])}" for key in value] or [
                "# api_keys: none"
            ]
        elif value is None:
            lines.append(f"# {field.name} = (not set)")
        elif isinstance(value, dict) and value:  # inline, because a [table] would swallow the following fields
            lines.append(f"{field.name} = {toml(value)}")
        else:
            lines.append(f"{field.name} = {toml(value)}")
    for name, space in values["namespaces"].items():
        lines += ["", f"[namespaces.{toml_key(name)}]"]
        lines += [f"{key} = {toml(value)}" for key, value in space.items() if value is not None]
    return "\n".join(lines[1:]) + "\n"


def toml(value: Any) -> str:
    """Return a value as TOML.

    >>> toml([True, 1, 2.5, 'a"b', {}])
    '[true, 1, 2.5, "a\\\\"b", {}]'
    """
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml, value))}]"
    if isinstance(value, dict) and value:
        return f"{{ {', '.join(f'{toml_key(name)} = {toml(each)}' for name, each in value.items() if each is not None)} }}"
    # TOML writes strings, numbers and booleans as JSON does, except for DEL
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def toml_key(name: str) -> str:
    """Return a key, quoted if necessary."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else toml(name)
