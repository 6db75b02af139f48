"""The proxy's benchmark runs the real servers and returns the rows that docs/bench.md names."""

import re
from pathlib import Path

import pytest

pytest.importorskip("uvicorn", reason="the service's packages are not installed")

from swerve.bench import proxy

PAGE = Path(__file__).parents[2] / "docs" / "bench.md"


@pytest.mark.slow
def test_every_row_of_the_page_is_measured(tmp_path):
    small = '[policy]\nspec = "ts"\narms = 8\n'  # compiles in seconds
    rows = {row.name: row for row in proxy.measure(tmp_path, proxy.Effort(rounds=1, seconds=0.1), lambda what: None, small)}
    text = PAGE.read_text(encoding="utf-8").partition("## The proxy")[2]
    named = [name for line in re.findall(r"^\| (`.*?) \|", text, re.M) for name in re.findall(r"`([a-z0-9-]+)`", line)]
    assert sorted(named) == sorted(rows)
    assert {name for name, row in rows.items() if row.bar} == set(proxy.PROXY_BARS)
    assert rows["reranked"].value > 90
    assert rows["rerank"].value > 100 and rows["rerank-two"].value > 100
    assert rows["stub-rerank"].value > rows["rerank"].value
