"""`swerve backup`."""

from __future__ import annotations

import json
import os
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import forking
import pytest
from click.testing import CliRunner
from serving.made import key, made

from swerve.cli import app
from swerve.core.errors import SwerveError
from swerve.store import Batch, open_store

SRC = str(Path(__file__).parents[2] / "src")


@pytest.fixture
def url(tmp_path):
    """A store that a service has open."""
    address = f"sqlite:///{tmp_path}/swerve.db"
    store = open_store(address)
    store.checkpoint(Batch([made(store, i) for i in range(1500)]))
    yield address
    store.close()


def test_it_copies_a_store_in_use_and_says_what_it_did(url, tmp_path):
    done = CliRunner().invoke(app, ["backup", url, str(tmp_path / "copy.db")], catch_exceptions=False)
    assert done.exit_code == 0
    assert f"{tmp_path}/copy.db: 1,500 queries, " in done.stdout
    assert "MB, checked, in" in done.stdout
    copy = open_store(f"sqlite:///{tmp_path}/copy.db")
    assert copy.load([key(1499)]) == [made(copy, 1499)]
    copy.close()


def test_a_store_may_be_named_by_its_path(url, tmp_path):
    done = CliRunner().invoke(app, ["backup", str(tmp_path / "swerve.db"), str(tmp_path / "copy.db")], catch_exceptions=False)
    assert done.exit_code == 0 and "1,500 queries" in done.stdout


def test_json(url, tmp_path):
    done = CliRunner().invoke(app, ["backup", url, str(tmp_path / "copy.db"), "--json"], catch_exceptions=False)
    data = json.loads(done.stdout)
    assert data.pop("seconds") > 0
    assert data == {
        "target": f"{tmp_path}/copy.db", "queries": 1500, "bytes": (tmp_path / "copy.db").stat().st_size, "damaged": 0,
    }  # fmt: skip


def test_what_is_wrong_is_one_line_and_exit_code_2(url, tmp_path):
    (tmp_path / "copy.db").write_text("keep me")
    done = forking.run(sys.executable, "-m", "swerve", "backup", url, str(tmp_path / "copy.db"))
    assert done.returncode == 2
    assert done.stderr == f"swerve: {tmp_path}/copy.db exists already; a backup never overwrites: name a new file\n"
    assert (tmp_path / "copy.db").read_text() == "keep me"


@pytest.mark.parametrize("address", ["swerve.db", "sqlite:////nowhere/swerve.db"])
def test_a_store_that_is_not_there_is_refused(address, tmp_path):
    with pytest.raises(SwerveError, match="store"):
        CliRunner().invoke(app, ["backup", address, str(tmp_path / "copy.db")], catch_exceptions=False)
    assert not (tmp_path / "copy.db").exists()


def test_damaged_records_are_told(url, tmp_path):
    with closing(sqlite3.connect(tmp_path / "swerve.db", isolation_level=None)) as other:
        other.execute("UPDATE rows SET names = x'00' WHERE id = 3")
    done = CliRunner().invoke(app, ["backup", url, str(tmp_path / "copy.db")], catch_exceptions=False)
    assert done.exit_code == 0
    assert "wrong: 1 record: the bytes read differ from those written" in done.stderr
    assert "the damage is in the store too" in done.stderr


@pytest.mark.parametrize("form", ["sqlite:///{}", "{}"])
def test_serve_takes_an_address_or_a_path(url, tmp_path, form):
    """Both name the store that this process has open, so the command refuses before it serves."""
    store = form.format(tmp_path / "swerve.db")
    done = forking.run(sys.executable, "-m", "swerve", "serve", "--port", "0", "--store", store)
    assert done.returncode == 2
    assert f"{tmp_path}/swerve.db is in use" in done.stderr and str(os.getpid()) in done.stderr
