"""Invented records for the environments made from records, so that they can be drawn without real ones."""

from __future__ import annotations

import pytest
from twins import hurricane


@pytest.fixture(scope="session")
def records(tmp_path_factory):
    return hurricane.write(tmp_path_factory.mktemp("records"))


@pytest.fixture(autouse=True)
def _made_up_records(records, monkeypatch):
    monkeypatch.setenv("SWERVE_DATA", str(records))
