"""docs/quickstart.md and docs/operations.md are correct: snippets run, commands and metrics exist."""

from __future__ import annotations

import ast
import itertools
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest
from service.running import Running, running

from swerve.cli import app
from swerve.service.config.load import load
from swerve.service.config.sections import Config
from swerve.service.metrics import Metrics

ROOT = Path(__file__).parent.parent
QUICKSTART, OPERATIONS = ROOT / "docs" / "quickstart.md", ROOT / "docs" / "operations.md"


def blocks(page: Path, language: str) -> list[str]:
    """Return the fenced blocks of a language; "" selects blocks without one."""
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(encoding="utf-8"), re.S | re.M)
    return [text for name, text in fenced if name == language]


def commands(page: Path, word: str) -> list[list[str]]:
    """Return the command lines of a page that begin with a word, without what their output is piped into."""
    lines = [line for block in blocks(page, "") for line in block.splitlines()]
    split = [shlex.split(line, comments=True) for line in lines if line.startswith(f"{word} ")]
    return [list(itertools.takewhile(lambda part: part != "|", parts)) for parts in split]


def run(source: str, folder: Path) -> str:
    (folder / "snippet.py").write_text(source, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONWARNINGS": "error"}
    done = subprocess.run(
        [sys.executable, "snippet.py"], cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


LIBRARY, CLIENT, SIGNALS = blocks(QUICKSTART, "python")


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    """A service with the configuration of the page, and the default policy."""
    (page,) = (tomllib.loads(block) for block in blocks(QUICKSTART, "toml"))
    page["policy"] |= {"spec": Config().policy.spec, "seed": 1}  # what is tried on the first page is the same in every run
    with running(tmp_path_factory.mktemp("quickstart"), page) as started:
        yield started


def at(service: Running, source: str) -> str:
    assert "http://127.0.0.1:8350" in source
    return source.replace("http://127.0.0.1:8350", f"http://127.0.0.1:{service.port}")


def test_the_library_in_a_loop_follows_a_shift(tmp_path):
    before, after = ([int(word) for word in found.split()] for found in re.findall(r"\[([\d ]+)\]", run(LIBRARY, tmp_path)))
    assert before[0] > 80
    assert after[3] > 80


def test_the_configuration_can_be_used(tmp_path):
    (text,) = blocks(QUICKSTART, "toml")
    (tmp_path / "swerve.toml").write_text(text, encoding="utf-8")
    made = load(tmp_path / "swerve.toml")
    assert (made.policy.arms, made.policy.grace_seconds, made.signals.numbers) == (16, 0.5, {"news": "count"})


def test_the_ranking_changes_in_the_first_minute(service, tmp_path):
    """The result that people click, the last one of the given order, is on top a second later, as the page shows."""
    began = time.monotonic()
    before, after, known = run(at(service, CLIENT), tmp_path).splitlines()
    assert time.monotonic() - began < 60.0
    assert before != "before: ['storm-track', 'team', 'cocktail']"
    assert after.startswith("after: ['storm-track'") and after.endswith("degraded: False")
    requests, arms = known.split(" ", 1)
    assert int(requests) == 42  # everybody searched once
    assert {name: clicks for name, _, clicks in ast.literal_eval(arms)} == {"team": 0, "cocktail": 0, "storm-track": 40}
    page = QUICKSTART.read_text(encoding="utf-8")
    assert before in page and "after: ['storm-track'" in page


def test_the_numbers_of_a_caller_are_signals(service, tmp_path):
    signals, alarms = run(at(service, SIGNALS), tmp_path).splitlines()
    assert "'news'" in signals
    assert alarms == "[]"


def test_the_requests_by_hand_are_answered(service):
    client = service.client()
    rank, feedback = (dict(itertools.pairwise(words))["-d"] for words in commands(QUICKSTART, "curl"))
    answer = client.call("POST", "/v1/rank", json.loads(rank))
    assert answer.status == 200
    told = json.loads(feedback) | {"decision": answer.json["decision"]}
    assert told["events"][0]["result"] in answer.json["ranking"]
    assert client.call("POST", "/v1/feedback", told).json == {"status": "learned"}


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_lines_of_the_readme_show_a_click_on_any_slot(service, tmp_path):
    lines = [line for block in blocks(ROOT / "README.md", "") for line in block.splitlines() if line.startswith("curl ")]
    assert len(lines) == 3
    script = "\necho\n".join(lines).replace("localhost:8350", f"127.0.0.1:{service.port}").replace("hurricane", "readme")
    done = subprocess.run(["bash", "-ec", script], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True)
    ranked, told, state = map(json.loads, done.stdout.splitlines())
    assert told == {"status": "learned"}
    third = ranked["ranking"][2]
    assert {arm["id"]: (arm["plays"], arm["clicks"]) for arm in state["arms"]} == {
        name: (1, int(name == third)) for name in ("irma", "harvey", "cocktail")
    }


@pytest.mark.parametrize("page", [QUICKSTART, OPERATIONS], ids=lambda page: page.stem)
def test_the_commands_of_the_pages_exist_with_their_options(page):
    shown = commands(page, "swerve")
    assert len(shown) >= 2
    for _, name, *rest in shown:
        command = app.get_command(None, name)
        assert command is not None, name
        if hasattr(command, "commands"):
            command = command.commands[rest.pop(0)]
        command.make_context(name, list(rest))  # parses the arguments; raises for an unknown option


def test_every_metric_of_the_page_exists_and_every_one_that_exists_is_on_the_page():
    text = OPERATIONS.read_text(encoding="utf-8")
    named = {re.sub(r"_bucket$", "", name) for name in re.findall(r"\bswerve_\w+", text)}
    assert named == set(Metrics().families) | {"swerve_worker_up"}  # which no worker has of itself


def test_the_sizes_of_the_page_are_computed_as_it_says(tmp_path):
    (source,) = blocks(OPERATIONS, "python")
    disk, memory = run(source, tmp_path).splitlines()
    text = OPERATIONS.read_text(encoding="utf-8")
    for figure in (*re.findall(r"[\d,]+ MB", disk + memory), *re.findall(r"[\d,]+ queries", memory)):
        assert figure in text, figure


def test_reasons_and_outcomes_of_the_page_are_those_of_the_service():
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src" / "swerve" / "service").rglob("*.py"))
    for reason in re.findall(r'reason="(\w+)"', OPERATIONS.read_text(encoding="utf-8")):
        assert f'"{reason}"' in sources, reason
