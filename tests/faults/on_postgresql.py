"""A service over PostgreSQL with a synchronous standby: servers are killed, stopped, replaced, and their disks filled."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import ClassVar

import postgres
from faults.disk import Disk, can_mount
from faults.served import Served
from faults.setup import PATIENCE, QUERIES, Line, send, until

#: A server that needs little room: segments of its log of 1 MB. A standby looks for its primary more often than each five seconds,
#: for which a primary that was killed and started again would acknowledge nothing.
SETTINGS = {
    "max_wal_size": "8MB", "min_wal_size": "2MB", "wal_keep_size": "32MB", "shared_buffers": "16MB",
    "wal_retrieve_retry_interval": "200ms",
}  # fmt: skip
MADE = ("--wal-segsize=1",)
#: Megabytes of the primary's disk.
ROOM = 120


class PostgreSQL(Served):
    """One service, a primary, and a synchronous standby of it."""

    FAULTS: ClassVar = {
        **Served.OWN, "server": 6, "backend": 2, "server-paused": 2, "server-stopped": 1, "cut": 2, "standby": 2, "failover": 4,
        "split": 0.5, "server-and-owner": 2, "full": 1,
    }  # fmt: skip

    def __init__(self, folder: Path, seed: int, users: int = 4) -> None:
        super().__init__(folder, seed, users)
        self.servers: list[postgres.Postgres] = []
        self.disks: dict[int, Disk] = {}  # by the server's port
        self.made = 0

    def address(self) -> str:
        hosts = ",".join(f"127.0.0.1:{server.port}" for server in self.servers)
        return f"postgresql://swerve@{hosts}/postgres?schema=faults&target_session_attrs=read-write"

    def begin(self) -> None:
        postgres.needed()
        self.servers = [self.server(postgres.free_port()).made(*MADE)]
        self.servers.append(self.follower(postgres.free_port()))

    def server(self, port: int) -> postgres.Postgres:
        """Return a server in a new folder, on a small disk where disks may be mounted."""
        self.made += 1
        folder = self.folder / f"server-{self.made}"
        folder.mkdir()
        for one in (self.folder, folder):
            one.chmod(0o755)
        if can_mount():
            self.disks[port] = Disk(folder, ROOM)
            folder.chmod(0o755)
        server = postgres.Postgres(folder, **SETTINGS)
        server.port = port
        return server

    def removed(self, server: postgres.Postgres) -> None:
        server.kill()
        if server.port in self.disks:
            self.disks.pop(server.port).remove()
        server.remove()

    def follower(self, port: int) -> postgres.Postgres:
        """Make a standby of the primary at a port, start it, and let the primary wait for it from then on."""
        primary, other = self.servers[0], self.server(port)
        source = f"host=127.0.0.1 port={primary.port} user=swerve application_name=standby"
        other.run("pg_basebackup", "-D", str(other.data), "-d", source, "-R", "-X", "fetch", "-c", "fast", "--no-sync")
        other.start()
        primary.ask("ALTER SYSTEM SET synchronous_standby_names = 'standby'")
        primary.ask("SELECT pg_reload_conf()")
        self.follows(primary)
        return other

    def follows(self, primary: postgres.Postgres) -> None:
        until(lambda: primary.ask("SELECT sync_state FROM pg_stat_replication") == [("sync",)], about="a synchronous standby")
        primary.ask("SELECT pg_logical_emit_message(true, 'faults', '')")  # a commit: the standby has all that was before it

    def end(self) -> None:
        for server in self.servers:
            self.removed(server)
        for disk in self.disks.values():  # of a server that could not be made
            disk.remove()

    # ------------------------------------------------------------------ faults of the server
    def after(self, what: str, began: float) -> None:
        self.again(what, QUERIES[0], began)

    def do_server(self, line: Line) -> None:
        """Kill all processes of the server, and start it again."""
        began = time.monotonic()
        self.servers[0].kill()
        self.kills["servers"] += 1
        time.sleep(line["for"] / 3)
        self.servers[0].start()
        self.after("the server was killed and started again", began)

    def do_backend(self, line: Line) -> None:
        """Kill a process of the server that serves the service: the server ends all sessions, and recovers."""
        own = "application_name LIKE 'swerve %' AND pid <> pg_backend_pid()"
        found = self.servers[0].ask(f"SELECT pid FROM pg_stat_activity WHERE {own} ORDER BY pid")
        if not found:
            return
        began = time.monotonic()
        send(found[int(line["which"] * len(found))][0], signal.SIGKILL)
        self.kills["sessions of the server"] += 1
        until(self.servers[0].answers, about="a server that recovers")
        self.after("a session's process was killed", began)

    def do_server_paused(self, line: Line) -> None:
        self.servers[0].pause()
        time.sleep(2 * line["for"])
        self.servers[0].resume()
        self.after("the server was stopped for up to six seconds", time.monotonic())

    def do_server_stopped(self, line: Line) -> None:
        began = time.monotonic()
        self.servers[0].stop()
        self.servers[0].start()
        self.after("the server was restarted in order", began)

    def do_cut(self, line: Line) -> None:
        """End some sessions of the service."""
        own = "application_name LIKE 'swerve %' AND pid <> pg_backend_pid()"
        self.servers[0].ask(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {own} AND random() < {line['which']}")

    def do_standby(self, line: Line) -> None:
        """Kill the standby: nothing is acknowledged until it is back."""
        self.servers[1].kill()
        self.kills["standbys"] += 1
        time.sleep(line["for"])
        self.servers[1].start()
        self.follows(self.servers[0])
        self.after("the synchronous standby was back", time.monotonic())

    def do_failover(self, line: Line) -> None:
        """Kill the primary, promote the standby, and make a new standby, at the place of the old primary."""
        old, new = self.servers
        began = time.monotonic()
        old.kill()
        self.kills["servers"] += 1
        new.promote()
        self.after("the primary was killed and its standby promoted", began)
        self.replaced(old, new)

    def replaced(self, old: postgres.Postgres, new: postgres.Postgres) -> None:
        """Go on with a standby that was promoted, and a new standby at the place of the old primary."""
        self.removed(old)
        self.servers = [new]
        self.servers.append(self.follower(old.port))

    def do_split(self, line: Line) -> None:
        """Stop the primary, promote the standby, and let the old primary go on beside it for a while, as nobody should."""
        old, new = self.servers
        began = time.monotonic()
        old.pause()
        new.promote()
        self.after("the primary was stopped and its standby promoted", began)
        old.resume()
        time.sleep(2 * line["for"])
        old.kill()
        self.kills["servers"] += 1
        self.after("a second primary was killed", time.monotonic())
        self.replaced(old, new)

    def do_server_and_owner(self, line: Line) -> None:
        """Kill both at once, and start both."""
        owner = self.services[self.active]
        self.looking, began = False, time.monotonic()
        span = self.disturbed.begin(owner.port)
        self.servers[0].kill()
        self.kills["servers"] += 1
        self.kill(owner)
        self.record.crashed(began)
        self.servers[0].start()
        owner.start()
        span[1], self.looking = time.monotonic(), True
        self.after("server and owner were killed and started again", began)

    def do_full(self, line: Line) -> None:
        """Fill the disk of the server. It ends when it cannot write its log, and is started when there is room."""
        server = self.servers[0]
        if server.port not in self.disks:
            return
        with self.disks[server.port].full():
            time.sleep(2 * line["for"])
        if server.process is None or server.process.poll() is not None:
            server.kill()
            server.start()
        until(server.answers, PATIENCE, "a server whose disk was full")
        self.after("the server's disk was full for up to six seconds", time.monotonic())


class PostgreSQLClocks(PostgreSQL):
    """Processes whose clocks are a day apart, and jump."""

    CLOCKS = (0.0, -86_400.0)
    FAULTS: ClassVar = {"clock": 5, "owner": 3, "owner-alone": 1, "server": 1, "owner-stopped": 1}
