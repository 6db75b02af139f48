"""`swerve compare` on result pages: clicks beside those of the given order, and the bars of pages."""

from __future__ import annotations

import json
import re

import pytest
from click.testing import CliRunner

from swerve.cli import app, compare as cli
from swerve.core.errors import SwerveError
from swerve.experiments import compare_pages
from swerve.policies import POLICIES


def call(*args):
    return CliRunner().invoke(app, ["compare", *args], catch_exceptions=False)


def invoke(*args):
    done = call(*args)
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.slow
def test_rare_queries_are_compared_with_the_given_order():
    """`-w tail` is four engines; clicks are paired with those of the given order, which need not be among the policies."""
    args = ("-w", "tail", "-p", "top", "--against", "given", "--runs", "2", "--queries", "50", "--threads", "1")
    rows = json.loads(invoke(*args, "--json"))
    assert [row["workload"] for row in rows] == [f"tail(right_share={share})" for share in (0.2, 0.5, 0.8, 0.95)]
    for row in rows:
        assert (row["policy"], row["against"]) == ("top", "given")
        assert row["gained_low"] <= row["gained"] <= row["gained_high"]
    both = json.loads(invoke("-w", "tail(right_share=0.2)", "-p", "given,top", *args[4:], "--json"))
    assert both[0]["gained"] is both[0]["gained_low"] is both[0]["gained_high"] is None
    assert both[1]["clicks"] - both[0]["clicks"] == pytest.approx(both[1]["gained"]) == pytest.approx(rows[0]["gained"])
    assert both[1]["searches"] - both[0]["searches"] == pytest.approx(both[1]["searches_gained"])
    assert both[1]["searches"] < both[1]["clicks"]
    text = " ".join(invoke(*args).split())
    assert "searches with a click, − given's" in text
    assert re.search(r"[+-]\d+\.\d\d % ± \d+\.\d\d", text)


@pytest.mark.slow
def test_bars_of_pages_decide_the_exit_code(monkeypatch):
    args = ("-w", "page-clear(clicks=ubm)", "-p", "top,oracle-ts", "--runs", "2", "--queries", "2", "--threads", "1", "--bars")
    monkeypatch.setattr(compare_pages, "PAGE_BARS", {"page-clear": {"ratio": 1e9, "top": 1e9, "harm": 1e9}})
    done = call(*args)
    assert done.exit_code == 0
    assert "3 of 3 bars of pages hold" in done.output
    monkeypatch.setattr(compare_pages, "PAGE_BARS", {"page-clear": {"ratio": 0.0, "top": 1e9}})
    done = call(*args)
    assert done.exit_code == 1
    assert "1 of 2 bars of pages hold" in done.output
    assert "missed" in done.output
    with pytest.raises(SwerveError, match="the bars of pages also need the policies oracle-ts"):
        call("-w", "page-clear", "-p", "top", "--bars")


def test_every_bar_of_pages_is_of_a_workload_and_a_known_figure():
    assert len(compare_pages.PAGE_BARS) == 23
    for name, bars in compare_pages.PAGE_BARS.items():
        assert compare_pages.bars_of(name) == bars  # no other workload before it is the same one
        assert set(bars) <= set(compare_pages.MEASURES)


def test_pages_alone_have_policies_of_their_own(monkeypatch):
    asked = []

    def refuse(policies, *_, **__):
        asked.append(policies)
        raise SwerveError("enough")

    monkeypatch.setattr(cli, "compare", refuse)
    for names in ("page-quiet", "page-quiet,clear"):
        with pytest.raises(SwerveError, match="enough"):
            call("-w", names, "-f", "0.1")
    assert asked == [list(cli.PAGE_POLICIES), list(cli.DEFAULT_POLICIES)]
    assert set(cli.PAGE_POLICIES) <= set(POLICIES)
