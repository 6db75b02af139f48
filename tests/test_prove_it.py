"""docs/prove-it.md from the logs to 100 % and back: its own blocks, in their order, on the demo's users."""

from __future__ import annotations

import json
import re
import shlex
import socket
import time
import tomllib
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from service.running import Running, until

from swerve.cli import app
from swerve.cli.common import console
from swerve.client import Client
from swerve.service.config.sections import Config

pytest.importorskip("tantivy", reason="the demo's packages are not installed")

PAGE = Path(__file__).parent.parent / "docs" / "prove-it.md"
#: What the test adds to the configuration of the page: a seed, and patience for a busy machine.
MORE = {"server": {"deadline_ms": 2000.0}, "policy": {"spec": Config().policy.spec, "seed": 1}}
DAY = 86_400.0


class Reader:
    """Somebody who follows the page: runs its blocks, one by one, and sees what they print."""

    def __init__(self, folder: Path) -> None:
        text = PAGE.read_text(encoding="utf-8")
        self.blocks = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.S | re.M)
        self.folder, self.names = folder, {}  # type: ignore[var-annotated]
        self.service = Running(folder)
        self.service.database = folder / "swerve.db"
        with socket.socket() as free:  # the same port after a restart, as on the page
            free.bind(("127.0.0.1", 0))
            self.config: dict[str, Any] = {"server": {"port": free.getsockname()[1]}}
        self.at = 0

    def go_on(self) -> list[str]:
        """Run the next block; return the outputs of its commands."""
        language, text = self.blocks[self.at]
        self.at += 1
        if language == "python":
            source = text.replace("http://127.0.0.1:8350", f"http://127.0.0.1:{self.service.port}")
            exec(compile(source, f"{PAGE.name}, block {self.at}", "exec"), self.names)
            return []
        if language == "toml":
            for name, table in tomllib.loads(text).items():
                self.config.setdefault(name, {}).update(table)
            changes = {name: {**table, **MORE.get(name, {})} for name, table in self.config.items()}
            self.service.configure({**MORE, **changes})
            return []
        return [self.run(shlex.split(line, comments=True)) for line in text.splitlines()]

    def run(self, words: list[str]) -> str:
        """Run one command line."""
        if words[:2] == ["swerve", "serve"]:
            if self.service.child is not None:
                assert self.service.stop() == 0
            self.service.start()
            return ""
        url = f"http://127.0.0.1:{self.service.port}"
        if words[0] == "curl":
            with urllib.request.urlopen(words[-1].replace("localhost:8350", url), timeout=20) as answer:
                return str(answer.read().decode())
        assert words[0] == "swerve", words
        done = CliRunner().invoke(app, words[1:], env={"SWERVE_URL": url}, catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.output

    def report(self) -> dict[str, Any]:
        """The experiment's report, once every visit is judged."""

        def look() -> dict[str, Any]:
            found: dict[str, Any] = json.loads(self.run(["swerve", "experiment", "show", "--json"]))
            return found

        until(lambda: look()["open"] == 0, 60.0)
        return look()


class Notes:
    """A client that also notes what each visit was shown and clicked."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.searches: dict[str | None, tuple[str | None, str | None]] = {}  # by decision: session and arm
        self.clicked: set[str | None] = set()

    def rank_many(self, requests: Any) -> list[Any]:
        answers = self.client.rank_many(requests)
        for one, answer in zip(requests, answers, strict=True):
            self.searches[answer.decision] = one["session"], answer.arm
        return answers

    def feedback_many(self, clicks: Any) -> list[bool]:
        self.clicked |= {decision for decision, _ in clicks}
        return self.client.feedback_many(clicks)

    def mean(self, arm: str) -> float:
        """The share of clicked searches of a visit, on average over the visits of an arm."""
        visits: dict[str | None, list[bool]] = {}
        for decision, (session, its) in self.searches.items():
            if its == arm:
                visits.setdefault(session, []).append(decision in self.clicked)
        return sum(sum(one) / len(one) for one in visits.values()) / len(visits)


@pytest.fixture
def reader(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(console, "_width", 200)
    made = Reader(tmp_path)
    yield made
    if "client" in made.names:
        made.names["client"].close()
    made.service.kill()


def test_the_page_is_true(reader: Reader) -> None:
    # 1. the log, and which queries shift
    reader.go_on()
    began = reader.names["world"].began
    (evaluated,) = reader.go_on()
    lists = [json.loads(line) for line in Path("searches.jsonl").read_text().splitlines()]
    assert len(lists) > 10_000 and f"{len(lists):,} lists" in " ".join(evaluated.split())
    assert "hurricane" in evaluated and "propensities" in evaluated and "model" in evaluated.lower()
    found = json.loads(reader.run(["swerve", "evaluate", "searches.jsonl", "--no-forecast", "--json"]))
    shifts = [one for one in found["shifts"]["shifts"] if one["query"] == "hurricane"]
    harvey = next(event for event in reader.names["world"].tallies.shifts if event.event.query == "hurricane").event
    # Harvey rises over a day, and such a rise may be found in several steps; each has its part of the loss.
    rises = [one for one in shifts if one["risen"] == harvey.after.id]
    assert any(one["fallen"] == harvey.before.id and abs(one["until"] - harvey.at) < 0.25 * DAY for one in rises)
    assert sum(one["lost"] for one in rises) > 100

    # 2. a store from the log, with the configuration of the page
    reader.go_on()
    (learnt,) = reader.go_on()
    assert f"learnt from {len(lists):,} lists" in learnt

    # 3. shadow: the given order is shown, and the policy says what it would have done
    reader.go_on()
    reader.go_on()
    (shadow,) = (json.loads(one) for one in reader.go_on())
    assert shadow["mode"] == "shadow"
    assert shadow["rankings"] > shadow["differs"] > shadow["top_differs"] > 100
    assert all(sorted(one["shown"]) == sorted(one["choice"]) for one in shadow["queries"][1:])
    assert reader.names["client"].state("hurricane").requests > 1000 + sum(one["query"] == "hurricane" for one in lists) * 0.9

    # 4. five per cent
    assert reader.go_on() == ["experiment spring: 0 % treated\n"]
    reader.go_on()
    assert reader.go_on() == ["", "experiment spring: 5 % treated\n"]
    reader.go_on()
    shown, told = reader.go_on()
    assert shown.startswith("experiment spring, 5 % treated: ") and json.loads(told)["name"] == "spring"
    five = reader.report()
    treated, control = (five["arms"][arm]["searches"] for arm in ("treated", "control"))
    assert treated + control > 4000 and 0.03 < treated / (treated + control) < 0.07
    assert any(line["query"] == "hurricane" for line in five["queries"])

    # 5. half: it helps, and the interval has what the users themselves say
    assert reader.go_on() == ["experiment spring: 50 % treated\n"]
    notes = reader.names["world"].client = Notes(reader.names["client"])
    reader.go_on()
    half = reader.report()
    shown, ramped = reader.go_on()
    assert "50 % treated: it helps" in shown and ramped == "experiment spring: 95 % treated\n"
    reward, arms = half["outcomes"]["reward"], half["arms"]
    assert half["verdict"] == "helps" and 0.0 < reward["low"] < reward["difference"] < reward["high"] < 0.5
    later = {arm: {name: arms[arm][name] - five["arms"][arm][name] for name in ("searches", "clicked")} for arm in arms}
    assert later["treated"]["searches"] + later["control"]["searches"] == len(notes.searches) > 5000
    assert later["treated"]["clicked"] + later["control"]["clicked"] == len(notes.clicked)
    truth = notes.mean("treated") - notes.mean("control")
    assert reward["low"] < truth < reward["high"] and abs(truth - reward["difference"]) < 0.02
    (everyone,) = reader.go_on()
    assert everyone == "experiment spring: 100 % treated\n"
    assert reader.names["client"].rank("hurricane", ["hurricane-irma", "hurricane-harvey"], session="any").arm == "treated"

    # the way back
    reader.go_on()
    client = reader.names["client"]
    assert {rule.kind for rule in client.rules()} == {"off", "pin"}
    reader.go_on()  # the page's own assertion: with the switch on, the given order
    _, listed, audit = reader.go_on()
    assert listed.count("off") == 1 and "hurricane" in listed and "a campaign" in listed  # the switch for everything is gone
    assert audit.count("ramp: experiment spring") == 7
    gone, *three = client.audit(4)
    assert (gone.what, gone.before.kind, gone.before.note) == ("remove", "off", "incident 7")
    assert [change.after.kind for change in three] == ["off", "pin", "off"]
    given = ["oasis-desert", "oasis-band"]
    assert client.rank("oasis", given).ranking[0] == "oasis-band"  # pinned
    answer = client.rank("hurricane", ["hurricane-irma", "hurricane-harvey"])
    assert (answer.ranking, answer.decision) == (["hurricane-irma", "hurricane-harvey"], None)
    assert reader.at == len(reader.blocks)
    assert began < time.time() - 7 * DAY
