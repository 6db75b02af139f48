"""`swerve reproduce`: figures beside the paper's, resumed runs with the same bytes, refusals in one line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from swerve.cli import app
from swerve.core.errors import SwerveError

SRC = str(Path(__file__).parents[2] / "src")
KEYS = {"experiment", "setting", "policy", "mean", "sd", "runs", "paper", "ratio"}
SMALL = ("--impressions", "10000", "--runs", "2")
FILES = 2 * 5 * 4 * 2  # two orders, five fractions, four policies, two runs


def invoke(*args):
    done = CliRunner().invoke(app, ["reproduce", *args], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def start(*args):
    return subprocess.Popen(
        [sys.executable, "-m", "swerve", "reproduce", *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": SRC},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a background test runner ignores SIGINT
    )  # fmt: skip


def wait_for_files(folder, count):
    deadline = time.monotonic() + 120
    while len(list(folder.glob("*.parquet"))) < count:
        assert time.monotonic() < deadline, "no runs were written"
        time.sleep(0.01)


def test_json_rows_have_exactly_the_promised_keys(tmp_path):
    target = tmp_path / "rows.json"
    text = invoke("fractions", *SMALL, "--out", str(tmp_path / "runs"), "--json", str(target))
    rows = json.loads(target.read_text())
    assert len(rows) == 2 * 5 * 4
    assert all(row.keys() == KEYS for row in rows)
    assert {row["experiment"] for row in rows} == {"fractions", "fractions-interleaved"}
    assert {row["setting"] for row in rows} == {0, 0.125, 0.25, 0.375, 0.5}
    assert {row["policy"] for row in rows} == {"ora", "bwc", "ucb1", "exp3s"}
    assert {row["runs"] for row in rows} == {2}
    assert {row["paper"] for row in rows} == {None}  # the paper prints nothing for shorter queries
    assert "Table (b)" in text
    assert "where BWC's regret comes from" in text


def test_json_of_the_lower_bounds_has_the_same_keys(tmp_path):
    rows = json.loads(invoke("lower-bounds", "--quick", "--runs", "1", "--out", str(tmp_path), "--json"))
    assert len(rows) == 3 * 3 * 3
    assert all(row.keys() == KEYS for row in rows)
    assert {row["experiment"] for row in rows} == {f"lower-bounds/{f}" for f in ("single-event", "many-phases", "false-positives")}
    assert {row["setting"] for row in rows} == {10_000, 31_623, 100_000}


def test_quick_keeps_the_length_of_queries_and_shrinks_the_papers_figures(tmp_path):
    rows = json.loads(invoke("features", "--quick", "--runs", "1", "--out", str(tmp_path), "--json"))
    table = {(row["setting"], row["policy"]): row for row in rows}
    assert table[10, "exp3s"]["paper"] == pytest.approx(111_600 / 5)
    assert all(row["ratio"] == pytest.approx(row["mean"] / row["paper"]) for row in rows)
    for features in (10, 20, 30, 40):
        order = [table[features, name]["mean"] for name in ("ora", "bwc", "ucb1", "exp3s")]
        assert order == sorted(order)


def test_the_terminal_shows_figures_papers_ratios_causes_and_verdicts(tmp_path):
    text = invoke("features", "--quick", "--runs", "1", "--out", str(tmp_path))
    for word in ("regret ± sd", "se", "paper", "ratio", "4,380", "false alarm", "holds", "ORA ≤ BWC ≤ UCB1 ≤ EXP3.S"):
        assert word in text


def test_figure_a_takes_exp3s_only_when_asked(tmp_path):
    args = ("figure-a", *SMALL, "--out", str(tmp_path), "--json")
    assert {row["policy"] for row in json.loads(invoke(*args))} == {"ora", "bwc", "ucb1"}
    assert {row["policy"] for row in json.loads(invoke(*args, "--exp3s"))} == {"ora", "bwc", "ucb1", "exp3s"}


def test_a_second_call_plays_nothing(tmp_path):
    args = ("figure-a", *SMALL, "--out", str(tmp_path / "runs"), "--json")
    first = invoke(*args)
    files = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").iterdir()}
    assert len(files) == 2 * 3 * 2
    assert invoke(*args) == first
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").iterdir()} == files


def test_the_seed_changes_the_figures_and_threads_do_not(tmp_path):
    figures = [
        invoke("figure-a", *SMALL, "--out", str(tmp_path / name), "--json", *more)
        for name, more in (("a", ()), ("b", ("--threads", "1")), ("c", ("--seed", "1")))
    ]
    assert figures[0] == figures[1] != figures[2]


@pytest.mark.slow
def test_a_run_killed_half_way_resumes_to_the_same_bytes(tmp_path):
    def play(folder):
        rows = folder.with_suffix(".json")
        return start("fractions", "--impressions", "60000", "--runs", "2", "--out", str(folder), "--json", str(rows))

    whole, broken = tmp_path / "whole", tmp_path / "broken"
    killed = play(broken)
    wait_for_files(broken, 5)
    killed.kill()
    killed.communicate(timeout=60)
    assert killed.returncode == -signal.SIGKILL
    kept = {path.name: path.stat().st_mtime_ns for path in broken.glob("*.parquet")}
    assert 5 <= len(kept) < FILES
    assert not (tmp_path / "broken.json").exists()
    for folder in (broken, whole):
        process = play(folder)
        _, said = process.communicate(timeout=240)
        assert process.returncode == 0, said
    resumed = {path.name: path.read_bytes() for path in broken.glob("*.parquet")}
    assert len(resumed) == FILES
    assert resumed == {path.name: path.read_bytes() for path in whole.glob("*.parquet")}
    assert all((broken / name).stat().st_mtime_ns == stamp for name, stamp in kept.items())
    assert (tmp_path / "broken.json").read_bytes() == (tmp_path / "whole.json").read_bytes()


def test_ctrl_c_ends_with_130_and_says_how_to_go_on(tmp_path):
    process = start("figure-a", "--runs", "500", "--out", str(tmp_path / "runs"), "--json", str(tmp_path / "rows.json"))
    wait_for_files(tmp_path / "runs", 2)
    process.send_signal(signal.SIGINT)
    shown, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    line = " ".join(said.split())
    assert line.startswith("swerve: interrupted; finished runs are in")
    assert line.endswith("repeat the command to continue")
    assert shown == ""
    assert not (tmp_path / "rows.json").exists()
    assert not list((tmp_path / "runs").glob("*.part"))


def test_a_report_without_matplotlib_is_refused_before_anything_is_played(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(SwerveError, match=r"^--report needs the package matplotlib; install Swerve with its extra `report`$"):
        invoke("figure-a", *SMALL, "--out", str(tmp_path / "runs"), "--report", str(tmp_path / "report"))
    assert list(tmp_path.iterdir()) == []


def test_a_report_is_written_and_named(tmp_path):
    process = start("figure-a", *SMALL, "--out", str(tmp_path / "runs"), "--report", str(tmp_path / "the report"))
    _, said = process.communicate(timeout=240)
    assert process.returncode == 0, said
    assert "report:" in said
    page = (tmp_path / "the report" / "index.html").read_text(encoding="utf-8")
    assert "swerve reproduce figure-a --impressions 10000 --runs 2 --out" in page
    assert "the report&#x27;</pre>" in page  # quoted for a shell
    assert (tmp_path / "the report" / "figure-a.png").exists()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("figure-b",), "'figure-b' is not one of"),
        (("all", "--runs", "0"), "0 is not in the range x>=1"),
        (("all", "--impressions", "10"), "10 is not in the range x>=1000"),
    ],
)
def test_a_wrong_request_is_refused(args, message):
    done = CliRunner().invoke(app, ["reproduce", *args])
    assert done.exit_code == 2
    assert message in done.output


def test_queries_shorter_than_a_test_are_refused(tmp_path):
    with pytest.raises(SwerveError, match="L = 20 is not allowed; a test must be no longer than the 15 rounds"):
        invoke("figure-a", "--impressions", "1500", "--out", str(tmp_path))


@pytest.mark.slow
def test_quick_plays_everything_and_keeps_the_shape(tmp_path):
    rows = json.loads(invoke("--quick", "--out", str(tmp_path), "--json"))
    regret = {(row["experiment"], row["setting"], row["policy"]): row["mean"] for row in rows}
    assert len(rows) == 2 * 3 + 2 * 20 + 16 + 27
    for name in ("fractions", "fractions-interleaved"):
        for fraction in (0.25, 0.375, 0.5):
            order = [regret[name, fraction, policy] for policy in ("ora", "bwc", "ucb1", "exp3s")]
            assert order == sorted(order)
    for policy in ("ora", "bwc", "ucb1", "exp3s"):
        row = [regret["fractions", fraction, policy] for fraction in (0.0, 0.125, 0.25, 0.375, 0.5)]
        assert row == sorted(row)
    worst = {policy: regret["lower-bounds/single-event", 100_000, policy] for policy in ("ucb1", "bwc", "ora")}
    assert worst["ora"] < worst["bwc"] < worst["ucb1"]
