"""`swerve keys`: makes API keys for callers, and new keys for the service's own tokens."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import cast, get_args

import click

from swerve.cli.common import json_option, need_service, write_json
from swerve.core.errors import SwerveError, nearest
from swerve.store.urls import named_store, store_url

need_service("`swerve keys`")

from swerve.service.config.callers import SCOPES, Scope  # noqa: E402
from swerve.service.config.forms import NAME, NAMED, OPEN_NAME  # noqa: E402
from swerve.service.secrets import beside, new_key, rotate  # noqa: E402

#: How the name of a file of secrets ends; `beside` appends this to the name of the store.
SUFFIX = ".secrets"
#: The first bytes of every SQLite database.
SQLITE_MAGIC = b"SQLite format 3\0"


@click.group("keys")
def command() -> None:
    """Keys of the service: API keys of callers, and the key that signs decisions (docs/configuration.md)."""


def read_scopes(ctx: click.Context, _: click.Parameter, text: str) -> tuple[Scope, ...]:
    """Parse scopes such as `rank,read`."""
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
    "--scopes", default=",".join(SCOPES), show_default=True, callback=read_scopes, help="What the key allows, separated by commas."
)
@click.option("--namespace", "namespaces", multiple=True, help="Bind the key to this namespace; may be given several times.")
@click.option("--rate", type=click.FloatRange(0, 1_000_000), default=0.0, help="Requests a second.  [default: limits.rate]")
@click.option("--burst", type=click.IntRange(0, 1_000_000_000), default=0, help="Requests at once after a pause, with --rate.")
@json_option
def new(name: str, scopes: tuple[Scope, ...], namespaces: tuple[str, ...], rate: float, burst: int, json_to: str | None) -> None:
    """Make an API key for NAME and print it once; the configuration stores its hash."""
    if not re.search(NAME, name):
        raise SwerveError(f"NAME = {name!r} is not allowed; it must be {NAMED}")
    for space in namespaces:
        if not re.search(OPEN_NAME, space):
            raise SwerveError(f"--namespace {space!r} is not allowed; it must be {NAMED}, or empty")
    key = new_key(name, scopes)
    said = {"key": key.text, "name": name, "hash": key.entry.hash, "scopes": list(scopes)}
    more = {"namespaces": list(dict.fromkeys(namespaces)), "rate": rate, "burst": burst}
    more = {setting: value for setting, value in more.items() if value}
    if write_json(json_to, {**said, **more}):
        return
    listed = ", ".join(f'"{scope}"' for scope in scopes)
    click.echo(f"The key, shown this once; callers send it as `Authorization: Bearer KEY`:\n\n    {key.text}\n")
    click.echo("Append this to the configuration file; the service reads it when it starts:\n")
    click.echo(f'    [[security.api_keys]]\n    name = "{name}"\n    hash = "{key.entry.hash}"\n    scopes = [{listed}]')
    for setting, value in more.items():
        click.echo(f"    {setting} = {json.dumps(value)}")


@command.command("rotate")
@click.argument("store_or_file")
def rotate_command(store_or_file: str) -> None:
    """Make a new key that signs decisions; the previous key stays valid, an older one is dropped.

    STORE_OR_FILE is the store, an address or a file (its secrets lie beside it), or the file of secrets itself. The service uses
    the new key from its next start on. Rotate again only after the feedback window: tokens of the dropped key are refused.
    The query key does not change, because every query's state is stored under it.
    """
    path, store = secrets_of(store_or_file)
    if not path.exists() and store is not None and store.exists():
        raise SwerveError(lost(path, store))
    rotate(path)
    click.echo(f"{path}: a new token key is in place, the previous one stays valid; restart the service to use it.")


def secrets_of(text: str) -> tuple[Path, Path | None]:
    """Return the file of secrets that `text` names, directly or through its store, and the store if known.

    A plain path names a store if it is an SQLite database, or if there is no such file and the name does not end in `.secrets`.
    """
    if "://" not in text:
        path = Path(text)
        if path.suffix == SUFFIX:
            return path, path.with_suffix("")
        if path.exists() and not is_database(path):
            return path, None
    lying = beside(store_url(text))
    if lying is None:
        raise SwerveError("a store on a server has no secrets beside it; name their file, the service's security.secrets")
    return lying, named_store(text)


def is_database(path: Path) -> bool:
    """Return whether a file begins like an SQLite database."""
    with path.open("rb") as file:
        return file.read(len(SQLITE_MAGIC)) == SQLITE_MAGIC


def lost(path: Path, store: Path) -> str:
    """Say what to do about a store whose file of secrets is missing."""
    return (
        f"there are no secrets {path} to rotate, but the store {store} is there, and without its query key none of its queries can "
        f"be found. Bring {path} back from a backup (mode 0600). If there is no copy, the store's queries are lost: move the store "
        "away and start the service with --new-store, which makes a new store and new secrets. If the keys are in the variables "
        "SWERVE_TOKEN_KEY and SWERVE_QUERY_KEY, rotate there: move the present token key to SWERVE_TOKEN_KEY_OLD and put a new "
        "one into SWERVE_TOKEN_KEY"
    )
