"""`swerve compare`: output, files, resuming, refusals, and exit status 1."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from twins import hurricane

from swerve.cli import app, compare as cli
from swerve.cli.common import console
from swerve.core.errors import SwerveError
from swerve.environments import PAGES, WORKLOADS
from swerve.experiments.compare import ORACLE, RIVALS, compare, rows_of
from swerve.experiments.comparison import Comparison
from swerve.policies import POLICIES

SRC = str(Path(__file__).parents[2] / "src")
SMALL = ("--queries", "2", "--impressions", "2000", "--runs", "2", "--threads", "1")
KEYS = {
    "workload", "fraction", "policy", "mean", "sd", "runs", "seed", "ratio", "ratio_low", "ratio_high", "against", "difference",
    "difference_low", "difference_high", "rank", "seconds", "oracle", "harm", "harm_p90", "recovered", "churn", "top_regret",
    "clicks", "gained", "gained_low", "gained_high",
    "searches", "searches_gained", "searches_gained_low", "searches_gained_high",
}  # fmt: skip


def call(*args):
    return CliRunner().invoke(app, ["compare", *args], catch_exceptions=False)


def invoke(*args):
    done = call(*args)
    assert done.exit_code == 0, done.output
    return done.output


def json_rows(*args):
    return json.loads(invoke(*args, *SMALL, "--json"))


def start(*args):
    return subprocess.Popen(
        [sys.executable, "-m", "swerve", "compare", *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": SRC},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a background test runner ignores SIGINT
    )  # fmt: skip


@pytest.fixture
def played(monkeypatch):
    """A function that replaces the comparison by invented regrets, and records its arguments."""
    asked = {}

    def make(**regrets):
        def fake(policies, workloads, fractions, **options):
            asked.update(policies=policies, workloads=workloads, fractions=fractions, **options)
            asked["data"] = os.environ.get("SWERVE_DATA")
            values = {name: np.array(regrets.get(name.replace("-", "_"), [1000.0, 1002.0])) for name in (*policies, ORACLE)}
            against = options["against"] or policies[0]
            rows = [
                row
                for name in workloads
                for part in fractions
                for row in rows_of(name, part, policies, against, options["seed"], values, {})
            ]
            return Comparison(tuple(policies), against, options["runs"], options["seed"], rows, {})

        monkeypatch.setattr(cli, "compare", fake)
        return asked

    return make


def test_json_rows_have_the_promised_keys_and_the_figures_of_the_library():
    rows = json_rows("-w", "clear,mixed", "-f", "0,1/2", "-p", "ucb1,ts", "--seed", "3")
    assert all(row.keys() == KEYS for row in rows)
    own = compare(
        ["ucb1", "ts"], ["clear", "mixed"], [0.0, 0.5], runs=2, seed=3, queries=2, impressions=2000, threads=1
    ).rows  # fmt: skip
    assert [{**row, "seconds": 0.0} for row in rows] == [dataclasses.replace(row, seconds=0.0).as_dict() for row in own]
    assert [(row["workload"], row["fraction"], row["policy"]) for row in rows[:3]] == [
        ("clear", 0.0, "ucb1"), ("clear", 0.0, "ts"), ("clear", 0.5, "ucb1"),
    ]  # fmt: skip


def test_pages_have_their_own_oracle_and_figures():
    rows = json_rows(
        "-w", "page-clear(clicks=pbm, slots=3, candidates=6),clear", "-f", "0.5", "-p", "given,ts", "--against", "given"
    )
    assert [(row["workload"], row["fraction"], row["oracle"]) for row in rows[::2]] == [
        ("page-clear(clicks=pbm, slots=3, candidates=6)", None, "oracle-list"), ("clear", 0.5, "oracle-ts"),
    ]  # fmt: skip
    given, top = rows[:2]
    assert given["harm"] == given["harm_p90"] == given["churn"] == 0.0
    assert given["top_regret"] > 0.0
    assert top["harm_p90"] >= top["harm"] != 0.0
    assert top["difference"] == pytest.approx(given["mean"] - top["mean"])
    assert all(
        row[name] is None
        for row in rows[2:]
        for name in ("harm", "harm_p90", "recovered", "churn", "top_regret", "clicks", "gained")
    )


def test_a_simulation_of_pages_tells_the_oracle_how_people_read_them():
    text = (
        CliRunner()
        .invoke(
            app,
            [
                "simulate",
                "oracle-list",
                "-e",
                "pages(queries=2, impressions=400, events_high=1, clicks=pbm)",
                "--runs",
                "1",
                "--json",
            ],
            catch_exceptions=False,
        )
        .output
    )
    assert json.loads(text)[0]["policy"] == "Oracle(bandit=ListThompson(clicks='pbm'))"


def test_tables_of_pages_show_harm_and_recovery(tmp_path):
    asked = (
        "-w",
        "page-clear(slots=3, candidates=6)",
        "-p",
        "given,oracle-list",
        "--threads",
        "1",
        "--runs",
        "2",
        "--queries",
        "2",
    )
    text = invoke(*asked, "--plot", str(tmp_path / "pages.svg"))
    assert all(word in text for word in ("harm", "p90", "recovered", "oracle-list", "regret"))
    assert "shifting" not in text
    assert "pages" in (tmp_path / "pages.svg").read_text(encoding="utf-8")
    lines = invoke(*asked, "--markdown").splitlines()
    assert "| policy | regret | harm | p90 | recovered | clicks | searches | rank |" in lines
    row = next(line for line in lines if line.startswith("| `given`"))
    assert row.count("|") == 9
    assert "0.0 %" in row


def test_a_parameter_that_pages_do_not_have_is_refused():
    done = CliRunner().invoke(app, ["compare", "-w", "page-clear(click=pbm)", "-p", "given"])
    assert done.exit_code != 0
    assert "unknown parameter 'click'; did you mean 'clicks'?" in str(done.exception or done.output)


def test_the_policies_that_are_played_by_default_are_known_and_the_bars_need_no_more():
    assert cli.DEFAULT_POLICIES[0] == "swerve"
    assert {ORACLE, *RIVALS} <= set(cli.DEFAULT_POLICIES) <= set(POLICIES)


def test_brackets_with_commas_survive_a_list():
    rows = json_rows(
        "-w", "clear", "-f", "0.5", "-p", "ts(a=1, b=2),ucb1", "-p", "Oracle(Thompson(a=2, b=3)), ts", "--against", "ts"
    )
    assert [row["policy"] for row in rows] == ["ts(a=1, b=2)", "ucb1", "Oracle(Thompson(a=2, b=3))", "ts"]
    assert {row["against"] for row in rows} == {"ts"}
    assert [row["difference"] is None for row in rows] == [False, False, False, True]


@pytest.mark.parametrize(
    ("given", "items"),
    [
        ([" a , b ", "b,c,"], ["a", "b", "c"]),
        (["A(x=[1, 2], y='p,q'),B"], ["A(x=[1, 2], y='p,q')", "B"]),
        (['A(x="it\'s, so"),B'], ['A(x="it\'s, so")', "B"]),
        (["A(x=1, B"], ["A(x=1, B"]),
        (["A),B"], ["A)", "B"]),
        ([], []),
    ],
)
def test_lists_are_taken_apart_outside_brackets_and_quotes(given, items):
    assert cli.separated(given) == items


def test_the_table_shows_ratio_mean_difference_star_and_rank(played):
    played(ts=[2000.0, 2010.0], ucb1=[900.0, 1100.0])
    text = invoke("-w", "clear,mixed", "-f", "0.1,1/2", "-p", "ts,ucb1,ora", "--runs", "2")
    assert len(re.findall(r"^ ts +2\.00× 2k +2\.00× 2k +3 3 $", text, re.M)) == 2
    assert len(re.findall(r"^ ucb1 +1\.00× 1k +1\.00× 1k +1 1 $", text, re.M)) == 2
    assert "+1 ± 0.0508*" in text  # ts − ora: 1000 and 1008, half the interval is 12.7 · 4
    assert "+1 ± 1.21 " in text  # ts − ucb1: 1100 and 910, half the interval is 12.7 · 95
    assert "all 4 cells" in text
    assert "mean of 2 runs, seeds 100–101" in " ".join(text.split())


def test_a_narrow_terminal_gets_a_list_with_everything(played, monkeypatch):
    played(ts=[2000.0, 2010.0])
    args = ("-w", "clear", "-f", "0.1,1/2", "-p", "ts,ucb1", "--runs", "2")
    monkeypatch.setattr(console, "_width", 34)
    text = invoke(*args)
    assert max(map(len, text.splitlines())) <= 34
    for word in ("0.1 shifting", "0.5 shifting", "2.00× 2", "+1 ± 0.0508*", "rank", "ucb1"):
        assert word in text


def test_a_workload_without_a_fraction_has_a_column_without_one(tmp_path, monkeypatch):
    monkeypatch.setenv("SWERVE_DATA", str(hurricane.write(tmp_path)))
    args = ("-w", "hurricane,clear", "-f", "0.5,0.1", "-p", "ts,ucb1", *SMALL)
    assert [row["fraction"] for row in json.loads(invoke(*args, "--json"))] == [None] * 2 + [0.5] * 2 + [0.1] * 2
    text = invoke(*args)
    assert re.search(r"policy +regret +rank", text)
    assert "all 3 cells" in text
    assert "| policy | regret | rank |" in invoke(*args, "--markdown")
    target = tmp_path / "ratios.svg"
    invoke(*args, "--plot", str(target))
    assert "as they are" in target.read_text(encoding="utf-8")


def test_markdown_is_tables_of_one_width(played):
    played(ts=[2000.0, 2010.0])
    text = invoke("-w", "clear,mixed", "-f", "0.1,1/2", "-p", "ts,ts(a=1, b=2)", "--runs", "2", "--markdown")
    blocks = [block.splitlines() for block in text.split("\n\n") if block.startswith("|")]
    assert len(blocks) == 3
    for block in blocks:
        assert len({line.count("|") for line in block}) == 1
        assert set(block[1]) <= set("|-:")
    assert blocks[0][0] == "| policy | 0.1 | 0.5 | rank |"
    assert "| `ts(a=1, b=2)` | 1.00× 1k (+1 ± 0.0508*) |" in blocks[0][3]


def test_defaults_are_all_workloads_without_data_three_fractions_twenty_runs_from_seed_100(played):
    asked = played()
    invoke("-p", "ts", "--json")
    assert asked["workloads"] == [name for name in WORKLOADS if name not in PAGES and not name.startswith("hurricane")]
    assert asked["fractions"] == [0.0, 0.1, 0.5]
    assert (asked["runs"], asked["seed"], asked["queries"], asked["impressions"]) == (20, 100, None, None)


def test_quick_and_all_and_sizes_of_ones_own(played, tmp_path):
    asked = played()
    invoke("-p", "ts", "-w", "all", "--quick", "--data", str(tmp_path), "--json")
    assert asked["workloads"] == [name for name in WORKLOADS if name != "hurricane"]  # an alias of hurricane-100k
    assert (asked["runs"], asked["queries"], asked["impressions"]) == (3, 10, None)
    invoke("-p", "ts", "-w", "clear", "--quick", "--impressions", "5000", "--runs", "4", "--json")
    assert (asked["runs"], asked["queries"], asked["impressions"]) == (4, None, 5000)


def test_data_is_a_variable_for_as_long_as_the_comparison_lasts(played, tmp_path, monkeypatch):
    asked = played()
    for before in (None, "elsewhere"):
        if before is not None:
            monkeypatch.setenv("SWERVE_DATA", before)
        invoke("-p", "ts", "-w", "clear", "--data", str(tmp_path), "--json")
        assert asked["data"] == str(tmp_path)
        assert os.environ.get("SWERVE_DATA") == before


def test_recorded_signals_must_be_named(monkeypatch):
    monkeypatch.delenv("SWERVE_DATA", raising=False)
    monkeypatch.setattr(cli, "NEED_DATA", ("late",))
    with pytest.raises(SwerveError, match=r"^late needs recorded signals; .* with --data or in the variable SWERVE_DATA$"):
        invoke("-p", "ts", "-w", "clear,late")


def test_a_second_call_plays_nothing(tmp_path):
    args = ("-w", "clear", "-f", "0.5", "-p", "ts,ucb1", *SMALL, "--out", str(tmp_path), "--json")
    first = json.loads(invoke(*args))
    files = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert len(files) == 3 * 2
    second = json.loads(invoke(*args))
    assert [{**row, "seconds": 0} for row in second] == [{**row, "seconds": 0} for row in first]
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == files


def test_the_plot_is_written_beside_the_table(tmp_path):
    target = tmp_path / "ratios.svg"
    assert "ucb1" in invoke("-w", "clear", "-f", "0.5", "-p", "ts,ucb1", *SMALL, "--plot", str(target))
    assert "<svg" in target.read_text(encoding="utf-8")


def test_bars_decide_the_exit_code(played, monkeypatch):
    rivals = ",".join(RIVALS)
    for name in RIVALS:
        monkeypatch.setitem(POLICIES, name, POLICIES["ts"])  # nothing is played: the names are enough
    args = ("-w", "clear", "-f", "0.1", "-p", f"ucb1,{rivals}", "--runs", "2", "--bars")
    played(ucb1=[1000.0, 1002.0], glr_ts=[3000.0, 3010.0], cusum_klucb=[3000.0, 3010.0], ts=[3000.0, 3010.0])
    done = call(*args)
    assert done.exit_code == 0
    assert "1 of 1 cells hold" in done.output
    played(ucb1=[1000.0, 1004.0], glr_ts=[3000.0, 3010.0], cusum_klucb=[3000.0, 3010.0], ts=[3000.0, 3010.0])
    done = call(*args)
    assert done.exit_code == 1
    assert "missed" in done.output
    played(ucb1=[1000.0, 1002.0], glr_ts=[900.0, 901.0], cusum_klucb=[3000.0, 3010.0], ts=[3000.0, 3010.0])
    done = call(*args, "--json", "-")
    assert done.exit_code == 1
    assert len(json.loads(done.stdout)) == 4  # the claims go to standard error
    assert "glr-ts" in done.stderr


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("-w", "claer"), "unknown workload 'claer'; did you mean 'clear'?"),
        (("-p", "tss"), "unknown policy 'tss'"),
        (("-p", "ts(a=1"), "cannot be read"),
        (("-f", "1/0"), "--fraction 1/0 is not allowed; it must be a number in [0, 1], such as 0.1 or 1/2"),
        (("-f", "half"), "--fraction half is not allowed"),
        (("-f", "1.5"), "fraction = 1.5 is not allowed; fraction must be in [0, 1]"),
        (("--against", "ucb1"), "against = 'ucb1' is not allowed; it must be one of the policies: ts"),
        (("--plot", "x.pdf"), "--plot x.pdf is not allowed; the FILE must end in .svg or .png"),
        (("--bars",), "the bars also need the policies glr-ts, cusum-klucb"),
        (("--markdown", "--json", "-"), "--markdown is not allowed with --json to standard output"),
        (("--impressions", "3"), "impressions = 3 is not allowed"),
        (("-p", ","), "policies = [] is not allowed; there must be at least one"),
    ],
)
def test_a_wrong_request_is_one_line(args, message, monkeypatch):
    monkeypatch.setattr(cli, "compare", None)  # nothing is played
    given = args if "-p" in args else ("-p", "ts", *args)
    with pytest.raises(SwerveError) as refused:
        call("--runs", "2", *given)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_plot_that_cannot_be_written_is_refused_before_anything_is_played(tmp_path, monkeypatch):
    with pytest.raises(NotADirectoryError, match="cannot be written: there is no folder"):
        call("-p", "ts", "--plot", str(tmp_path / "nowhere" / "x.svg"))
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(SwerveError, match=r"^--plot needs the package matplotlib; install Swerve with its extra `report`$"):
        call("-p", "ts", "--plot", str(tmp_path / "x.svg"))


def test_ctrl_c_shows_whole_cells_ends_with_130_and_goes_on(tmp_path):
    out = tmp_path / "runs"
    args = ("-w", "clear,mixed", "-f", "0.5", "-p", "ts", "--threads", "1", "--out", str(out))
    process = start(*args, "--queries", "5", "--runs", "300", "--json", "-")
    deadline = time.monotonic() + 120
    while len(list(out.glob("*.parquet"))) < 3:
        assert time.monotonic() < deadline, "no runs were written"
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    shown, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert json.loads(shown) == []
    assert said.strip() == f"swerve: interrupted after 0 of 2 cells; finished runs are in {out}, repeat the command to continue"
    kept = {path: path.stat().st_mtime_ns for path in out.glob("*.parquet")}
    again = json.loads(invoke(*args, "--queries", "5", "--runs", "2", "--json"))
    assert [row["runs"] for row in again] == [2, 2]
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in kept.items())
