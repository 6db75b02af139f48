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
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from swerve.core.errors import SwerveError
from swerve.service import logs
from swerve.service.config.load import Config
from swerve.service.crew import Post
from swerve.service.dividing import Dividing
from swerve.service.http.server import Extend, open_owned, serve
from swerve.service.http.starting import MOST_SAID, addressed, alone, checked, config_of, ended, patiently, sockets_folder, with_log
from swerve.service.warm import Preloading
from swerve.store.shares import Share
from swerve.store.sqlite import SQLiteStore
from swerve.version import __version__

log = logging.getLogger("swerve.service")

#: Seconds after which a worker that has died is started again; each further death in a row doubles them.
AGAIN, AGAIN_AT_MOST = 0.1, 10.0
#: Seconds that a worker must have run for the next death not to count as one in a row.
STEADY = 10.0
#: Seconds between two looks whether all code is compiled.
LOOK_SECONDS = 5.0
#: Signals that the supervisor handles.
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)


class Child:
    """A worker as the supervisor sees it, or another process of its."""

    def __init__(self, index: int, name: str = "") -> None:
        self.index, self.name, self.pid, self.told = index, name or f"worker {index}", 0, -1
        self.wanted = True  # whether it is to run
        self.ready, self.since, self.deaths = False, 0.0, 0
        self.said = b""
        self.again: float | None = None  # when it is started again
        self.code: int | None = None

    def error(self) -> str:
        """Return why it has ended, as far as it said so."""
        told = [line for line in self.said.decode(errors="replace").splitlines() if line.startswith("error ")]
        return told[-1].removeprefix("error ") if told else f"{self.name} ended with {self.code}; the log says why"


def supervise(
    config: Config,
    announce: Callable[[str], None] = print,
    *,
    extend: Extend | None = None,
    new_store: bool = False,
    new_log: bool = False,
) -> None:
    """Serve with `server.workers` workers until SIGINT or SIGTERM."""
    checked(config)
    with contextlib.ExitStack() as undo:
        port, address = undo.enter_context(addressed(config))
        alone(lambda: patiently(lambda: with_log(lambda new: divide(config, new_store, new), new_log)))
        folder = undo.enter_context(sockets_folder())
        count = config.server.workers
        announce(f"swerve {__version__}: {address}  store {config.store.url}  policy {config.policy.spec}  workers {count}")
        Supervisor(config, port, folder, extend, new_log, count).run(lambda: announce(f"ready: {address}"))
    announce("stopped: everything is written")


def divide(config: Config, new_store: bool, new_log: bool) -> str:
    """Divide the store among the workers, where it is not."""
    store, secrets = open_owned(config, new_store=new_store, new_log=new_log)
    try:
        assert isinstance(store, SQLiteStore)  # see above
        Dividing(config, store, secrets, config.server.workers).run()
        return ""
    finally:
        store.close()


class Supervisor:
    """Runs the workers."""

    def __init__(self, config: Config, port: int, folder: Path, extend: Extend | None, new_log: bool, shares: int) -> None:
        self.config, self.port, self.folder, self.extend, self.new_log = config, port, folder, extend, new_log
        self.shares, self.children = shares, [Child(index) for index in range(shares)]
        self.stopping = self.told = False  # `told`: all were ready once
        self.code = Preloading(config)  # a worker that is started again then has it
        self._select = selectors.DefaultSelector()
        self._life, self._held = os.pipe()  # ends when this process does

    def run(self, ready: Callable[[], None]) -> None:
        """Run them until a signal; `ready` is called when all are. Raises `SwerveError` if one cannot start or cannot write."""
        failed = ""
        with self._signals():
            self.code.run()
            for child in self._first():
                self._start(child)
            while any(child.pid or child.again is not None for child in self.children):
                self._wait()
                failed = self._reap() or failed
                self._start_again()
                if not self.told and self._are_ready():
                    self.told = True
                    ready()
                if self.told and self.code.left and not self.stopping:
                    self.code.run()
        os.close(self._held)
        os.close(self._life)
        if failed:
            raise SwerveError(failed)
        if any(child.code for child in self._writers()):
            raise SwerveError("stopped, but not everything could be written; the log says why")

    def _first(self) -> list[Child]:
        """Return what is started first."""
        return self.children

    def _writers(self) -> list[Child]:
        """Return the children that write: one that has ended otherwise than in order may not have written everything."""
        return self.children

    def _are_ready(self) -> bool:
        return all(child.ready for child in self.children)

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
            self._end(child, number)

    def _end(self, child: Child, number: int = signal.SIGTERM) -> None:
        """Stop one."""
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
        before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # the child must not take one for this process
        pid = os.fork()
        if not pid:
            os.close(reading)
            ended(lambda: self._be(child, writing), writing)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.close(writing)
        os.set_blocking(reading, False)
        child.pid, child.told, child.said, child.again, child.since = pid, reading, b"", None, time.monotonic()
        child.code = None
        self._select.register(reading, selectors.EVENT_READ, child)

    def _be(self, child: Child, told: int) -> str:
        """Be a child."""
        os.setpgid(0, 0)  # Ctrl-C reaches the supervisor, which stops each worker once
        signal.set_wakeup_fd(-1)
        for number in SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        self._select.close()
        for end in (*self._wakeup, self._held, *(child.told for child in self.children if child.told >= 0)):
            os.close(end)
        return self._work(child, told)

    def _post(self, index: int) -> Post:
        return Post(Share(index, self.shares), self.folder, self._life)

    def _work(self, child: Child, told: int) -> str:
        """Be a worker."""
        logs.worker = child.index
        post = self._post(child.index)
        config = config_of(self.config, post.share, self.port)

        def announce(line: str) -> None:
            with contextlib.suppress(OSError):  # the supervisor has gone
                os.write(told, f"{line}\n".encode())

        def work(new: bool) -> str:
            serve(config, announce, extend=self.extend, new_log=new, post=post)
            return ""

        return patiently(lambda: with_log(work, self.new_log))

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
            self._heard(child)

    def _heard(self, child: Child) -> None:
        """Take note of what a child has said."""
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
            if child.code == -signal.SIGTERM and not was_ready:  # it was stopped before it had anything to write
                child.code = 0
            if self.stopping or self._may_end(child):
                continue
            if not was_ready and not child.deaths and not self.told:  # it never started
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

    def _may_end(self, child: Child) -> bool:
        """Return whether a child that has ended is not started again."""
        return not child.wanted

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
