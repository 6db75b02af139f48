"""The service over a store in PostgreSQL: start, stop, second processes, commands; then faults of real servers, under load."""

from __future__ import annotations

import contextlib
import json
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import forking
import postgres
import pytest
from service.running import Gone, Http, Running, running, until
from service.test_kill import QUERIES, Ledger, kills, load

pytestmark = pytest.mark.engines

CANDIDATES = ["a", "b", "c", "d"]


@pytest.fixture
def server() -> Iterator[postgres.Postgres]:
    """A server of the test's own, which it may break."""
    postgres.needed()
    made = postgres.Postgres().made()
    yield made
    made.remove()


@pytest.fixture
def url(tmp_path: Path) -> str:
    return postgres.fresh(tmp_path)


def over(url: str, secrets: Path, **more: Any) -> dict[str, dict[str, Any]]:
    """Return the changes of the small configuration for a store."""
    return {"store": {"url": url, **more}, "security": {"secrets": str(secrets)}}


@pytest.fixture
def served(url: str, tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path, over(url, tmp_path / "swerve.secrets")) as service:
        yield service


def swerve(*arguments: str) -> Any:
    return forking.run(sys.executable, "-m", "swerve", *arguments)


def clicked(client: Http, query: str, number: int = 1) -> None:
    for _ in range(number):
        answer = client.rank(query, CANDIDATES).json
        assert not answer["degraded"], answer
        assert client.feedback(answer["decision"], answer["ranking"][0]).json == {"status": "learned"}


def total(client: Http, query: str) -> int:
    return sum(client.clicks(query).values())


def test_it_serves_stops_and_goes_on(served, url):
    client = served.client()
    clicked(client, "q", 5)
    assert any(f"store {url}" in line for line in served.said)
    assert served.stop() == 0
    served.start()
    assert total(served.client(), "q") == 5
    served.kill()
    served.start()
    client = served.client()
    assert total(client, "q") == 5
    clicked(client, "q")
    assert total(client, "q") == 6
    assert '"level":"error"' not in served.stderr()


def test_a_second_process_is_refused_in_one_line(served):
    done = swerve("serve", "--config", str(served.file))
    assert done.returncode == 2 and done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert f"is in use by process {served.child.pid} on " in line and "--standby" in line
    clicked(served.client(), "q")


def test_secrets_need_a_place(url, tmp_path, no_variables):
    done = swerve("serve", "--port", "0", "--store", url)
    assert done.returncode == 2
    assert "there is no file of secrets beside a store on a server: name one (security.secrets" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_store_that_vanishes_between_two_starts_is_not_begun_anew(served, url):
    served.stop()
    postgres.shared().ask(f"DROP SCHEMA {url.rpartition('=')[2]} CASCADE")
    done = swerve("serve", "--config", str(served.file))
    assert done.returncode == 2 and "is missing, but its secrets are there" in done.stderr
    served.start("--new-store")
    assert served.client().query("q").status == 404


def standby(service: Running, folder: Path) -> tuple[Running, Callable[[], None]]:
    """Start another process over the store of a service, which waits; return it, and a function that returns once it serves."""
    other = Running(folder)
    other.file.write_text(service.file.read_text())
    trouble: list[BaseException] = []

    def start() -> None:
        try:
            other.start("--standby")
        except BaseException as error:
            trouble.append(error)

    thread = threading.Thread(target=start)
    thread.start()
    until(lambda: any(line.startswith("standby: ") for line in other.said), 60.0)

    def serves() -> None:
        thread.join(60.0)
        assert not trouble and not thread.is_alive(), trouble

    return other, serves


def ended(service: Running) -> None:
    """End a service that no fixture ends."""
    service.kill()
    for client in service.clients:
        client.close()


def records(url: str, secrets: Path, folder: Path) -> dict[bytes, bytes]:
    """Return the bytes of every record, with what the log has beyond the rows."""
    import sqlite3

    from swerve.service.recovering import settle
    from swerve.store.copies import whole_of

    with whole_of(url, settle) as path, contextlib.closing(sqlite3.connect(path)) as file:
        return dict(file.execute("SELECT key, record FROM rows").fetchall())


