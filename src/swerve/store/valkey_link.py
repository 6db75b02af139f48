"""One connection to a Valkey server: calls with a time limit, scripts, errors by kind.

A connection that has failed is dropped, because its replies can no longer be told apart. The next call opens another one and calls
`greet` first: the owner of the store checks there that the server still has what it acknowledged.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import Any

from swerve.core.errors import SwerveError
from swerve.store.protocol import Kind, StoreError
from swerve.store.valkey_scripts import OTHER_OWNER, Script
from swerve.store.valkey_urls import Address

try:
    from valkey.connection import Connection, SSLConnection
    from valkey.exceptions import (
        AuthenticationError,
        BusyLoadingError,
        ConnectionError as LostError,
        NoPermissionError,
        NoScriptError,
        OutOfMemoryError,
        ReadOnlyError,
        ResponseError,
        TimeoutError as LateError,
        ValkeyError,
    )
except ImportError as missing:
    raise SwerveError(
        f"a store in Valkey needs the package {missing.name}; install Swerve with its extra `valkey`: pip install 'swerve[valkey]'"
    ) from None

#: Seconds to open a connection.
CONNECT_SECONDS = 2.0
#: The kind of an error of the server, by its first word, and what to do.
KINDS: dict[str, tuple[Kind, str]] = {
    "OOM": ("full", "raise its maxmemory, or lower store.max_mb"),
    "BUSY": ("slow", "another program's script keeps it busy"),
    "LOADING": ("gone", "it is starting"),
    "READONLY": ("gone", "it is a replica: name the primary"),
    "MASTERDOWN": ("gone", "it is a replica: name the primary"),
    "MISCONF": ("io", "it cannot write its files: make room on its disk"),
    "NOREPLICAS": ("io", "it has fewer replicas than its min-replicas-to-write"),
    "NOPERM": ("io", "the user of the address lacks a permission (docs/operations.md)"),
    "NOAUTH": ("io", "it needs a password: valkey://user:password@host"),
    "MOVED": ("io", "it is a node of a cluster, which is not supported"),
    "WRONGTYPE": ("corrupt", "another program has written keys with this prefix"),
}
#: The first words of errors from which the client library strips them.
FIRST_WORDS: dict[type[Exception], str] = {OutOfMemoryError: "OOM", ReadOnlyError: "READONLY", NoPermissionError: "NOPERM"}


class Link:
    """A connection that any thread may use, one at a time. A call may take `within` seconds; `greet` is called with each new
    connection before anything else."""

    def __init__(self, address: Address, what: str, within: float, greet: Callable[[Link], None] = lambda link: None) -> None:
        self.address, self.within, self.greet = address, within, greet
        self._what, self._lock, self._closed = what, threading.RLock(), False
        self._connection: Connection | None = None

    def call(self, *words: bytes | str | float) -> Any:
        """Carry out a command and return its reply. Raises `StoreError`."""
        return self.calls([words])[0]

    def calls(self, commands: Sequence[Sequence[bytes | str | float]]) -> list[Any]:
        """Carry out commands, sent together, and return their replies. Raises `StoreError`."""
        with self._lock:
            connection, sent = self._open(), False
            try:
                connection.send_packed_command(connection.pack_commands(commands), check_health=False)
                sent = True
                replies, refused = list[Any](), None
                for _ in commands:
                    try:
                        replies.append(connection.read_response(disable_decoding=True))
                    except ResponseError as error:
                        refused = refused or error
                if refused is not None:
                    raise refused
                return replies
            except BaseException as error:
                if not isinstance(error, ResponseError):
                    self.drop()
                if isinstance(error, ValkeyError | OSError):
                    raise self._translated(error, uncertain=sent) from error
                raise

    def run(self, script: Script, *arguments: bytes | str | float) -> Any:
        """Run a script and return its result."""
        keys = self.address.keys
        with self._lock:
            try:
                return self.call("EVALSHA", script.sha, 1, keys, *arguments)
            except StoreError as error:
                if not isinstance(error.__cause__, NoScriptError):
                    raise
            return self.call("EVAL", script.text, 1, keys, *arguments)

    def run_owned(self, script: Script, epoch: int, *arguments: bytes | str | float) -> list[Any]:
        """Run a script for the owner with this epoch, and return its result. Raises `OtherOwner`."""
        found: list[Any] = self.run(script, epoch, *arguments)
        if found[0] == OTHER_OWNER:
            raise OtherOwner(self._what, int(found[1] or 0))
        return found

    def info(self, section: str) -> dict[str, str]:
        """Return a section of the server's `INFO`."""
        lines = self.call("INFO", section).decode().splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)

    def drop(self) -> None:
        """Close the connection; the next call opens another one."""
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                with contextlib.suppress(OSError, ValkeyError):
                    connection.disconnect()

    def close(self) -> None:
        """Close the connection for good."""
        with self._lock:
            self._closed = True
            self.drop()

    def _open(self) -> Connection:
        if self._closed:
            raise StoreError("gone", f"{self._what} is closed")
        if self._connection is None:
            made = _connection(self.address, self.within)
            try:
                made.connect()
            except (ValkeyError, OSError) as error:
                raise self._translated(error, uncertain=False, connecting=True) from error
            self._connection = made
            try:
                self.greet(self)
            except BaseException:
                self.drop()
                raise
        return self._connection

    def _translated(self, error: Exception, *, uncertain: bool, connecting: bool = False) -> StoreError:
        words = str(error)
        if isinstance(error, AuthenticationError):
            return StoreError("io", f"{self._what}: the server refuses the user or the password of the address: {words}")
        if isinstance(error, BusyLoadingError):
            return StoreError("gone", f"{self._what}: the server is starting: {words}")
        if isinstance(error, LateError | TimeoutError):
            return StoreError("slow", f"{self._what}: no answer within {self.within:g} s", uncertain=uncertain)
        if isinstance(error, LostError | OSError):
            if connecting:
                return StoreError("gone", f"{self._what} cannot be reached: {words}")
            return StoreError("io", f"{self._what}: the connection was lost: {words}", uncertain=uncertain)
        first = FIRST_WORDS.get(type(error), words.partition(" ")[0])
        kind, remedy = KINDS.get(first, ("io", ""))
        return StoreError(kind, f"{self._what}: {words}" + (f"; {remedy}" if remedy else ""))


class OtherOwner(StoreError):  # noqa: N818 - names what happened
    """The store has another epoch than the caller; 0 if there is no store."""

    def __init__(self, what: str, epoch: int) -> None:
        super().__init__("conflict", f"{what} has an owner of epoch {epoch}")
        self.epoch = epoch


def _connection(address: Address, within: float) -> Connection:
    kind = SSLConnection if address.tls else Connection
    return kind(
        host=address.host,
        port=address.port,
        db=address.database,
        username=address.user or None,
        password=address.password or None,
        socket_timeout=within,
        socket_connect_timeout=min(CONNECT_SECONDS, within),
        client_name="swerve",
    )
