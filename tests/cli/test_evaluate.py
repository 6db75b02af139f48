"""`swerve evaluate` says what it read, drops nothing silently, and refuses what it cannot read in one line."""

from __future__ import annotations

import gzip
import json
import re

import pytest
from click.testing import CliRunner
from serving.scripted import Recorder, Script, ranker

from swerve.cli import app
from swerve.cli.common import console
from swerve.core.errors import SwerveError
from swerve.policies import policy


@pytest.fixture(autouse=True)
def plain_kernels(uncompiled):
    """A few hundred lists are played faster than the kernels compile."""


def call(*args):
    return CliRunner().invoke(app, ["evaluate", *map(str, args)], catch_exceptions=False)


def invoke(*args):
    done = call(*args)
    assert done.exit_code == 0, done.output
    return done.output


def write(path, lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


@pytest.fixture
def log(tmp_path):
    lists = [{"time": 1.7e9 + 60 * n, "query": f"q{n % 3}", "shown": ["a", "b"], "positions": [1 + n % 2]} for n in range(60)]
    return write(tmp_path / "log.jsonl", [*lists, {"query": "[odd]"}, {"query": "q"}, {"shown": ["a"]}])


def test_it_says_first_what_it_read_and_what_it_dropped(log):
    text = " ".join(invoke(log).split())
    assert "Read as plain: 63 lines; 60 lists of 3 queries, 60 clicks, 2023-11-14 22:13 to 2023-11-14 23:12 UTC" in text
    assert "dropped: 3 times" in text
    assert re.search(r"2 × no results shown; first \S+log.jsonl:61: {\"query\": \"\[odd\]\"}", text)
    assert re.search(r"1 × no query; first \S+log.jsonl:63:", text)


def test_json_has_the_same(log, tmp_path):
    found = json.loads(invoke(log, "--json"))
    assert found["format"] == "plain"
    assert (found["read"]["lists"], found["read"]["clicks_by_position"]) == (60, {"1": 30, "2": 30})
    assert found["read"]["dropped"]["no query"] == {"lines": 1, "where": f"{log}:63", "example": '{"shown": ["a"]}'}
    assert "Read as plain" in invoke(log, "--json", tmp_path / "out.json")
    assert json.loads((tmp_path / "out.json").read_text()) == found


def test_a_log_without_lists_is_refused_after_the_reasons(tmp_path, capsys):
    path = write(tmp_path / "other.jsonl", [{"level": "info"}] * 3)
    with pytest.raises(SwerveError, match=r"no list was read from \S+other.jsonl as plain; see --format and --map"):
        call(path)
    assert call(tmp_path / "none.jsonl").exit_code == 2


@pytest.fixture
def shifting(tmp_path):
    """A query whose users turn from a to c after 300 searches, beside a quiet one."""
    lines = []
    for number in range(600):
        wanted = 1 if (number * 7 % 10 < 8) == (number < 300) else 3
        lines.append({"time": 1.7e9 + 60 * number, "query": "storm <b>$x$", "shown": ["a", "b", "c"], "positions": [wanted]})
        lines.append({"time": 1.7e9 + 60 * number, "query": "quiet", "shown": ["a", "b", "c"], "positions": [1 + number * 7 % 3]})
    return write(tmp_path / "log.jsonl", lines)


def test_shifts_are_in_the_table_and_in_json(shifting, monkeypatch):
    monkeypatch.setattr(console, "_width", 200)
    text = " ".join(invoke(shifting, "--no-forecast").split())
    assert "changed between (UTC)" in text
    assert re.search(
        r"storm <b>\$x\$ 2023-11-15 03:\d\d and 2023-11-15 03:\d\d c 21 → 80 %; a 79 → 20 % \de-\d+ × 1 \d+ –", text
    ), text
    assert "2 queries have enough clicks to be tested. The probability that even one query" in text
    found = json.loads(invoke(shifting, "--no-forecast", "--json"))["shifts"]
    assert (found["tested"], found["false_alarms"], len(found["shifts"])) == (2, 0.05, 1)
    assert found["shifts"][0]["risen"] == "c"


def test_the_report_is_one_page_with_plots(shifting, tmp_path):
    invoke(shifting, "--no-forecast", "--report", tmp_path / "report", "--json", tmp_path / "out.json")
    page = (tmp_path / "report" / "index.html").read_text(encoding="utf-8")
    assert page.count("<img ") == 1
    assert "src='data:image/svg+xml;base64," in page
    assert "<b>$x$" not in page
    assert "storm &lt;b&gt;$x$" in page
    assert not re.search(r"(?:src|href)='(?!data:)", page)


def test_a_log_without_randomisation_gets_a_model_and_says_so(log, monkeypatch):
    monkeypatch.setattr(console, "_width", 200)
    text = " ".join(invoke(log).split())
    assert "would it have helped? This cannot be estimated: the log holds no randomisation" in text
    assert "forecast by traffic band: a MODEL" in text
    assert re.search(r"torso 3 60 \+\d+\.\d % \(too few queries\)", text), text
    assert "from 10 played queries on" in text
    found = json.loads(invoke(log, "--json"))
    assert found["would_it_have_helped"] == {"randomised": False, "targets": []}
    assert found["forecast"]["everything"]["best"]["percent"] > 0.0
    assert "not a measurement" in found["forecast"]["model"]
    assert json.loads(invoke(log, "--no-forecast", "--json"))["forecast"] is None


def randomised(path, share):
    """Lists of a and b; a share of them is random, the rest has a on top; b is the better one."""
    lines = []
    for number in range(800):
        top = "ab"[number % 2] if number % 100 < 100 * share else "a"
        chance = share / 2 + (1 - share) * (top == "a")
        wanted = 1 + (top == "a") if number % 7 else 3
        lines.append(
            {"time": number, "query": "q", "shown": [top, "b" if top == "a" else "a"], "positions": [wanted] * (wanted < 3),
             "propensities": [chance, chance]}
        )  # fmt: skip
    return write(path, lines)


def test_targets_are_estimated_inside_the_support_and_refused_outside(tmp_path, monkeypatch):
    monkeypatch.setattr(console, "_width", 200)
    log = randomised(tmp_path / "random.jsonl", 1.0)
    args = ("--target", "clicks", "--no-forecast")
    (found,) = json.loads(invoke(log, *args, "--json"))["would_it_have_helped"]["targets"]
    assert set(found["estimates"]) == {"replay", "ips", "snips", "dr"}
    for each in found["estimates"].values():
        assert each["low"] <= each["value"] <= each["high"]
    text = " ".join(invoke(log, *args).split())
    assert re.search(r"clicks snips 0\.\d+ \(0\.\d+ to 0\.\d+\) [+-][\d.e-]+ % \([+-]\S+ to [+-]\S+\) \d+", text), text
    assert "of its choice lies inside the log's support" in text
    fixed = randomised(tmp_path / "fixed.jsonl", 0.0)
    text = " ".join(invoke(fixed, *args).split())
    assert "No target can be judged from this log." in text
    assert "clicks: no estimate: the log's ranking could have shown only about" in text
    (found,) = json.loads(invoke(fixed, *args, "--json"))["would_it_have_helped"]["targets"]
    assert found["estimates"] == {}
    with pytest.raises(SwerveError, match="--target best is not allowed"):
        call(log, "--target", "best")


def test_the_report_has_estimates_and_bands(tmp_path):
    log = randomised(tmp_path / "random.jsonl", 1.0)
    invoke(log, "--report", tmp_path / "report", "--target", "clicks")
    page = (tmp_path / "report" / "index.html").read_text(encoding="utf-8")
    assert "<td>snips</td>" in page
    assert "Forecast by traffic band: a model" in page


def test_results_that_are_logged_one_by_one_have_no_forecast(tmp_path, monkeypatch):
    """The model plays pages from the top: against results that were logged at lower positions it would always gain."""
    monkeypatch.setattr(console, "_width", 200)
    rows = [f"2019-11-24 00:00:{n % 60:02d},{n * 7 % 3},{1 + n % 3},{int(n % 5 == 0)},0.3333" for n in range(900)]
    path = tmp_path / "random.csv"
    path.write_text("timestamp,item_id,position,click,propensity_score\n" + "\n".join(rows), encoding="utf-8")
    assert json.loads(invoke(path, "--target", "clicks", "--json"))["forecast"] is None
    text = " ".join(invoke(path, "--target", "clicks").split())
    assert "Read as open-bandit: 901 lines; 900 lists of 1 queries" in text
    assert "no forecast: the log has results one by one" in text


def test_standard_input_is_read_like_a_file_also_compressed(log):
    found = json.loads(invoke(log, "--json"))
    found["read"]["dropped"]["no query"]["where"] = "standard-input:63"
    found["read"]["dropped"]["no results shown"]["where"] = "standard-input:61"
    for content in (log.read_bytes(), gzip.compress(log.read_bytes())):
        done = CliRunner().invoke(app, ["evaluate", "-", "--json"], input=content, catch_exceptions=False)
        assert done.exit_code == 0
        assert json.loads(done.output) == found
    with pytest.raises(SwerveError, match="- is there twice"):
        call("-", "-")


def test_the_columns_of_a_plain_log_are_named(tmp_path):
    lines = [{"ts": 1.7e9 + n, "q": "boots", "results": ["a", "b"], "clicked": ["a"], "device": "phone"} for n in range(5)]
    lines += [{"timestamp": 1.7e9, "keywords": "boots", "hits": ["a"], "device": "phone", "level": 3}]
    path = write(tmp_path / "log.jsonl", lines)
    text = " ".join(invoke(path, "--no-forecast").split())
    assert "columns: time from ts, timestamp; query from q, keywords; shown from results; clicks from clicked" in text
    assert "not used: device, hits, level" in text
    read = json.loads(invoke(path, "--no-forecast", "--json"))["read"]
    assert read["columns"] == {"time": ["ts", "timestamp"], "query": ["q", "keywords"], "shown": ["results"], "clicks": ["clicked"]}
    assert read["columns_not_used"] == ["device", "hits", "level"]
    mapped = json.loads(invoke(path, "--no-forecast", "--json", "--map", "shown=hits,signal.n=level"))["read"]
    assert mapped["columns"]["shown"] == ["hits"] and mapped["columns"]["signal.n"] == ["level"]
    assert mapped["columns_not_used"] == ["results", "device"]


def recorded(folder, queries, rival=None):
    """Make a recording in which these queries are asked."""
    script = Script(ranker("ts", rival=rival))
    recorder = Recorder(folder, {}, script.ranker, script.now)
    for query in queries:
        script.rank(query, ["a", "b"])
    recorder.close(script.now)
    return folder


def test_a_recording_has_no_columns(tmp_path):
    read = json.loads(invoke(recorded(tmp_path / "own", ["q", "q"]), "--no-forecast", "--target", "given", "--json"))["read"]
    assert "columns" not in read
    assert read["lists"] == 2


def test_both_arms_of_a_recording_are_one_query(tmp_path):
    path = recorded(tmp_path / "own", ["q\0arm=control", "q"] * 2, rival=policy("ucb1"))
    read = json.loads(invoke(path, "--no-forecast", "--target", "given", "--json"))["read"]
    assert (read["lists"], read["queries"]) == (4, 1)
