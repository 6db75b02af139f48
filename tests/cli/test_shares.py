"""Commands on a store that several workers have served: they see all of its shares."""

from __future__ import annotations

import json
import shutil
import sys

import forking
import pytest
from service.crewed import crewed
from service.running import running

QUERIES = [f"query {number}" for number in range(10)]


def swerve(*arguments: object, code: int = 0, cwd=None) -> str:
    done = forking.run(sys.executable, "-m", "swerve", *map(str, arguments), cwd=cwd)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code == 0 else done.stdout + done.stderr


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shares")
    with crewed(folder, 3) as crew:
        for query in QUERIES:
            answer = crew.clients[0].rank(query, ["a", "b"]).json
            crew.clients[1].feedback(answer["decision"], "b")
        assert crew.service.stop() == 0
        yield crew.service.database


def test_every_share_is_verified(store, tmp_path):
    said = json.loads(swerve("verify", store, "--json", "-"))
    assert said["ok"] and [one["store"] for one in said["shares"]] == [str(store), f"{store}.1-of-3", f"{store}.2-of-3"]
    assert sum(one["queries"] for one in said["shares"]) == len(QUERIES)
    broken = tmp_path / "broken"
    shutil.copytree(store.parent, broken)
    (broken / "swerve.db.2-of-3").unlink()
    assert "swerve.db.2-of-3" in swerve("verify", broken / "swerve.db", code=2)


def test_an_export_has_all_queries(store):
    *lines, _ = (json.loads(line) for line in swerve("export", store, "--brief").splitlines())
    assert len({line["key"] for line in lines}) == len(QUERIES)


def test_a_backup_and_what_is_restored_of_it_have_all_shares(store, tmp_path):
    copy, target = tmp_path / "copy.db", tmp_path / "there" / "state" / "swerve.db"
    assert "10 queries" in swerve("backup", store, copy)
    assert (tmp_path / "copy.db.2-of-3").exists()
    assert "exists already" in swerve("backup", store, copy, code=2)
    target.parent.mkdir(parents=True)
    shutil.copy(f"{store}.secrets", f"{target}.secrets")
    swerve("restore", copy, target)
    assert "--live" in swerve("restore", copy, target, "--live", code=2)
    swerve("restore", copy, target)
    with running(tmp_path / "there") as service:
        client = service.client()
        assert [client.clicks(query) for query in QUERIES] == [{"b": 1}] * 10


def test_a_deletion_reaches_all_shares(store, tmp_path):
    folder = tmp_path / "state"
    shutil.copytree(store.parent, folder)
    config = store.parent.parent / "swerve.toml"
    said = swerve("delete", "--store", folder / "swerve.db", "--config", config, "--result", "a", "--yes")
    assert "10 queries" in said
    said = swerve("delete", "--store", folder / "swerve.db", "--config", config, "--query", QUERIES[3], "--yes")
    assert "the query" in said
    lines = [json.loads(line) for line in swerve("export", folder / "swerve.db", "--brief").splitlines()]
    assert {line.get("id") for line in lines if line["kind"] == "candidate"} == {"b"}
    assert len({line["key"] for line in lines if line["kind"] == "query"}) == 9
