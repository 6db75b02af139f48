"""The service over a store in Valkey: start, stop, second processes, commands; then faults of real servers, under load."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import forking
import pytest
import valkeys
from service.running import Running, running, until
from service.test_kill import Ledger, kills
from service.test_postgresql import (
    CANDIDATES,
    clicked,
    clicks,
    ended,
    learnt,
    loaded,
    over,
    records,
    settled,
    standby,
    swerve,
    total,
)
from valkeys import ValkeyServer

pytestmark = pytest.mark.engines


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ValkeyServer]:
    """A server of the test's own, which it may break."""
    valkeys.needed()
    made = ValkeyServer(tmp_path / "server").start()
    yield made
    made.kill()


@pytest.fixture
def url(tmp_path: Path) -> str:
    return valkeys.fresh(tmp_path)


@pytest.fixture
def served(url: str, tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path, over(url, tmp_path / "swerve.secrets")) as service:
        yield service


def test_it_serves_stops_and_goes_on(served, url):
    clicked(served.client(), "q", 5)
    assert any(f"store {url}" in line for line in served.said)
    assert served.stop() == 0
    served.start()
    assert total(served.client(), "q") == 5
    served.kill()
    served.start()  # once the lease of the killed process has expired
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


def test_a_server_that_would_lose_clicks_is_refused_in_one_line(tmp_path):
    valkeys.needed()
    server = ValkeyServer(tmp_path / "server", appendfsync="everysec").start()
    try:
        file = Running(tmp_path, over(server.url("x"), tmp_path / "swerve.secrets")).file
        done = swerve("serve", "--config", str(file))
        assert done.returncode == 2
        (line,) = done.stderr.splitlines()
        assert "it has appendfsync everysec; it needs appendfsync always" in line and "store.may_lose_clicks" in line
        settings = over(server.url("x"), tmp_path / "swerve.secrets", may_lose_clicks=True)
        with running(tmp_path, settings) as service:
            clicked(service.client(), "q", 2)
            assert "may lose clicks: it has appendfsync everysec" in service.stderr()
    finally:
        server.kill()


def test_a_store_that_vanishes_between_two_starts_is_not_begun_anew(served, url):
    served.stop()
    prefix = url.rpartition("=")[2]
    with valkeys.shared().client() as client:
        client.delete(*client.scan_iter(f"{prefix}:*"))
    done = swerve("serve", "--config", str(served.file))
    assert done.returncode == 2 and "is missing, but its secrets are there" in done.stderr
    served.start("--new-store")
    assert served.client().query("q").status == 404


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
def test_an_owner_that_was_paused_and_replaced_writes_nothing(served, tmp_path):
    client = served.client()
    clicked(client, "q", 3)
    other, serves = standby(served, tmp_path / "other")
    try:
        token = client.rank("q", CANDIDATES).json
        served.child.send_signal(signal.SIGSTOP)
        serves()  # when the lease has expired
        second = other.client()
        assert total(second, "q") == 3
        clicked(second, "q", 2)
        served.child.send_signal(signal.SIGCONT)
        late = served.client()
        assert late.feedback(token["decision"], token["ranking"][0]).status == 503
        until(lambda: late.rank("q", CANDIDATES).json["degraded"])
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
        server.send(signal.SIGSTOP)
        try:
            slowest, degraded, ends = 0.0, 0, time.monotonic() + 8.0
            while time.monotonic() < ends:
                for query in ("q", f"new {time.monotonic()}"):
                    answer = client.rank(query, CANDIDATES)
                    assert answer.status == 200 and sorted(answer.json["ranking"]) == CANDIDATES
                    slowest = max(slowest, answer.seconds)
                    degraded += answer.json["degraded"]
                time.sleep(0.05)
            assert slowest < 1.0 and degraded > 0
        finally:
            server.send(signal.SIGCONT)
        until(lambda: not client.rank("q", CANDIDATES).json["degraded"], 60.0)
        until(lambda: clicks(client, "q"))
        assert total(client, "q") == 2


@pytest.mark.slow
def test_kills_of_the_service_under_load_lose_nothing_and_count_nothing_twice(url, tmp_path):
    with running(tmp_path, over(url, tmp_path / "swerve.secrets")) as service:
        ledger = kills(service, 3, seed=1)
    assert sum(ledger.clicks.values()) > 100


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