def test_a_standby_takes_over_with_the_same_records(served, url, tmp_path):
    client = served.client()
    for number in range(20):
        clicked(client, f"query {number % 5}")
    other, serves = standby(served, tmp_path / "other")
    try:
        clicked(client, "query 0")
        served.child.send_signal(signal.SIGSTOP)
        time.sleep(0.1)
        before = records(url, tmp_path / "swerve.secrets", tmp_path)
        served.child.send_signal(signal.SIGCONT)
        served.kill()
        serves()
        assert records(url, tmp_path / "swerve.secrets", tmp_path) == before
        client = other.client()
        assert [total(client, f"query {number}") for number in range(5)] == [5, 4, 4, 4, 4]
        clicked(client, "query 0")
    finally:
        ended(other)


@pytest.mark.slow
def test_an_owner_that_was_paused_and_replaced_writes_nothing(served, url, tmp_path):
    client = served.client()
    clicked(client, "q", 3)
    other, serves = standby(served, tmp_path / "other")
    try:
        token = client.rank("q", CANDIDATES).json
        served.child.send_signal(signal.SIGSTOP)
        serves()  # after `DEAD_SECONDS` without a sign of life
        second = other.client()
        assert total(second, "q") == 3
        clicked(second, "q", 2)
        served.child.send_signal(signal.SIGCONT)
        late = served.client()
        assert late.feedback(token["decision"], token["ranking"][0]).status == 503
        assert late.rank("q", CANDIDATES).json["degraded"]
        time.sleep(1.0)
        assert late.call("GET", "/readyz").status == 503
        clicked(second, "q")
        assert total(second, "q") == 6
        assert other.stop() == 0
        until(lambda: served.client().call("GET", "/readyz").status == 200, 30.0)  # the store is free: it takes it up again
        assert total(served.client(), "q") == 6
    finally:
        served.child.send_signal(signal.SIGCONT)
        ended(other)


@pytest.mark.slow
def test_rank_keeps_answering_while_the_server_is_paused(server, tmp_path):
    with running(tmp_path, over(server.url(), tmp_path / "swerve.secrets") | {"server": {"deadline_ms": 20.0}}) as service:
        client = service.client()
        until(lambda: not client.rank("q", CANDIDATES).json["degraded"])
        until(lambda: clicks(client, "q"))
        server.pause()
        try:
            slowest, ends = 0.0, time.monotonic() + 12.0
            answers = {"degraded": 0, "refused": 0}
            while time.monotonic() < ends:
                for query in ("q", f"new {time.monotonic()}"):
                    answer = client.rank(query, CANDIDATES)
                    assert answer.status == 200 and sorted(answer.json["ranking"]) == CANDIDATES
                    slowest = max(slowest, answer.seconds)
                    answers["degraded"] += answer.json["degraded"]
                time.sleep(0.05)
            assert slowest < 1.0 and answers["degraded"] > 0
        finally:
            server.resume()
        until(lambda: not client.rank("q", CANDIDATES).json["degraded"], 60.0)
        until(lambda: clicks(client, "q"))
        assert total(client, "q") == 2


def clicks(client: Http, query: str) -> bool:
    answer = client.rank(query, CANDIDATES).json
    return not answer["degraded"] and client.feedback(answer["decision"], answer["ranking"][0]).status == 200


@pytest.mark.slow
def test_kills_of_the_service_under_load_lose_nothing_and_count_nothing_twice(url, tmp_path):
    with running(tmp_path, over(url, tmp_path / "swerve.secrets")) as service:
        ledger = kills(service, 3, seed=1)
    assert sum(ledger.clicks.values()) > 100


def settled(client: Http, ledger: Ledger) -> None:
    """Send what was not answered again until it is, and compare the counts."""
    ends = time.monotonic() + 60.0
    while ledger.unanswered:
        assert time.monotonic() < ends
        waiting, ledger.unanswered = ledger.unanswered, []
        for event in waiting:
            with contextlib.suppress(Gone):
                ledger.send(client, *event)
    counted = {(query, name): count for query in QUERIES for name, count in client.clicks(query).items()}
    assert counted == dict(ledger.clicks)


@contextlib.contextmanager
def loaded(service: Running, ledger: Ledger) -> Iterator[None]:
    """Rank and click from four threads; ends when the service is killed."""
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            load(service, ledger, number)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        service.kill()
        for thread in threads:
            thread.join(60.0)
    assert not failures, failures


@pytest.mark.slow
def test_kills_of_the_server_under_load_lose_nothing_and_count_nothing_twice(server, tmp_path):
    ledger = Ledger()
    with running(tmp_path, over(server.url(), tmp_path / "swerve.secrets")) as service:
        with loaded(service, ledger):
            for _ in range(4):
                learnt(ledger, 40)
                server.kill()
                time.sleep(0.3)
                server.start()
            learnt(ledger, 40)
        service.start()
        settled(service.client(), ledger)
        assert sum(ledger.clicks.values()) > 150


