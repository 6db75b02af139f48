"""Several workers: a process that starts them, starts one again that has died, and stops them all in order.

It holds no request, no row and no thread: a worker is a fork of it, so that it imports nothing again. Everything else is between
the workers (`swerve.service.crew`).

Tests: tests/service/test_workers.py.
"""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import shutil
import signal
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
from swerve.service.crew import Post
from swerve.service.dividing import Dividing
from swerve.service.http.server import Extend, open_owned, serve
from swerve.service.secrets import secrets_path
from swerve.service.warm import Preloading
from swerve.store import InUse, StoreError, store_path
from swerve.store.shares import Share, share_path
from swerve.store.sqlite import SQLiteStore
from swerve.store.urls import PREFIX, server_of, shown_url
from swerve.version import __version__

log = logging.getLogger("swerve.service")

#: Seconds after which a worker that has died is started again; each further death in a row doubles them.
AGAIN, AGAIN_AT_MOST = 0.1, 10.0
#: Seconds that a worker must have run for the next death not to count as one in a row.
STEADY = 10.0
#: Seconds between two looks whether all code is compiled.
LOOK_SECONDS = 5.0
#: Seconds that a start waits for the workers of a supervisor that was killed: they write, and end by themselves.
LINGER_SECONDS = 5.0
#: Megabytes that the store of a worker may have at least.
LEAST_MB = 16
#: Bytes of a message of a worker at most.
MOST_SAID = 65_536


class Child:
    """A worker as the supervisor sees it."""

    def __init__(self, index: int) -> None:
        self.index, self.pid, self.told = index, 0, -1
        self.ready, self.since, self.deaths = False, 0.0, 0
        self.said = b""
        self.again: float | None = None  # when it is started again
        self.code: int | None = None

    def error(self) -> str:
        """Return why it has ended, as far as it said so."""
        told = [line for line in self.said.decode(errors="replace").splitlines() if line.startswith("error ")]
        return told[-1].removeprefix("error ") if told else f"worker {self.index} ended with {self.code}; the log says why"


def supervise(
    config: Config,
    announce: Callable[[str], None] = print,
    *,
    extend: Extend | None = None,
    new_store: bool = False,
    new_log: bool = False,
) -> None:
    """Serve with `server.workers` workers until SIGINT or SIGTERM."""
    logs.setup(config.log)
    may_bind(config.server.host, config)
    if config.proxy.upstream:
        raise SwerveError(
            "the proxy does not run inside several workers: run `swerve proxy`, and take proxy.upstream from this file"
        )
    if server_of(config.store.url) is not None:
        raise SwerveError(f"several workers share a store in SQLite, and {shown_url(config.store.url)} is none: --workers 1")
    if config.store.standby:
        raise SwerveError("several workers are no standby: set store.standby, or server.workers")
    with contextlib.ExitStack() as undo:
        sock = undo.enter_context(reserved(config.server.host, config.server.port))
        host, port = sock.getsockname()[:2]
        alone(lambda: patiently(lambda: with_log(lambda new: divide(config, new_store, new), new_log)))
        folder = Path(tempfile.mkdtemp(prefix="swerve-"))
        undo.callback(shutil.rmtree, folder, ignore_errors=True)
        address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        count = config.server.workers
        announce(f"swerve {__version__}: {address}  store {config.store.url}  policy {config.policy.spec}  workers {count}")
        Supervisor(config, port, folder, extend, new_log).run(lambda: announce(f"ready: {address}"))
    announce("stopped: everything is written")


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


def divide(config: Config, new_store: bool, new_log: bool) -> None:
    """Divide the store among the workers, where it is not."""
    store, secrets = open_owned(config, new_store=new_store, new_log=new_log)
    try:
        assert isinstance(store, SQLiteStore)  # see above
        Dividing(config, store, secrets, config.server.workers).run()
    finally:
        store.close()


def alone(work: Callable[[], None]) -> None:
    """Do something in a process of its own; raises `SwerveError` if it fails. The supervisor must not have threads."""
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


def patiently(work: Callable[[], None]) -> None:
    """Do something that needs the store; wait a moment for workers whose supervisor was killed, and which are about to end."""
    until = time.monotonic() + LINGER_SECONDS
    while True:
        try:
            return work()
        except InUse:
            if time.monotonic() > until:
                raise
            time.sleep(AGAIN)


def with_log(work: Callable[[bool], None], new: bool) -> None:
    """Do something that needs the log of a share; where that cannot be opened, and `new` allows it, with a new one: the logs of the
    other shares are good."""
    try:
        work(False)
    except StoreError:
        if not new:
            raise
        work(True)


