"""`swerve rules` and `swerve audit` against a running service."""

from __future__ import annotations

import json
import time

import pytest
from click.testing import CliRunner
from service.running import running

from swerve.cli import app
from swerve.cli.common import console
from swerve.cli.rules import read_until
from swerve.core.errors import SwerveError
from swerve.service.secrets import new_key

KEY = new_key("ada", ("operate", "rank"))
ENTRY = {"name": "ada", "hash": KEY.entry.hash, "scopes": list(KEY.entry.scopes)}


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with running(tmp_path_factory.mktemp("service"), {"security": {"api_keys": [ENTRY]}}) as started:
        yield started


@pytest.fixture
def swerve(service, monkeypatch):
    """Run a command against the service and return what it prints, in a wide terminal."""
    monkeypatch.setattr(console, "_width", 200)

    def run(*args: str) -> str:
        env = {"SWERVE_URL": f"http://127.0.0.1:{service.port}", "SWERVE_API_KEY": KEY.text}
        done = CliRunner().invoke(app, [*args], env=env, catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.output

    return run


def test_a_rule_from_the_command_line(service, swerve):
    assert swerve("rules", "list") == "there is no rule\n"
    said = swerve("rules", "pin", "d", "1", "--query", "Storm", "--locale", "de", "--until", "2h", "--note", "sponsored")
    assert said.startswith("rule 1: pin d at 1 for 'Storm' locale=de, until 20")
    assert json.loads(swerve("rules", "block", "a", "--json")) == {**json.loads(swerve("rules", "list", "--json"))[1]}
    assert swerve("rules", "boost", "c", "2").startswith("rule 3: boost c by 2 for all queries")
    assert swerve("rules", "off", "--query", "quiet").startswith("rule 4: off for 'quiet'")
    listed = json.loads(swerve("rules", "list", "--json"))
    assert [(rule["kind"], rule["by"]) for rule in listed] == [("pin", "ada"), ("block", "ada"), ("boost", "ada"), ("off", "ada")]
    table = swerve("rules", "list")
    assert "pin d at 1" in table and "sponsored" in table and "ada, 20" in table
    shop = service.client(KEY.text)
    assert shop.rank("storm", ["a", "b", "c", "d"], locale="de").json["ranking"][0] == "d"
    assert swerve("rules", "on", "--query", "QUIET") == "removed: rule 4: off for 'quiet'\n"
    assert swerve("rules", "remove", "3").startswith("removed: rule 3: boost c by 2")
    audit = json.loads(swerve("audit", "--json"))
    assert [change["what"] for change in audit] == ["remove", "remove", "set", "set", "set", "set"]
    assert len(json.loads(swerve("audit", "--limit", "2", "--json"))) == 2
    assert "remove rule 3: boost c by 2 for all queries" in swerve("audit")
    for number in ("1", "2"):
        swerve("rules", "remove", number)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("rules", "on"), "there is no such rule `off`"),
        (("rules", "remove", "99"), "there is no rule 99"),
        (("rules", "block", "a", "--until", "soon"), "until"),
        (("rules", "block", "a", "--locale", "de"), "locale is given without query"),
        (("rules", "list", "--key", "wrong"), "this API key is not known here"),
        (("audit", "--url", "http://127.0.0.1:9"), "no answer"),
        (("rules", "off", "--url", "nonsense"), "base_url"),
    ],
)
def test_mistakes_are_one_line(service, args, words):
    env = {"SWERVE_URL": f"http://127.0.0.1:{service.port}", "SWERVE_API_KEY": KEY.text}
    with pytest.raises(SwerveError, match=words):
        CliRunner().invoke(app, [*args], env=env, catch_exceptions=False)


def test_an_expiry_is_a_duration_or_a_time():
    for text, seconds in (("90m", 5400), ("12h", 43200), ("7d", 604800), ("1.5h", 5400), ("30s", 30), ("2w", 1209600)):
        assert abs(read_until(None, None, text) - time.time() - seconds) < 5
    assert read_until(None, None, None) is None
