"""Addresses of stores: `sqlite:///folder/swerve.db`, or a plain path where a person names a store."""

from __future__ import annotations

from pathlib import Path

from swerve.core.errors import SwerveError, nearest
from swerve.store.opened import UNBOUNDED
from swerve.store.protocol import Store
from swerve.store.sqlite import SQLiteStore

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
    if scheme != "sqlite" and rest:
        raise SwerveError(
            f"store {url!r} is not allowed: there is no engine {scheme!r}{nearest(scheme, ['sqlite'])} (known: sqlite)"
        )
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


def open_store(url: str, *, worker: str = "0", new: bool = False, most: int = UNBOUNDED, new_log: bool = False) -> Store:
    """Open the store at `url` and own it until it is closed.

    Creates the file if it does not exist and no trace (log or lock) shows that a store was there before; `new` creates it in spite
    of such a trace. `most` bounds the size of data and SQLite's log together, in bytes. `new_log` begins a new log, in place of one
    that is missing or damaged: what only that one has is lost.
    """
    return SQLiteStore(store_path(url), worker, new=new, most=most, new_log=new_log)
