"""Addresses of stores: `sqlite:///folder/swerve.db`, a plain path where a person names a store, or that of a server.

The module of a server's engine is imported when such a store is opened, because it needs an extra.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from swerve.core.errors import SwerveError, nearest
from swerve.store import postgresql_address, valkey_urls
from swerve.store.directory import Shares
from swerve.store.opened import UNBOUNDED
from swerve.store.protocol import InUse, Store, missing
from swerve.store.shares import Share, share_path, shares_of
from swerve.store.sqlite import SQLiteStore


class Engine(NamedTuple):
    """An engine that is a server: the module with its `opened` and `exists`, that with its `copy`, `copy_log` and `verify`, that
    with its directory, a function that raises for a wrong address, one that returns the address of a share, one that returns an
    address without its password, and what makes backups."""

    module: str
    copying: str
    directory: str
    check: Callable[[str], object]
    share: Callable[[str, Share], str]
    shown: Callable[[str], str]
    backup: str


#: The engines that are servers, by the scheme of their addresses.
SERVERS = {
    postgresql_address.SCHEME: Engine(
        "swerve.store.postgresql",
        "swerve.store.postgresql_copy",
        "swerve.store.postgresql_directory",
        postgresql_address.address_of,
        postgresql_address.share_url,
        postgresql_address.shown,
        "pg_dump or pg_basebackup",
    ),
    **dict.fromkeys(
        valkey_urls.SCHEMES,
        Engine(
            "swerve.store.valkey",
            "swerve.store.valkey_copy",
            "swerve.store.valkey_directory",
            valkey_urls.address_of,
            valkey_urls.share_url,
            valkey_urls.shown,
            "BGSAVE, or a copy of the server's append-only files",
        ),
    ),
}
SCHEMES = ("sqlite", *SERVERS)
#: Seconds between two looks whether the owner of a file has ended.
STANDBY_SECONDS = 0.5

PREFIX = "sqlite:///"
FORMS = f"{PREFIX}relative/path.db or {PREFIX}/absolute/path.db"


def store_path(url: str) -> Path:
    """Return the file that a `sqlite:///` address names.

    >>> store_path("sqlite:///state/swerve.db").as_posix(), store_path("sqlite:////var/swerve.db").as_posix()
    ('state/swerve.db', '/var/swerve.db')
    >>> store_path("sqlite://swerve.db")
    Traceback (most recent call last):
    swerve.core.errors.SwerveError: store 'sqlite://swerve.db' is not allowed; a store must be sqlite:///relative/path.db or ...
    """
    scheme, _, rest = url.partition("://")
    if scheme in SERVERS:
        raise SwerveError(f"store {shown_url(url)!r} is not allowed here: it is no file; name one as {FORMS}")
    if scheme != "sqlite" and rest:
        known = ", ".join(SCHEMES)
        raise SwerveError(f"store {url!r} is not allowed: there is no engine {scheme!r}{nearest(scheme, SCHEMES)} (known: {known})")
    if not rest.startswith("/") or rest.endswith("/") or ":memory:" in rest or "\0" in rest:
        raise SwerveError(f"store {url!r} is not allowed; a store must be {FORMS}{_meant(url)}")
    path = Path(rest[1:])
    if path.is_dir():
        raise SwerveError(f"store {url!r} is not allowed: it is a folder; name a file in it")
    return path


def _meant(url: str) -> str:
    """Return a suggestion for an address without its prefix, or with only a part of it; empty for any other address."""
    path = url.removeprefix("sqlite:").removeprefix("//")
    if url.startswith(PREFIX) or not path or path.endswith("/") or ":memory:" in path or "\0" in path:
        return ""
    return f"; did you mean {PREFIX}{path}?"


def store_url(text: str) -> str:
    """Return the address of a store that is named by its address or by a plain path.

    >>> store_url("sqlite:///state/swerve.db"), store_url("state/swerve.db"), store_url("/var/swerve.db")
    ('sqlite:///state/swerve.db', 'sqlite:///state/swerve.db', 'sqlite:////var/swerve.db')
    """
    return text if "://" in text or text.startswith("sqlite:") else f"{PREFIX}{text}"


def named_store(text: str) -> Path:
    """Return the file of a store that is named by its address or by a plain path.

    >>> named_store("sqlite:///state/swerve.db") == named_store("state/swerve.db")
    True
    """
    return store_path(store_url(text))


def share_urls(url: str) -> list[str]:
    """Return the addresses of all shares of a store. On a server those count that were begun."""
    server = server_of(url)
    if server is not None:
        known = shares_at(url)
        shares = [] if known is None else [Share(number, known.of) for number in range(1, known.of)]
        return [url, *(found for share in shares if store_exists(found := server.share(url, share)))]
    first, *others = shares_of(store_path(url))
    return [url if first == store_path(url) else f"{PREFIX}{first}", *(f"{PREFIX}{path}" for path in others)]


def share_url(url: str, share: Share) -> str:
    """Return the address of one share of a store."""
    server = server_of(url)
    return f"{PREFIX}{share_path(store_path(url), share)}" if server is None else server.share(url, share)


def open_directory(url: str) -> Any:
    """Return the directory of a store on a server, see `swerve.store.directory`. Raises `SwerveError` if its extra is not
    installed."""
    server = server_of(url)
    assert server is not None
    return importlib.import_module(server.directory).opened(url)


def shares_at(url: str) -> Shares | None:
    """Return how many shares a store on a server has; None: one, and no directory. Raises `StoreError` if it cannot be asked."""
    with open_directory(url) as directory:
        found: Shares | None = directory.shares()
    return found


def server_of(url: str) -> Engine | None:
    """Return the engine of an address that names a server; None for a file.

    >>> server_of("sqlite:///swerve.db") is None, server_of("postgresql://localhost/search").backup
    (True, 'pg_dump or pg_basebackup')
    """
    scheme, named, _ = url.partition("://")
    return SERVERS.get(scheme) if named else None


def check_url(url: str) -> None:
    """Raise `SwerveError` for an address that names no store."""
    server = server_of(url)
    if server is None:
        store_path(url)
    else:
        server.check(url)


def shown_url(url: str) -> str:
    """Return an address as it may be shown: without a password."""
    server = server_of(url)
    return url if server is None else server.shown(url)


def module_of(url: str) -> Any:
    """Return the module of a server's engine. Raises `SwerveError` if its extra is not installed."""
    server = server_of(url)
    assert server is not None
    return importlib.import_module(server.module)


