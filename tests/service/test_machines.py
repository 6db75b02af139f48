"""Several machines serve one store on a server: any of them answers for all queries, and takes over what another one leaves."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import forking
import postgres
import pytest
import valkeys
from service.machines import SECRETS, Load, Machines, Member, alive, below, machines, seen
from service.running import Http, Running, running, until

pytestmark = pytest.mark.engines

SHARES = 4
FRESH: dict[str, Callable[[Path], str]] = {"postgresql": postgres.fresh, "valkey": valkeys.fresh}
#: Seconds after which a share of a machine that was killed, or stands still, has another owner: the longest that the engine's lease
#: takes, and a start on a busy machine.
TAKEN_OVER = {"postgresql": 30.0, "valkey": 30.0}


@pytest.fixture(scope="module", params=sorted(FRESH))
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def url(engine: str, tmp_path: Path) -> str:
    return FRESH[engine](tmp_path)


@pytest.fixture(scope="module")
def two(engine: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    """Two machines, which the tests do not stop."""
    folder = tmp_path_factory.mktemp("two")
    with machines(folder, FRESH[engine](folder), SHARES) as made:
        made.add(1, "--new-store")
        made.add()
        made.settled(*made.members)
        yield made


def clients(members: Machines) -> list[Http]:
    return [member.client() for member in members.members]


def test_each_machine_answers_for_all_queries(two: Machines):
    first, second = clients(two)
    texts = [f"query {number}" for number in range(16)]
    shares = set()
    for text in texts:
        decided = [client.rank(text, ["a", "b"]) for client in (first, second, first)]
        assert all(answer.status == 200 and not answer.json["degraded"] for answer in decided)
        assert len({answer.headers["swerve-partition"] for answer in decided}) == 1
        shares.add(int(decided[0].headers["swerve-partition"]) % SHARES)
        assert second.feedback(decided[0].json["decision"], "a").json == {"status": "learned"}
        for client in (first, second):
            assert client.query(text).json["requests"] == 3
            assert client.clicks(text) == {"a": 1}
    assert shares == set(range(SHARES))
    assert [sorted(member.owned()) for member in two.members] == [[0, 1], [2, 3]]
    entries = [{"query": text, "candidates": ["a", "b"]} for text in texts]
    answers = second.call("POST", "/v1/rank/batch", entries).json
    assert not any(answer["degraded"] for answer in answers), answers

    def listed(client: Http) -> list[str]:
        return [line["key"] for line in client.call("GET", "/v1/queries?limit=100").json["queries"]]

    until(lambda: len(set(listed(first))) == len(listed(first)) == len(listed(second)) >= 16)
    metrics = first.call("GET", "/metrics").body.decode()
    assert all(f'swerve_worker_up{{worker="{share}"}} 1' in metrics for share in range(SHARES))


def test_what_is_set_on_one_machine_holds_on_all(two: Machines):
    first, second = clients(two)
    for setter in (second, first):
        rule = setter.call("POST", "/v1/rules", {"kind": "pin", "query": "pinned", "result": "c", "position": 1}).json
        ranked = [one.rank("pinned", ["a", "b", "c"]).json for one in (first, second)]
        assert all(answer["ranking"][0] == "c" for answer in ranked)
        off = setter.call("POST", "/v1/rules", {"kind": "off"}).json
        ranked = [one.rank(f"query {number}", ["a", "b"]).json for one in (first, second) for number in range(8)]
        assert all(answer["decision"] is None for answer in ranked)
        for one in (rule, off):
            assert setter.call("DELETE", f"/v1/rules/{one['id']}").status == 200
    assert second.rank("query 1", ["a", "b"]).json["decision"] is not None


def test_who_does_not_prove_that_it_belongs_to_the_service_is_refused_at_once(two: Machines):
    host, _, port = two.members[0].address.rpartition(":")
    refused = 'swerve_turned_away_total{worker="0",reason="crew"}'

    def count() -> float:
        lines = clients(two)[0].call("GET", "/metrics").body.decode().splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(refused))

    before = count()
    with socket.create_connection((host, int(port)), timeout=10.0) as line:
        line.sendall(b"POST /inner/state HTTP/1.1\r\nhost: worker\r\ncontent-length: 0\r\n\r\n" + bytes(200))
        answer = b""
        with_reset = False
        try:
            while piece := line.recv(4096):
                answer += piece
        except ConnectionResetError:
            with_reset = True
        assert len(answer) <= 32 and b"HTTP" not in answer and (with_reset or not answer or len(answer) == 32)
    until(lambda: count() == before + 1)


def serve(*options: str, **more: str) -> str:
    """Return why a service does not start."""
    done = forking.run(sys.executable, "-m", "swerve", "serve", "--port", "0", *options, **{**SECRETS, **more})
    assert done.returncode == 2 and done.stdout.count("ready") == 0, done.stdout
    return str(done.stderr.strip().splitlines()[-1])


def test_a_machine_that_does_not_fit_is_refused_in_one_line(two: Machines):
    file = str(two.members[0].file)
    assert "each machine has its own" in serve("--config", file)
    alone = {"SWERVE__SERVER__CREW_ADDRESS": ""}
    assert "let several machines serve it: set server.crew_address on each" in serve("--config", file, **alone)
    assert "has 4 shares for good, and store.shares is 8" in serve("--config", file, SWERVE__STORE__SHARES="8")
    assert "is served with other secrets" in serve("--config", file, SWERVE_QUERY_KEY="00" * 32)
    assert all(len(member.owned()) == 2 for member in two.members)


def test_a_request_for_a_worker_that_stands_still_has_the_given_order_and_is_never_decided_late(two: Machines):
    """The time until which an answer is of use is that of the asking machine: what came too late is not decided afterwards."""
    first, _ = clients(two)
    holder = next(member for member in two.members if 3 in member.owned())
    text = next(text for text in map(str, range(100)) if int(first.rank(text, ["a"]).headers["swerve-partition"]) % SHARES == 3)
    asking = next(member for member in two.members if member is not holder).client()
    counted = asking.query(text).json["requests"]
    pid = holder.worker_pids()[3]
    os.kill(pid, signal.SIGSTOP)
    try:
        answer = asking.rank(text, ["a", "b"])
        assert answer.json["degraded"] and answer.json["ranking"] == ["a", "b"]
        assert 1.9 < answer.seconds < 6.0  # `SMALL` has a deadline of two seconds
    finally:
        os.kill(pid, signal.SIGCONT)
    until(lambda: not asking.rank(text, ["a", "b"]).json["degraded"])
    time.sleep(0.2)
    assert asking.query(text).json["requests"] == counted + 1


# ------------------------------------------------------------------ one machine


def test_workers_of_one_machine_need_no_further_set_up(url, tmp_path, engine):
    changes: dict[str, dict[str, Any]] = {
        "server": {"workers": 3},
        "store": {"url": url, "journal_days": 1.0},
        "security": {"secrets": str(tmp_path / "swerve.secrets")},
    }
    texts = [f"query {number}" for number in range(9)]
    with running(tmp_path, changes) as service:
        client = service.client()
        for text in texts:
            answer = client.rank(text, ["a", "b"]).json
            assert client.feedback(answer["decision"], "b").json == {"status": "learned"}
        (worker,) = {int(client.rank(texts[0], ["a"]).headers["swerve-partition"]) % 3}
        killed = workers_of(service)[worker]
        os.kill(killed, signal.SIGKILL)
        until(lambda: workers_of(service)[worker] != killed, 30.0)
        assert [service.client().clicks(text) for text in texts] == [{"b": 1}] * 9

        assert service.child is not None
        beats = seen(url).machines[""].beats
        (steward,) = set(below(service.child.pid)) - set(workers_of(service).values())
        os.kill(steward, signal.SIGKILL)  # it is started again, as a worker is
        until(lambda: seen(url).machines[""].beats < beats)
        until(lambda: seen(url).machines[""].beats > 3)
        assert [service.client().clicks(text) for text in texts] == [{"b": 1}] * 9
        (steward,) = set(below(service.child.pid)) - set(workers_of(service).values())
        os.kill(steward, signal.SIGKILL)  # it writes nothing: what is stopped now has been written
        assert service.stop() == 0
        assert not any(owner.there for owner in seen(url).owners.values())

        done = forking.run(sys.executable, "-m", "swerve", "verify", url, "--secrets", str(tmp_path / "swerve.secrets"))
        assert done.returncode == 0 and done.stdout.count("nothing is wrong") == 3, done.stdout + done.stderr
        done = forking.run(sys.executable, "-m", "swerve", "replay", url, "--json", "-")
        assert done.returncode == 0 and json.loads(done.stdout)["clicks"] == 9, done.stdout + done.stderr
        out = tmp_path / "learnt.jsonl"
        done = forking.run(sys.executable, "-m", "swerve", "export", url, "--config", str(service.file), "--out", str(out))
        lines = [json.loads(line) for line in out.read_text().splitlines()]
        assert sum(line["clicks"] for line in lines if line["kind"] == "candidate") == 9, done.stderr
        service.configure({**changes, "server": {"workers": 1}})  # all shares, whatever is wanted
        service.start()
        assert [service.client().clicks(text) for text in texts] == [{"b": 1}] * 9
        service.kill()  # the supervisor alone: the workers stop in order
        service.start()
        assert [service.client().clicks(text) for text in texts] == [{"b": 1}] * 9
        assert service.stop() == 0
        done = forking.run(sys.executable, "-m", "swerve", "serve", "--config", str(service.file), SWERVE__STORE__STANDBY="true")
        assert done.returncode == 2 and "has 3 shares, which workers serve" in done.stderr


def workers_of(service: Running) -> dict[int, int]:
    said = (json.loads(line) for line in service.stderr().splitlines())
    return {line["worker"]: line["pid"] for line in said if line["message"] == "a worker is ready"}


def test_a_store_that_one_worker_has_served_is_not_served_by_several(url, tmp_path):
    changes = {"store": {"url": url}, "security": {"secrets": str(tmp_path / "swerve.secrets")}}
    with running(tmp_path, changes) as service:
        service.client().rank("q", ["a"])
        assert service.stop() == 0
        done = forking.run(sys.executable, "-m", "swerve", "serve", "--config", str(service.file), "--workers", "2")
        (line,) = done.stderr.splitlines()
        assert done.returncode == 2 and "has one share, which one worker serves: --workers 1" in line
        service.start()
        assert service.client().query("q").status == 200


# ------------------------------------------------------------------ machines that come and go


@pytest.mark.slow
def test_a_machine_that_joins_takes_its_part_and_one_that_leaves_gives_it_back(url, tmp_path):
    """Nothing is lost, and a share that moves has the given order for less than one deadline, which here is long enough for a start
    on a busy machine."""
    deadline = 5.0
    with machines(tmp_path, url, SHARES, {"server": {"deadline_ms": 1000.0 * deadline}}) as made:
        first = made.add(1, "--new-store")
        load, without = Load(SHARES, [first]), list[float]()
        with load.running():
            load.wait(50)
            began = time.monotonic()
            second = made.add()
            made.settled(first, second)
            load.members.append(second)
            load.wait(50)
            without += gaps(load, began)
            began = time.monotonic()
            load.members.remove(first)
            assert first.stop() == 0
            made.settled(second)
            load.wait(50)
            without += gaps(load, began)
        load.check(second.client())
        print(f"{len(without)} shares moved, without an owner for {statistics.median(without):.2f} s, {max(without):.2f} s at most")
        assert len(without) == SHARES and max(without) < deadline
        assert second.stop() == 0


def gaps(load: Load, since: float) -> list[float]:
    """Return for how long shares were shown in the given order: from the first to the last one, each by itself."""
    times = ([at for at in load.given[share] if at > since] for share in range(load.shares))
    return [max(some) - min(some) for some in times if some]


@pytest.mark.slow
def test_a_machine_that_is_killed_under_load_loses_nothing(url, tmp_path, engine):
    with machines(tmp_path, url, SHARES) as made:
        first, second = made.add(1, "--new-store"), made.add()
        made.settled(first, second)
        load, took = Load(SHARES, [first, second]), list[float]()
        with load.running():
            for _ in range(2):
                load.wait(100)
                dies, lives = made.members[-2:]
                lost, at = dies.owned(), time.monotonic()
                load.members[:] = [lives]
                dies.kill()
                until(lambda: all(load.back(share, at + 0.05) is not None for share in lost), TAKEN_OVER[engine])  # noqa: B023
                took += [load.back(share, at + 0.05) or 0.0 for share in lost]
                assert load.broken[lives.address] == 0  # whoever lives has answered every request
                load.wait(50)
                third = made.add()
                made.settled(lives, third)
                load.members.append(third)
        print(f"{engine}: {len(took)} shares, a new owner after {statistics.median(took):.1f} s, {max(took):.1f} s at most")
        load.check(made.members[-1].client())
        assert load.slowest < 6.0 and max(took) < TAKEN_OVER[engine]


@pytest.mark.slow
def test_a_machine_that_was_paused_and_replaced_writes_nothing(url, tmp_path, engine):
    with machines(tmp_path, url, SHARES) as made:
        first, second = made.add(1, "--new-store"), made.add()
        made.settled(first, second)
        load = Load(SHARES, [second])
        lost = first.owned()
        pids = first.worker_pids()
        asked = first.client()
        with load.running():
            load.wait(100)
            first.all(signal.SIGSTOP)
            took = until(
                lambda: seen(url).machines[first.address].beats > 0 and second.owned() == set(range(SHARES)), TAKEN_OVER[engine]
            )
            load.wait(100)
            epochs = {share: owner.epoch for share, owner in seen(url).owners.items()}
            first.all(signal.SIGCONT)
            # the old owners end: what they had to write is refused
            until(lambda: not any(alive(pids[share]) for share in lost), 30.0)
            made.settled(first, second)
            load.members.append(first)
            load.wait(100)
        print(f"{engine}: all shares of a machine that stands still have a new owner after {took:.1f} s")
        assert "another machine owns this share now" in first.stderr()
        assert all(owner.epoch >= epochs[share] for share, owner in seen(url).owners.items())
        load.check(second.client())
        asked.close()
        assert first.stop() == 0 and second.stop() == 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 3])
def test_machines_come_go_stop_and_die_at_random_and_nothing_is_lost(url, tmp_path, seed):
    draw, done = random.Random(seed), Counter[str]()
    with machines(tmp_path, url, SHARES) as made:
        made.add(1, "--new-store")
        living = [made.add()]
        living.insert(0, made.members[0])
        load = Load(SHARES, living)
        with load.running():
            for _ in range(12):
                load.wait(20)
                kind = draw.choice(["join", "leave", "kill", "pause", "worker", "steward"])
                if len(living) == 1 or (kind == "join" and len(living) == 3):
                    kind = "join" if len(living) == 1 else "leave"
                done[kind] += 1
                one = draw.choice(living)
                if kind == "join":
                    load.members = [*load.members, made.add(draw.choice([1, 2]))]
                    living.append(made.members[-1])
                elif kind in ("leave", "kill"):
                    living.remove(one)
                    load.members = list(living)
                    if kind == "kill":
                        one.kill()
                    else:
                        assert one.stop() == 0, one.stderr()[-2000:]
                elif kind == "pause":
                    load.members = [member for member in living if member is not one]
                    one.all(signal.SIGSTOP)
                    time.sleep(draw.choice([0.5, 3.0, 8.0, 20.0]))
                    one.all(signal.SIGCONT)
                    load.members = list(living)
                else:
                    assert one.child is not None
                    workers = set(one.worker_pids().values())
                    some = [pid for pid in below(one.child.pid) if (pid in workers) == (kind == "worker")]
                    if some:
                        os.kill(draw.choice(some), signal.SIGKILL)
            load.wait(20)
        made.settled(*living, patience=60.0)
        load.check(living[0].client())
        print(f"{load.ledger.acknowledged} clicks, {dict(done)}, the slowest ranking took {load.slowest:.1f} s")
        assert all(member.stop() == 0 for member in living)


def test_a_member_waits_for_a_start_of_its_address_that_was_killed(url, tmp_path):
    """A machine that starts again at the same address takes the place of its start before, and all its shares."""
    with machines(tmp_path, url, 2) as made:
        member: Member = made.add(1, "--new-store")
        client = member.client()
        answer = client.rank("q", ["a", "b"]).json
        assert client.feedback(answer["decision"], "a").json == {"status": "learned"}
        member.kill()
        member.start()
        made.settled(member)
        assert member.client().clicks("q") == {"a": 1}
        assert member.stop() == 0
