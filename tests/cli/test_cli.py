"""The command line: output, refusals and exit status."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import forking
import pytest
from click.testing import CliRunner

from swerve import Oracle, theory
from swerve.bench import rows as bench
from swerve.cli import COMMANDS, app, simulate
from swerve.cli.common import console
from swerve.core.errors import SwerveError
from swerve.core.parse import spec_classes
from swerve.simulate import Interrupted, Results

SMALL = "traffic(queries=2, impressions=2000)"
SRC = str(Path(__file__).parents[2] / "src")


def invoke(*args: str) -> str:
    done = CliRunner().invoke(app, args, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def refused(*args: str) -> str:
    """Return the single line of a refused command."""
    done = forking.run(sys.executable, "-m", "swerve", *args)
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
    assert {row["kind"] for row in rows} == {"policy", "building block", "classifier", "detector", "environment", "workload"}
    traffic = next(row for row in rows if row["name"] == "traffic")
    assert traffic["parameters"]["queries"] == 100


@pytest.mark.slow
def test_bounds_prints_the_theorems_and_the_measured_ratio():
    args = ("bounds", "--runs", "2", "--horizon", "60000", "--events", "1", "--json")
    rows = {line["name"]: line["value"] for line in json.loads(invoke(*args))}
    assert rows["d_F rectangles"] == 41
    assert 0 < rows["measured ÷ Theorem 1"] < 1
    assert rows["missed events"] == 0
    assert 1 < rows["FP-complexity, hyperplanes"] <= rows["d_F hyperplanes"]
    assert 0 <= rows["Δ(u) at least"] <= 0.1 <= rows["Δ(u) at most"] <= 1
    assert rows["Theorem 6 (i)"] == pytest.approx(theory.theorem6_events(60_000, 5, 1, 0.249))


def test_bounds_without_a_measurement():
    assert "Theorem 4" in invoke("bounds", "--no-measure")


def test_bounds_count_tests_that_may_fail():
    def theorem1(*more):
        rows = json.loads(invoke("bounds", "--no-measure", "--json", "-", *more))
        return next(line["value"] for line in rows if line["name"] == "Theorem 1")

    assert theorem1("--failure", "0.001") == pytest.approx(theorem1() + 0.001 * 300_000)


def test_bounds_leave_out_what_a_theorem_is_not_about():
    args = ("--arms", "2", "--horizon", "10", "--features", "4", "--no-measure", "--json")
    names = {line["name"] for line in json.loads(invoke("bounds", *args))}
    assert not names & {"Theorem 6 (i)", "Δ(u) at least", "FP-complexity, hyperplanes"}


def test_bounds_refuses_a_horizon_that_is_too_short():
    with pytest.raises(SwerveError, match="horizon = 1000 is not allowed"):
        CliRunner().invoke(app, ["bounds", "--horizon", "1000"], catch_exceptions=False)


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


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("simulate", "--json", "ucb1"), "--json ucb1 is not allowed; a FILE has a '.' or a '/'"),
        (("simulate", "ucb1", "--json", "bwc"), "--json bwc is not allowed; a FILE has a '.' or a '/'"),
        (("simulate", "ucb1", "--json", "bwc(margin=0.1)"), "put --json last, or use --json -"),
        (("simulate", "ucb1", "--json", "figures"), "--json figures is not allowed"),
        (("simulate", "ucb1", "--curves"), "--curves is not allowed without --json"),
        (("simulate", "ucb1", "--plot", "--json"), "--plot is not allowed with --json to standard output"),
        (("simulate", "bwc", "-e", "traffic(features=0)"), "features = 0 is not allowed"),
        (("bounds", "--margin", "0.95"), "margin = 0.95 is not allowed; margin must be ≤ 0.9"),
        (("bounds", "--shift", "0.8"), "shift = 0.8 is not allowed; shift must be ≤ 0.75"),
        (("bounds", "--factor", "0"), "factor = 0.0 is not allowed"),
        (("bounds", "--failure", "2"), "failure = 2.0 is not allowed; failure must be in [0, 1]"),
    ],
)
def test_options_that_cannot_go_together_are_refused_before_anything_is_played(args, message, monkeypatch):
    for place in ("swerve.cli.simulate.simulate", "swerve.cli.bounds.simulate"):
        monkeypatch.setattr(place, lambda *a, **k: pytest.fail("played"))
    if "features" in args[-1]:
        monkeypatch.undo()  # here the simulation itself refuses
    done = CliRunner().invoke(app, list(args))
    assert isinstance(done.exception, SwerveError), done.output
    assert message in str(done.exception)
    assert "\n" not in str(done.exception)


@pytest.mark.parametrize("target", ["missing/figures.json", "file/figures.json", "."])
def test_a_file_that_cannot_be_written_is_refused_before_anything_is_played(target, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr("swerve.cli.simulate.simulate", lambda *a, **k: pytest.fail("played"))
    done = CliRunner().invoke(app, ["simulate", "ucb1", "--json", str(tmp_path / target) + "/" * (target == ".")])
    assert isinstance(done.exception, OSError)
    assert "cannot be written" in str(done.exception)


def test_a_plot_that_cannot_be_drawn_is_refused_before_anything_is_played(monkeypatch):
    monkeypatch.setattr("swerve.cli.simulate.simulate", lambda *a, **k: pytest.fail("played"))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    done = CliRunner().invoke(app, ["simulate", "ucb1", "--plot"])
    assert isinstance(done.exception, SwerveError), done.output
    assert "needs the package plotext" in str(done.exception)


MINE = """
from swerve import UCB1

