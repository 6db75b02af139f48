"""`swerve keys`: API keys for callers, and new keys for the service's own tokens."""

from __future__ import annotations

import re
from pathlib import Path
from typing import cast, get_args

import click

from swerve.cli.common import json_option, need_service, write_json
from swerve.core.errors import SwerveError, nearest

need_service("`swerve keys`")

from swerve.service.config.sections import NAME, NAMED, SCOPES, Scope  # noqa: E402
from swerve.service.secrets import beside, new_key, rotate  # noqa: E402


@click.group("keys")
def command() -> None:
    """Keys of the service: API keys of callers, and the key that signs decisions (docs/configuration.md)."""


def read_scopes(ctx: click.Context, _: click.Parameter, text: str) -> tuple[Scope, ...]:
    """`rank,read` as scopes."""
    words = [word.strip() for word in text.split(",")]
    for word in words:
        if word not in get_args(Scope):
            raise SwerveError(
                f"--scopes {text} is not allowed: unknown scope {word!r}{nearest(word, SCOPES)} (known: {', '.join(SCOPES)})"
            )
    return tuple(cast(Scope, word) for word in dict.fromkeys(words))


@command.command("new")
@click.argument("name")
@click.option(
    "--scopes", default=",".join(SCOPES), show_default=True, callback=read_scopes, help="What it is good for, separated by commas."
)
@json_option
def new(name: str, scopes: tuple[Scope, ...], json_to: str | None) -> None:
    """Make an API key for NAME and print it, once; the configuration keeps its hash."""
    if not re.search(NAME, name):
        raise SwerveError(f"NAME = {name!r} is not allowed; it must be {NAMED}")
    key = new_key(name, scopes)
    if write_json(json_to, {"key": key.text, "name": name, "hash": key.entry.hash, "scopes": list(scopes)}):
        return
    listed = ", ".join(f'"{scope}"' for scope in scopes)
    click.echo(f"The key, shown this once; callers send it as `Authorization: Bearer KEY`:\n\n    {key.text}\n")
    click.echo("For the end of the configuration file; the service reads it when it starts:\n")
    click.echo(f'    [[security.api_keys]]\n    name = "{name}"\n    hash = "{key.entry.hash}"\n    scopes = [{listed}]')


@command.command("rotate")
@click.argument("store_or_file")
def rotate_command(store_or_file: str) -> None:
    """Make a new key for the tokens of decisions; the one before it stays valid, an older one does not.

    STORE_OR_FILE is the store's address (its secrets lie beside it) or the file of secrets itself. The service takes the new key
    when it starts next. Rotate again only when the feedback window has passed: tokens of the dropped key are refused.
    The query key stays as it is, because the state of every query is found under it.
    """
    path = beside(store_or_file) if "://" in store_or_file else Path(store_or_file)
    rotate(path)
    click.echo(f"{path}: a new token key is in place, the one before it stays valid; restart the service to use it.")
