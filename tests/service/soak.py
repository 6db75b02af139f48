"""The soak test: a real service under random load and faults, and a ledger outside it with every acknowledged click.

    python tests/service/soak.py --seed 7 --minutes 30 --policy swerve --cache-mb 1

Two runs with the same seed inject the same faults in the same order, and draw the same requests; the timing of answers differs.
The exit status is 0 if no acknowledged click was lost, counted twice or credited to another record. docs/operations.md says more.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from service.running import PATIENCE, Gone, Http, Running
from service.soak_faults import FAULTS, Disk, Faults, Line, Stuck, schedule, verify
from service.soak_ledger import Difference, Ledger
from service.soak_load import Traffic, Worker, names_of
from service.soak_log import Log

WINDOW = 300.0  # seconds in which feedback counts: so short that decisions expire during a run
SHOWN = 12  # faults before a failure that the report shows, and differences


@dataclass(frozen=True)
class Plan:
    """The settings of a run."""

    seed: int
    seconds: float
    policy: str = "ts"
    cache_mb: int = 1
    faults: tuple[str, ...] = tuple(FAULTS)
    most: int | None = None  # number of faults
    linger: float | None = None  # seconds after the last fault; None: until the time is up
    workers: int = 4
    queries: int = 1500


@dataclass
class Report:
    """The result of a run."""

    plan: Plan
    folder: str
    disk: bool  # whether faults of the disk were injected into system calls
    seconds: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    acknowledged: int = 0
    unknown: int = 0
    checks: int = 0
    wrong: list[str] = field(default_factory=list)
    history: list[Line] = field(default_factory=list)

    def text(self) -> str:
        """Return the report as text."""
        plan, out = self.plan, []
        did = ", ".join(f"{count} {name}" for name, count in sorted(self.faults.items())) or "none"
        out.append(f"seed {plan.seed}, policy {plan.policy}, cache of {plan.cache_mb} MB, {self.seconds:.0f} s; faults: {did}")
        out.append(
            f"{self.counts['requests']:,} requests, {self.counts['rankings']:,} rankings "
            f"({self.counts['degraded']:,} in the given order), "
            f"{self.acknowledged:,} clicks acknowledged, {self.unknown:,} unknown at the end, {self.checks} checks"
        )
        if not self.wrong:
            out.append("no acknowledged click was lost, doubled or put into another record")
            return "\n".join(out)
        out += ["WRONG:", *(f"  {line}" for line in self.wrong[:SHOWN])]
        if len(self.wrong) > SHOWN:
            out.append(f"  … and {len(self.wrong) - SHOWN} more")
        out += ["the last faults:", *(f"  {json.dumps(line)}" for line in self.history[-SHOWN:])]
        out.append(f"everything is kept in {self.folder}; again: {again(plan)}")
        return "\n".join(out)

    def as_json(self) -> dict[str, Any]:
        return {
            **vars(self),
            "ok": not self.wrong,
            "plan": asdict(self.plan),
            "faults": dict(self.faults),
            "counts": dict(self.counts),
        }


def again(plan: Plan) -> str:
    """Return the command that repeats the run."""
    faults = "" if plan.faults == tuple(FAULTS) else f" --faults {','.join(plan.faults)}"
    most = "" if plan.most is None else f" --most {plan.most}"
    return (
        f"python tests/service/soak.py --seed {plan.seed} --minutes {plan.seconds / 60:g} --policy {plan.policy} "
        f"--cache-mb {plan.cache_mb}{faults}{most}"
    )


class Soak:
    """One run over a folder."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.plan, self.ledger = plan, Ledger(WINDOW)
        folder.mkdir(parents=True, exist_ok=True)
        disk = Disk(folder)
        changes = {
            "policy": {"spec": plan.policy},
            "store": {"cache_mb": plan.cache_mb, "idle_days": 36_500},  # the clock jumps by days: nothing may go for that
            "feedback": {"window_seconds": WINDOW, "steady_seconds": 0.0},  # each ranking is a decision with a word of its own
        }
        self.service = Running(folder, changes, disk.command())
        self.report = Report(plan, str(folder), disk.library is not None)
        self.traffic = Traffic(self.service, self.ledger, plan.seed, names_of(plan.queries))
        self.workers = [Worker(self.traffic, number) for number in range(plan.workers)]
        self.faults = Faults(self.service, disk, self.ledger, self.rest, self.traffic.go.set)
        self.log = Log(self.service.log)
        self.differ = False  # whether ledger and service differ
        self.began = time.monotonic()

    def run(self) -> Report:
        """Run load and faults for the planned time, then check the ledger."""
        try:
            self.faults.start(PATIENCE)  # the first start compiles
            self.began = time.monotonic()
            for worker in self.workers:
                worker.start()
            self.traffic.go.set()
            for line in islice(schedule(self.plan.seed, self.plan.faults), self.plan.most):
                if not self.wait(line["after"]) or not self.one(line):
                    break
            if not self.report.wrong:
                self.wait(self.plan.seconds if self.plan.linger is None else self.plan.linger)
            if not self.report.wrong:
                self.finish()
            elif not self.differ:
                self.check("when that was noticed")
        except Stuck as stuck:
            self.report.wrong.append(str(stuck))
        finally:
            self.traffic.end.set()
            self.traffic.go.set()
            self.service.kill()
            for worker in self.workers:
                if worker.ident is not None:
                    worker.join(60.0)
            self.tally()
        return self.report

    def wait(self, seconds: float) -> bool:
        """Let the load run for a while; return False if the time is up or something is wrong."""
        end = min(time.monotonic() + seconds, self.began + self.plan.seconds)
        while time.monotonic() < end:
            time.sleep(min(0.2, max(end - time.monotonic(), 0.0)))
            self.tell()
        self.tally()
        return time.monotonic() < self.began + self.plan.seconds and not self.report.wrong

    def one(self, line: Line) -> bool:
        """Inject one fault, and check everything if the schedule says so; return False if something is wrong."""
        entry = {"at": round(time.monotonic() - self.began, 1), **line}
        self.report.history.append(entry)
        self.report.faults[line["fault"]] += 1
        if not sys.stderr.isatty():
            print(json.dumps(entry), file=sys.stderr, flush=True)
        restore = line["fault"].startswith("restore")
        if restore and line["check"]:  # a restore would hide earlier errors
            self.check(f"before fault {line['number']}, {line['fault']}")
            self.tally()
            if self.report.wrong:
                return False
        self.log.restores += line["fault"] == "restore-live"
        started = self.faults.do(line)
        entry["took"] = round(time.monotonic() - self.began - entry["at"], 1)
        if line["check"] or restore:
            self.check(f"after fault {line['number']}, {line['fault']}" + (" and a start" if started else ""))
        self.tally()
        return not self.report.wrong

    # ------------------------------------------------------------------ checks
    def rest(self) -> None:
        """Stop all workers; every request is then answered, or never will be."""
        self.traffic.go.clear()
        for worker in self.workers:
            if not worker.rested(120.0):
                raise Stuck(f"{worker.name} has waited two minutes for an answer")

    def check(self, when: str) -> None:
        """Compare the ledger with the service's state of every query, with no request under way."""
        self.rest()
        self.compare(when)
        self.traffic.go.set()

    def compare(self, when: str) -> None:
        found = self.read()
        differences = self.ledger.compare(found)
        self.report.checks += 1
        if differences:
            self.differ = True
            kinds = Counter(difference.kind for difference in differences)
            said = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
            told = [f"{when}: {said} (candidates of {len({d.query for d in differences})} queries)", *map(str, spread(differences))]
            self.report.wrong = told + self.report.wrong  # listed before contradicting answers

    def read(self) -> dict[str, dict[str, int]]:
        """Return the service's clicks of every query by candidate."""
        queries = [*self.traffic.names, "marker"]

        def some(start: int) -> dict[str, dict[str, int]]:
            client, out = Http(self.service.port), {}
            try:
                for query in queries[start :: self.plan.workers]:
                    out[query] = clicks_of(client, query)
            finally:
                client.close()
            return out

        with ThreadPoolExecutor(self.plan.workers) as pool:
            return {query: counts for part in pool.map(some, range(self.plan.workers)) for query, counts in part.items()}

    def finish(self) -> None:
        """Send the remaining feedback and check again: now, after a kill, and on the stopped store."""
        self.rest()
        self.faults.ready()
        for worker in self.workers:
            worker.drain(20.0)
        self.compare("at the end")
        self.service.kill()
        self.faults.start()
        self.compare("after a last kill and start")
        self.faults.end()
        verify(self.service)

    def tally(self) -> None:
        """Add the findings of the workers and of the ledger to the report."""
        report = self.report
        report.seconds = time.monotonic() - self.began
        report.counts, report.acknowledged, report.unknown = self.traffic.counts, self.ledger.acknowledged, self.ledger.unknown()
        for source in (self.ledger.wrong, self.traffic.wrong, self.log.wrong()):
            while source:
                report.wrong.append(source.pop(0))
        for worker in self.workers:
            if worker.failure is not None:
                report.wrong.append(f"{worker.name} failed: {worker.failure!r}")
                worker.failure = None

    def tell(self) -> None:
        """Print a line of progress."""
        if sys.stderr.isatty():
            gone, report = time.monotonic() - self.began, self.report
            last = report.history[-1]["fault"] if report.history else "none yet"
            print(
                f"\r{gone:5.0f} of {self.plan.seconds:.0f} s  {sum(report.faults.values())} faults (last: {last})  "
                f"{self.ledger.acknowledged:,} clicks acknowledged  {report.checks} checks\x1b[K",
                end="", file=sys.stderr, flush=True,
            )  # fmt: skip


