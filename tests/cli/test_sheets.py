"""Tables as CSV and LaTeX beside JSON, regret curves with bands, and what is refused."""

from __future__ import annotations

import csv
import io
import json
import math

import numpy as np
import pytest
from click.testing import CliRunner
from scipy import stats

from swerve.cli import app
from swerve.cli.sheets import Sheet
from swerve.core.errors import SwerveError
from swerve.experiments.intervals import band
from swerve.simulate.results import read_file

COMPARE = (
    "compare",
    "-w",
    "clear",
    "-f",
    "0,0.5",
    "-p",
    "ts,ucb1(alpha=2)",
    "--queries",
    "2",
    "--impressions",
    "600",
    "--runs",
    "3",
)
SIMULATE = ("simulate", "ts", "ucb1(alpha=2)", "-e", "traffic(queries=2, impressions=600)", "--runs", "3")
REPRODUCE = ("reproduce", "figure-a", "--impressions", "3000", "--runs", "1")

pytestmark = pytest.mark.usefixtures("uncompiled")


def invoke(*args):
    done = CliRunner().invoke(app, [*args, "--threads", "1"])
    assert done.exit_code == 0, (done.output, done.exception)
    return done.stdout


def refused(*args):
    done = CliRunner().invoke(app, list(args))
    assert isinstance(done.exception, SwerveError | OSError), done.output
    return str(done.exception)


@pytest.mark.parametrize("command", [COMPARE, SIMULATE, REPRODUCE], ids=lambda command: command[0])
def test_csv_has_the_rows_and_keys_of_the_json(command, tmp_path):
    more = ("--out", str(tmp_path / "runs"))
    rows = json.loads(invoke(*command, *more, "--json", "-"))
    lines = list(csv.DictReader(io.StringIO(invoke(*command, *more, "--csv", "-"))))
    assert len(lines) == len(rows) > 1
    for row, line in zip(rows, lines, strict=True):
        for key in set(row) - {"seconds"}:
            if isinstance(row[key], dict):
                assert {f"{key}.{name}": value for name, value in row[key].items()}.items() <= {
                    name: None if text == "" else float(text) for name, text in line.items() if name.startswith(f"{key}.")
                }.items()
            elif isinstance(row[key], list):
                assert line[key].split() == [str(value) for value in row[key]]
            else:
                assert line[key] == ("" if row[key] is None else str(row[key]))


@pytest.mark.parametrize("command", [COMPARE, SIMULATE, REPRODUCE], ids=lambda command: command[0])
def test_latex_has_a_table_for_each_one_of_the_terminal(command, tmp_path):
    path = tmp_path / "tables.tex"
    shown = invoke(*command, "--out", str(tmp_path / "runs"), "--latex", str(path))
    text = path.read_text(encoding="utf-8")
    assert "policy" in shown  # the table is printed beside the file
    assert text.count(r"\begin{table}") == text.count(r"\end{table}") == {"compare": 2, "simulate": 1, "reproduce": 2}[command[0]]
    for part in text.split(r"\begin{tabular}{")[1:]:
        columns = len(part.partition("}")[0])
        lines = part.partition(r"\toprule")[2].partition(r"\bottomrule")[0].replace("\\&", "").splitlines()
        assert all(line.count("&") == columns - 1 and line.endswith(r"\\") for line in lines if line and line != r"\midrule")
    shown_by_latex = [line for line in text.splitlines() if not line.startswith("%")]
    assert not any(sign in line for line in shown_by_latex for sign in "×±−–÷")


def test_families_of_the_lower_bounds_have_no_sign_that_latex_lacks():
    from swerve.cli.sheets import tex
    from swerve.experiments.lower_bounds import FAMILIES

    assert all(tex(text).isascii() for family in FAMILIES for text in (family.name, family.title))


