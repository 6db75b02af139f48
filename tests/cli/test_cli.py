"""The command line: what it prints, what it refuses, and how it ends."""

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

from swerve.cli import COMMANDS, app
from swerve.core.errors import SwerveError

SMALL = "traffic(queries=2, impressions=2000)"
SRC = str(Path(__file__).parents[2] / "src")


def invoke(*args: str) -> str:
    done = CliRunner().invoke(app, args, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def refused(*args: str) -> str:
    """The one line that a wrong request ends with."""
    done = subprocess.run(
        [sys.executable, "-m", "swerve", *args], capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, "PYTHONPATH": SRC},
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    return done.stderr.strip()


def test_help_names_every_command():
    text = invoke("--help")
    for name in COMMANDS:
        assert name in text
        assert "Usage" in invoke(name, "--help")


def test_simulate_prints_a_table_with_every_policy():
    text = invoke("simulate", "ucb1", "ora", "-e", SMALL, "--runs", "2")
    assert "ucb1" in text
    assert "ora" in text
    assert "seeds 0–1" in text


def test_simulate_json_is_reproducible_and_names_what_made_it():
    args = ("simulate", "bwc(length=50)", "-e", SMALL, "--runs", "2", "--seed", "5", "--json", "--curves", "--points", "4")
    first, second = json.loads(invoke(*args)), json.loads(invoke(*args))
    for row in (*first, *second):
        row.pop("seconds")
    assert first == second
    row = first[0]
    assert row["name"] == "bwc(length=50)"
    assert row["policy"] == "BWC(bandit=Testable(bandit=UCB1(), length=50), classifier=Rectangle())"
    assert row["seed"] == 5
    assert row["runs"] == 2
    assert len(row["curves"]) == 2
    assert row["rounds"] == [500, 1000, 1500, 2000]
    assert row["mean"] == pytest.approx(sum(curve[-1] for curve in row["curves"]) / 2)


def test_json_to_a_file_leaves_the_table_on_the_screen(tmp_path):
    target = tmp_path / "figures.json"
    text = invoke("simulate", "ucb1", "-e", SMALL, "--runs", "1", "--json", str(target))
    assert "regret" in text
    assert json.loads(target.read_text())[0]["counters"]["rounds"] == 2000


def test_simulate_reuses_finished_runs(tmp_path):
    args = ("simulate", "ucb1", "-e", SMALL, "--runs", "2", "--out", str(tmp_path), "--json")
    first = json.loads(invoke(*args))
    files = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert len(files) == 2
    second = json.loads(invoke(*args))
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == files
    assert first[0]["mean"] == second[0]["mean"]


def test_simulate_plots():
    assert "cumulative regret" in invoke("simulate", "ucb1", "-e", SMALL, "--runs", "1", "--plot")


def test_list_shows_policies_environments_and_with_all_the_parts():
    assert "bwc" in invoke("list")
    assert "Rectangle" not in invoke("list").split("environments")[0].replace("safe rectangle", "").split("list --all")[0]
    assert "Rectangle" in invoke("list", "--all")
    rows = json.loads(invoke("list", "--json"))
    assert {row["kind"] for row in rows} == {"policy", "building block", "classifier", "environment"}
    traffic = next(row for row in rows if row["name"] == "traffic")
    assert traffic["parameters"]["queries"] == 100


def test_bounds_prints_the_theorems_and_the_measured_ratio():
    args = ("bounds", "--runs", "2", "--horizon", "60000", "--events", "1", "--json")
    rows = {row["name"]: row["value"] for row in json.loads(invoke(*args))}
    assert rows["d_F rectangles"] == 41
    assert 0 < rows["measured ÷ Theorem 1"] < 1
    assert rows["missed events"] == 0
    assert "Theorem 4" in invoke("bounds", "--no-measure")


def test_bounds_refuses_a_horizon_that_is_too_short():
    with pytest.raises(SwerveError, match="horizon = 1000 is not allowed"):
        CliRunner().invoke(app, ["bounds", "--horizon", "1000"], catch_exceptions=False)


def test_demo_plays_all_three():
    rows = json.loads(invoke("demo", "--runs", "1", "--json"))
    regret = {row["name"]: row["mean"] for row in rows}
    assert regret["ora"] < regret["bwc"] < regret["ucb1"]


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ("bcw", "unknown policy 'bcw'; did you mean 'bwc'?"),
        ("bwc(lenght=5)", "bwc: unknown parameter 'lenght'; did you mean 'length'?"),
        ("bwc(margin=-1)", "Rectangle: margin = -1.0 is not allowed; margin must be > 0"),
        ("bwc(length=50000)", "L = 50000 is not allowed"),
        ("Rectangle()", "Rectangle does not choose arms"),
        ("bwc(", "cannot be read"),
    ],
)
def test_a_wrong_policy_is_one_line(policy, message):
    done = CliRunner().invoke(app, ["simulate", policy])
    assert isinstance(done.exception, SwerveError)
    assert message in str(done.exception)
    assert "\n" not in str(done.exception)


def test_a_wrong_request_ends_with_code_2_and_one_line():
    assert refused("simulate", "ucb1", "-e", "trafic").startswith("swerve: unknown environment 'trafic'; did you mean 'traffic'?")
    assert "unknown command 'simul'; did you mean 'simulate'?" in refused("simul")


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    done = subprocess.run(
        [sys.executable, "-m", "swerve", "simulate", "ucb1", "-e", SMALL, "--runs", "1", "--json", str(blocked / "x.json")],
        capture_output=True, text=True, timeout=120, check=False, env={**os.environ, "PYTHONPATH": SRC},
    )  # fmt: skip
    assert done.returncode == 1
    assert "Traceback" not in done.stderr


def test_ctrl_c_keeps_finished_runs_and_says_so(tmp_path):
    process = subprocess.Popen(
        [
            sys.executable, "-m", "swerve", "simulate", "ucb1", "-e", "traffic(queries=10, impressions=3000000)", "--runs", "500",
            "--threads", "1", "--out", str(tmp_path), "--points", "10",
        ],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": SRC},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a runner in the background has it ignored
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while len(list(tmp_path.glob("*.parquet"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "finished runs are in" in said.replace("\n", " ")
    assert "Traceback" not in said
    assert 2 <= len(list(tmp_path.glob("*.parquet"))) < 500
    assert not list(tmp_path.glob("*.part"))
