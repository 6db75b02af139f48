"""The faults of the soak test: their schedule, drawn from the seed, and how each is injected into a running service."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import random
import shutil
import signal
import sqlite3
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from service.running import SRC, Gone, Http, Running
from service.soak_ledger import Backup, Ledger

Line = dict[str, Any]
HERE = Path(__file__).parent
ENVIRONMENT = {**os.environ, "PYTHONPATH": SRC, "PYTHONUNBUFFERED": "1"}

#: The relative frequency of each fault.
FAULTS = {
    "kill": 5, "stop": 3, "pause": 3, "locked": 2, "slow": 2, "full": 2, "no-space": 2, "bad-write": 3, "bad-sync": 3,
    "error-before": 2, "error-after": 3, "file-away": 2, "files-away": 2, "journal-away": 2, "folder-away": 2, "backup": 4,
    "restore-live": 4, "restore-stopped": 4, "clock": 4, "second": 1,
}  # fmt: skip
#: Faults that last for a while, and during which a kill or a start may happen.
LASTING = {
    "locked", "slow", "full", "no-space", "bad-write", "bad-sync", "error-before", "error-after", "file-away", "files-away",
    "journal-away", "folder-away",
}  # fmt: skip


class Stuck(AssertionError):  # noqa: N818 - what happened
    """The service has not recovered after a fault."""


def schedule(seed: int, faults: tuple[str, ...] = tuple(FAULTS)) -> Iterator[Line]:
    """Yield faults without end: the fault, the pause before it, and its details."""
    draw = random.Random(f"faults of {seed}")
    number = 0
    while True:
        fault = draw.choices(faults, [FAULTS[name] for name in faults])[0]
        line: Line = {"number": number, "after": round(draw.uniform(0.3, 4.0), 2), "fault": fault, "check": draw.random() < 0.5}
        line |= _details(fault, draw)
        if fault in LASTING:
            line["for"] = round(draw.uniform(0.2, 2.5), 2)
            line["then"] = draw.choices(("over", "kill", "restart"), (70, 15, 15))[0]
        yield line
        number += 1


def _details(fault: str, draw: random.Random) -> Line:
    every = draw.choice([1, 2, 3, 7])
    if fault == "pause":
        return {"for": round(draw.uniform(0.05, 3.0), 2)}
    if fault == "slow":
        return {"load": draw.choice([0.0, 0.05, 0.3]), "commit": draw.choice([0.0, 0.05, 0.3])}
    if fault in ("no-space", "bad-write"):
        return {"every": every, "torn": draw.random() < 0.5}
    if fault == "bad-sync":
        return {"every": every}
    if fault in ("error-before", "error-after"):
        return {"every": every, "kind": draw.choice(["io", "full", "locked"])}
    if fault in ("restore-live", "restore-stopped"):
        return {"which": round(draw.random(), 3), "how": draw.choice(["stop", "kill"])}
    if fault == "backup":
        return {"quiet": draw.random() < 0.5}
    if fault == "clock":
        size = draw.choice([8.0, 30.0, 400.0, 7200.0, 200_000.0])
        return {"seconds": round(draw.uniform(0.5, 1.0) * size * draw.choice([-1, 1]), 1)}
    return {}


@dataclass
class Disk:
    """The disk under the service: a preloaded library that makes writes and syncs fail on demand; absent without a compiler."""

    folder: Path
    library: Path | None = None

    def __post_init__(self) -> None:
        self.orders = self.folder / "disk.bin"
        self.order()
        compiler = shutil.which("gcc") or shutil.which("cc")
        if compiler is not None and sys.platform == "linux":
            library = self.folder / "soak_disk.so"
            subprocess.run(
                [compiler, "-O2", "-shared", "-fPIC", "-o", str(library), str(HERE / "soak_disk.c"), "-ldl"], check=True, timeout=60
            )
            self.library = library

    def order(self, writes: int = 0, code: int = 0, syncs: int = 0, torn: bool = False) -> None:
        """Set the fault of the disk from now on."""
        with open(self.orders, "r+b" if self.orders.exists() else "wb") as file:  # in place, because the service has it mapped
            file.write(struct.pack("<4i", writes, code, syncs, torn))

    def command(self) -> tuple[str, ...]:
        """Return the command of `swerve serve` on this disk."""
        before = () if self.library is None else ("env", f"LD_PRELOAD={self.library}", f"SOAK_DISK={self.orders}")
        return (*before, sys.executable, str(HERE / "faulty.py"))


@dataclass
class Faults:
    """Injects the faults."""

    service: Running
    disk: Disk
    ledger: Ledger
    rest: Callable[[], None]  # returns when no request is under way
    go: Callable[[], None]
    backups: list[tuple[Path, Backup]] = field(default_factory=list)
    made: int = 0
    shift: float = 0.0

    def __post_init__(self) -> None:
        self.folder = self.service.folder
        self.clock_file = self.folder / "clock.bin"
        self.set_clock(0.0)

    def do(self, line: Line) -> bool:
        """Inject one fault and wait until the service is ready again; return whether the service was started during it."""
        fault = line["fault"]
        done = self.lasting if fault in LASTING else getattr(self, fault.replace("-", "_"))
        started = bool(done(line))
        self.ready()
        return started

    # ------------------------------------------------------------------ the process
    def start(self, patience: float = 60.0) -> None:
        """Start the service and wait until it serves."""
        try:
            self.service.start(ready=False)
        except AssertionError as error:
            self.service.kill()
            raise Stuck(f"the service does not start: {error}") from error
        self.ready(patience)

    def ready(self, patience: float = 60.0) -> None:
        """Wait until the service reports that it is ready, and decides a ranking."""
        client, until, last = Http(self.service.port), time.monotonic() + patience, "nothing"
        try:
            while time.monotonic() < until:
                assert self.service.child is not None
                if self.service.child.poll() is not None:
                    raise Stuck(
                        f"the service ended by itself with {self.service.child.returncode}: {self.service.stderr()[-1500:]}"
                    )
                try:
                    answer = client.call("GET", "/readyz", timeout=5.0)
                    last = answer.body.decode(errors="replace")
                    if answer.status == 200:
                        return
                except Gone:
                    last = "no answer"
                time.sleep(0.05)
        finally:
            client.close()
        raise Stuck(f"not ready {patience:.0f} s after the fault was over: {last}")

    def kill(self, line: Line) -> bool:
        self.service.kill()
        self.start()
        return True

    def stop(self, line: Line) -> bool:
        self.end()
        self.start()
        return True

    def end(self) -> None:
        """Stop the service with SIGTERM; it must write everything and log that."""
        code = self.service.stop(patience=60.0)
        if code != 0:
            raise Stuck(f"the service was stopped, and ended with {code}: {self.service.stderr()[-1500:]}")

    def pause(self, line: Line) -> None:
        assert self.service.child is not None
        self.service.child.send_signal(signal.SIGSTOP)
        time.sleep(line["for"])
        self.service.child.send_signal(signal.SIGCONT)

    def second(self, line: Line) -> None:
        """Start another process on the same store; it must end without harm."""
        command = [sys.executable, "-m", "swerve", "serve", "--config", str(self.service.file)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=ENVIRONMENT)
        if done.returncode == 0 or "in use" not in done.stderr:
            raise Stuck(f"a second process on the store ended with {done.returncode}: {done.stderr[-1000:]}")

    # ------------------------------------------------------------------ faults that last
    def lasting(self, line: Line) -> bool:
        """Keep a fault for a while; then end it, or kill the process during it, or kill and start the process during it."""
        with self.active(line):
            time.sleep(line["for"])
            if line["then"] != "over":
                self.service.kill()
            if line["then"] == "restart":
                # depending on the fault it may serve, wait or refuse to start, but it must lose nothing
                with contextlib.suppress(AssertionError):
                    self.service.start(ready=False)
                    time.sleep(1.0)
        child = self.service.child
        if child is not None and child.poll() is not None:  # the start was refused
            self.service.kill()
            child = None
        if child is None:
            self.start()
        return line["then"] != "over"

    @contextlib.contextmanager
    def active(self, line: Line) -> Iterator[None]:
        fault, every = line["fault"], line.get("every", 0)
        if fault == "locked":
            with contextlib.closing(sqlite3.connect(self.service.database, isolation_level=None, timeout=5.0)) as connection:
                connection.execute("BEGIN EXCLUSIVE")
                yield
        elif fault in ("file-away", "files-away", "journal-away", "folder-away"):
            with self.away(fault):
                yield
        elif fault in ("no-space", "bad-write", "bad-sync") and self.disk.library is not None:
            if fault == "bad-sync":
                self.disk.order(syncs=every)
            else:
                self.disk.order(every, errno.ENOSPC if fault == "no-space" else errno.EIO, torn=line["torn"])
            try:
                yield
            finally:
                self.disk.order()
        else:
            self.order(ordered(line))
            try:
                yield
            finally:
                self.order({})

    def order(self, faults: dict[str, Any]) -> None:
        part = self.folder / "faults.part"
        part.write_text(json.dumps(faults))
        part.replace(self.folder / "faults.json")

    @contextlib.contextmanager
    def away(self, fault: str) -> Iterator[None]:
        """Move the database away, with or without its log, its journal, or all of it; then put it back, over anything new."""
        state, elsewhere = self.service.state, self.folder / "away"
        if fault in ("folder-away", "journal-away"):
            folder = state if fault == "folder-away" else state / "swerve.db.journal"
            folder.rename(elsewhere)
            try:
                yield
            finally:
                if folder.exists():
                    shutil.rmtree(folder)
                elsewhere.rename(folder)
            return
        elsewhere.mkdir()
        database = self.service.database
        files = [database] if fault == "file-away" else [database.with_name(database.name + end) for end in ("", "-wal", "-shm")]
        for file in files:
            with contextlib.suppress(FileNotFoundError):
                file.rename(elsewhere / file.name)
        try:
            yield
        finally:
            for file in reversed(files):
                with contextlib.suppress(FileNotFoundError):
                    (elsewhere / file.name).replace(file)
            elsewhere.rmdir()

    # ------------------------------------------------------------------ time
    def set_clock(self, seconds: float) -> None:
        with open(
            self.clock_file, "r+b" if self.clock_file.exists() else "wb"
        ) as file:  # in place, because the service has it mapped
            file.write(struct.pack("<d", seconds))

    def clock(self, line: Line) -> None:
        """Let the service's wall clock jump."""
        self.ledger.jumped(line["seconds"])
        self.shift += line["seconds"]
        self.set_clock(self.shift)

    # ------------------------------------------------------------------ backup and restore
    def backup(self, line: Line) -> None:
        """Run `swerve backup`, under load or, so that its contents are known exactly, without load."""
        target = self.folder / f"backup-{self.made}.db"
        self.made += 1
        if line.get("quiet", True):
            self.rest()
        held = self.ledger.backup_begins()
        try:
            swerve("backup", f"sqlite:///{self.service.database}", str(target))
        finally:
            self.ledger.backup_ends(held)
            self.go()
        self.backups.append((target, held))
        while len(self.backups) > 3:
            self.backups.pop(0)[0].unlink()

    def chosen(self, line: Line) -> tuple[Path, Backup]:
        """Return one of the backups."""
        if not self.backups:
            self.backup(line)
        return self.backups[int(line["which"] * len(self.backups))]

    def restore_live(self, line: Line) -> None:
        """Rename the copy over the running service's database, as docs/store.md says."""
        path, held = self.chosen(line)
        spare = self.service.state / "spare.db"
        shutil.copy(path, spare)
        spare.chmod(0o600)
        self.ledger.swap_begins()
        os.replace(spare, self.service.database)
        self.ledger.swap_ends(held, running=True)
        self.notice()

    def notice(self, patience: float = 60.0) -> None:
        """Click on new rankings until one is acknowledged: then the service has noticed the new file."""
        client, until = Http(self.service.port), time.monotonic() + patience
        query, candidates = "marker", ["marker/0", "marker/1"]
        try:
            while time.monotonic() < until:
                with contextlib.suppress(Gone):
                    answer = client.rank(query, candidates).json
                    if not answer["degraded"]:
                        click = self.ledger.decided(answer["decision"], query, answer["ranking"][0])
                        (sent,) = self.ledger.sending([click])
                        said: str | None = None
                        try:
                            told = client.feedback(click.token, click.clicked)
                            said = told.json["status"] if told.status == 200 else None
                        finally:
                            self.ledger.answered(sent, said)
                            self.ledger.leave(click)
                        if said is not None:
                            self.ledger.noticed()
                            return
                time.sleep(0.05)
        finally:
            client.close()
        raise Stuck(f"{patience:.0f} s after a live restore no click is acknowledged")

    def restore_stopped(self, line: Line) -> bool:
        """Stop the service, remove its log and replace the database by the copy, as docs/operations.md says."""
        path, held = self.chosen(line)
        if line["how"] == "stop":
            self.end()
        else:
            self.service.kill()
        self.ledger.swap_begins()
        database = self.service.database
        for end in ("-wal", "-shm"):
            database.with_name(database.name + end).unlink(missing_ok=True)
        shutil.copy(path, database)
        self.ledger.swap_ends(held, running=False)
        verify(self.service)
        self.start()
        return True


