"""Where a store is, as one line of text: `sqlite:///folder/swerve.db`."""

from __future__ import annotations

from pathlib import Path

from swerve.core.errors import SwerveError, nearest
from swerve.store.protocol import Store
from swerve.store.sqlite import SQLiteStore

FORMS = "sqlite:///relative/path.db or sqlite:////absolute/path.db"


def store_path(url: str) -> Path:
    """The file that a `sqlite:///` address names.

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
        raise SwerveError(f"store {url!r} is not allowed; a store must be {FORMS}")
    path = Path(rest[1:])
    if path.is_dir():
        raise SwerveError(f"store {url!r} is not allowed: it is a folder; name a file in it")
    return path


def named_store(text: str) -> Path:
    """The file that an address or a plain path names.

    >>> named_store("sqlite:///state/swerve.db") == named_store("state/swerve.db")
    True
    """
    return store_path(text) if "://" in text else Path(text)


def open_store(url: str, *, worker: str = "0", new: bool = False, most: int = 1 << 62) -> Store:
    """Open the store at `url` and own it until it is closed.

    A file is made where none lies and nothing says that there has been one; `new` makes one where one is missing. `most` is
    the size in bytes that it is to stay below.
    """
    return SQLiteStore(store_path(url), worker, new=new, most=most)
