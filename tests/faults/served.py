"""A service whose store lies on a server, and another process that takes over: both are killed, stopped and cut off."""

from __future__ import annotations

import signal
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from faults.load import BUSY, DEADLINE, Stuck
from faults.setup import PATIENCE, QUERIES, SERVICE, Line, Setup, gone, ready, started, until
from postgres import free_port
from service import faulty
from service.running import COMMAND, Running

#: Seconds in which a click counts: clocks that are apart by less let none expire.
WINDOW = 6 * 86_400.0
#: The command of a process whose clock can be set: it begins with the interpreter, which must not have read the clock yet.
SHIFTED = ("env", sys.executable, faulty.__file__)


class Served(Setup):
    """A service over a store at an address. Its spare process is started by the faults that need it.

    With one process nobody else can own the store: users go on to read while the server is away, and every read must be right.
    Where a spare process waits, users read again when it is known who owns the store.
    """

    #: Kills of the process of the service, and others that let another one take over.
    OWN = {"owner": 3, "owner-paused": 1, "owner-replaced": 0.5, "owner-stopped": 0.5, "owner-alone": 1}  # noqa: RUF012

    #: Seconds by which the clocks of the two processes are ahead of the machine's; none: they are not changed.
    CLOCKS: tuple[float, ...] = ()

    def __init__(self, folder: Path, seed: int, users: int = 4) -> None:
        super().__init__(folder, seed, users)
        self.services: list[Running] = []
        self.active, self.looking = 0, True
        self.ahead = list(self.CLOCKS)

    def address(self) -> str:
        """Return the address of the store."""
        raise NotImplementedError

    def changes(self) -> dict[str, dict[str, Any]]:
        """Return what is not as in the small service."""
        store = {"url": self.address()}
        feedback = {**SERVICE["feedback"], "window_seconds": WINDOW}
        return {**SERVICE, "store": store, "feedback": feedback, "security": {"secrets": str(self.folder / "swerve.secrets")}}

    # ------------------------------------------------------------------ for users
    def ports(self) -> list[int]:
        return [service.port for service in self.services if service.port and service.child is not None]

    def pids(self) -> list[int]:
        return [child.pid for service in self.services if (child := service.child) is not None]

    def reading(self) -> int | None:
        return self.services[self.active].port if self.looking else None

    # ------------------------------------------------------------------ life
    def begin(self) -> None:
        """Start the processes of the service's server."""
        raise NotImplementedError

    def end(self) -> None:
        """Remove the server."""
        raise NotImplementedError

    def start(self) -> None:
        self.begin()
        for number in range(2):
            changes = self.changes()
            changes["server"] = {**changes["server"], "port": free_port()}
            folder = self.folder / f"service-{number}"
            self.services.append(Running(folder, changes, SHIFTED if self.ahead else COMMAND))
            self.services[number].port = 0
            self.set_clock(number, 0.0)
        self.services[0].start()

    def set_clock(self, number: int, seconds: float) -> None:
        """Set the clock of a process ahead, or back."""
        if self.ahead:
            self.ahead[number] += seconds
            file = self.services[number].folder / "clock.bin"
            with open(file, "r+b" if file.exists() else "wb") as opened:  # in place, because the process has it mapped
                opened.write(struct.pack("<d", self.ahead[number]))

    def do_clock(self, line: Line) -> None:
        """Let the clock of a process jump, by up to half a day."""
        self.set_clock(int(line["which"] * 2), (line["for"] - 1.5) * 30_000.0)
        self.again("a clock jumped", QUERIES[0], time.monotonic())

    def remove(self) -> None:
        for service in self.services:
            service.kill()
            for client in service.clients:
                client.close()
        self.end()

    def logs(self) -> str:
        return "".join(service.stderr() for service in self.services if service.log.exists())

    def whole(self) -> None:
        until(lambda: ready(self.services[self.active].port), about="the service, after a fault")

    # ------------------------------------------------------------------ the processes of the service
    def kill(self, service: Running) -> None:
        assert service.child is not None
        pid = service.child.pid
        service.kill()
        until(lambda: gone(pid), about="the end of a process that was killed")
        self.kills["services"] += 1

    def spare(self) -> Callable[[], None]:
        """Start the spare process, which waits; return a function that returns once it serves."""
        other = self.services[1 - self.active]
        other.port = 0
        serves = started(other, "--standby")
        until(lambda: any(line.startswith("standby: ") for line in other.said), about="a spare process that waits")
        return serves

    def taken(self, what: str, began: float, serves: Callable[[], None]) -> None:
        """Wait until the spare process serves."""
        self.record.crashed(began)
        serves()
        self.active, self.looking = 1 - self.active, True
        self.disturbed.over(self.services[self.active].port)
        self.again(what, QUERIES[0], began)

    def do_owner(self, line: Line) -> None:
        """Kill the owner; the spare process takes over."""
        serves = self.spare()
        owner = self.services[self.active]
        self.looking, began = False, time.monotonic()
        self.disturbed.begin(owner.port)
        self.kill(owner)
        self.taken("the owner was killed and another process waited", began, serves)

    def do_owner_stopped(self, line: Line) -> None:
        """Stop the owner in order; the spare process takes over."""
        serves = self.spare()
        owner = self.services[self.active]
        self.looking, began = False, time.monotonic()
        self.disturbed.begin(owner.port)
        if owner.stop(PATIENCE):
            raise Stuck(f"a process was stopped, and could not write: {owner.stderr()[-1500:]}")
        self.taken("the owner was stopped and another process waited", began, serves)

    def do_owner_paused(self, line: Line) -> None:
        """Stop the owner for a while, so short that nobody takes it for dead."""
        owner = self.services[self.active]
        assert owner.child is not None
        with self.disturbed.during(owner.port):
            owner.child.send_signal(signal.SIGSTOP)
            time.sleep(line["for"])
            owner.child.send_signal(signal.SIGCONT)
            self.again("the owner was stopped for up to three seconds", QUERIES[0], time.monotonic())

    def do_owner_replaced(self, line: Line) -> None:
        """Stop the owner until the spare process has taken over; then let it go on: it must do no harm, and tell so."""
        serves = self.spare()
        owner = self.services[self.active]
        assert owner.child is not None
        self.looking, began = False, time.monotonic()
        span = self.disturbed.begin(owner.port)
        owner.child.send_signal(signal.SIGSTOP)
        port, owner.port = owner.port, 0
        self.taken("the owner was stopped for good and another process waited", began, serves)
        owner.port = port
        owner.child.send_signal(signal.SIGCONT)
        until(lambda: not ready(port), 30.0, "an owner of before says that it serves")
        span[1] = time.monotonic() + DEADLINE + BUSY
        time.sleep(line["for"])
        self.disturbed.begin(port)
        self.kill(owner)

    def do_owner_alone(self, line: Line) -> None:
        """Kill the owner, and start it again."""
        owner = self.services[self.active]
        self.looking, began = False, time.monotonic()
        span = self.disturbed.begin(owner.port)
        self.kill(owner)
        self.record.crashed(began)
        owner.start()
        span[1], self.looking = time.monotonic(), True
        self.again("the owner was killed and started again", QUERIES[0], began)
