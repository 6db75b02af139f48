"""Commands on a store that several workers have served: they see all of its shares."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import forking
import pytest
from service.crewed import crewed
from service.running import running

from swerve.evaluate.readers import read
from swerve.store import open_store
from swerve.store.shares import journals_of, shares_of

QUERIES = [f"query {number}" for number in range(10)]
#: Queries that were asked once before there were several workers.
EARLIER = 4
LOGGED = {"store": {"journal_days": 30}}


def swerve(*arguments: object, code: int = 0, cwd=None) -> str:
    done = forking.run(sys.executable, "-m", "swerve", *map(str, arguments), cwd=cwd)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code == 0 else done.stdout + done.stderr


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shares")
    with running(folder, LOGGED) as service:  # share 0 has a log from before the others
        for query in QUERIES[:EARLIER]:
            service.client().rank(query, ["a", "b"])
        assert service.stop() == 0
    with crewed(folder, 3, LOGGED) as crew:
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
    said = swerve("restore", copy, target)
    assert "10 queries in 3 shares" in said and "replaced" not in said
    assert "--live" in swerve("restore", copy, target, "--live", code=2)
    owner = open_store(f"sqlite:///{target}.1-of-3")
    said = swerve("restore", copy, target, code=2)
    assert "1-of-3 is in use by process" in said and "stop the service" in said and "--live" not in said
    owner.close()
    said = swerve("restore", copy, target)
    assert said.count("the replaced store is") == 3
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


def logs_of(store):
    return [f"{store}.journal", f"{store}.1-of-3.journal", f"{store}.2-of-3.journal"]


@pytest.mark.parametrize("named", ["{}", "sqlite:///{}", "{}.journal"])
def test_every_share_is_replayed(store, named):
    said = json.loads(swerve("replay", named.format(store), "--json", "-"))
    assert [one["log"] for one in said["shares"]] == logs_of(store)
    assert all(one["requests"] == one["same"] > 0 for one in said["shares"])
    assert sum(one["queries"] for one in said["shares"]) == said["queries"] == said["clicks"] == len(QUERIES)
    assert said["requests"] == len(QUERIES) + EARLIER
    assert sum(one["clicks"] for one in said["shares"]) == len(QUERIES)


def test_the_log_of_one_other_share_is_read_alone_and_a_log_that_is_named_twice_once(store):
    alone = json.loads(swerve("replay", logs_of(store)[1], "--json", "-"))
    assert 0 < alone["queries"] < len(QUERIES) and "shares" not in alone
    found = json.loads(swerve("evaluate", *logs_of(store), "--no-forecast", "--json", "-"))["read"]
    assert found["lists"] == len(QUERIES) + EARLIER
    text = swerve("replay", store)
    assert text.count("with the same page as recorded") == 4 and "all shares: 14 rankings of 10 queries" in text


def test_the_logs_of_all_shares_are_read_in_the_order_of_time(store):
    said = json.loads(swerve("evaluate", store, "--no-forecast", "--json", "-"))["read"]
    assert (said["lists"], said["clicks"], said["queries"], said["dropped"]) == (14, 10, 10, {})
    lists = list(read([Path(log) for log in logs_of(store)]))
    assert [entry.query for entry in lists] == QUERIES[:EARLIER] + QUERIES  # as they were asked
    assert [entry.time for entry in lists] == sorted(entry.time for entry in lists)


def test_logs_that_were_copied_without_the_store_are_found_by_their_names(store, tmp_path):
    for log in logs_of(store):
        shutil.copytree(log, tmp_path / Path(log).name)
    copy = tmp_path / "swerve.db.journal"
    assert journals_of(copy) == [tmp_path / Path(log).name for log in logs_of(store)]
    assert json.loads(swerve("replay", copy, "--json", "-"))["queries"] == len(QUERIES)
    shutil.rmtree(tmp_path / "swerve.db.1-of-3.journal")
    assert "swerve.db.1-of-3.journal is missing, the log of share 1 of 3" in swerve("replay", copy, code=2)
    (tmp_path / "swerve.db.1-of-2.journal").mkdir()
    assert "logs of 2 and of 3 shares" in swerve("evaluate", copy, code=2)
    assert "is no log of a store" in swerve("replay", __file__, code=2)


def records(path):
    """Return the rows of a store, and what they share."""
    opened = open_store(f"sqlite:///{path}")
    try:
        layouts = opened.layouts()
        rows = {row.key: (layouts[row.layout], row.record, row.names) for row in opened.page(0)[0]}
        return rows, {name: record for (name, _), record in opened.groups().items() if name not in ("clock", "audit")}
    finally:
        opened.close()


def test_a_store_that_is_learnt_from_the_logs_of_all_shares_has_their_records(store, tmp_path):
    new = tmp_path / "new.db"
    said = json.loads(swerve("learn", f"{store}.journal", "--store", new, "--secrets", f"{store}.secrets", "--json", "-"))
    assert (said["lists"], said["clicks"], said["queries"]) == (14, 10, 10)

    shutil.copytree(store.parent, tmp_path / "state")
    shares = [records(path) for path in shares_of(tmp_path / "state" / store.name)]
    rows, groups = records(new)
    assert len(rows) == len(QUERIES)
    assert rows == shares[0][0] | shares[1][0] | shares[2][0]
    assert groups == shares[0][1]


def test_queries_that_nobody_asked_since_there_are_several_workers_are_learnt_too(tmp_path):
    with running(tmp_path, LOGGED) as service:
        for query in QUERIES:
            service.client().rank(query, ["a", "b"])
        assert service.stop() == 0
    with crewed(tmp_path, 2, LOGGED) as crew:
        for query in QUERIES[:EARLIER]:
            crew.clients[0].rank(query, ["a", "b"])
        assert crew.service.stop() == 0
    database, new = crew.service.database, tmp_path / "new.db"
    swerve("learn", database, "--store", new, "--secrets", f"{database}.secrets")
    shares = [records(path)[0] for path in shares_of(database)]
    assert records(new)[0] == shares[0] | shares[1] and len(shares[0]) + len(shares[1]) == len(QUERIES)


def test_logs_of_two_stores_do_not_make_one_store(store, tmp_path):
    with running(tmp_path, LOGGED) as service:
        service.client().rank("boots", ["a", "b"])
        assert service.stop() == 0
    said = swerve("learn", store, f"{service.database}.journal", "--store", tmp_path / "new.db", code=2)
    assert "recordings of different stores" in said
