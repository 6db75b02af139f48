"""`swerve config`: errors name their line, and the shown configuration is a valid one."""

from __future__ import annotations

import json
import os
import tomllib

import pytest
from click.testing import CliRunner

from swerve.cli import app
from swerve.cli.config import as_toml
from swerve.service.config.load import load, load_traced
from swerve.service.config.toml import parse
from swerve.service.secrets import new_key

GOOD = """
[server]
port = 9000
[policy]
spec = "bwc(epsilon=0.2)"
test_length = 500
[signals]
use = ["volume"]
latch_hours = 6
[signals.numbers]
"a.b" = "count"
"""


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch):
    for name in [name for name in os.environ if name == "SWERVE_CONFIG" or name.startswith("SWERVE__")]:
        monkeypatch.delenv(name)


@pytest.fixture
def write(tmp_path):
    def write(text: str) -> str:
        (tmp_path / "swerve.toml").write_text(text, encoding="utf-8")
        return str(tmp_path / "swerve.toml")

    return write


def invoke(*args: str, code: int = 0) -> str:
    done = CliRunner().invoke(app, ["config", *args])
    assert done.exit_code == code, done.output
    return done.stdout


def test_check_says_that_it_is_right_and_what_it_comes_to(write):
    path = write(GOOD)
    text = invoke("check", path)
    assert text.startswith(f"{path}: right. Policy BWC(bandit=Testable(bandit=UCB1(), length=500, epsilon=0.2)")
    assert "signals volume, a.b; store sqlite:///swerve.db" in text
    assert json.loads(invoke("check", path, "--json")) == {"file": path, "ok": True, "errors": [], "warnings": []}


@pytest.mark.parametrize(
    ("text", "warned"),
    [
        (
            '[policy]\narms = 8\n[proxy]\nupstream = "http://127.0.0.1:9200"\n',
            ["proxy.rules: the window = 50 of a rule with defaults"],
        ),
        ("[policy]\narms = 8\n[[proxy.rules]]\nwindow = 9\n", ["proxy.rules[0].window = 9"]),
        ("[limits]\ncandidates = 8\n[[proxy.rules]]\nwindow = 8\n", []),
        ("[policy]\narms = 8\n", []),  # there is no proxy
        ('[namespaces."*"]\ncandidates = 5\n[[proxy.rules]]\nwindow = 6\nnamespace = "shop"\n', ["proxy.rules[0].window = 6"]),
        ("[namespaces.shop]\ncandidates = 5\n[[proxy.rules]]\nwindow = 6\n", []),
    ],
)
def test_check_warns_of_a_window_that_is_wider_than_what_the_service_takes(write, text, warned):
    path = write(text)
    said = [line for line in invoke("check", path).splitlines() if "warning" in line]
    assert len(said) == len(warned)
    for line, begin in zip(said, warned, strict=True):
        assert line.startswith(f"{path}: warning: {begin} is more than the ") and "candidates that the service takes" in line
    assert [f"{path}: warning: {one}" for one in json.loads(invoke("check", path, "--json"))["warnings"]] == said


def test_check_tells_every_mistake_and_ends_with_1(write):
    path = write("[server]\nport = -1\n[policy]\narms = 1\n")
    text = invoke("check", path, code=1)
    assert text.splitlines() == [
        f"{path}:2: server.port = -1 is not allowed; it must be a whole number in [0, 65535]",
        f"{path}:4: policy.arms = 1 is not allowed; it must be a whole number in [2, 64]",
    ]
    told = json.loads(invoke("check", path, "--json", code=1))
    assert told["ok"] is False
    assert [(one["line"], one["key"]) for one in told["errors"]] == [(2, "server.port"), (4, "policy.arms")]


def test_check_tells_syntax_errors_and_a_missing_file(write, tmp_path):
    path = write("[server\n")
    assert invoke("check", path, code=1).startswith(f"{path}:1: ")
    invoke("check", str(tmp_path / "none.toml"), code=2)


