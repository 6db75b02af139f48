"""A service over Valkey: the server is killed, stopped, its file torn at the end, and its disk filled."""

from __future__ import annotations

import random
import shutil
import signal
import struct
import subprocess
import time
from pathlib import Path
from typing import ClassVar

import pytest
import valkeys
from faults.disk import Disk, can_mount
from faults.served import Served
from faults.setup import QUERIES, Line, ready, until

#: Megabytes of the server's disk.
ROOM = 48
#: How a transaction begins in the server's file; and how far back the last one is looked for.
BEGIN, BACK = b"*1\r\n$5\r\nMULTI\r\n", 1 << 16


class Valkey(Served):
    """One service and one server."""

    FAULTS: ClassVar = {
        "owner": 1, "owner-paused": 1, "owner-replaced": 0.3, "owner-stopped": 0.5, "owner-alone": 0.7, "server": 6, "torn": 6,
        "rewriting": 2, "server-paused": 2, "server-stopped": 1, "cut": 2, "server-and-owner": 0.7, "full": 1,
    }  # fmt: skip

    def __init__(self, folder: Path, seed: int, users: int = 4) -> None:
        super().__init__(folder, seed, users)
        self.draw = random.Random(f"torn {seed}")
        self.disk: Disk | None = None
        self.server: valkeys.ValkeyServer | None = None

    def address(self) -> str:
        return self.server.url("faults")

    def begin(self) -> None:
        valkeys.needed()
        folder = self.folder / "server"
        self.disk = Disk(folder, ROOM) if can_mount() else None
        self.server = valkeys.ValkeyServer(folder, self.program()).start()

    def program(self) -> str | None:
        """Return the server's program, if it is not the ordinary one."""
        return None

    def end(self) -> None:
        if self.server is not None:
            self.server.kill()
        if self.disk is not None:
            self.disk.remove()

    # ------------------------------------------------------------------ faults of the server
    def after(self, what: str, began: float) -> None:
        self.again(what, QUERIES[0], began)

    def killed(self) -> float:
        began = time.monotonic()
        self.server.kill()
        self.kills["servers"] += 1
        return began

    def do_server(self, line: Line) -> None:
        began = self.killed()
        time.sleep(line["for"] / 3)
        self.server.start()
        self.after("the server was killed and started again", began)

    def do_torn(self, line: Line) -> None:
        """Kill the server, and leave part of a further transaction at the end of its file, as a power cut in a write does."""
        began = self.killed()
        file = self.server.last_file()
        content = file.read_bytes()[-BACK:]
        start = content.rfind(BEGIN)
        if start >= 0:
            again = content[start:]
            with file.open("ab") as opened:
                opened.write(again[: self.draw.randrange(1, max(len(again) - 16, 2))])
        self.server.start()
        self.after("the server was killed and its file torn", began)

    def do_rewriting(self, line: Line) -> None:
        """Kill the server while it writes its file anew."""
        with self.server.client() as client:
            client.bgrewriteaof()
        time.sleep(line["for"] / 30)
        self.do_server(line)

    def do_server_paused(self, line: Line) -> None:
        self.server.send(signal.SIGSTOP)
        time.sleep(2 * line["for"])
        self.server.send(signal.SIGCONT)
        self.after("the server was stopped for up to six seconds", time.monotonic())

    def do_server_stopped(self, line: Line) -> None:
        began = time.monotonic()
        assert self.server.child is not None
        self.server.send(signal.SIGTERM)
        self.server.child.wait(valkeys.PATIENCE)
        self.server.start()
        self.after("the server was restarted in order", began)

    def do_cut(self, line: Line) -> None:
        """End the connections of the service."""
        with self.server.client() as client:
            client.client_kill_filter(_type="normal", skipme=True)

    def do_server_and_owner(self, line: Line) -> None:
        """Kill both at once, and start both."""
        owner = self.services[self.active]
        self.looking, began = False, self.killed()
        span = self.disturbed.begin(owner.port)
        self.kill(owner)
        self.record.crashed(began)
        self.server.start()
        owner.start()
        span[1], self.looking = time.monotonic(), True
        self.after("server and owner were killed and started again", began)

    def do_full(self, line: Line) -> None:
        """Fill the disk of the server. It ends when it cannot write, and is started when there is room."""
        if self.disk is None:
            return
        assert self.server.child is not None
        with self.disk.full():
            time.sleep(line["for"])
        if self.server.child.poll() is not None:
            self.server.kill()
            self.server.start()
        until(lambda: bool(self.server.client().ping()), about="a server whose disk was full")
        self.after("the server's disk was full for up to three seconds", time.monotonic())


class ValkeyClocks(Valkey):
    """Processes whose clocks are a day apart, and jump; so does the clock of the server, by which leases end."""

    CLOCKS = (0.0, 86_400.0)
    FAULTS: ClassVar = {"clock": 5, "server-clock": 3, "owner": 2, "owner-alone": 1, "server": 1, "owner-stopped": 2}

    def program(self) -> str:
        compiler = shutil.which("gcc") or shutil.which("cc")
        if compiler is None:
            pytest.skip("the clock of a server cannot be set without a C compiler")
        library, self.hand, script = (self.folder / name for name in ("clock.so", "server-clock.bin", "server.sh"))
        source = Path(__file__).with_name("clock.c")
        subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", str(library), str(source)], check=True, timeout=60)
        self.hand.write_bytes(struct.pack("<d", 0.0))
        script.write_text(f'#!/bin/sh\nexec env LD_PRELOAD={library} SERVER_CLOCK={self.hand} {valkeys.PROGRAM} "$@"\n')
        script.chmod(0o755)
        self.server_ahead = 0.0
        return str(script)

    def do_server_clock(self, line: Line) -> None:
        """Let the clock of the server jump ahead by up to an hour, so that every lease has expired, or back by a few seconds, while
        another process waits. It may take over from an owner that lives."""
        serves, owner, spare = self.spare(), self.services[self.active], self.services[1 - self.active]
        self.looking, began = False, time.monotonic()
        self.server_ahead += 3600.0 * line["which"] if line["wait"] else -line["for"]
        with open(self.hand, "r+b") as file:  # in place, because the server has it mapped
            file.write(struct.pack("<d", self.server_ahead))
        while time.monotonic() < began + 3.0 and not ready(spare.port):
            time.sleep(0.05)
        if ready(spare.port):
            self.faults["taken over from an owner that lived"] += 1
            self.taken("the server's clock jumped and another process took over", began, serves)
            until(lambda: not ready(owner.port), 30.0, "an owner of before says that it serves")
            self.disturbed.begin(owner.port)
            self.kill(owner)
        else:
            self.kill(spare)  # which may have owned the store for a moment, and taken from the owner what was not acknowledged
            self.record.crashed(began)
            self.looking = True
            self.load.clicked(QUERIES[0], self.ports)
