"""The SQLite engine in a folder whose files the tests damage."""

from __future__ import annotations

import contextlib
import sqlite3

import pytest

from swerve.store import StoreError, open_store


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "state"
    made.mkdir()
    return made


@pytest.fixture
def store(folder):
    opened = open_store(f"sqlite:///{folder}/swerve.db")
    yield opened
    opened.close()


def kind(call, *args) -> str:
    with pytest.raises(StoreError) as caught:
        call(*args)
    return caught.value.kind


@contextlib.contextmanager
def plain(folder):
    """A connection of another program."""
    with contextlib.closing(sqlite3.connect(folder / "swerve.db", isolation_level=None, timeout=0.0)) as connection:
        yield connection
