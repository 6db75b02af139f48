"""One's own policy in the service: loaded, recorded, replayed; and what cannot serve is refused."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import forking
import pytest
from click.testing import CliRunner
from service.running import running
from service.test_replay import QUERIES, traffic
from service.test_same_kernels import stored

from swerve import SwerveError
from swerve.cli import app
from swerve.service.config.load import ConfigError, load, policy_of, recorded
from swerve.service.config.settings import settings_in

OWN = Path(__file__).with_name("own_policy.py")

pytestmark = pytest.mark.usefixtures("no_variables")


def written(tmp_path: Path, **policy: Any) -> Path:
    path = tmp_path / "swerve.toml"
    lines = [f"{name} = {json.dumps(value)}" for name, value in policy.items()]
    path.write_text("\n".join(["[policy]", *lines]) + "\n", encoding="utf-8")
    return path


def wrong(path: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        load(path)
    return str(caught.value)


def test_a_policy_of_a_loaded_file_can_be_named(tmp_path):
    config = load(written(tmp_path, load=[str(OWN)], spec="OwnGreedy(rate=0.3)"))
    assert repr(policy_of(config)) == "OwnGreedy(rate=0.3)"
    assert type(policy_of(config)) is type(policy_of(load(written(tmp_path, load=[str(OWN)], spec="OwnGreedy()"))))
    assert policy_of(load(None, {"policy.load": (str(OWN),), "policy.spec": "OwnGreedy()"})).rate == 0.1


@pytest.mark.parametrize(
    ("spec", "who"),
    [
        ("oracle-ts", "Oracle"), ("BWC(Testable(UCB1()), Told())", "Told"), ("Oracle(OwnGreedy())", "Oracle"),
        ("ToldGreedy()", "ToldGreedy"), ("Patient(ToldGreedy())", "ToldGreedy"),
    ],
)  # fmt: skip
def test_config_check_refuses_what_must_be_told_of_events(spec, who, tmp_path):
    path = written(tmp_path, load=[str(OWN)], spec=spec)
    done = CliRunner().invoke(app, ["config", "check", str(path), "--json", "-"])
    assert done.exit_code == 1
    (error,) = json.loads(done.stdout)["errors"]
    assert (error["line"], error["key"]) == (3, "policy.spec")
    assert error["message"].endswith(f"is not allowed; {who} must be told of every event, which a service does not know")
    control = written(tmp_path, load=[str(OWN)])
    control.write_text(control.read_text() + f"[experiment]\ncontrol = {json.dumps(spec)}\n")
    assert f"experiment.control = {spec!r} is not allowed; {who} must be told" in wrong(control)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["nowhere.py"], "policy.load nowhere.py cannot be read: No such file or directory"),
        (["broken.py"], "broken.py:2: ZeroDivisionError: division by zero"),
        (["notes.txt"], "notes.txt is not allowed; it must be a Python file"),
        ([""], "policy.load[0] = '' is not allowed"),
        ("own.py", "policy.load = 'own.py' is not allowed; it must be a list of Python files"),
    ],
)
def test_a_wrong_file_is_told_with_its_line(given, message, tmp_path, monkeypatch):
    (tmp_path / "broken.py").write_text("\n1 / 0\n")
    (tmp_path / "notes.txt").write_text("")
    monkeypatch.chdir(tmp_path)
    said = wrong(written(tmp_path, load=given))
    assert message in said
    assert "swerve.toml:2" in said


def test_config_check_takes_the_file_that_serve_is_given(tmp_path):
    path = written(tmp_path, spec="ToldGreedy()")
    done = CliRunner().invoke(app, ["config", "check", str(path), "--load", str(OWN)])
    assert done.exit_code == 1
    assert "ToldGreedy must be told of every event" in done.output
    assert (
        CliRunner().invoke(app, ["config", "check", str(written(tmp_path, spec="OwnGreedy()")), "--load", str(OWN)]).exit_code == 0
    )


def test_the_option_is_instead_of_the_setting(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr("swerve.service.http.server.serve", lambda config, *_, **__: asked.append(config))
    path = written(tmp_path, load=["nowhere.py"], spec="OwnGreedy(rate=0.4)")
    done = CliRunner().invoke(app, ["serve", "--config", str(path), "--load", str(OWN)])
    assert done.exit_code == 0, done.exception
    assert asked[0].policy.load == (str(OWN),)
    assert repr(policy_of(asked[0])) == "OwnGreedy(rate=0.4)"
    done = CliRunner().invoke(app, ["serve", "--load", str(tmp_path / "no.py")])
    assert "no.py cannot be read: No such file or directory" in str(done.exception)


def test_a_recording_names_no_code_to_run(tmp_path):
    config = load(written(tmp_path, load=[str(OWN)], spec="OwnGreedy()"))
    tables = recorded(config)
    assert "load" not in tables["policy"]
    assert repr(settings_in("some.jsonl", tables).policy) == "OwnGreedy()"  # the file is loaded
    with pytest.raises(SwerveError, match=r"some.jsonl: policy.load is not taken from a recording; name the files with --load"):
        settings_in("some.jsonl", {**tables, "policy": {**tables["policy"], "load": [str(OWN)]}})


@pytest.mark.slow
def test_it_serves_and_its_recording_is_replayed_to_the_byte(tmp_path):
    recording = tmp_path / "state" / "swerve.db.journal"
    policy = {"spec": "OwnGreedy(rate=0.2)", "arms": 16, "seed": 5, "load": [str(OWN)]}
    with running(tmp_path, {"store": {"journal_days": 30}, "policy": policy}) as service:
        traffic(service, 150, seed=1)
        assert service.stop() == 0
        service.start()
        traffic(service, 50, seed=2)
        assert service.stop() == 0
    replayed = forking.run(
        sys.executable, "-m", "swerve", "replay", str(recording), "--load", str(OWN), "--json", "-", cwd=tmp_path, timeout=300
    )
    counts = json.loads(replayed.stdout)
    assert counts["requests"] >= 200
    assert (counts["same"], counts["first_difference"], counts["queries"]) == (counts["requests"], None, len(QUERIES))
    stranger = forking.run(sys.executable, "-m", "swerve", "replay", str(recording), cwd=tmp_path, timeout=300)
    assert stranger.returncode == 2
    assert "unknown policy 'OwnGreedy'" in stranger.stderr
    _, _, store = stored(service)
    store.close()
