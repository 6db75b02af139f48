"""Real servers of PostgreSQL for tests: in a temporary folder, on a free port of the loopback, under a user that is not root.

The programs are those of the package `postgresql` of Debian and its like, or those on the path. Tests skip by name without them.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import itertools
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

#: Where Debian puts the programs of a version.
DEBIAN = Path("/usr/lib/postgresql")
#: The users under which a server runs when the tests run as root, which PostgreSQL refuses.
USERS = ("postgres", "nobody")
#: Seconds until a server answers, or has ended.
PATIENCE = 60.0
#: Of Linux: the signal that a process gets when its parent ends. SIGQUIT ends a server of PostgreSQL at once.
PR_SET_PDEATHSIG = 1
#: A small server; everything that durability needs is as it is by default.
SMALL = {"shared_buffers": "32MB", "max_wal_size": "128MB", "max_connections": "60", "autovacuum_naptime": "10s"}

schemas = itertools.count(1)


def program(name: str) -> Path | None:
    """Return a program of PostgreSQL, of the newest version that is there."""
    found = sorted(DEBIAN.glob(f"*/bin/{name}"), key=lambda path: float(path.parts[-3]))
    on_path = shutil.which(name)
    return found[-1] if found else Path(on_path) if on_path else None


def needed() -> None:
    """Skip a test if the programs or the client library are missing."""
    pytest.importorskip("psycopg", reason="psycopg is not installed: the extra `postgresql`")
    for name in ("initdb", "postgres", "pg_basebackup"):
        if program(name) is None:
            pytest.skip(f"{name} of PostgreSQL is not installed: `make test-engines` installs it as root")


def user() -> dict[str, Any]:
    """Return the arguments of `subprocess` for the user of a server."""
    if os.getuid():
        return {}
    for name in USERS:
        with contextlib.suppress(KeyError):
            found = pwd.getpwnam(name)
            return {"user": found.pw_uid, "group": found.pw_gid, "extra_groups": []}
    raise AssertionError("there is no user under which a server could run")


def end_with_parent() -> None:
    """Let the kernel end this process when the one that started it has ended, for whatever reason."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGQUIT)


def free_port() -> int:
    """Return a port that is free now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


class Place(NamedTuple):
    """Where a server runs: its address, and what must be entered to start it there (a network namespace)."""

    host: str = "127.0.0.1"
    enter: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext


HERE = Place()


class Postgres:
    """A server of its own. It can be killed, stopped for a while, and started again; a standby of it can be made."""

    def __init__(self, folder: Path | None = None, place: Place = HERE, **settings: str) -> None:
        self.folder = folder or Path(tempfile.mkdtemp(prefix="swerve-postgresql-"))
        self.data, self.log = self.folder / "data", self.folder / "log"
        self.settings, self.port, self.place = SMALL | settings, free_port(), place
        self.process: subprocess.Popen[bytes] | None = None
        if os.getuid() == 0:
            self.folder.chmod(0o755)
            os.chown(self.folder, user()["user"], user()["group"])

    def run(self, name: str, *arguments: str) -> str:
        """Run a program as the server's user; return what it prints."""
        found = program(name)
        assert found is not None
        done = subprocess.run(
            [str(found), *arguments], **user(), cwd=self.folder, env={"PATH": os.environ["PATH"], "LC_ALL": "C"},
            capture_output=True, text=True, timeout=PATIENCE, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{name}: {done.stderr[-2000:]}"
        return done.stdout

    def made(self, *options: str) -> Postgres:
        """Make the data of a new server, and start it."""
        made = ("-D", str(self.data), "-U", "swerve", "--auth=trust", "--encoding=UTF8", "--no-sync", "--locale=C")
        self.run("initdb", *made, *options)
        with (self.data / "pg_hba.conf").open("a") as file:
            file.write("host replication all 127.0.0.1/32 trust\nhost all all 0.0.0.0/0 trust\n")
        return self.start()

    def standby(self, name: str, **settings: str) -> Postgres:
        """Return a standby that streams from this server, started."""
        other = Postgres(**(self.settings | settings))
        source = f"host=127.0.0.1 port={self.port} user=swerve application_name={name}"
        self.run("pg_basebackup", "-D", str(other.folder / "data"), "-d", source, "-R", "-X", "stream", "-c", "fast")
        return other.start()

    def start(self) -> Postgres:
        """Start the server; return when it answers."""
        found = program("postgres")
        assert found is not None
        ours = {"listen_addresses": self.place.host, "port": str(self.port), "unix_socket_directories": "", **self.settings}
        options = [part for name, value in ours.items() for part in ("-c", f"{name}={value}")]
        with self.log.open("ab") as log, self.place.enter():
            self.process = subprocess.Popen(
                [str(found), "-D", str(self.data), *options], **user(), cwd=self.folder, stdout=log, stderr=log,
                env={"PATH": os.environ["PATH"], "LC_ALL": "C"}, start_new_session=True, preexec_fn=end_with_parent,
            )  # fmt: skip
        until = time.monotonic() + PATIENCE
        while not self.answers():
            assert self.process.poll() is None and time.monotonic() < until, self.log.read_text()[-2000:]
            time.sleep(0.05)
        return self

    def answers(self) -> bool:
        """Return whether the server takes statements."""
        import psycopg

        try:
            self.ask("SELECT 1")
        except psycopg.OperationalError:
            return False
        return True

    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        """Carry out a statement as another program; return its rows."""
        import psycopg

        with psycopg.connect(self.url().partition("?")[0], autocommit=True, connect_timeout=5) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def url(self, schema: str = "") -> str:
        """Return the address of an empty store, or of one with a name."""
        return f"postgresql://swerve@{self.place.host}:{self.port}/postgres?schema={schema or f'store{next(schemas)}'}"

    def processes(self) -> list[int]:
        """Return the server's processes; each of those has a group of its own."""
        assert self.process is not None
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return [self.process.pid, *map(int, children)]

    def kill(self) -> None:
        """End all processes of the server with SIGKILL: nothing is written any more."""
        if self.process is not None and self.process.poll() is not None:  # it has ended by itself
            self.process = None
        if self.process is not None:
            for number in self.processes():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(number, signal.SIGKILL)
            self.process.wait(PATIENCE)
            self.process = None

    def stop(self) -> None:
        """Stop the server in order: sessions are ended."""
        assert self.process is not None
        self.process.send_signal(signal.SIGINT)
        self.process.wait(PATIENCE)
        self.process = None

    def pause(self) -> None:
        """Stop all processes of the server: connections stay, and nobody answers."""
        for number in self.processes():
            os.kill(number, signal.SIGSTOP)

    def resume(self) -> None:
        """Let the server go on."""
        for number in self.processes():
            os.kill(number, signal.SIGCONT)

    def promote(self) -> None:
        """Make a standby the primary."""
        self.run("pg_ctl", "promote", "-D", str(self.data), "-w")

    def remove(self) -> None:
        """End the server, and remove everything."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


@functools.cache
def shared() -> Postgres:
    """Return a server that all tests of this process use; it ends with the process."""
    server = Postgres().made()
    atexit.register(server.remove)
    return server


def fresh(folder: Path) -> str:
    """Return the address of an empty store on the shared server."""
    needed()
    return shared().url()
