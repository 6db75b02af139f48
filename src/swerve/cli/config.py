"""`swerve config`: checks a configuration of the service, or shows the effective one."""

from __future__ import annotations

import dataclasses
import json
import re
import textwrap
from pathlib import Path
from typing import Any

import click

from swerve.cli.common import json_option, load_option, need_service, write_json

need_service("`swerve config`")

import msgspec  # noqa: E402

from swerve.service.config.load import (  # noqa: E402
    ConfigError,
    Sources,
    all_fields,
    load,
    load_traced,
    policy_of,
    rival_of,
    senses_of,
    signal_names,
)
from swerve.service.config.proxying import Rule  # noqa: E402
from swerve.service.config.sections import Config, sections as known_sections  # noqa: E402
from swerve.service.config.toml import dotted  # noqa: E402
from swerve.store.urls import shown_url  # noqa: E402

#: Characters per line of a comment in the TOML that `show` prints.
WIDTH = 110


@click.group("config")
def command() -> None:
    """The configuration of `swerve serve`: a TOML file (docs/configuration.md has every field)."""


@command.command("check")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@load_option
@json_option
def check(file: Path, json_to: str | None) -> None:
    """Report every error in FILE with its line, and warn of a proxy's window that is too wide; the exit status is 0 if FILE can be
    used and 1 if not.

    The environment is applied as by the service; nothing is started or written. Policies that cannot serve, because they must be
    told of events, are refused; files with your own classes (--load, policy.load) are run.
    """
    try:
        config = load(file)
    except ConfigError as error:
        found = [{"line": one.line, "key": one.key, "message": one.message} for one in error.troubles]
        if not write_json(json_to, {"file": str(file), "ok": False, "errors": found}):
            click.echo("\n".join(error.lines()))
        raise click.exceptions.Exit(1) from None
    warnings = too_wide(config)
    if not write_json(json_to, {"file": str(file), "ok": True, "errors": [], "warnings": warnings}):
        signals = ", ".join(signal_names(config)) or "none"
        rival = rival_of(config)
        control = "" if rival is None else f" against {rival}"
        click.echo(f"{file}: right. Policy {policy_of(config)}{control}; signals {signals}; store {shown_url(config.store.url)}")
        for warning in warnings:
            click.echo(f"{file}: warning: {warning}")


def too_wide(config: Config) -> list[str]:
    """Return what there is to say of rules of the proxy whose windows have more results than the service takes."""
    own, most = config.proxy, config.limits.candidates
    said = [(f"proxy.rules[{at}].window = {rule.window}", rule) for at, rule in enumerate(own.rules)]
    if own.upstream and not said:
        said = [(f"proxy.rules: the window = {Rule().window} of a rule with defaults", Rule())]
    out = []
    for name, rule in said:
        space = (config.namespaces.get(rule.namespace) or config.namespaces.get("*")) if rule.namespace else None
        taken = min(most, space.candidates or most) if space is not None else most
        if rule.window > taken:
            out.append(
                f"{name} is more than the {taken} candidates that the service takes (limits.candidates, at most policy.arms): "
                f"{taken} results are re-ranked"
            )
    return out


@command.command("show")
@click.argument("file", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@json_option
def show(file: Path | None, json_to: str | None) -> None:
    """Print the effective configuration as TOML: FILE (default: the file in SWERVE_CONFIG), the environment, and the defaults.

    A comment says where each value comes from: a line of FILE, a variable, or the default. The output is a valid configuration
    file, except that the hashes of API keys are left out.
    """
    config, sources = load_traced(file)
    if not write_json(json_to, {**effective(config), "sources": sources_of(config, sources)}):
        click.echo(as_toml(config, sources), nl=False)


def sources_of(config: Config, sources: Sources) -> dict[str, str]:
    """Return where the value of each setting comes from, by its dotted name."""
    fields = [(field.section, field.name) for field in all_fields() if field.section in known_sections()]
    return {dotted(where): sources.of(where) for where in (*fields, *(("namespaces", name) for name in config.namespaces))}


def effective(config: Config) -> dict[str, Any]:
    """Return every field with its value, by section, without the hashes of API keys and the password of a store."""
    out: dict[str, Any] = msgspec.to_builtins(config)
    del out["signals"]["tuning"]
    out["signals"] |= dataclasses.asdict(senses_of(config))
    out["store"]["url"] = shown_url(config.store.url)
    out["security"]["api_keys"] = [
        {name: value for name, value in msgspec.to_builtins(key).items() if name != "hash"} for key in config.security.api_keys
    ]
    return out


def as_toml(config: Config, sources: Sources) -> str:
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
        value, source = values[section][field.name], f"  # {sources.of((section, field.name))}"
        if field.name == "api_keys":
            lines += [f"# API key {toml(key['name'])} (hash not shown), scopes = {toml(key['scopes'])}{source}" for key in value]
            lines += [] if value else [f"# api_keys: none{source}"]
        elif value is None:
            lines.append(f"# {field.name} = (not set)")
        else:  # a table too is inline, because a [table] would swallow the following fields
            lines.append(f"{field.name} = {toml(value)}{source}")
    for name, space in values["namespaces"].items():
        lines += ["", f"[namespaces.{toml_key(name)}]  # {sources.of(('namespaces', name))}"]
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
