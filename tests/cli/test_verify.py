"""`swerve verify` and `swerve restore`."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import shutil
import sqlite3
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from service.paging import metric
from service.running import running, until
from serving.made import LAYOUT, key, made

from swerve.cli import app, common as shared
from swerve.core.errors import SwerveError
from swerve.core.spec import record_dtype
from swerve.service.secrets import create_file, load_secrets
from swerve.serving.place import PACK, Names
from swerve.store import Batch, InUse, open_store
from swerve.store.backup import backup
from swerve.store.journal import Journal
from swerve.store.restore import restore
from swerve.store.schema import PAGE_BYTES


@pytest.fixture
def store(tmp_path):
    """An open store of 20 queries, with its secrets beside it."""
    opened = open_store(f"sqlite:///{tmp_path}/swerve.db")
    secrets = create_file(tmp_path / "swerve.db.secrets")
    assert opened.claim(secrets.fingerprint())
    life = opened.begin_life()
    opened.checkpoint(Batch([made(opened, i) for i in range(20)], [(life.id << 40 | 7, 1)], {"season": b"abc"}))
    yield opened
    opened.close()


def files(folder: Path) -> dict[str, tuple[str, int]]:
    """Return the files of a folder, except the lock, which names the last process."""
    found = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        if path.suffix != ".lock":
            found[path.name] = (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns)
    return found


def checked(folder: Path, *more: str) -> tuple[int, dict[str, object], set[str]]:
    """Return the exit status, the figures, and the names of the findings."""
    done = CliRunner().invoke(app, ["verify", str(folder / "swerve.db"), *more, "--json"], catch_exceptions=False)
    data = json.loads(done.stdout)
    return done.exit_code, data, {one["name"] for one in data["errors"]}


def crashed(store, target: Path) -> Path:
    """Copy the files of an open store, as a crash leaves them."""
    target.mkdir()
    for suffix in ("", "-wal", "-shm", ".secrets"):
        shutil.copy2(f"{store.path}{suffix}", target / f"swerve.db{suffix}")
    shutil.copytree(f"{store.path}.journal", target / "swerve.db.journal")
    return target


def test_a_store_in_order_is_right_and_nothing_is_changed(store, tmp_path):
    store.close()
    before = files(tmp_path)
    done = CliRunner().invoke(app, ["verify", f"sqlite:///{tmp_path}/swerve.db"], catch_exceptions=False)
    assert (done.exit_code, done.stderr) == (0, "")
    assert f"{tmp_path}/swerve.db: 20 queries" in done.stdout and "nothing is wrong" in done.stdout
    assert files(tmp_path) == before
    code, data, wrong = checked(tmp_path)
    assert (code, data["ok"], data["queries"], data["older"], wrong) == (0, True, 20, 0, set())
    assert data["warnings"] == []


def test_the_log_of_a_crash_counts_and_stays(store, tmp_path):
    folder = crashed(store, tmp_path / "crash")
    before = files(folder)
    code, data, _ = checked(folder)
    assert (code, data["queries"]) == (0, 20)
    assert data["log"]["commits"] > 1 and data["log"]["lost"] == 0
    assert files(folder) == before


def test_a_damaged_log_is_told(store, tmp_path):
    for i in range(20, 30):
        store.checkpoint(Batch([made(store, i)]))
    folder = crashed(store, tmp_path / "crash")
    log = bytearray((folder / "swerve.db-wal").read_bytes())
    log[-14 * (PAGE_BYTES + 24) + 500] ^= 1
    (folder / "swerve.db-wal").write_bytes(bytes(log))
    code, data, wrong = checked(folder)
    assert (code, "log" in wrong, data["log"]["lost"] > 0) == (1, True, True)
    assert "behind the damage cannot be read" in data["errors"][0]["message"]


def test_while_a_service_runs_it_is_refused(store, tmp_path):
    with pytest.raises(SwerveError, match=rf"is in use by process {os.getpid()} since .*; stop that process, or check a backup"):
        CliRunner().invoke(app, ["verify", str(tmp_path / "swerve.db")], catch_exceptions=False)


older = record_dtype(
    [
        ("policy", LAYOUT["policy"]),
        ("senses", LAYOUT["senses"]),
        ("ledger", np.dtype([(name, LAYOUT["ledger"][name]) for name in LAYOUT["ledger"].names if name != "owner"])),
    ]
)

WRONG = {
    "owner": ("owner", {"owner": 5}),
    "clicks": ("clicks", {"clicks": [60]}),
    "phase clicks": ("clicks", {"phase_plays": [2], "phase_clicks": [3], "clicks": [3]}),
    "negative": ("negative", {"requests": -1, "phase_requests": -1}),
    "negative arm": ("negative", {"clicks": [-1]}),
    "phase plays": ("phase", {"plays": [1], "phase_plays": [2], "phase_requests": 2}),
    "phase requests": ("phase", {"phase_requests": 900}),
    "more phase shows than requests": ("phase", {"phase_requests": 1}),
    "more phase shows of one": ("phase", {"plays": [2, 6, 2], "phase_plays": [2, 6, 2], "phase_requests": 5, "requests": 9}),
    "times": ("times", {"created": 2e9}),
    "no number": ("times", {"created": float("nan")}),
    "names": ("names", {"names": b"\xc1"}),
    "too many": ("names", {"names": PACK.encode(Names([str(i) for i in range(9)]))}),
    "twice": ("names", {"names": PACK.encode(Names(["a", "b", "a"]))}),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_record_that_cannot_be_is_named(store, tmp_path, case):
    name, changes = WRONG[case]
    store.checkpoint(Batch([made(store, 50, **changes)]))
    store.close()
    code, data, wrong = checked(tmp_path)
    assert (code, wrong) == (1, {name}), data
    assert data["errors"][0]["examples"] == [key(50).hex()]
    done = CliRunner().invoke(app, ["verify", str(tmp_path / "swerve.db")], catch_exceptions=False)
    assert done.stderr.startswith("wrong: 1 record: ")


def test_records_of_an_older_layout_are_counted_and_right(store, tmp_path):
    store.checkpoint(Batch([made(store, i, layout=older) for i in (50, 51)]))
    store.close()
    code, data, _ = checked(tmp_path)
    assert (code, data["older"], data["queries"]) == (0, 2, 22)


@pytest.mark.parametrize(
    ("statement", "name"),
    [
        ("UPDATE rows SET record = zeroblob(length(record)) WHERE id = 3", "checksum"),
        ("UPDATE rows SET key = x'00' WHERE id = 3", "checksum"),
        ("UPDATE groups SET record = x'61'", "shared"),
        ("INSERT INTO used VALUES ((77 << 40) | 1, 1)", "lives"),
        ("INSERT INTO used VALUES (5, 1)", "lives"),
        ("UPDATE layouts SET description = 'nonsense'", "layout"),
        ("PRAGMA user_version = 99", "schema"),
        ("PRAGMA application_id = 5", "application"),
        ("UPDATE meta SET value = x'0011223344556677' WHERE key = 'owner'", "secrets"),
    ],
)
def test_what_the_store_knows_is_checked(store, tmp_path, statement, name):
    store.close()
    with contextlib.closing(sqlite3.connect(tmp_path / "swerve.db", isolation_level=None)) as other:
        other.execute(statement)
    code, data, wrong = checked(tmp_path)
    assert (code, name in wrong) == (1, True), data


def test_a_layout_of_another_size_and_a_row_that_does_not_fit_its_record(store, tmp_path):
    row = made(store, 60)
    store.checkpoint(Batch([made(store, 61), row]))
    row.version, row.record = 2, row.record[:-8]
    other = made(store, 61)
    other.version, other.level = 2, 1
    store.checkpoint(Batch([row, other]))
    store.close()
    assert checked(tmp_path)[2] == {"size", "head"}


def test_a_damaged_page_does_not_stop_the_check(store, tmp_path):
    rows = [made(store, i) for i in range(100, 400)]
    store.checkpoint(Batch(rows))
    store.close()
    path = tmp_path / "swerve.db"
    data = bytearray(path.read_bytes())
    start = data.index(rows[150].record) // PAGE_BYTES * PAGE_BYTES
    data[start : start + PAGE_BYTES] = b"\xa5" * PAGE_BYTES
    path.write_bytes(bytes(data))
    code, found, wrong = checked(tmp_path)
    assert (code, wrong) == (1, {"structure", "unreadable"})
    assert found["queries"] == 320
    assert 1 < next(one["count"] for one in found["errors"] if one["name"] == "unreadable") < 20


def test_a_file_that_is_no_database_is_wrong_and_one_that_is_not_there_is_refused(tmp_path):
    (tmp_path / "swerve.db").write_bytes(b"no database at all " * 1000)
    assert checked(tmp_path)[2] == {"structure"}
    with pytest.raises(SwerveError, match="there is no store"):
        CliRunner().invoke(app, ["verify", str(tmp_path / "none.db")], catch_exceptions=False)


def test_secrets_must_be_there_and_safe_and_the_right_ones(store, tmp_path):
    store.close()
    secrets = tmp_path / "swerve.db.secrets"
    secrets.chmod(0o644)
    assert checked(tmp_path)[2] == {"secrets"}
    secrets.chmod(0o600)
    secrets.rename(tmp_path / "elsewhere")
    code, data, wrong = checked(tmp_path)
    assert (code, wrong) == (1, {"secrets"}) and "are not there" in data["errors"][0]["message"]
    assert data["errors"][0]["message"].endswith("name the right file with --secrets")
    assert checked(tmp_path, "--secrets", str(tmp_path / "elsewhere"))[0] == 0
    create_file(secrets)
    assert "other secrets" in checked(tmp_path)[1]["errors"][0]["message"]


def test_the_secrets_of_a_store_behind_a_symbolic_link_are_found(store, tmp_path):
    store.close()
    folder = tmp_path / "links"
    folder.mkdir()
    (folder / "swerve.db").symlink_to(tmp_path / "swerve.db")
    assert checked(folder)[0] == 0
    backup(tmp_path / "swerve.db", tmp_path / "copy.db")
    done = CliRunner().invoke(app, ["restore", str(tmp_path / "copy.db"), str(folder / "swerve.db")], catch_exceptions=False)
    assert (done.exit_code, done.stderr) == (0, "")


def test_a_bar_is_drawn_when_it_takes_long(store, tmp_path, monkeypatch, capsys):
    """Only on a terminal: the bar shows the step and its progress."""
    from rich.console import Console

    store.close()
    monkeypatch.setattr(shared, "errors", Console(file=sys.stderr, force_terminal=True, width=100))
    for after, drawn in ((0.0, True), (60.0, False)):
        with shared.late_progress(after) as report:
            report("records", 5, 10)
            report("records", 6, 10)
        assert ("records" in capsys.readouterr().err) is drawn


# --- restore


@pytest.fixture
def copy(store, tmp_path):
    """A backup of the store, which has one more query since."""
    backup(tmp_path / "swerve.db", tmp_path / "copy.db")
    store.checkpoint(Batch([made(store, 70)]))
    return tmp_path / "copy.db"


def test_a_copy_is_put_in_place_and_what_was_there_is_kept_with_its_log(store, copy, tmp_path):
    folder = crashed(store, tmp_path / "crash")
    done = CliRunner().invoke(app, ["restore", str(copy), str(folder / "swerve.db")], catch_exceptions=False)
    assert done.exit_code == 0, done.stderr
    assert f"{folder}/swerve.db: 20 queries" in done.stdout
    kept = sorted(path.name for path in folder.glob("swerve.db.2*"))
    assert kept[1:] == [f"{kept[0]}-wal", f"{kept[0]}.journal"]
    assert not (folder / "swerve.db-wal").exists() and not (folder / "swerve.db-shm").exists()
    assert copy.exists() and (folder / "swerve.db").stat().st_mode & 0o077 == 0
    for name, count in (("swerve.db", 20), (kept[0], 21)):  # the kept store is complete, with its log beside it
        opened = open_store(f"sqlite:///{folder}/{name}")
        assert opened.count() == count
        opened.close()
    assert not [path.name for path in folder.iterdir() if path.name.startswith(".")]


def test_discard_keeps_nothing_and_a_store_that_is_gone_is_made(store, copy, tmp_path):
    folder = crashed(store, tmp_path / "crash")
    done = CliRunner().invoke(app, ["restore", str(copy), str(folder / "swerve.db"), "--discard", "--json"], catch_exceptions=False)
    assert json.loads(done.stdout)["kept"] is None
    assert not list(folder.glob("swerve.db.2*"))
    (folder / "swerve.db").unlink()
    CliRunner().invoke(app, ["restore", str(copy), str(folder / "swerve.db")], catch_exceptions=False)
    assert checked(folder)[0] == 0


def test_a_damaged_copy_a_store_in_use_and_what_is_no_backup_are_refused(store, copy, tmp_path):
    with pytest.raises(InUse, match="stop it, or restore under the running service with --live"):
        CliRunner().invoke(app, ["restore", str(copy), str(tmp_path / "swerve.db")], catch_exceptions=False)
    folder = crashed(store, tmp_path / "crash")
    before = files(folder)
    with pytest.raises(SwerveError, match="a log lies beside it"):
        restore(tmp_path / "swerve.db", folder / "swerve.db", "now")
    data = bytearray(copy.read_bytes())
    data[PAGE_BYTES : 3 * PAGE_BYTES] = b"\xa5" * (2 * PAGE_BYTES)
    copy.write_bytes(bytes(data))
    with pytest.raises(SwerveError, match="is damaged, and nothing was restored"):
        CliRunner().invoke(app, ["restore", str(copy), str(folder / "swerve.db")], catch_exceptions=False)
    assert files(folder) == before


def test_other_secrets_are_told_and_under_a_running_service_refused(store, copy, tmp_path):
    secrets = tmp_path / "swerve.db.secrets"
    secrets.unlink()
    create_file(secrets)
    with pytest.raises(SwerveError, match=r"written with other secrets .* nothing was restored"):
        CliRunner().invoke(app, ["restore", str(copy), str(tmp_path / "swerve.db"), "--live"], catch_exceptions=False)
    store.close()
    done = CliRunner().invoke(app, ["restore", str(copy), str(tmp_path / "swerve.db")], catch_exceptions=False)
    assert done.exit_code == 0
    assert "put the secrets that belong to the backup in place" in done.stderr


def test_where_secrets_are_missing_a_restore_names_the_file_and_no_option_that_it_lacks(store, copy, tmp_path):
    store.close()
    (tmp_path / "swerve.db.secrets").unlink()
    done = CliRunner().invoke(app, ["restore", str(copy), str(tmp_path / "swerve.db")], catch_exceptions=False)
    assert done.exit_code == 0
    assert "no query can be found" in done.stderr
    assert f"in place before the service starts: {tmp_path}/swerve.db.secrets, mode 0600" in done.stderr
    assert "--secrets" not in done.stderr


def test_under_a_running_service_and_the_store_of_a_service_is_right(tmp_path):
    """With a real service: its store passes every check, and it continues with a store restored under it."""
    candidates = ["a", "b", "c"]
    with running(tmp_path, {"feedback": {"window_seconds": 600.0, "steady_seconds": 0.0}}) as service:
        client = service.client()

        def clicked(name: str, session: str) -> bool:
            """Return whether a click was counted; while the service changes stores, rankings are degraded and clicks refused."""
            answer = client.rank(name, candidates, session=session).json
            return not answer["degraded"] and client.feedback(answer["decision"], answer["ranking"][0]).status == 200

        def click(name: str, times: int) -> None:
            for number in range(times):
                until(functools.partial(clicked, name, f"s{number}"))

        for number in range(30):
            click(f"query {number}", 1 + number % 4)
        client.call("POST", "/v1/queries/query%201/shift")
        until(lambda: metric(client, "swerve_pending_rows") == 0)  # rows are written behind the log
        copy = tmp_path / "copy.db"
        done = CliRunner().invoke(app, ["backup", f"sqlite:///{service.database}", str(copy)], catch_exceptions=False)
        assert (done.exit_code, done.stderr) == (0, "")
        click("query 3", 2)
        assert sum(client.clicks("query 3").values()) == 6
        done = CliRunner().invoke(app, ["restore", str(copy), str(service.database), "--live"], catch_exceptions=False)
        assert (done.exit_code, done.stderr) == (0, "") and "the service uses it from its next write on" in done.stdout
        click("query 5", 1)
        assert sum(client.clicks("query 3").values()) == 4
        until(lambda: client.call("GET", "/readyz").status == 200 and metric(client, "swerve_pending_rows") == 0)
        service.kill()
        for name in (service.database, next(service.state.glob("swerve.db.2*Z"))):
            done = CliRunner().invoke(
                app, ["verify", str(name), "--secrets", f"{service.database}.secrets", "--json"], catch_exceptions=False
            )
            data = json.loads(done.stdout)
            assert (done.exit_code, data["errors"], data["warnings"], data["queries"]) == (0, [], [], 30)
        assert load_secrets(Path(f"{service.database}.secrets"), make=False)
        client = service.start().client()
        assert sum(client.clicks("query 3").values()) == 4


def test_verify_checks_a_journal(tmp_path):
    journal = Journal(tmp_path / "journal", segment=600)
    for number in range(40):
        journal.put(number.to_bytes(8, "little") * 4)
        journal.sync(float(number))
    journal.close()
    checked = CliRunner().invoke(app, ["verify", str(tmp_path / "journal"), "--json", "-"])
    assert checked.exit_code == 0
    figures = json.loads(checked.output)
    assert (figures["first"], figures["end"], figures["errors"], figures["ok"]) == (0, 40, [], True)
    second = sorted((tmp_path / "journal").glob("*.journal"))[1]
    content = bytearray(second.read_bytes())
    content[100] ^= 1
    second.write_bytes(content)
    checked = CliRunner().invoke(app, ["verify", str(tmp_path / "journal")])
    assert checked.exit_code == 1
    assert "put back a copy of this file" in checked.output
