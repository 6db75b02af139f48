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
    assert said.startswith("rule 1: pin d at 1 for exactly 'Storm' locale=de, until 20")
    assert json.loads(swerve("rules", "block", "a", "--json")) == {**json.loads(swerve("rules", "list", "--json"))[1]}
    assert swerve("rules", "boost", "c", "2").startswith("rule 3: boost c by 2 for all queries")
    assert swerve("rules", "off", "--query", "quiet").startswith("rule 4: off for exactly 'quiet'")
    listed = json.loads(swerve("rules", "list", "--json"))
    assert [(rule["kind"], rule["by"]) for rule in listed] == [("pin", "ada"), ("block", "ada"), ("boost", "ada"), ("off", "ada")]
    table = swerve("rules", "list")
    assert "pin d at 1" in table and "sponsored" in table and "ada, 20" in table
    shop = service.client(KEY.text)
    assert shop.rank("storm", ["a", "b", "c", "d"], locale="de").json["ranking"][0] == "d"
    assert swerve("rules", "on", "--query", "QUIET") == "removed: rule 4: off for exactly 'quiet'\n"
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
        (("rules", "block", "a", "--locale", "de"), "locale is given without query"),
        (("rules", "list", "--key", "wrong"), "this API key is not known here"),
        (("audit", "--url", "http://127.0.0.1:9"), "no answer.*http://127.0.0.1:9"),
        (("rules", "list", "--url", "http://127.0.0.1:9"), "no answer.*http://127.0.0.1:9"),
        (("experiment", "show", "--url", "http://127.0.0.1:9"), "no answer.*http://127.0.0.1:9"),
        (("delete", "--query", "q", "--yes", "--url", "http://127.0.0.1:9"), "no answer.*http://127.0.0.1:9"),
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


@pytest.mark.parametrize("text", ["soon", "5x", "12", "2030-01-01", "2030-01-01T10:00:00", "nan", "1h30m", ""])
def test_a_bad_expiry_is_told_with_the_forms_that_are_accepted(text):
    done = CliRunner().invoke(app, ["rules", "block", "a", "--until", text, "--url", "http://127.0.0.1:9"])
    assert done.exit_code == 2
    for words in ("--until", "90m, 12h, 7d, 2w", "2030-12-31T18:00:00Z", "unix seconds"):
        assert words in " ".join(done.output.split()), done.output


def test_the_audit_has_notes_seconds_and_expiries(swerve):
    swerve("rules", "pin", "d", "1", "--query", "audited", "--until", "2h", "--note", "sponsored by [b]x[/b]")
    until = json.loads(swerve("rules", "list", "--json"))[0]["until"]
    table = swerve("audit", "--limit", "1")
    assert "note" in table and "sponsored by [b]x[/b]" in table
    change = json.loads(swerve("audit", "--limit", "1", "--json"))[0]
    assert time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(change["at"])) in table
    assert f"until {time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime(until))}" in table
    assert "until" in swerve("rules", "list")
    swerve("rules", "remove", str(change["after"]["id"]))


def test_it_is_said_that_a_rule_holds_for_exactly_its_key(swerve):
    said = swerve("rules", "pin", "d", "1", "--query", "exact", "--locale", "de")
    assert "exactly 'exact' locale=de" in said and "another query" in said
    assert "exactly" in swerve("rules", "list") and "exactly" in swerve("rules", "--help")
    everywhere = swerve("rules", "block", "z")
    assert "exactly" not in everywhere and "another query" not in everywhere
    for rule in json.loads(swerve("rules", "list", "--json")):
        swerve("rules", "remove", str(rule["id"]))