def ordered(line: Line) -> dict[str, Any]:
    """Write the faults of `faulty.py`, which replaces the faulty disk if there is no compiler."""
    fault, every = line["fault"], line.get("every", 1)
    if fault == "slow":
        return {"load": line["load"], "commit": line["commit"]}
    if fault in ("full", "no-space"):
        return {"full": True}
    when = "after" if fault in ("error-after", "bad-sync") else "before"
    return {"error": {"kind": line.get("kind", "io"), "when": when, "every": every}}


def swerve(*arguments: str) -> str:
    """Run a command of `swerve`, which must succeed."""
    done = subprocess.run(
        [sys.executable, "-m", "swerve", *arguments], capture_output=True, text=True, timeout=120, check=False, env=ENVIRONMENT
    )
    if done.returncode != 0:
        raise Stuck(f"swerve {' '.join(arguments)} ended with {done.returncode}: {(done.stderr + done.stdout)[-1500:]}")
    return done.stdout


def can_verify() -> bool:
    """Return whether `swerve verify` exists."""
    return any(line.split()[:1] == ["verify"] for line in swerve("--help").splitlines())


def verify(service: Running) -> None:
    """Verify the store of a stopped service, if the command exists."""
    if can_verify():
        swerve("verify", f"sqlite:///{service.database}")