def test_show_is_a_configuration_that_means_the_same(write):
    path = write(GOOD)
    config = load(path)
    text = invoke("show", path)
    assert tomllib.loads(text)["policy"]["test_length"] == 500
    again = write(text)
    assert tomllib.loads(invoke("show", again)) == tomllib.loads(text)
    assert load(again).policy == config.policy
    assert load(again).signals.numbers == {"a.b": "count"}
    assert load(again).signals.tuning["latch_hours"] == 6
    shown = json.loads(invoke("show", path, "--json"))
    assert {k: v for k, v in shown["policy"].items() if k != "seed"} == tomllib.loads(text)["policy"]


def test_show_says_what_each_field_means_and_every_line_is_short():
    text = invoke("show")
    document = parse(text, "shown")
    lines = text.splitlines()
    assert max(map(len, lines)) <= 120
    for section, table in document.table.items():
        for name in table:
            line = document.line((section, name))
            assert lines[line - 2].startswith("# "), (section, name)


def test_show_without_a_file_takes_the_environment(write, monkeypatch):
    monkeypatch.setenv("SWERVE_CONFIG", write(GOOD))
    monkeypatch.setenv("SWERVE__SERVER__HOST", "localhost")
    shown = json.loads(invoke("show", "--json"))
    assert (shown["server"]["port"], shown["server"]["host"]) == (9000, "localhost")


def test_show_says_where_each_value_comes_from(write, monkeypatch):
    path = write(GOOD + "[namespaces.toys]\nrate = 5.0\n")
    monkeypatch.setenv("SWERVE__SERVER__HOST", "localhost")
    monkeypatch.setenv("SWERVE__SIGNALS__NUMBERS__news", "raw")
    monkeypatch.setenv("SWERVE__NAMESPACES__toys__BURST", "7")
    sources = json.loads(invoke("show", path, "--json"))["sources"]
    expected = {
        "server.host": "SWERVE__SERVER__HOST",
        "server.port": f"{path}:3",
        "server.docs": "default",
        "signals.latch_hours": f"{path}:9",
        "signals.numbers": f"{path}:10, SWERVE__SIGNALS__NUMBERS__news",
        "signals.burst_cap": "default",
        "namespaces.toys": f"{path}:12, SWERVE__NAMESPACES__toys__BURST",
    }
    assert {name: sources[name] for name in expected} == expected
    values = json.loads(invoke("show", path, "--json"))
    every = {f"{name}.{field}" for name, table in values.items() if name not in ("sources", "namespaces") for field in table}
    assert every | {"namespaces.toys"} == set(sources)
    lines = invoke("show", path).splitlines()
    assert 'host = "localhost"  # SWERVE__SERVER__HOST' in lines
    assert f"port = 9000  # {path}:3" in lines
    assert "docs = true  # default" in lines
    assert f"[namespaces.toys]  # {expected['namespaces.toys']}" in lines


def test_show_leaves_hashes_out(write):
    key = new_key("shop", ("rank",)).entry
    path = write(f'[[security.api_keys]]\nname = "shop"\nhash = "{key.hash}"\nscopes = ["rank"]\n')
    digits = key.hash.removeprefix("sha256:")
    for text in (invoke("show", path), invoke("show", path, "--json"), as_toml(*load_traced(path))):
        assert "shop" in text
        assert digits[:8] not in text


def test_show_refuses_what_cannot_be_used(write):
    done = CliRunner().invoke(app, ["config", "show", write("[server]\nport = -1\n")])
    assert done.exit_code != 0
    assert "server.port = -1" in str(done.exception)


def test_show_has_the_namespaces(tmp_path):
    text = '[namespaces.toys]\nrate = 5.0\nnumbers = ["news"]\n[namespaces."*"]\n[signals.numbers]\nnews = "count"\n'
    (tmp_path / "one.toml").write_text(text)
    shown = CliRunner().invoke(app, ["config", "show", str(tmp_path / "one.toml")], catch_exceptions=False).output
    (tmp_path / "two.toml").write_text(shown)
    assert load(tmp_path / "two.toml").namespaces == load(tmp_path / "one.toml").namespaces
