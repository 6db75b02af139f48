"""A service and a server of its store with a network between them, which is cut, reset, deaf, mute, narrow and slow."""

from __future__ import annotations

import time
from pathlib import Path
from typing import ClassVar

import postgres
import valkeys
from faults.network import Network
from faults.served import Served
from faults.setup import QUERIES, Line

#: Seconds that a fault of the network lasts at most: longer than calls to the server wait.
LONGEST = 12.0


class Far(Served):
    """A service, and a server beyond a router."""

    FAULTS: ClassVar = {"dropped": 3, "deaf": 3, "mute": 3, "reset": 3, "narrow": 1, "slow": 2, "server": 1, "owner-alone": 0.5}
    engine = ""

    def __init__(self, folder: Path, seed: int, users: int = 4) -> None:
        super().__init__(folder, seed, users)
        self.network = Network(folder)
        self.server: postgres.Postgres | valkeys.ValkeyServer | None = None

    def begin(self) -> None:
        folder = self.folder / "server"
        if self.engine == "postgresql":
            folder.mkdir()
            for one in (self.folder, folder):
                one.chmod(0o755)
            self.server = postgres.Postgres(folder, self.network.place()).made()
        else:
            self.server = valkeys.ValkeyServer(folder, None, self.network.place(), protected_mode="no").start()

    def address(self) -> str:
        assert self.server is not None
        return self.server.url("faults")

    def end(self) -> None:
        if self.server is not None:
            self.server.remove()
        self.network.remove()

    # ------------------------------------------------------------------ faults
    def after(self, line: Line, what: str) -> None:
        self.again(f"a network that {what} for up to {LONGEST:.0f} seconds", QUERIES[0], time.monotonic())

    def lasting(self, line: Line) -> None:
        """Wait as long as the fault lasts: mostly shorter, sometimes longer than a call waits."""
        time.sleep(line["for"] * (LONGEST / 3.0 if line["wait"] and line["which"] < 0.5 else 0.5))

    def do_dropped(self, line: Line) -> None:
        with self.network.dropped():
            self.lasting(line)
        self.after(line, "dropped everything")

    def do_deaf(self, line: Line) -> None:
        with self.network.deaf():
            self.lasting(line)
        self.after(line, "dropped what was sent to the server")

    def do_mute(self, line: Line) -> None:
        with self.network.mute():
            self.lasting(line)
        self.after(line, "dropped what the server sent")

    def do_reset(self, line: Line) -> None:
        with self.network.reset():
            self.lasting(line)
        self.after(line, "reset connections")

    def do_narrow(self, line: Line) -> None:
        with self.network.narrow():
            self.lasting(line)
        self.after(line, "had 128 kbit a second")

    def do_slow(self, line: Line) -> None:
        with self.network.slow(0.02 + 0.2 * line["which"], 0.05):
            self.lasting(line)
        self.after(line, "took 20 to 220 ms each way and lost one packet in twenty")

    def do_server(self, line: Line) -> None:
        """Kill the server while the network drops everything: its end reaches nobody."""
        assert self.server is not None
        with self.network.dropped():
            self.server.kill()
            self.kills["servers"] += 1
            time.sleep(line["for"] / 3)
        self.server.start()
        self.after(line, "was cut while the server was killed")


class FarPostgreSQL(Far):
    """… PostgreSQL."""

    engine = "postgresql"


class FarValkey(Far):
    """… Valkey."""

    engine = "valkey"