def ended(work: Callable[[], None], told: int) -> None:
    """Do the work of a forked process, and end it."""
    code = 1
    try:
        work()
        code = 0
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
    path = share_path(store_path(store.url), share)
    return replace(
        config,
        server=replace(config.server, port=port),
        store=replace(
            store, url=f"{PREFIX}{path}", cache_mb=max(store.cache_mb // count, 1), max_mb=max(store.max_mb // count, LEAST_MB)
        ),
        limits=replace(
            limits,
            connections=-(-limits.connections // count),
            connections_per_address=-(-limits.connections_per_address // count),
            new_queries_per_minute=-(-limits.new_queries_per_minute // count),
        ),
        security=replace(config.security, secrets=str(secrets_path(config))),
        namespaces={
            name: replace(space, new_queries_per_minute=-(-space.new_queries_per_minute // count))
            for name, space in config.namespaces.items()
        },
    )


class Supervisor:
    """Runs the workers."""

    def __init__(self, config: Config, port: int, folder: Path, extend: Extend | None, new_log: bool) -> None:
        self.config, self.port, self.folder, self.extend, self.new_log = config, port, folder, extend, new_log
        self.children = [Child(index) for index in range(config.server.workers)]
        self.stopping = False
        self.code = Preloading(config)  # a worker that is started again then has it
        self._select = selectors.DefaultSelector()
        self._life, self._held = os.pipe()  # ends when this process does

    def run(self, ready: Callable[[], None]) -> None:
        """Run them until a signal; `ready` is called when all are. Raises `SwerveError` if one cannot start or cannot write."""
        failed = ""
        with self._signals():
            self.code.run()
            for child in self.children:
                self._start(child)
            told = False
            while any(child.pid or child.again is not None for child in self.children):
                self._wait()
                failed = self._reap() or failed
                self._start_again()
                if not told and all(child.ready for child in self.children):
                    told = True
                    ready()
                if told and self.code.left and not self.stopping:
                    self.code.run()
        os.close(self._held)
        os.close(self._life)
        if failed:
            raise SwerveError(failed)
        if any(child.code for child in self.children):
            raise SwerveError("stopped, but not everything could be written; the log says why")

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        reading, writing = os.pipe()
        for end in (reading, writing):
            os.set_blocking(end, False)
        self._select.register(reading, selectors.EVENT_READ, None)
        before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        handlers = {number: signal.signal(number, self._signalled) for number in (signal.SIGTERM, signal.SIGINT)}
        handlers[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, lambda number, frame: None)
        self._wakeup = reading, writing
        try:
            yield
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(before)
            self._select.close()
            os.close(reading)
            os.close(writing)

    def _signalled(self, number: int, frame: object) -> None:
        self._stop(number)

    def _stop(self, number: int = signal.SIGTERM) -> None:
        """Stop all workers."""
        self.stopping = True
        for child in self.children:
            child.again = None
            if child.pid:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child.pid, number)

    # ------------------------------------------------------------------ processes
    def _start(self, child: Child) -> None:
        reading, writing = os.pipe()
        os.set_inheritable(writing, False)
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if not pid:
            os.close(reading)
            ended(lambda: self._work(child.index, writing), writing)
        os.close(writing)
        os.set_blocking(reading, False)
        child.pid, child.told, child.said, child.again, child.since = pid, reading, b"", None, time.monotonic()
        child.code = None
        self._select.register(reading, selectors.EVENT_READ, child)

    def _work(self, index: int, told: int) -> None:
        """Be a worker."""
        os.setpgid(0, 0)  # Ctrl-C reaches the supervisor, which stops each worker once
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        self._select.close()
        for end in (*self._wakeup, self._held, *(child.told for child in self.children if child.told >= 0)):
            os.close(end)
        logs.worker = index
        post = Post(Share(index, len(self.children)), self.folder, self._life)
        config = config_of(self.config, post.share, self.port)

        def announce(line: str) -> None:
            with contextlib.suppress(OSError):  # the supervisor has gone
                os.write(told, f"{line}\n".encode())

        patiently(lambda: with_log(lambda new: serve(config, announce, extend=self.extend, new_log=new, post=post), self.new_log))

    def _wait(self) -> None:
        """Wait for a signal, for what a worker says, or until one is to be started again."""
        due = [child.again for child in self.children if child.again is not None]
        if self.code.left:
            due.append(time.monotonic() + LOOK_SECONDS)
        timeout = max(min(due) - time.monotonic(), 0.0) if due else None
        for key, _ in self._select.select(timeout):
            child: Child | None = key.data
            try:
                said = os.read(key.fd, MOST_SAID)
            except BlockingIOError:
                continue
            if child is None:
                continue
            if not said:
                self._select.unregister(key.fd)
                os.close(key.fd)
                child.told = -1
            child.said += said
            if b"ready: " in child.said and not child.ready:
                child.ready = True
                log.info("a worker is ready", extra={"worker": child.index, "pid": child.pid})

    def _reap(self) -> str:
        """Take note of workers that have ended; return why all must stop, if so."""
        failed = ""
        for child in self.children:
            if not child.pid or not (done := os.waitpid(child.pid, os.WNOHANG))[0]:
                continue
            while child.told >= 0:
                self._drain(child)
            child.pid, child.code, was_ready, child.ready = 0, os.waitstatus_to_exitcode(done[1]), child.ready, False
            if self.stopping:
                continue
            if not was_ready and not child.deaths:  # it never started
                failed = child.error()
                self._stop()
                continue
            ran = time.monotonic() - child.since
            child.deaths = 1 if ran > STEADY else child.deaths + 1
            wait = min(AGAIN * 2 ** (child.deaths - 1), AGAIN_AT_MOST)
            child.again = time.monotonic() + wait
            why = {"why": child.error()} if child.code > 0 else {}  # a signal tells no reason
            log.error(
                "a worker has died, and is started again",
                extra={"worker": child.index, "status": child.code, "after": round(ran, 1), "in": wait, **why},
            )
        return failed

    def _drain(self, child: Child) -> None:
        """Read what a worker has said before its end."""
        try:
            said = os.read(child.told, MOST_SAID)
        except BlockingIOError:
            said = b""
        child.said += said
        if not said:
            self._select.unregister(child.told)
            os.close(child.told)
            child.told = -1

    def _start_again(self) -> None:
        now = time.monotonic()
        for child in self.children:
            if child.again is not None and child.again <= now and not self.stopping:
                self._start(child)