@pytest.mark.slow
def test_a_server_that_has_lost_clicks_is_not_used_until_somebody_starts_the_service_again(server, tmp_path):
    with running(tmp_path, over(server.url(), tmp_path / "swerve.secrets")) as service:
        clicked(service.client(), "q", 5)
        server.kill()
        file = server.last_file()
        content = file.read_bytes()
        file.write_bytes(content[: len(content) * 9 // 10])
        server.start()
        until(lambda: "has lost what it had acknowledged" in service.stderr(), 30.0)
        client = service.client()
        answer = client.rank("q", CANDIDATES)
        assert answer.status == 200 and answer.json["degraded"]
        assert client.call("GET", "/readyz").status == 503
        server.kill()
        file.write_bytes(content)  # the right file is back
        server.start()
        until(lambda: service.client().call("GET", "/readyz").status == 200, 30.0)
        clicked(service.client(), "q")
        assert total(service.client(), "q") == 6


@pytest.mark.slow
def test_a_full_server_takes_no_click_and_goes_on_when_there_is_room(server, tmp_path):
    with running(tmp_path, over(server.url(), tmp_path / "swerve.secrets")) as service:
        client = service.client()
        clicked(client, "q", 2)
        token = client.rank("q", CANDIDATES).json
        with server.client() as plain:
            plain.config_set("maxmemory", "1mb")
            assert client.feedback(token["decision"], token["ranking"][0]).status == 503
            until(lambda: client.call("GET", "/readyz").json.get("reason") == "store full")
            plain.config_set("maxmemory", "0")
        until(lambda: client.call("GET", "/readyz").status == 200)
        assert client.feedback(token["decision"], token["ranking"][0]).status == 200
        assert total(client, "q") == 3


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
    assert client.call("POST", "/v1/delete", {"query": "other", "result": "a"}).status == 200  # rewrites the server's file
    assert served.stop() == 0
    done = swerve("verify", url, "--secrets", secrets)
    assert done.returncode == 0 and "2 queries" in done.stdout and "nothing is wrong" in done.stdout
    for command in (["backup", url, str(tmp_path / "copy.db")], ["restore", str(tmp_path / "copy.db"), url]):
        done = swerve(*command)
        (line,) = done.stderr.splitlines()
        assert done.returncode == 2 and "use BGSAVE, or a copy of the server's append-only files, and keep the secrets" in line
    done = swerve("delete", "--query", "q", "--store", url, "--config", config, "--secrets", secrets, "--yes")
    assert done.returncode == 0 and "deleted: the query" in done.stdout, done.stderr
    served.start()
    assert served.client().query("q").status == 404 and served.client().query("other").status == 200


def test_damage_is_reported(served, url, tmp_path):
    clicked(served.client(), "q", 3)
    served.stop()
    prefix = url.rpartition("=")[2]
    with valkeys.shared().client() as client:
        ((key, value),) = client.hgetall(f"{prefix}:rows").items()
        client.hset(f"{prefix}:rows", key, value[:-1] + b"?")
        block = client.zrange(f"{prefix}:log:0", 0, 0, withscores=True)
        client.zrem(f"{prefix}:log:0", block[0][0])
        client.zadd(f"{prefix}:log:0", {block[0][0][:70] + b"?" + block[0][0][71:]: block[0][1]})
    done = swerve("verify", url, "--secrets", str(tmp_path / "swerve.secrets"))
    assert done.returncode == 1
    assert "1 record: the bytes read differ from those written (checksum)" in done.stderr
    assert "is damaged: a block fails its checksum" in done.stderr


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
        other = url.replace("prefix=", "prefix=learnt-")
        made = tmp_path / "learnt.toml"
        made.write_text(served.file.read_text().replace("swerve.secrets", "learnt.secrets"))
        done = swerve("learn", url, "--store", other, "--config", str(made))
        assert done.returncode == 0 and "learnt from 40 lists of 4 queries with 40 clicks" in done.stdout, done.stderr + done.stdout
    with running(tmp_path / "second", over(other, tmp_path / "learnt.secrets")) as service:
        assert total(service.client(), "q0") == 10


def test_a_password_is_shown_nowhere(tmp_path, no_variables):
    file = tmp_path / "swerve.toml"
    file.write_text('[store]\nurl = "valkey://me:secret@127.0.0.1:1/3"\n')
    keys = {"SWERVE_TOKEN_KEY": "0" * 64, "SWERVE_QUERY_KEY": "1" * 64}
    for command in (["config", "check", str(file)], ["config", "show", str(file)], ["serve", "--config", str(file), "--port", "0"]):
        done = forking.run(sys.executable, "-m", "swerve", *command, **keys)
        assert "secret@" not in done.stdout + done.stderr and "127.0.0.1:1/3" in done.stdout + done.stderr
