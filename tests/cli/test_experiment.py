"""`swerve experiment` against a running service."""

from __future__ import annotations

import json
import re
import time
from datetime import UTC, datetime

import pytest
from click.testing import CliRunner
from service.running import running, until

from swerve.cli import app
from swerve.cli.common import console
from swerve.core.errors import SwerveError
from swerve.service.secrets import new_key

KEY = new_key("ada", ("operate", "rank", "feedback", "read"))
ENTRY = {"name": "ada", "hash": KEY.entry.hash, "scopes": list(KEY.entry.scopes)}
OFFER = ["a", "b", "c"]


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    changes = {"security": {"api_keys": [ENTRY]}, "experiment": {"visit_seconds": 0.1}}
    with running(tmp_path_factory.mktemp("service"), changes) as started:
        yield started


@pytest.fixture
def swerve(service, monkeypatch):
    """Run a command against the service and return what it prints, in a wide terminal."""
    monkeypatch.setattr(console, "_width", 200)

    def run(*args: str, code: int = 0) -> str:
        env = {"SWERVE_URL": f"http://127.0.0.1:{service.port}", "SWERVE_API_KEY": KEY.text}
        done = CliRunner().invoke(app, [*args], env=env, catch_exceptions=False)
        assert done.exit_code == code, done.output
        return done.output

    return run


def test_an_experiment_from_the_command_line(service, swerve):
    assert swerve("experiment", "show") == "no experiment runs; `swerve experiment ramp 5% --name NAME` begins one\n"
    assert swerve("experiment", "ramp", "5%", "--name", "spring", "--note", "first look") == "experiment spring: 5 % treated\n"
    assert swerve("experiment", "ramp", "0.5") == "experiment spring: 50 % treated\n"
    shop = service.client(KEY.text)
    for number in range(40):
        answer = shop.rank("storm", OFFER, session=f"s{number}", locale="de").json
        shop.feedback(answer["decision"], "a")

    def shown() -> dict:
        return json.loads(swerve("experiment", "show", "--json"))

    until(lambda: shown()["outcomes"]["reward"]["visits"] == 40)
    assert shown()["name"] == "spring" and shown()["arms"]["treated"]["searches"] > 5
    table = swerve("experiment", "show")
    assert table.startswith("experiment spring, 50 % treated: not decided yet; ")
    assert "locale=de" in table and "abandonment" in table and "undecided" in table
    assert "ramp: experiment spring, 50 % treated" in swerve("audit")
    with pytest.raises(SwerveError, match=r"This ends the experiment spring and drops its counts.*--yes goes on without asking"):
        swerve("experiment", "ramp", "5%", "--name", "summer")
    assert shown()["name"] == "spring"
    assert swerve("experiment", "ramp", "5%", "--name", "summer", "--yes") == "experiment summer: 5 % treated\n"
    with pytest.raises(SwerveError, match="End the experiment summer and drop its counts"):
        swerve("experiment", "end")
    assert shown()["name"] == "summer"
    ended = swerve("experiment", "end", "--note", "enough seen", "--yes")
    assert ended.startswith("experiment summer, 5 % treated: ")  # the last report
    assert ended.endswith("the experiment has ended: all traffic gets the policy's order\n")
    changes = len(json.loads(swerve("audit", "--json")))
    assert swerve("experiment", "end") == "no experiment runs\n"
    assert len(json.loads(swerve("audit", "--json"))) == changes  # nothing was done
    assert "enough seen" in swerve("audit", "--limit", "1")
    assert json.loads(swerve("audit", "--limit", "1", "--json"))[0]["note"] == "enough seen"
    assert "ramp: no experiment" in swerve("audit") and "arm" not in shop.rank("storm", OFFER, session="s1").json


def test_mistakes_are_one_line(service, swerve):
    assert "'half' is no share" in swerve("experiment", "ramp", "half", code=2)
    assert "'120%' is no share" in swerve("experiment", "ramp", "120%", code=2)
    assert "1 may mean 1% or 100%" in swerve("experiment", "ramp", "1", code=2)
    env = {"SWERVE_URL": f"http://127.0.0.1:{service.port}", "SWERVE_API_KEY": KEY.text}
    for args, words in ((("ramp", "0.5"), "no experiment runs"), (("ramp", "0.5", "--name", "a b"), "letters")):
        with pytest.raises(SwerveError, match=words):
            CliRunner().invoke(app, ["experiment", *args], env=env, catch_exceptions=False)


def test_it_says_how_many_visits_wait_and_when_they_are_judged(tmp_path, monkeypatch):
    monkeypatch.setattr(console, "_width", 200)
    changes = {"experiment": {"name": "slow", "treated": 0.5, "visit_seconds": 300.0}}
    with running(tmp_path, changes) as service:
        env = {"SWERVE_URL": f"http://127.0.0.1:{service.port}"}

        def show() -> str:
            return CliRunner().invoke(app, ["experiment", "show"], env=env, catch_exceptions=False).output

        assert "wait" not in show()
        began = time.time()
        for number in range(3):
            service.client().rank("storm", OFFER, session=f"s{number}")
        text = " ".join(show().split())
        found = re.search(r"3 visits wait to be judged, the first at (\S+ \S+) UTC: 10 minutes after its first search", text)
        assert found is not None, text
        at = datetime.strptime(found[1], "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC).timestamp()
        assert began + 599.0 <= at <= time.time() + 601.0


def test_without_a_second_arm_it_says_why_nothing_is_compared(tmp_path, monkeypatch):
    monkeypatch.setattr(console, "_width", 200)
    with running(tmp_path, {"experiment": {"name": "whole", "visit_seconds": 0.1}}) as service:
        service.client().rank("storm", OFFER, session="s")
        env = {"SWERVE_URL": f"http://127.0.0.1:{service.port}"}
        for share, words, row in (
            ("100%", "nothing is compared: at 100 % treated no unit is held out", r"control –( –){4}"),
            ("0%", "nothing is compared: at 0 % treated every unit is held out", r"treated 1 0 0 0\.0 \d"),
        ):
            CliRunner().invoke(app, ["experiment", "ramp", share], env=env, catch_exceptions=False)
            text = " ".join(CliRunner().invoke(app, ["experiment", "show"], env=env, catch_exceptions=False).output.split())
            assert words in text and re.search(row, text), text
            assert "is not known yet" not in text