def learnt(ledger: Ledger, more: int) -> None:
    """Wait for so many more clicks that are acknowledged."""
    wanted = sum(ledger.clicks.values()) + more
    until(lambda: sum(ledger.clicks.values()) >= wanted, 60.0)


@pytest.mark.slow
def test_a_failover_to_a_synchronous_standby_loses_no_acknowledged_click(server, tmp_path):
    second = server.standby("second")
    try:
        server.ask("ALTER SYSTEM SET synchronous_standby_names = 'second'")
        server.ask("SELECT pg_reload_conf()")
        until(lambda: server.ask("SELECT sync_state FROM pg_stat_replication") == [("sync",)])
        both = f"127.0.0.1:{server.port},127.0.0.1:{second.port}"
        url = f"postgresql://swerve@{both}/postgres?schema=failover&target_session_attrs=read-write"
        ledger = Ledger()
        with running(tmp_path, over(url, tmp_path / "swerve.secrets")) as service:
            with loaded(service, ledger):
                learnt(ledger, 100)
                server.kill()
                second.promote()
                second.ask("ALTER SYSTEM SET synchronous_standby_names = ''")
                second.ask("SELECT pg_reload_conf()")
                learnt(ledger, 100)
            service.start()
            settled(service.client(), ledger)
            assert sum(ledger.clicks.values()) > 200
            assert "another file has replaced the store" not in service.stderr()  # the same owner went on
    finally:
        second.remove()


