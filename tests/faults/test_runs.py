"""Random faults of each setup, under random load: fast checks of what judges them, and runs that must find nothing wrong.

`python tests/faults/run.py SETUP --kills N` runs longer; docs/operations.md has the figures of 1,000 kills.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from itertools import chain, islice, repeat
from pathlib import Path

import pytest
from faults.history import Click
from faults.load import BUSY, DEADLINE, Load, Record, Watch
from faults.run import SETUPS, enough
from faults.setup import Disturbed, Setup, schedule, until
from service.running import Answer, Gone

RUN = Path(__file__).with_name("run.py")


# ---------------------------------------------------------------------- schedules
@pytest.mark.parametrize("name", SETUPS)
def test_a_seed_gives_the_same_faults_every_time_and_all_kinds_of_them(name):
    kind = SETUPS[name]
    first = list(schedule(kind, 3, most=400))
    assert first == list(schedule(kind, 3, most=400)) != list(schedule(kind, 4, most=400))
    assert {line["fault"] for line in first} == set(kind.FAULTS)
    assert all(callable(getattr(kind, f"do_{fault.replace('-', '_')}")) for fault in kind.FAULTS)


def test_the_command_prints_the_faults_of_a_seed():
    command = [sys.executable, str(RUN), "valkey", "--seed", "3", "--schedule", "20"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert [json.loads(line) for line in done.stdout.splitlines()] == list(schedule(SETUPS["valkey"], 3, most=20))
    done = subprocess.run([*command, "--faults", "flood"], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2 and "unknown fault; valkey has owner," in done.stderr


# ---------------------------------------------------------------------- what judges
class Toy:
    """A service without processes: a counter that a test lets err."""

    def __init__(self, error: str = "") -> None:
        self.error, self.clicks, self.known, self.slow = error, {}, {}, 0.0

    def ports(self) -> list[int]:
        return [1]

    def reading(self) -> int | None:
        return 1

    def calm(self, port: int, began: float, ended: float) -> bool:
        return True

    def pids(self) -> list[int]:
        return []

    def call(self, port: int, method: str, path: str, body=None) -> Answer:
        if path == "/v1/rank":
            time.sleep(self.slow)
            if self.error == "away":
                raise Gone
            order = body["candidates"] if self.error != "short" else body["candidates"][:-1]
            return answer(ranking=order, degraded=False, decision=f"{body['query']}#{len(self.known)}")
        if path == "/v1/feedback":
            token, query = body["decision"], body["decision"].partition("#")[0]
            again, self.known[token] = token in self.known, True
            counts = self.clicks.setdefault("query 0" if self.error == "foreign" else query, {})
            name = body["events"][0]["result"]
            lost = self.error == "lost" and len(self.known) == 3
            counts[name] = counts.get(name, 0) + (0 if lost or (again and self.error != "doubled") else 1)
            return answer(status="late" if again and self.error == "forgotten" else "learned")
        counts = self.clicks.get(path.rpartition("/")[2].replace("%20", " "), {})
        return answer(arms=[{"id": name, "clicks": count} for name, count in counts.items()])


def answer(**content: object) -> Answer:
    return Answer(200, {}, json.dumps(content).encode(), 0.0)


def judged(toy: Toy) -> list[str]:
    """Let a user rank, click, click again and look, over a toy; return what is wrong."""
    record = Record(["query 0", "query 1"])
    load = Load(toy, record, 1, users=0)
    load.own.call = toy.call
    for number in range(8):
        load.own.rank(1, f"query {number % 2}")
        if record.done:
            load.own.tell(1, record.done[0])
    return load.check()


@pytest.mark.parametrize(
    ("error", "told"),
    [
        ("lost", "1 lost"), ("doubled", "too many"), ("foreign", "query 0 has clicks of another query: query 1/"),
        ("forgotten", "was answered 'learned', and 'late' when it was sent again"), ("short", "was ranked"),
    ],
)  # fmt: skip
def test_an_error_of_the_service_is_found(error, told):
    assert judged(Toy()) == []
    assert any(told in line for line in judged(Toy(error)))


def test_a_ranking_without_an_answer_or_too_late_is_found(monkeypatch):
    record = Record(["query 0"])
    toy = Toy("away")
    load = Load(toy, record, 1, users=0)
    load.own.call = toy.call
    with pytest.raises(Gone):
        load.own.rank(1, "query 0")
    assert record.wrong.pop() == "a ranking was not answered: there was no answer"
    monkeypatch.setattr("faults.load.BUSY", 0.05 - DEADLINE)
    toy.error, toy.slow = "", 0.1
    load.own.rank(1, "query 0")
    assert "a ranking took 0.1" in record.wrong.pop()
    assert BUSY > 0.0


def test_times_of_a_machine_that_was_busy_say_nothing_of_the_service(monkeypatch):
    watch = Watch()
    watch.gaps = [(1.0, 2.0), (5.0, 5.5), (1.5, 2.0)]
    assert [watch.within(*span) for span in ((0.0, 1.0), (0.5, 1.5), (0.0, 9.0), (5.1, 5.2))] == pytest.approx([0.0, 0.5, 1.5, 0.1])
    counts = chain([0, 4 * 10**8], repeat(5 * 10**8))
    monkeypatch.setattr("faults.load.waiting_of", lambda pid: next(counts))
    busy = Watch(lambda: [7])
    busy.start()
    until(lambda: bool(busy.gaps))
    busy.end.set()
    assert busy.gaps[0][1] - busy.gaps[0][0] == pytest.approx(0.4)
    record, toy = Record(["query 0"]), Toy()
    load, toy.slow = Load(toy, record, 1, users=0), 0.1
    load.own.call = toy.call
    monkeypatch.setattr("faults.load.BUSY", 0.05 - DEADLINE)
    load.watch.gaps = [(0.0, time.monotonic() + 9.0)]
    load.own.rank(1, "query 0")
    assert record.wrong == []


def test_who_is_killed_or_stopped_need_not_answer():
    disturbed = Disturbed()
    with disturbed.during(1):
        began = time.monotonic()
        assert disturbed.between(1, began, began) and not disturbed.between(2, began, began)
    after = time.monotonic()
    assert disturbed.between(1, began, after) and not disturbed.between(1, after + 1.0, after + 2.0)
    disturbed.begin(2)
    assert disturbed.between(2, after + 1.0, math.inf)
    disturbed.over(2)
    assert not disturbed.between(2, time.monotonic() + 1.0, math.inf)


def test_a_run_ends_with_its_kills_or_its_time():
    class Counting(Setup):
        FAULTS = {"kill": 1}  # noqa: RUF012

    setup = Counting(Path(), 1)
    lines = enough(setup, schedule(Counting, 1), 3, 60.0)
    for line in lines:
        assert line["fault"] == "kill"
        setup.kills["processes"] += 1
    assert setup.kills["processes"] == 3
    setup.began -= 61.0
    assert not list(enough(setup, schedule(Counting, 1), 9, 60.0))


def test_unacknowledged_clicks_are_sent_again_before_the_record_is_judged():
    toy, record = Toy(), Record(["query 0"])
    load = Load(toy, record, 1, users=0)
    load.own.call = toy.call
    said = record.sending("query 0", "query 0#7", "query 0/1")
    assert said.click.acknowledged == math.inf and isinstance(said.click, Click)
    assert load.check() == [] and said.click.acknowledged < math.inf
    assert record.histories["query 0"].before == {"query 0/1": 1}


# ---------------------------------------------------------------------- runs
#: Faults of a run of each setup: half a minute to two minutes.
FAULTS = {
    "workers": 25, "small-disk": 8, "postgresql": 20, "valkey": 16, "far-postgresql": 10, "far-valkey": 10, "postgresql-clocks": 10,
    "valkey-clocks": 8,
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in ("workers", "small-disk") else [pytest.mark.engines]) for name in SETUPS]
)
def test_random_faults_under_load_lose_nothing_and_count_nothing_twice(name):
    """Of a seed (SWERVE_FAULTS_SEED); so many faults, or those of SWERVE_FAULTS.

    Servers can reach the folder under their user, unlike `tmp_path`; it is kept if something is wrong.
    """
    folder = Path(tempfile.mkdtemp(prefix="swerve-faults-"))
    seed, most = int(os.environ.get("SWERVE_FAULTS_SEED", "1")), int(os.environ.get("SWERVE_FAULTS", FAULTS[name]))
    setup = SETUPS[name](folder, seed)
    wrong = setup.run(islice(schedule(SETUPS[name], seed), most))
    print(setup.text())
    assert not wrong, setup.text()
    assert setup.record.counts["acknowledged"] > 5 * most
    shutil.rmtree(folder)