def test_signs_of_latex_are_escaped_and_pipes_of_markdown():
    sheet = Sheet("a_b & c", ["policy", "50 %\nof all"], [["x{1}|y", "1.5× ± 2"]])
    assert r"\caption{a\_b \& c}" in sheet.as_latex()
    assert r"\texttt{x\{1\}|y} & 1.5$\times$ $\pm$ 2 \\" in sheet.as_latex()
    assert r"policy & 50 \% of all \\" in sheet.as_latex()
    assert r"| `x{1}\|y` | 1.5× ± 2 |" in sheet.as_markdown()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--csv", "-", "--json", "-"), "--json is not allowed with --csv to standard output; use --csv FILE"),
        (("--latex", "-", "--csv", "-"), "--csv is not allowed with --latex to standard output"),
        (("--csv", "ts"), "--csv ts is not allowed; a FILE has a '.'"),
        (("--latex", "nowhere/at.tex"), "--latex nowhere/at.tex cannot be written: there is no folder nowhere"),
        (("--csv", "one.txt", "--latex", "one.txt"), "one.txt is not allowed for two forms"),
        (("--regret-plot", "curves.pdf"), "--regret-plot curves.pdf is not allowed; the FILE must end in .svg or .png"),
        (("--curves", "--csv", "rows.csv"), "--curves is not allowed without --json"),
    ],
)
@pytest.mark.parametrize("command", [COMPARE, SIMULATE], ids=lambda command: command[0])
def test_wrong_uses_are_refused_before_anything_is_played(command, args, message, monkeypatch):
    monkeypatch.setattr("swerve.cli.compare.compare", lambda *_, **__: pytest.fail("played"))
    monkeypatch.setattr("swerve.cli.simulate.simulate", lambda *_, **__: pytest.fail("played"))
    assert message in refused(*command, *args)


def test_markdown_shares_standard_output_with_no_other_form():
    assert "--markdown is not allowed with --csv to standard output; use --csv FILE" in refused(
        *COMPARE, "--markdown", "--csv", "-"
    )


def test_a_band_is_students_interval_at_every_checkpoint(tmp_path):
    rows = json.loads(invoke(*COMPARE, "--out", str(tmp_path), "--curves", "--json", "-"))
    runs = {}
    for path in tmp_path.iterdir():
        about, run = read_file(path)
        runs.setdefault((about["policy"], about["environment"]), {})[run.seed] = run.regret
    row = next(row for row in rows if row["policy"] == "ts" and row["fraction"] == 0.5)
    (lines,) = [np.stack(list(r.values())) for (name, where), r in runs.items() if name == "Thompson()" and "share=0.5" in where]
    low, high = stats.t.interval(0.95, 2, lines.mean(axis=0), stats.sem(lines, axis=0))
    assert row["curve"] == pytest.approx(lines.mean(axis=0))
    assert row["curve_low"][-1] == pytest.approx(low[-1])
    assert row["curve_high"] == pytest.approx(high)
    assert row["rounds"][-1] == 600
    assert row["curve"][-1] == pytest.approx(row["mean"])
    assert band(lines[:1])[1:] == (None, None)


@pytest.mark.parametrize("command", [COMPARE, SIMULATE], ids=lambda command: command[0])
def test_regret_curves_are_drawn_with_a_band_for_each_policy(command, tmp_path, monkeypatch):
    from swerve.experiments import regret_plots

    drawn = []
    monkeypatch.setattr(
        regret_plots, "regret_curves", lambda panels, real=regret_plots.regret_curves: drawn.append(real(panels)) or drawn[0]
    )
    path = tmp_path / "curves.png"
    invoke(*command, "--regret-plot", str(path))
    assert path.read_bytes().startswith(b"\x89PNG")
    panels = [axes for axes in drawn[0].axes if axes.get_visible()]
    assert len(panels) == {"compare": 2, "simulate": 1}[command[0]]
    for axes in panels:
        assert [line.get_label() for line in axes.lines] == ["ts", "ucb1(alpha=2)"]
        assert len(axes.collections) == 2
        for line, shade in zip(axes.lines, axes.collections, strict=True):
            ends = shade.get_paths()[0].vertices
            assert ends[:, 1].min() <= line.get_ydata()[-1] <= ends[:, 1].max()
    assert math.isclose(panels[0].get_xlim()[1], 600)
