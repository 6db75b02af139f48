"""`swerve experiment` against a running service."""

from __future__ import annotations

import json

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
    assert "This ends the experiment spring and drops its counts" in swerve("experiment", "ramp", "5%", "--name", "summer", code=1)
    assert shown()["name"] == "spring"
    assert swerve("experiment", "ramp", "5%", "--name", "summer", "--yes") == "experiment summer: 5 % treated\n"
    assert swerve("experiment", "end") == "no experiment runs\n"
    assert "ramp: no experiment" in swerve("audit") and "arm" not in shop.rank("storm", OFFER, session="s1").json


def test_mistakes_are_one_line(service, swerve):
    assert "'half' is no share" in swerve("experiment", "ramp", "half", code=2)
    assert "'120%' is no share" in swerve("experiment", "ramp", "120%", code=2)
    assert "1 may mean 1% or 100%" in swerve("experiment", "ramp", "1", code=2)
    env = {"SWERVE_URL": f"http://127.0.0.1:{service.port}", "SWERVE_API_KEY": KEY.text}
    for args, words in ((("ramp", "0.5"), "no experiment runs"), (("ramp", "0.5", "--name", "a b"), "letters")):
        with pytest.raises(SwerveError, match=words):
            CliRunner().invoke(app, ["experiment", *args], env=env, catch_exceptions=False)