class Faults:
    """Faults of a server, drawn at random."""

    def __init__(self, server: postgres.Postgres, seed: int) -> None:
        self.server, self.draw, self.done = server, random.Random(seed), Counter[str]()

    def one(self) -> None:
        """Do one, and undo it."""
        fault = self.draw.choice([self.killed, self.restarted, self.paused, self.cut, self.locked])
        self.done[fault.__name__] += 1
        fault()

    def killed(self) -> None:
        self.server.kill()
        time.sleep(self.draw.uniform(0.0, 1.0))
        self.server.start()

    def restarted(self) -> None:
        self.server.stop()
        self.server.start()

    def paused(self) -> None:
        self.server.pause()
        time.sleep(self.draw.uniform(0.2, 8.0))
        self.server.resume()

    def cut(self) -> None:
        """End some sessions of the service, or all."""
        own = "application_name LIKE 'swerve %' AND pid <> pg_backend_pid()"
        share = self.draw.choice([0.3, 0.6, 1.0])
        self.server.ask(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {own} AND random() < {share}")

    def locked(self) -> None:
        """Hold all tables for a while."""
        tables = ", ".join(f"faults.{name}" for name in self.draw.sample(["rows", "blocks", "logs", "seats", "used"], 2))
        self.server.ask(f"BEGIN; LOCK TABLE {tables}; SELECT pg_sleep({self.draw.uniform(0.5, 6.0)}); COMMIT")


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_random_faults_under_load_lose_nothing_and_count_nothing_twice(server, tmp_path, seed):
    """Faults of the server, several in a row, and a kill of the service after each row of them."""
    ledger, faults = Ledger(), Faults(server, seed)
    with running(tmp_path, over(server.url("faults"), tmp_path / "swerve.secrets")) as service:
        for _ in range(3):
            with loaded(service, ledger):
                for _ in range(4):
                    learnt(ledger, 15)
                    faults.one()
            service.start()
            settled(service.client(), ledger)
        assert sum(ledger.clicks.values()) > 150 and len(faults.done) > 2
        assert service.stop() == 0
    assert swerve("verify", server.url("faults"), "--secrets", str(tmp_path / "swerve.secrets")).returncode == 0


# ------------------------------------------------------------------ commands


def test_commands_read_and_change_the_store(served, url, tmp_path):
    secrets, config = str(tmp_path / "swerve.secrets"), str(served.file)
    client = served.client()
    clicked(client, "q", 5)
    clicked(client, "other", 5)
    out = tmp_path / "live.jsonl"
    assert swerve("export", url, "--config", config, "--out", str(out)).returncode == 0  # while the service runs
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert sum(line["clicks"] for line in lines if line["kind"] == "candidate") == 10
    done = swerve("verify", url, "--secrets", secrets, "--json", "-")
    assert done.returncode == 0, done.stderr + done.stdout
    report = json.loads(done.stdout)
    assert (report["store"], report["ok"]) == (url, True) and report["journal"]["segments"] > 0
    assert served.stop() == 0
    done = swerve("verify", url, "--secrets", secrets)
    assert done.returncode == 0 and "2 queries" in done.stdout and "nothing is wrong" in done.stdout
    for command in (["backup", url, str(tmp_path / "copy.db")], ["restore", str(tmp_path / "copy.db"), url]):
        done = swerve(*command)
        (line,) = done.stderr.splitlines()
        assert done.returncode == 2 and "use pg_dump or pg_basebackup, and keep the secrets with the backup" in line
    done = swerve("delete", "--query", "q", "--store", url, "--config", config, "--secrets", secrets, "--yes")
    assert done.returncode == 0 and "deleted: the query" in done.stdout, done.stderr
    served.start()
    assert (served.client().query("q").status, total(served.client(), "other")) == (404, 5)


def test_a_result_is_deleted_from_rows_and_log(served, url):
    client, secret = served.client(), "page-4711"
    for number in range(3):
        answer = client.rank(f"query {number}", [secret, "b", "c"]).json
        assert client.feedback(answer["decision"], secret).status == 200
    schema = url.rpartition("=")[2]
    places = [("rows", "names"), ("blocks", "content")]

    def traces() -> list[int]:
        return [
            postgres.shared().ask(f"SELECT count(*) FROM {schema}.{table} WHERE position('{secret}'::bytea IN {column}) > 0")[0][0]
            for table, column in places
        ]

    until(lambda: traces()[0] == 3)
    assert traces()[1] > 0
    assert client.call("POST", "/v1/delete", {"result": secret}).status == 200
    assert traces() == [0, 0]
    clicked(client, "query 0")
    served.kill()
    served.start()
    assert secret not in served.client().clicks("query 0")


def test_damage_is_reported(served, url, tmp_path):
    clicked(served.client(), "q", 3)
    served.stop()
    schema = url.rpartition("=")[2]
    postgres.shared().ask(f"UPDATE {schema}.rows SET names = 'other'; UPDATE {schema}.blocks SET content = 'x' WHERE first = 0")
    done = swerve("verify", url, "--secrets", str(tmp_path / "swerve.secrets"))
    assert done.returncode == 1
    assert "1 record: the bytes read differ from those written (checksum)" in done.stderr
    assert "is damaged; restore a backup of the database" in done.stderr


def test_the_log_is_replayed_evaluated_and_learnt_from(url, tmp_path):
    config = over(url, tmp_path / "swerve.secrets", journal_days=1.0)
    with running(tmp_path, config) as served:
        for number in range(40):
            clicked(served.client(), f"q{number % 4}")
        assert served.stop() == 0
        done = swerve("replay", url, "--json", "-")
        assert done.returncode == 0, done.stderr
        counts = json.loads(done.stdout)
        assert (counts["requests"], counts["same"], counts["clicks"]) == (40, 40, 40)
        done = swerve("evaluate", url, "--no-forecast", "--json", "-")
        assert done.returncode == 0 and json.loads(done.stdout), done.stderr
        other = url.replace("schema=", "schema=learnt_")
        taken = swerve("learn", url, "--store", url, "--config", str(served.file))
        assert taken.returncode == 2 and "exists; `swerve learn` builds a new store" in taken.stderr
        made = tmp_path / "learnt.toml"
        made.write_text(served.file.read_text().replace("swerve.secrets", "learnt.secrets"))
        done = swerve("learn", url, "--store", other, "--config", str(made))
        assert done.returncode == 0 and "learnt from 40 lists of 4 queries with 40 clicks" in done.stdout, done.stderr + done.stdout
    with running(tmp_path / "second", over(other, tmp_path / "learnt.secrets")) as service:
        assert total(service.client(), "q0") == 10


def test_a_password_is_shown_nowhere(tmp_path, no_variables):
    file = tmp_path / "swerve.toml"
    file.write_text('[store]\nurl = "postgresql://me:secret@127.0.0.1:1/search"\n')
    keys = {"SWERVE_TOKEN_KEY": "0" * 64, "SWERVE_QUERY_KEY": "1" * 64}
    for command in (["config", "check", str(file)], ["config", "show", str(file)], ["serve", "--config", str(file), "--port", "0"]):
        done = forking.run(sys.executable, "-m", "swerve", *command, **keys)
        assert "secret@" not in done.stdout + done.stderr and "me:***@127.0.0.1:1/search" in done.stdout + done.stderr
