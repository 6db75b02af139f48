"""`swerve export` and `swerve delete` on stores of real services."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from contextlib import closing

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from service.running import ROOT, SRC, running

from swerve.cli import app
from swerve.cli.common import console
from swerve.core.errors import SwerveError
from swerve.service.secrets import new_key
from swerve.serving.export import COLUMNS
from swerve.store import Batch, open_store

KEY = new_key("ada")
ENTRY = {"name": "ada", "hash": KEY.entry.hash}
CONFIG = {"store": {"store_queries": True}, "namespaces": {"toys": {}}, "security": {"api_keys": [ENTRY]}}
RESULT = "candidate-quagga"


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with running(tmp_path_factory.mktemp("service"), CONFIG) as started:
        client = started.client(KEY.text)
        for number in range(9):
            for offer, parts in ((["a", "b", RESULT], {}), (["x", "y"], {"namespace": "toys", "locale": "de"})):
                answer = client.rank(f"query {number % 3}", offer, session=f"s{number}", **parts).json
                client.feedback(answer["decision"], answer["ranking"][0])
        client.call("POST", "/v1/queries/query%200/shift", {})
        yield started


def swerve(*args: str, code: int = 0, env: dict[str, str] | None = None) -> str:
    done = CliRunner().invoke(app, [*args], env=env, catch_exceptions=False)
    assert done.exit_code == code, done.output
    return done.stdout


def test_an_export_says_what_the_service_says(service, tmp_path):
    """While the service runs, as JSON lines on standard output: the figures are those of `GET /v1/queries/…`."""
    said = swerve("export", str(service.database), "--config", str(service.file))
    lines = [json.loads(line) for line in said.splitlines()]
    assert {name for line in lines for name in line} == set(COLUMNS)
    queries = {(line["query"], line["namespace"]): line for line in lines if line["kind"] == "query"}
    assert len(queries) == 6
    client = service.client(KEY.text)
    for number in range(3):
        for namespace in (None, "toys"):
            asked = "?namespace=toys&locale=de" if namespace else ""
            told = client.call("GET", f"/v1/queries/query%20{number}{asked}").json
            line = queries[f"query {number}", namespace]
            for ours, theirs in (("created", "created"), ("seen", "seen"), ("requests", "requests"), ("phase", "phase"),
                                 ("testing", "testing"), ("alarms", "alarms")):  # fmt: skip
                assert line[ours] == told[theirs], ours
            assert line["locale"] == ("de" if namespace else None) and line["alarm_count"] == len(told["alarms"])
            arms = [one for one in lines if one["kind"] == "candidate" and one["key"] == line["key"]]
            assert {arm["id"]: arm for arm in told["arms"]} == {
                arm["id"]: {name: arm[name] for name in told["arms"][0]} for arm in arms
            }
            assert all(arm["state"]["generation"] is not None and len(arm["state"]) > 1 for arm in arms)
    assert queries["query 0", None]["alarms"][0]["signal"] == "operator" and queries["query 0", None]["shifted"]
    shared = [(line["name"], line["namespace"]) for line in lines if line["kind"] == "shared"]
    assert len(shared) == 4 and set(shared) == {(name, namespace) for name in ("policy", "season") for namespace in (None, "toys")}


def test_parquet_has_the_same_lines(service, tmp_path):
    swerve("export", str(service.database), "--config", str(service.file), "--out", str(tmp_path / "all.jsonl"))
    swerve("export", str(service.database), "--config", str(service.file), "--out", str(tmp_path / "all.parquet"))
    lines = [json.loads(line) for line in (tmp_path / "all.jsonl").read_text().splitlines()]
    rows = pq.read_table(tmp_path / "all.parquet").to_pylist()
    assert list(rows[0]) == list(COLUMNS)
    for row in rows:
        row["state"] = None if row["state"] is None else json.loads(row["state"])
    assert [{name: line.get(name) for name in COLUMNS} for line in lines] == rows
    assert (tmp_path / "all.parquet").stat().st_mode & 0o077 == 0


def test_parts_of_a_store(service, tmp_path):
    lines = [json.loads(line) for line in swerve("export", str(service.database), "--namespace", "toys", "--brief").splitlines()]
    assert {line["namespace"] for line in lines} == {"toys"} and {line["kind"] for line in lines} == {"query", "candidate"}
    assert all(line["state"] is None for line in lines)
    done = CliRunner().invoke(app, ["export", str(service.database)], catch_exceptions=False)  # the default policy is another
    assert "6 queries were written with another policy" in done.stderr
    with pytest.raises(SwerveError, match="needs a file"):
        swerve("export", str(service.database), "--format", "parquet")
    (tmp_path / "there").touch()
    with pytest.raises(SwerveError, match="never overwrites"):
        swerve("export", str(service.database), "--out", str(tmp_path / "there"))
    with pytest.raises(SwerveError, match="there is no store"):
        swerve("export", str(tmp_path / "nowhere.db"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["there"]


def test_damaged_records_are_told(service, tmp_path):
    copy = tmp_path / "copy.db"
    swerve("backup", str(service.database), str(copy))
    with closing(sqlite3.connect(copy)) as file, file:
        file.execute("UPDATE rows SET names = x'00' WHERE id = 1")
    done = CliRunner().invoke(app, ["export", str(copy), "--brief"], catch_exceptions=False)
    assert done.exit_code == 1 and "1 records are damaged and were left out" in done.stderr
    assert sum('"kind": "query"' in line for line in done.stdout.splitlines()) == 5


def test_memory_does_not_grow_with_the_store(service, tmp_path):
    """Ten times the queries take as much memory."""
    swerve("backup", str(service.database), str(tmp_path / "one.db"))
    peaks = []
    for times in (500, 5000):
        target = tmp_path / f"{times}.db"
        target.write_bytes((tmp_path / "one.db").read_bytes())
        store = open_store(f"sqlite:///{target}")
        (row,) = store.scan("traffic", 1)
        for start in range(0, times, 500):
            rows = []
            for number in range(start, start + 500):
                row.key, row.version = number.to_bytes(16, "big"), 1
                rows.append(type(row)(row.key, 1, row.layout, row.day, row.level, row.shifted, row.record, row.names))
            store.checkpoint(Batch(rows=rows))
        store.close()
        code = (
            "import resource, sys; from swerve.cli import app\n"
            f"app(['export', {str(target)!r}, '--brief', '--out', {str(tmp_path / f'{times}.parquet')!r}], standalone_mode=False)\n"
            "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONPATH": SRC})
        peaks.append(int(done.stdout.split()[-1]))
    assert peaks[1] < 1.25 * peaks[0], peaks
    assert pq.read_metadata(tmp_path / "5000.parquet").num_row_groups > 1


def test_delete_from_the_command_line(service, tmp_path, monkeypatch):
    monkeypatch.setattr(console, "_width", 200)
    env = {"SWERVE_URL": f"http://127.0.0.1:{service.port}", "SWERVE_API_KEY": KEY.text}
    done = CliRunner().invoke(app, ["delete", "--query", "query 2"], env=env, input="n\n")
    assert done.exit_code != 0 and "for good?" in done.stderr
    assert swerve("delete", "--query", "Query 2", "--yes", env=env) == "deleted: the query\n"
    assert swerve("delete", "--query", "Query 2", "--yes", env=env) == "nothing of it was there\n"
    told = json.loads(swerve("delete", "--result", RESULT, "--query", "query 1", "--yes", "--json", env=env))
    assert told == {"queries": 0, "results": 1}
    assert "delete key:" in swerve("audit", env=env)
    with pytest.raises(SwerveError, match="neither --query nor --result"):
        swerve("delete", "--yes", env=env)


def test_delete_in_a_store_that_no_service_has(tmp_path):
    needle, result = "zebra crossing", "candidate-okapi-17"
    with running(tmp_path, CONFIG) as service:
        client = service.client(KEY.text)
        for query in (needle, "another", "a third"):
            answer = client.rank(query, ["a", result, "b"]).json
            client.feedback(answer["decision"], result)
        late = client.rank("another", ["a", result, "b"]).json["decision"]
        with pytest.raises(SwerveError, match="is in use"):
            swerve("delete", "--store", str(service.database), "--query", needle, "--yes")
        assert service.stop() == 0

        def raw() -> bytes:
            return b"".join(path.read_bytes() for path in service.state.rglob("*") if path.is_file())

        assert needle.encode() in raw() and result.encode() in raw()
        file = ["--store", str(service.database), "--config", str(service.file), "--yes"]
        assert swerve("delete", "--query", needle, *file) == "deleted: the query\n"
        assert needle.encode() not in raw()
        with pytest.raises(SwerveError, match="never used with this configuration"):
            swerve("delete", "--result", result, "--store", str(service.database), "--yes")
        assert result.encode() in raw()
        assert swerve("delete", "--result", result, *file) == "deleted: the result, in 2 queries\n"
        assert result.encode() not in raw()
        assert swerve("verify", str(service.database))
        service.start()
        client = service.client(KEY.text)
        assert client.query(needle).status == 404
        assert {arm["id"]: arm["clicks"] for arm in client.query("another").json["arms"]} == {"a": 0, "b": 0}
        assert client.feedback(late, result).json == {"status": "ignored"}
        assert [c["what"] for c in client.call("GET", "/v1/audit").json["changes"]] == ["delete", "delete"]


def test_every_column_is_documented():
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    table = page.partition("## Export")[2].partition("## Delete for good")[0]
    assert [name for name in COLUMNS if f"`{name}`" not in table] == []


@pytest.mark.parametrize("name", ["x.csv", "x.jsonl.gz", "x.JSON5"])
def test_another_ending_is_refused_unless_the_format_is_named(service, tmp_path, name):
    with pytest.raises(SwerveError, match=r"\.jsonl or \.parquet"):
        swerve("export", str(service.database), "--config", str(service.file), "--out", str(tmp_path / name))
    assert not list(tmp_path.iterdir())
    swerve("export", str(service.database), "--config", str(service.file), "--out", str(tmp_path / name), "--format", "jsonl")
    assert (tmp_path / name).read_text().startswith("{")


def test_an_unknown_namespace_is_told(service, tmp_path):
    with pytest.raises(SwerveError, match=r"no query of the store has the namespace 'tyos'.*toys"):
        swerve(
            "export",
            str(service.database),
            "--config",
            str(service.file),
            "--out",
            str(tmp_path / "x.jsonl"),
            "--namespace",
            "tyos",
        )
    assert not list(tmp_path.iterdir())
    env = {"SWERVE_URL": f"http://127.0.0.1:{service.port}", "SWERVE_API_KEY": KEY.text}
    said = swerve("delete", "--query", "query 1", "--namespace", "tyos", "--yes", env=env)
    assert "nothing of it was there: the namespace 'tyos' is not known" in " ".join(said.split())
    said = swerve("delete", "--query", "never", "--namespace", "toys", "--yes", env=env)
    assert said == "nothing of it was there\n"
