"""Any store as a file, and its log as a journal, for code that reads files: stores on servers are copied to temporary files."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from swerve.store.backup import Settle, whole
from swerve.store.urls import copying_of, server_of, store_path
from swerve.store.verify import Meaning, Progress, Report, verify


@contextlib.contextmanager
def whole_of(url: str, settle: Settle) -> Iterator[Path]:
    """Yield the path of a file that has everything that a store has, as it is at this moment."""
    if server_of(url) is None:
        with whole(store_path(url), settle) as path:
            yield path
        return
    with tempfile.TemporaryDirectory(prefix="swerve-export-") as made:
        path = Path(made) / "store.db"
        copying_of(url).copy(url, path, settle)
        yield path


@contextlib.contextmanager
def log_of(url: str) -> Iterator[Path]:
    """Yield the folder of a journal that is a copy of the log of a store on a server."""
    with tempfile.TemporaryDirectory(prefix="swerve-log-") as made:
        path = Path(made) / "store.journal"
        copying_of(url).copy_log(url, path)
        yield path


def verified(url: str, meaning: Meaning, progress: Progress) -> Report:
    """Check a store; one on a server also while a service owns it."""
    if server_of(url) is None:
        return verify(store_path(url), meaning, progress)
    with tempfile.TemporaryDirectory(prefix="swerve-verify-") as made:
        report: Report = copying_of(url).verify(url, Path(made) / "store.db", meaning, progress)
        return report
