"""What a start of several workers does: the port that they share, the folder of their sockets, the processes that work alone, and
the configuration of one of them."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from swerve.core.errors import SwerveError
from swerve.service import logs
from swerve.service.config.load import Config, may_bind
from swerve.service.secrets import secrets_path
from swerve.store import InUse, StoreError
from swerve.store.shares import Share
from swerve.store.urls import share_url

log = logging.getLogger("swerve.service")

#: Seconds between two attempts to open a store.
AGAIN = 0.1
#: Seconds that a start waits for the workers of a supervisor that was killed: they write, and end by themselves.
LINGER_SECONDS = 5.0
#: Megabytes that the store of a worker may have at least.
LEAST_MB = 16
#: Bytes of a message of a worker at most.
MOST_SAID = 65_536


def checked(config: Config) -> None:
    """Refuse what several workers cannot do, and begin the log lines."""
    logs.setup(config.log)
    may_bind(config.server.host, config)
    if config.proxy.upstream:
        raise SwerveError(
            "the proxy does not run inside several workers: run `swerve proxy`, and take proxy.upstream from this file"
        )
    if config.store.standby:
        raise SwerveError("several workers are no standby: set store.standby, or server.workers")


@contextlib.contextmanager
def addressed(config: Config) -> Iterator[tuple[int, str]]:
    """Keep the service's port for its workers; yield it, and its address."""
    with reserved(config.server.host, config.server.port) as sock:
        host, port = sock.getsockname()[:2]
        yield port, f"http://{f'[{host}]' if ':' in host else host}:{port}"


@contextlib.contextmanager
def sockets_folder() -> Iterator[Path]:
    """Make a folder for the workers' sockets, which no other user can open."""
    folder = Path(tempfile.mkdtemp(prefix="swerve-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def reserved(host: str, port: int) -> socket.socket:
    """Return a socket that keeps a port for the workers, and takes no connections itself."""
    sock: socket.socket | None = None
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        sock = socket.socket(family, socket.SOCK_STREAM)
        with socket.create_server((host, port), family=family) as probe:  # fails if another service shares the port already
            port = probe.getsockname()[1]
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.bind((host, port))
    except OSError as error:
        if sock is not None:
            sock.close()
        raise SwerveError(
            f"cannot listen on {host} port {port}: {error.strerror or error}; another port: --port 0 takes any"
        ) from None
    return sock


def alone(work: Callable[[], str]) -> str:
    """Do something in a process of its own, and return what it says; raises `SwerveError` if it fails. The supervisor must not have
    threads."""
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(reading)
        ended(work, writing)
    os.close(writing)
    with os.fdopen(reading, "rb") as told:
        said = told.read(MOST_SAID).decode(errors="replace")
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code:
        raise SwerveError(said.strip().removeprefix("error ") or f"the store could not be divided ({code}); the log says why")
    return said


def patiently(work: Callable[[], str]) -> str:
    """Do something that needs the store; wait a moment for workers whose supervisor was killed, and which are about to end."""
    until = time.monotonic() + LINGER_SECONDS
    while True:
        try:
            return work()
        except InUse:
            if time.monotonic() > until:
                raise
            time.sleep(AGAIN)


def with_log(work: Callable[[bool], str], new: bool) -> str:
    """Do something that needs the log of a share; where that cannot be opened, and `new` allows it, with a new one: the logs of the
    other shares are good."""
    try:
        return work(False)
    except StoreError:
        if not new:
            raise
        return work(True)


def ended(work: Callable[[], str], told: int) -> None:
    """Do the work of a forked process, tell what it says, and end it."""
    code = 1
    try:
        said = work()
        code = 0
        with contextlib.suppress(OSError):
            os.write(told, said.encode())
    except SwerveError as error:
        with contextlib.suppress(OSError):
            os.write(told, f"error {error}\n".encode())
    except BaseException:
        log.exception("a process of the service failed")
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def config_of(config: Config, share: Share, port: int) -> Config:
    """Return the configuration of a worker: its share of the store, of memory and of the bounds that concern all callers."""
    replace, count, store, limits = msgspec.structs.replace, share.of, config.store, config.limits
    here, secrets = min(config.server.workers, count), secrets_path(config)
    return replace(
        config,
        server=replace(config.server, port=port),
        store=replace(
            store,
            url=share_url(store.url, share),
            cache_mb=max(store.cache_mb // count, 1),
            max_mb=max(store.max_mb // count, LEAST_MB),
        ),
        limits=replace(
            limits,
            connections=-(-limits.connections // here),
            connections_per_address=-(-limits.connections_per_address // here),
            new_queries_per_minute=-(-limits.new_queries_per_minute // count),
        ),
        security=replace(config.security, secrets="" if secrets is None else str(secrets)),
        namespaces={
            name: replace(space, new_queries_per_minute=-(-space.new_queries_per_minute // count))
            for name, space in config.namespaces.items()
        },
    )
