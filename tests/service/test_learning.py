"""A store built from a log is the store of a service that has served it; it never changes an existing one."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result
from service.running import running
from service.test_replay import QUERIES, traffic
from service.test_same_kernels import stored

from swerve.cli import app
from swerve.service.secrets import read_file
from swerve.serving.keys import Keys
from swerve.serving.messages import key_text
from swerve.serving.migration import Layouts
from swerve.store import open_store


def learn(*args: Any) -> Result:
    return CliRunner().invoke(app, ["learn", *map(str, args)], catch_exceptions=True)


def test_a_recording_gives_the_bytes_of_the_service_that_made_it(tmp_path: Path):
    recording = tmp_path / "state" / "swerve.db.journal"
    changes: dict[str, Any] = {"store": {"journal_days": 30}, "policy": {"spec": "ts", "arms": 16}}
    with running(tmp_path, changes) as service:
        traffic(service, 200, seed=1)
        assert service.stop() == 0
    new = tmp_path / "new" / "swerve.db"
    new.parent.mkdir()
    done = learn(recording, "--store", new, "--secrets", service.database.with_name("swerve.db.secrets"), "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.output)["queries"] == 5
    ranker, layouts, store = stored(service)
    other = open_store(f"sqlite:///{new}")
    try:
        made = Layouts(other, ranker)
        keys = [ranker.key_of(key_text(query)) for query in QUERIES]
        assert other.count() == store.count() == len(keys) == 5
        for one, two in zip(store.load(keys), other.load(keys), strict=True):
            assert layouts.view(one).tobytes() == made.view(two).tobytes()
            assert one.names == two.names
        served, built = (
            {name: record for (name, _), record in one.groups().items() if name not in ("clock", "audit")} for one in (store, other)
        )
        assert served == built  # what the queries share; the audit is that of people, and no log has it
        # under other secrets the records are the same, but for their owners
        (tmp_path / "others").mkdir()
        assert learn(recording, "--store", tmp_path / "others" / "swerve.db").exit_code == 0
        named = read_file(tmp_path / "others" / "swerve.db.secrets")
        third = open_store(f"sqlite:///{tmp_path}/others/swerve.db")
        theirs, keyed = Layouts(third, ranker), Keys(named.query_key, None)
        for one, key in zip(store.load(keys), [keyed.of(key_text(query)) for query in QUERIES], strict=True):
            (two,) = third.load([key])
            ours, other_one = layouts.view(one).copy(), theirs.view(two).copy()
            assert ours["ledger"]["owner"] != other_one["ledger"]["owner"]
            ours["ledger"]["owner"] = other_one["ledger"]["owner"]
            assert ours.tobytes() == other_one.tobytes()
            assert one.names == two.names
        third.close()
    finally:
        store.close()
        other.close()


def test_a_service_begins_with_what_a_plain_log_taught(tmp_path: Path):
    rng, began = random.Random(2), time.time() - 86_400.0
    log = tmp_path / "log.jsonl"
    with log.open("w") as out:
        for number in range(400):
            clicks = [3] if rng.random() < 0.7 else []
            line = {"time": began + 60 * number, "query": "Jaguar ", "shown": ["a", "b", "c", "d"], "positions": clicks}
            out.write(json.dumps(line) + "\n")
        out.write("no line\n")
    config = tmp_path / "swerve.toml"
    config.write_text('[policy]\nspec = "ts"\narms = 8\nslots = 10\n')
    store = tmp_path / "state" / "swerve.db"
    store.parent.mkdir()
    done = learn(log, "--store", store, "--config", config)
    assert done.exit_code == 0, done.output
    assert "learnt from 400 lists of 1 queries" in done.output
    assert "1 lines were dropped" in done.output
    again = learn(log, "--store", store, "--config", config)
    assert again.exit_code != 0
    assert "exists; `swerve learn` builds a new store" in str(again.exception or again.output)
    with running(tmp_path, {"policy": {"spec": "ts", "arms": 8}}) as service:
        state = {arm["id"]: arm for arm in service.client().query("jaguar").json["arms"]}
        assert state["c"]["clicks"] == sum(1 for line in log.read_text().splitlines()[:-1] if json.loads(line)["positions"])
        assert state["a"]["plays"] == 400


def test_results_that_are_logged_one_by_one_are_refused(tmp_path: Path):
    log = tmp_path / "bandit.csv"
    log.write_text("timestamp,item_id,position,click,propensity_score\n2019-11-24 00:00:00+00:00,5,2,0,0.02\n")
    done = learn(log, "--store", tmp_path / "swerve.db")
    assert done.exit_code != 0
    assert "results one by one" in str(done.exception or done.output)
