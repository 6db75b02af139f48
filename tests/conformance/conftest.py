"""Invented records for the environments made from records, so that they can be drawn without real ones."""

from __future__ import annotations

import pytest
from twins import hurricane


@pytest.fixture(scope="session")
def records(tmp_path_factory):
    folder = hurricane.write(tmp_path_factory.mktemp("records"))
    (folder / "series.csv").write_text(
        "query,a,b,c\nq,0.5,0.1,0.2\nq,0.4,0.2,0.2\nr,0.1,0.3,0.2\nq,0.2,0.6,0.1\n", encoding="utf-8"
    )
    return folder


@pytest.fixture(autouse=True)
def _made_up_records(records, monkeypatch):
    monkeypatch.setenv("SWERVE_DATA", str(records))