class {name}(UCB1):
    pass
"""


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("x = 1\nclass (:\n", ":2: SyntaxError: "),
        ("\n\nimport no_such_module_anywhere\n", ":3: ModuleNotFoundError: No module named"),
        ("def f():\n    return 1 / 0\n\nf()\n", ":2: ZeroDivisionError: division by zero"),
        ("raise SystemExit(3)\n", ":1: SystemExit: 3"),
        (MINE.format(name="UCB1"), ": the class UCB1 needs another name; swerve.bandits.ucb1 has one already"),
    ],
    ids=["syntax", "import", "error inside", "exit", "our name"],
)
def test_a_broken_file_is_one_line_with_its_place(source, message, tmp_path):
    path = tmp_path / "broken.py"
    path.write_text(source)
    known = spec_classes()
    done = CliRunner().invoke(app, ["list", "--load", str(path)])
    assert isinstance(done.exception, SwerveError), done.output
    assert str(done.exception).startswith(f"--load {path}{message}")
    assert "\n" not in str(done.exception)
    assert spec_classes() == known  # nothing stays registered
    assert "swerve_loaded_broken" not in sys.modules


def test_a_loaded_file_does_not_hide_an_installed_module(tmp_path):
    path = tmp_path / "json.py"
    path.write_text(MINE.format(name="LoadedUnderAnyName"))
    for _ in range(2):  # a second load replaces the first
        rows = json.loads(invoke("list", "--json", "-", "--load", str(path)))
        assert "LoadedUnderAnyName" in {row["name"] for row in rows}
    assert sys.modules["json"] is json


def test_compiled_code_of_a_loaded_class_is_found_again(tmp_path):
    path = tmp_path / "my_bandit.py"
    path.write_text(MINE.format(name="KeptOnDisk"))
    sizes = []
    for _ in range(2):
        subprocess.run(
            [sys.executable, "-m", "swerve", "simulate", "KeptOnDisk()", "-e", SMALL, "--runs", "1", "--load", str(path)],
            capture_output=True, timeout=120, check=True,
            env={**os.environ, "PYTHONPATH": SRC, "SWERVE_CACHE_DIR": str(tmp_path / "cache")},
        )  # fmt: skip
        sizes.append({file: file.stat().st_mtime_ns for file in (tmp_path / "cache").rglob("*.nb*")})
    assert sizes[0]
    assert sizes[0] == sizes[1]


@pytest.mark.parametrize("width", [30, 40, 60, 80])
def test_names_and_figures_are_whole_in_a_narrow_terminal(width, monkeypatch):
    monkeypatch.setattr(console, "_width", width)
    text = invoke("simulate", "ucb1", "bwc-explore-first(length=50)", "-e", SMALL, "--runs", "1")
    assert "ucb1" in text
    assert "regret ± sd" in text
    assert "bwc-explore-first(length=50)" in text if width < 70 else "bwc-" in text
    listed = invoke("list", "--all")
    for name in ("bwc-explore-first", "Rectangle", "traffic"):
        assert name in listed
    assert max(map(len, (text + listed).splitlines())) <= width


def test_bench_shows_whole_names_at_eighty_columns(monkeypatch):
    monkeypatch.setattr(console, "_width", 80)
    rows = [
        bench.row("hull-predict-d10-n300", 8.123, "µs/prediction", "SciPy nnls", 0.01),
        bench.row("step-api-separate", 530_123.0, "pairs/s", "fastest peer (MABWiser)", 0.5),
    ]
    monkeypatch.setattr("swerve.cli.bench.run_kernels", lambda **_: rows)
    done = CliRunner().invoke(app, ["bench", "kernels"])
    assert done.exit_code == 1  # a bar is missed
    lines = done.output.splitlines()
    assert any(line.split()[:3] == ["hull-predict-d10-n300", "8.12", "µs/prediction"] and line.endswith("ok ") for line in lines)
    assert any("step-api-separate" in line and "530,123 pairs/s" in line and "missed" in line for line in lines)


def test_one_run_has_no_spread():
    args = ("simulate", "ucb1", "-e", SMALL, "--runs", "1", "--seed", "7")
    text = invoke(*args)
    assert "1 run, seed 7" in text
    assert "± –" in text
    assert json.loads(invoke(*args, "--json"))[0]["sd"] is None


def test_an_interrupted_simulation_says_which_runs_its_figures_are_of(monkeypatch):
    real = simulate.simulate

    def stopped(spec, problem, **options):
        results = real(spec, problem, **{**options, "runs": 4})
        if isinstance(spec, Oracle):
            raise Interrupted(Results(results.plan, [results.runs[0], results.runs[1], results.runs[3]]))
        return results

    monkeypatch.setattr(simulate, "simulate", stopped)
    done = CliRunner().invoke(app, ["simulate", "ucb1", "ora", "bwc", "-e", SMALL, "--runs", "4"])
    assert done.exit_code == 130
    said = " ".join(done.stdout.split())
    assert "interrupted (4 wanted): ucb1 mean of 4 runs, seeds 0–3; ora mean of 3 runs, seeds 0–1, 3" in said
    assert "interrupted after 7 finished runs" in " ".join(done.stderr.split())


def test_a_wrong_request_ends_with_code_2_and_one_line():
    assert refused("simulate", "ucb1", "-e", "trafic").startswith("swerve: unknown environment 'trafic'; did you mean 'traffic'?")
    assert "unknown command 'simul'; did you mean 'simulate'?" in refused("simul")


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    command = ["simulate", "ucb1", "-e", SMALL, "--runs", "1", "--json", str(blocked / "x.json")]
    done = forking.run(sys.executable, "-m", "swerve", *command)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr


def test_ctrl_c_keeps_finished_runs_and_says_so(tmp_path):
    process = subprocess.Popen(
        [
            sys.executable, "-m", "swerve", "simulate", "ucb1", "-e", "traffic(queries=10, impressions=3000000)", "--runs", "500",
            "--threads", "1", "--out", str(tmp_path), "--points", "10",
        ],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": SRC},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a background test runner ignores SIGINT
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
