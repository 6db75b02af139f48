"""The soak test, short and long, and the checks of its ledger."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from itertools import islice
from pathlib import Path

import pytest
from service.running import Answer, Gone, Running
from service.soak import Plan, soak
from service.soak_faults import FAULTS, schedule
from service.soak_ledger import ABSENT, FOLLOWED, MAYBE, PRESENT, Click, Ledger
from service.soak_load import Traffic, Worker, names_of
from service.soak_log import ANOTHER, Log

SOAK = Path(__file__).with_name("soak.py")
#: Seed of the long run: fixed, so that runs can be compared.
SEEDS = (1, 2)


# ---------------------------------------------------------------------- the soak
@pytest.mark.slow
def test_a_short_soak_loses_nothing(tmp_path):
    """Commits that succeed and report failure, a kill and a start in between; a kill; a disk that refuses every second write."""
    faults = ("kill", "bad-write", "error-after")
    report = soak(Plan(seed=1024, seconds=60.0, cache_mb=1, faults=faults, most=3, queries=300, linger=0.5), tmp_path / "soak")
    print(report.text())
    assert not report.wrong, report.text()
    assert report.faults == dict.fromkeys(faults, 1)
    assert report.acknowledged > 100
    assert report.checks == 2


@pytest.mark.slow
@pytest.mark.parametrize(("policy", "share"), [("ts", 0.8), ("swerve", 0.2)])
def test_the_soak(tmp_path, policy, share):
    """All faults, little memory, half an hour (SWERVE_SOAK_MINUTES, SWERVE_SOAK_SEED), a fifth of it with the default policy."""
    minutes = share * float(os.environ.get("SWERVE_SOAK_MINUTES", "30"))
    seed = int(os.environ.get("SWERVE_SOAK_SEED", SEEDS[policy == "swerve"]))
    print(f"seed {seed}, {minutes:g} minutes, policy {policy}")
    report = soak(Plan(seed, minutes * 60.0, policy), tmp_path / "soak")
    print(report.text())
    assert not report.wrong, report.text()
    assert report.acknowledged > 300 * minutes


# ---------------------------------------------------------------------- seeds
def test_a_seed_gives_the_same_faults_every_time_and_all_kinds_of_them():
    first = list(islice(schedule(3), 300))
    assert first == list(islice(schedule(3), 300))
    assert first != list(islice(schedule(4), 300))
    assert {line["fault"] for line in first} == set(FAULTS)
    assert {line["then"] for line in first if "then" in line} == {"over", "kill", "restart"}
    done = subprocess.run(
        [sys.executable, str(SOAK), "--seed", "3", "--schedule", "20"], capture_output=True, text=True, check=True, timeout=60
    )
    assert [json.loads(line) for line in done.stdout.splitlines()] == first[:20]


def test_a_candidate_tells_its_query_and_is_told_from_the_others():
    names = names_of(50)
    assert all(name.startswith(f"{query}/") for query, candidates in names.items() for name in candidates)
    assert {len(set(candidates)) for candidates in names.values()} == {8}


# ---------------------------------------------------------------------- the ledger
def click(ledger: Ledger, name: str, query: str = "q") -> Click:
    return ledger.decided(name, query, f"{query}/a")


def send(ledger: Ledger, one: Click, status: str | None = "learned") -> None:
    (sent,) = ledger.sending([one])
    ledger.answered(sent, status)


def counts(ledger: Ledger) -> tuple[int, int]:
    least, most = ledger.expected()
    return least["q", "q/a"], most["q", "q/a"]


@pytest.fixture
def ledger():
    return Ledger(window=100.0)


def test_an_acknowledged_click_counts_once_and_one_without_an_answer_once_or_not_at_all(ledger):
    sure, unsure, never = click(ledger, "1"), click(ledger, "2"), click(ledger, "3")
    send(ledger, sure)
    send(ledger, sure)
    send(ledger, unsure, None)
    assert (sure.state, unsure.state, never.state) == (PRESENT, MAYBE, ABSENT)
    assert counts(ledger) == (1, 2)
    assert ledger.unknown() == 1
    for one in (sure, unsure, never):
        ledger.leave(one)
        ledger.leave(one)
    assert counts(ledger) == (1, 2)
    assert ledger.unknown() == 1


def test_words_of_nothing_count_for_nobody(ledger):
    send(ledger, ledger.decided("1", "q", None))
    assert counts(ledger) == (0, 0)
    assert ledger.acknowledged == 0


def test_what_is_found_is_compared_candidate_by_candidate(ledger):
    send(ledger, click(ledger, "1"))
    send(ledger, click(ledger, "2"), None)
    for right in ({"q/a": 1}, {"q/a": 2}):
        assert ledger.compare({"q": right}) == []
    assert [str(one) for one in ledger.compare({"q": {}})] == ["lost: q/a in q: 0 clicks, 1 to 2 expected"]
    assert [one.kind for one in ledger.compare({"q": {"q/a": 3}})] == ["doubled"]
    assert [one.kind for one in ledger.compare({"q": {"q/a": 1, "q/b": 1}})] == ["doubled"]
    assert [one.kind for one in ledger.compare({"q": {"q/a": 1, "other/a": 0}})] == ["foreign"]
    assert ledger.compare({"p": {}}) == []  # a query that was not read proves nothing


def test_a_repeat_must_be_answered_like_the_first(ledger):
    one = click(ledger, "1")
    send(ledger, one, "late")
    send(ledger, one, "late")
    assert not ledger.wrong
    send(ledger, one, "learned")
    assert len(ledger.wrong) == 1


def test_a_decision_expires_when_it_may_and_not_before(ledger):
    early = click(ledger, "1")
    send(ledger, early, "expired")
    assert "expired after" in ledger.wrong.pop()
    assert early.state == ABSENT
    fine = click(ledger, "2")
    ledger.jumped(-500.0)
    ledger.jumped(101.0)
    send(ledger, fine, "expired")
    assert not ledger.wrong
    unsure = click(ledger, "3")
    send(ledger, unsure, None)
    ledger.jumped(101.0)
    send(ledger, unsure, "expired")
    assert unsure.state == MAYBE


def test_a_jump_may_be_noticed_after_the_decision(ledger):
    ledger.jumped(101.0)
    soon = click(ledger, "1")
    ledger.jumps = [(at - FOLLOWED - 1.0, seconds) for at, seconds in ledger.jumps]
    later = click(ledger, "2")
    send(ledger, soon, "expired")
    assert not ledger.wrong
    send(ledger, later, "expired")
    assert len(ledger.wrong) == 1


def test_only_decisions_of_before_a_restore_may_be_refused(ledger):
    send(ledger, click(ledger, "1"), "forged")
    assert "refused: forged" in ledger.wrong.pop()
    old, held = click(ledger, "2"), ledger.backup_begins()
    ledger.backup_ends(held)
    ledger.swap_begins()
    ledger.swap_ends(held, running=False)
    send(ledger, old, "forged")
    assert not ledger.wrong
    assert old.state == ABSENT


def backed_up(ledger: Ledger):
    """Return a backup and clicks acknowledged before, during and after it; of each two clicks, one leaves the ledger at once."""
    clicks = {}
    for when in ("before", "before, left"):
        clicks[when] = click(ledger, when)
        send(ledger, clicks[when])
    ledger.leave(clicks["before, left"])
    held = ledger.backup_begins()
    for when in ("during", "during, left"):
        clicks[when] = click(ledger, when)
        send(ledger, clicks[when])
    ledger.leave(clicks["during, left"])
    ledger.backup_ends(held)
    for when in ("after", "after, left"):
        clicks[when] = click(ledger, when)
        send(ledger, clicks[when])
    ledger.leave(clicks["after, left"])
    assert counts(ledger) == (6, 6)
    return held, clicks


def test_a_restore_leaves_what_the_backup_holds(ledger):
    held, clicks = backed_up(ledger)
    for _ in range(2):  # the same backup gives the same state again
        ledger.swap_begins()
        ledger.swap_ends(held, running=False)
        assert counts(ledger) == (2, 4)
        assert [clicks[when].state for when in ("before", "during", "after")] == [PRESENT, MAYBE, ABSENT]
        send(ledger, clicks["during"])  # a repeat is recognised
        send(ledger, clicks["after"], "late")  # and this one counts again
        assert counts(ledger) == (4, 5)
    assert not ledger.wrong


def test_what_left_the_book_since_the_backup_is_not_forgotten(ledger):
    held, clicks = backed_up(ledger)
    for one in clicks.values():
        ledger.leave(one)
    ledger.swap_begins()
    ledger.swap_ends(held, running=False)
    assert counts(ledger) == (2, 4)


def test_a_restore_under_a_running_service_leaves_open_what_was_on_its_way(ledger):
    held = ledger.backup_begins()
    ledger.backup_ends(held)
    early, across, pending = click(ledger, "1"), click(ledger, "2"), click(ledger, "3")
    send(ledger, early)
    send(ledger, pending, None)
    (sent,) = ledger.sending([across])
    ledger.swap_begins()
    amid = click(ledger, "4")
    send(ledger, amid)
    ledger.swap_ends(held, running=True)
    ledger.answered(sent, "learned")  # it is not known by which store
    assert [one.state for one in (early, across, pending, amid)] == [ABSENT, MAYBE, MAYBE, MAYBE]
    # until the swap is noticed, a repeat may be answered from memory; a new click may not
    send(ledger, early)
    fresh = click(ledger, "5")
    send(ledger, fresh)
    assert [early.state, fresh.state] == [MAYBE, PRESENT]
    ledger.noticed()
    send(ledger, early, "late")
    assert early.state == PRESENT
    assert counts(ledger) == (2, 5)
    assert not ledger.wrong


class Counting(Worker):
    """A worker whose steps only count."""

    steps = 0

    def step(self, draw):
        self.steps += 1


def test_who_rests_does_nothing_also_where_a_rest_follows_a_rest_at_once(ledger, tmp_path):
    """A thread wakes some time after it may go on; by then it may have to rest again."""
    traffic = Traffic(Running(tmp_path), ledger, 1, {"q": ["q/a"]})
    worker = Counting(traffic, 0)
    worker.start()
    for _ in range(300):
        traffic.go.set()
        traffic.go.clear()
        assert worker.rested(10.0)
        before = worker.steps
        time.sleep(0.0005)
        assert worker.steps == before
    traffic.end.set()
    traffic.go.set()
    worker.join(10.0)
    assert worker.failure is None and not worker.is_alive()


class Restoring(Worker):
    """A worker whose second request meets a restore: what it had told is undone, and the request gets no answer."""

    def __init__(self, ledger: Ledger, folder: Path) -> None:
        super().__init__(Traffic(Running(folder), ledger, 1, {"q": ["q/a"]}), 0)
        self.held = ledger.backup_begins()
        ledger.backup_ends(self.held)
        self.counted: dict[str, str] = {}  # in the store: the status of each decision
        self.sent = 0

    def call(self, method, path, body=None):
        self.sent += 1
        if self.sent == 2:
            self.ledger.swap_begins()
            self.counted.clear()
            self.ledger.swap_ends(self.held, running=False)
            raise Gone
        status = self.counted.setdefault(body["decision"], "learned" if self.sent == 1 else "late")  # its show is gone too
        return Answer(200, {}, json.dumps({"status": status}).encode(), 0.0)


@pytest.mark.parametrize("token", ["1", "6"])  # one that is not sent again once it is acknowledged, and one that is kept
def test_a_restore_between_a_click_and_its_repeat_sets_the_click_back(ledger, tmp_path, token):
    """While a worker may still send a click, the ledger must not take it for done."""
    worker, one = Restoring(ledger, tmp_path), click(ledger, token)
    with pytest.raises(Gone):
        worker.tell([one, one], together=False)
    worker.drain(10.0)
    assert worker.counted == {token: "late"}
    assert not ledger.wrong
    assert ledger.compare({"q": {"q/a": 1}}) == []


# ---------------------------------------------------------------------- the log
def test_the_log_tells_of_defects_and_of_a_store_given_up_for_nothing(tmp_path):
    path = tmp_path / "stderr.txt"
    log = Log(path)
    assert log.wrong() == []
    lines = [{"level": "error", "message": "request", "status": 503}, {"level": "warning", "message": f"{ANOTHER}: going on"}]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"level": "error", "mess')
    assert len(log.wrong()) == 1  # the second line; the last one is incomplete
    assert log.wrong() == []
    log.restores = 1
    with path.open("a") as file:
        file.write('age": "writing failed", "error": "KeyError: 7"}\n' + json.dumps(lines[1]) + "\n")
    assert [line.endswith("KeyError: 7") for line in log.wrong()] == [True]