def clicks_of(client: Http, query: str, patience: float = 30.0) -> dict[str, int]:
    """Return the service's clicks of one query by candidate; empty if it does not know the query."""
    until = time.monotonic() + patience
    while time.monotonic() < until:
        try:
            answer = client.query(query)
        except Gone:
            time.sleep(0.1)
            continue
        if answer.status == 200:
            return {
                arm["id"]: arm["clicks"] for arm in answer.json["arms"] if arm["clicks"] or not arm["id"].startswith(f"{query}/")
            }
        if answer.status == 404:
            return {}
        time.sleep(0.1)
    raise Stuck(f"{query} could not be read for {patience:.0f} s: {answer.status} {answer.body[:300]!r}")


def spread(differences: list[Difference]) -> Iterator[Difference]:
    """Return some differences of each kind, the worst first."""
    for kind in ("foreign", "doubled", "lost"):
        yield from sorted((d for d in differences if d.kind == kind), key=lambda d: -abs(d.found - d.least))[: SHOWN // 3]


def soak(plan: Plan, folder: Path | None = None) -> Report:
    """Run the soak test; remove the folder if nothing was wrong and it was not named by the caller."""
    made = Path(tempfile.mkdtemp(prefix="swerve-soak-")) if folder is None else folder
    report = Soak(plan, made).run()
    (made / "report.json").write_text(json.dumps(report.as_json(), indent=1))
    if folder is None and not report.wrong:
        shutil.rmtree(made)
    return report


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(
        description="Random faults against random load, with an outside ledger of every acknowledged click."
    )
    parser.add_argument("--seed", type=int, default=1, help="of the faults and the requests")
    parser.add_argument("--minutes", type=float, default=30.0, help="of load and faults")
    parser.add_argument("--policy", choices=("ts", "swerve"), default="ts")
    parser.add_argument("--cache-mb", type=int, default=1, help="store.cache_mb: 1 holds a quarter of the queries")
    parser.add_argument("--faults", default=",".join(FAULTS), help="which, separated by commas (all: %(default)s)")
    parser.add_argument("--most", type=int, help="so many faults at most")
    parser.add_argument(
        "--keep", type=Path, metavar="DIR", help="folder to run in, kept in any case; it must be empty or not there"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report there")
    parser.add_argument("--schedule", type=int, metavar="N", help="print the first N faults of the seed as JSON lines, and stop")
    given = parser.parse_args()
    faults = tuple(given.faults.split(","))
    if not set(faults) <= set(FAULTS):
        parser.error(f"unknown fault {', '.join(sorted(set(faults) - set(FAULTS)))}")
    if given.keep is not None and given.keep.exists() and any(given.keep.iterdir()):
        parser.error(f"{given.keep} is not empty")
    if given.schedule is not None:
        for line in islice(schedule(given.seed, faults), given.schedule):
            print(json.dumps(line))
        return 0
    plan = Plan(given.seed, given.minutes * 60.0, given.policy, given.cache_mb, faults, given.most)
    report = soak(plan, None if given.keep is None else given.keep.absolute())
    if sys.stderr.isatty():
        print(file=sys.stderr)
    print(report.text())
    if given.json is not None:
        given.json.write_text(json.dumps(report.as_json(), indent=1))
    return 1 if report.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
