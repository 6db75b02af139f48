"""Connections of the PostgreSQL engine: waits have a time limit, commits are durable, errors become `StoreError`.

A server that is stopped neither answers nor closes its connections, so each wait has a limit on this side too. A connection that
reaches it is closed; it is then unknown whether the server has carried out the statement.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Generator, Iterator
from typing import Any

from swerve.core.errors import SwerveError
from swerve.store.postgresql_address import Address
from swerve.store.protocol import Kind, StoreError

try:
    import psycopg
    from psycopg import errors
    from psycopg.conninfo import conninfo_to_dict
except ImportError as missing:
    raise SwerveError(
        f"a store in PostgreSQL needs the package {missing.name}; install Swerve with its extra `postgresql`"
    ) from None

#: Seconds that connecting may take, one host at a time; libpq takes no less than 2.
CONNECT_SECONDS = 3
#: Seconds between two looks at the clock while a statement waits for the server.
LOOK_SECONDS = 0.1
#: Seconds by which the limit on this side exceeds the server's own time-out, which comes first and leaves the connection usable.
GRACE_SECONDS = 1.0
#: Seconds that a statement waits for a lock that another session holds, at most.
LOCK_SECONDS = 2.0
#: Seconds after which the server ends a session that is idle inside a transaction, such as that of a paused owner. A process that
#: takes over waits longer than that for the session's locks.
STOPPED_SECONDS = 5.0
#: The oldest supported version of PostgreSQL, and what `server_version_num` counts for each version.
OLDEST, VERSION = 13, 10_000
#: Keep-alive probes, on both sides, which notice that the peer's machine is gone: idle seconds, seconds between probes, and probes.
IDLE, BETWEEN, PROBES = 5, 2, 3
MILLISECONDS = 1000

#: Kinds of errors by their SQLSTATE, or by its first two characters, its class.
KINDS: dict[str, Kind] = {
    "57014": "slow", "55P03": "locked", "40001": "locked", "40P01": "locked", "53100": "full", "XX001": "corrupt",
    "XX002": "corrupt", "58P01": "corrupt", "42P01": "gone", "3F000": "gone", "3D000": "gone", "25006": "gone", "57P01": "gone",
    "25P03": "gone", "57P02": "gone", "57P03": "gone", "08": "gone",
}  # fmt: skip
WAY_OUT: dict[Kind, str] = {
    "locked": "another session holds a lock that it needs",
    "full": "make room on the server's disk",
    "corrupt": "restore a backup of the database (docs/operations.md)",
}


class TimedOut(Exception):  # noqa: N818 - names what happened
    """The server did not answer in time."""


def within(steps: Generator[Any, Any, Any], seconds: float) -> Generator[Any, Any, Any]:
    """Run psycopg's generator that waits for the server, and raise `TimedOut` when it takes more than `seconds`."""
    until = time.monotonic() + seconds
    answer = None
    while True:
        try:
            wanted = steps.send(answer)
        except StopIteration as end:
            return end.value
        answer = yield wanted
        if not answer and time.monotonic() > until:
            raise TimedOut


class Bounded(psycopg.Connection[tuple[Any, ...]]):
    """A connection that gives each statement `seconds`."""

    seconds = float(CONNECT_SECONDS)

    def wait(self, gen: Any, interval: float = LOOK_SECONDS, timeout: float | None = None) -> Any:
        """Wait for the server, for `timeout` seconds at most, `self.seconds` by default."""
        return super().wait(within(gen, self.seconds if timeout is None else timeout), interval)


def translated(error: psycopg.Error, address: Address, *, uncertain: bool = False) -> StoreError:
    """Return an error of PostgreSQL as a `StoreError` that names the store and a remedy."""
    state = error.sqlstate or ""
    lost = not state and isinstance(error, (errors.OperationalError, errors.InterfaceError))
    kind: Kind = "gone" if lost else KINDS.get(state) or KINDS.get(state[:2], "io")
    words = " ".join(str(error).split())
    hint = f"; {WAY_OUT[kind]}" if kind in WAY_OUT else ""
    return StoreError(kind, f"{address.shown}: {words}{f' ({state})' if state else ''}{hint}", uncertain=uncertain)