def copying_of(url: str) -> Any:
    """Return the module that makes files of a server's store."""
    server = server_of(url)
    assert server is not None
    return importlib.import_module(server.copying)


def refuse_server(text: str, command: str) -> None:
    """Raise `SwerveError` if a command for files is given a store on a server."""
    server = server_of(text)
    if server is not None:
        raise SwerveError(
            f"`swerve {command}` is for stores in files; for {shown_url(text)} use {server.backup}, and keep the secrets with the "
            "backup (docs/operations.md)"
        )


def store_exists(url: str) -> bool:
    """Return whether there is a store at an address; does not open it. Raises `StoreError` if a server cannot be asked."""
    if server_of(url) is None:
        return store_path(url).exists()
    found: bool = module_of(url).exists(url)
    return found


def open_store(
    url: str,
    *,
    worker: str = "0",
    new: bool = False,
    most: int = UNBOUNDED,
    new_log: bool = False,
    may_lose_clicks: bool = False,
    waiting: Callable[[str], None] | None = None,
    begin: bool = True,
) -> Store:
    """Open the store at `url` and own it until it is closed.

    Creates the store if it does not exist and no trace of a file (log or lock) shows that one was there before; without `begin`,
    because its secrets show that one was there, it creates none; `new` creates it in spite of such traces. `most` bounds the size
    of data and SQLite's log together, in bytes. `new_log` begins a new log, in place of one that is missing or damaged: what only
    that one has is lost. `may_lose_clicks` accepts a server whose failover loses clicks. If another process owns the store, `InUse`
    is raised; with `waiting`, that is called with the reason instead, and the store is opened when that process has ended.
    """
    if server_of(url) is not None:
        opened: Store = module_of(url).opened(
            url, worker, new=new, most=most, new_log=new_log, may_lose_clicks=may_lose_clicks, waiting=waiting, begin=begin
        )
        return opened
    told, path = "", store_path(url)
    if not (begin or new or path.exists()):
        raise missing(str(path))
    while True:
        try:
            return SQLiteStore(path, worker, new=new, most=most, new_log=new_log)
        except InUse as error:
            if waiting is None:
                raise
            if str(error) != told:
                told = str(error)
                waiting(told.partition(";")[0])  # without what to do about it: this is done
        time.sleep(STANDBY_SECONDS)
