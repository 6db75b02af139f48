"""Addresses of stores."""

from __future__ import annotations

from pathlib import Path

import pytest

from swerve.core.errors import SwerveError
from swerve.store import open_store, store_path
from swerve.store.urls import named_store


def test_relative_and_absolute():
    assert store_path("sqlite:///swerve.db") == Path("swerve.db")
    assert store_path("sqlite:///a b/ü?.db") == Path("a b/ü?.db")  # nothing in a name is decoded
    assert store_path("sqlite:////srv/x.db") == Path("/srv/x.db")


def test_a_relative_store_stays_where_it_was_opened(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store = open_store("sqlite:///swerve.db")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    store.probe()
    assert store.reopen() is True
    store.close()
    assert (tmp_path / "swerve.db").is_file()


@pytest.mark.parametrize(
    ("url", "said"),
    [
        (
            "swerve.db",
            r"a store must be sqlite:///relative/path\.db or sqlite:////absolute/path\.db; did you mean sqlite:///swerve\.db\?$",
        ),
        ("/srv/swerve.db", r"did you mean sqlite:////srv/swerve\.db\?$"),
        ("sqlite://swerve.db", r"did you mean sqlite:///swerve\.db\?$"),
        ("sqlite:/srv/swerve.db", r"did you mean sqlite:////srv/swerve\.db\?$"),
        ("sqlite:///", "a store must be"),
        ("sqlite:///folder/", r"a store must be .*path\.db$"),  # nothing to suggest
        ("sqlite:///:memory:", "a store must be"),
        ("", "a store must be"),
        ("sqlit:///x.db", r"there is no engine 'sqlit'; did you mean 'sqlite'\? \(known: sqlite, postgresql, valkey, valkeys\)"),
        ("redis://host/0", r"there is no engine 'redis' \(known: sqlite, postgresql, valkey, valkeys\)"),
        ("sqlite:////", "a store must be"),
    ],
)
def test_others_are_refused(url, said):
    with pytest.raises(SwerveError, match=said):
        open_store(url)


def test_a_folder_is_refused(tmp_path):
    with pytest.raises(SwerveError, match="it is a folder; name a file in it"):
        open_store(f"sqlite:///{tmp_path}")


def test_people_name_a_store_by_its_path_or_its_address(tmp_path):
    assert named_store("swerve.db") == named_store("sqlite:///swerve.db") == Path("swerve.db")
    assert named_store("/srv/x.db") == named_store("sqlite:////srv/x.db") == Path("/srv/x.db")
    for text, words in ((str(tmp_path), "it is a folder"), ("sqlite:x.db", "did you mean sqlite:///x.db"), ("", "must be")):
        with pytest.raises(SwerveError, match=words):
            named_store(text)