class Link:
    """A connection that can be opened again, used by one thread at a time. A statement may take `seconds`, and wait `lock` seconds
    for locks of other sessions. The server ends a session that is idle inside a transaction for `idle` seconds."""

    def __init__(
        self, address: Address, name: str, seconds: float, *, lock: float = LOCK_SECONDS, idle: float = STOPPED_SECONDS
    ) -> None:
        self.address, self.name, self.seconds, self.lock, self.idle = address, name, seconds, lock, idle
        self.busy = threading.RLock()
        self._connection: Bounded | None = None
        self._lost = False
        self._warnings: list[str] = []

    def open(self) -> None:
        """Connect, in place of an earlier connection. Raises `StoreError`."""
        with self.busy:
            self.close()
            try:
                self._connection = self._connected()
            except psycopg.Error as error:
                raise translated(error, self.address) from error
            except TimedOut:
                raise self._late() from None

    def _connected(self) -> Bounded:
        ours: dict[str, Any] = {
            "connect_timeout": CONNECT_SECONDS, "keepalives_idle": IDLE, "keepalives_interval": BETWEEN, "keepalives_count": PROBES,
            "application_name": f"swerve {self.name} {os.getpid()}@{socket.gethostname()}",
        }  # fmt: skip
        parts = conninfo_to_dict(self.address.libpq)
        hosts = str(parts.get("host") or "").split(",")
        if len(hosts) > 1 and "hostaddr" not in parts:
            ours |= self.address.asked(hosts, str(parts.get("port") or "").split(","))
        connection = Bounded.connect(self.address.libpq, autocommit=True, **ours)
        self.address.last = connection.info.host, str(connection.info.port)
        try:
            connection.seconds = self.seconds + GRACE_SECONDS
            connection.add_notice_handler(self._noticed)
            sets = {
                "search_path": self.address.schema, "statement_timeout": round(self.seconds * MILLISECONDS),
                "lock_timeout": round(min(self.lock, self.seconds) * MILLISECONDS),
                "idle_in_transaction_session_timeout": round(self.idle * MILLISECONDS),
                "client_min_messages": "warning", "tcp_keepalives_idle": IDLE, "tcp_keepalives_interval": BETWEEN,
                "tcp_keepalives_count": PROBES,
            }  # fmt: skip
            # `remote_apply`, the default of some roles, promises more than `on`: it stays
            (level,) = one(connection.execute("SHOW synchronous_commit"))
            if level != "remote_apply":
                sets["synchronous_commit"] = "on"
            marks = ", ".join("set_config(%s, %s, false)" for _ in sets)
            connection.execute(f"SELECT {marks}", [str(part) for pair in sets.items() for part in pair])
        except BaseException:
            connection.close()
            raise
        return connection

    def _noticed(self, notice: psycopg.errors.Diagnostic) -> None:
        if notice.severity_nonlocalized == "WARNING":
            self._warnings.append(str(notice.message_primary))

    def close(self) -> None:
        """Close the connection; closing twice is no error."""
        with self.busy:
            if self._connection is not None:
                self._connection.close()
            self._connection, self._lost = None, False

    @property
    def is_open(self) -> bool:
        """Whether the connection can be used, as far as is known here."""
        connection = self._connection
        return connection is not None and not connection.closed

    def check(self) -> None:
        """Raise `StoreError` if the connection is closed."""
        if not self.is_open:
            words = "the connection to the server was lost" if self._lost else "it is closed"
            raise StoreError("gone", f"{self.address.shown}: {words}")

    def _late(self, uncertain: bool = False) -> StoreError:
        return StoreError("slow", f"{self.address.shown}: the server does not answer", uncertain=uncertain)

    @contextlib.contextmanager
    def using(self) -> Iterator[Bounded]:
        """Use the connection; each statement is a transaction of its own. Raises `StoreError`."""
        with self.busy:
            self.check()
            assert self._connection is not None
            connection = self._connection
            try:
                yield connection
            except psycopg.Error as error:
                raise translated(error, self.address) from error
            except TimedOut:
                connection.close()
                raise self._late() from None
            finally:
                self._lost |= connection.closed

    @contextlib.contextmanager
    def durably(self) -> Iterator[Bounded]:
        """As `using`, for statements that must be durable when they succeed. The server only warns when somebody cancels a commit's
        wait for the standbys: here a warning is an error."""
        with self.using() as connection:
            self._warnings.clear()
            yield connection
            if self._warnings:
                raise StoreError("io", f"{self.address.shown}: {'; '.join(self._warnings)}", uncertain=True)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Bounded]:
        """One transaction: durable when the block ends, rolled back on any error."""
        sent = False
        with self.durably() as connection:
            try:
                connection.execute("BEGIN")
                yield connection
                sent = True
                connection.execute("COMMIT")
            except BaseException as error:
                if not isinstance(error, TimedOut):
                    with contextlib.suppress(psycopg.Error, TimedOut):
                        connection.execute("ROLLBACK")
                else:
                    connection.close()
                    raise self._late(uncertain=sent) from None
                if isinstance(error, psycopg.Error):
                    raise translated(error, self.address, uncertain=sent) from error
                if isinstance(error, StoreError):
                    error.uncertain = sent
                raise


def one(cursor: psycopg.Cursor[tuple[Any, ...]]) -> tuple[Any, ...]:
    """Return the row of a statement that always has one."""
    found = cursor.fetchone()
    assert found is not None
    return found


def refuse_losses(connection: Bounded, address: Address, may_lose_clicks: bool) -> None:
    """Raise `SwerveError` for a server that may lose what it acknowledges, or that is not a primary."""
    names = ("server_version_num", "fsync", "full_page_writes", "synchronous_commit", "synchronous_standby_names")
    version, fsync, pages, commit, standbys = one(
        connection.execute("SELECT " + ", ".join(f"current_setting('{n}')" for n in names))
    )
    if int(version) < OLDEST * VERSION:
        raise SwerveError(f"{address.shown}: the server is PostgreSQL {int(version) // VERSION}; the store needs {OLDEST} or newer")
    if one(connection.execute("SELECT pg_is_in_recovery()"))[0]:
        raise StoreError(
            "gone", f"{address.shown}: the server is a standby; name the primary, or all with target_session_attrs=read-write"
        )
    lossy = "a crash of its machine loses clicks that were acknowledged"
    for name, value in (("fsync", fsync), ("full_page_writes", pages)):
        if value != "on":
            raise SwerveError(f"{address.shown}: the server has {name} = {value}, and {lossy}; set {name} = on")
    if commit not in ("on", "remote_apply"):
        raise SwerveError(f"{address.shown}: sessions have synchronous_commit = {commit}, and {lossy}; set it to on")
    # a running base backup is not a standby; a role that may not see `state` counts it as one
    replicas = one(connection.execute("SELECT count(*) FROM pg_stat_replication WHERE state IS DISTINCT FROM 'backup'"))[0]
    if replicas and not standbys.strip() and not may_lose_clicks:
        raise SwerveError(
            f"{address.shown}: its standbys are asynchronous, and a failover loses clicks that were acknowledged; set "
            "synchronous_standby_names on the server, or accept it with store.may_lose_clicks = true"
        )
