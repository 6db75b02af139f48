"""Processes of the command `swerve` that need not import it again.

Of the 1.5 seconds of processor time that a start of `swerve serve` takes, importing takes 1.2, and the tests start it some
hundred times. Here a template process imports the service once; each start is a fork of it, which then runs `python -m swerve`
with its own arguments, environment, folder and output: a process of its own, which can be stopped, killed and limited like any.

The template has one thread. For each start it forks a keeper, which forks the process, tells its number and, at the end, its
exit status. What an import would read from the environment cannot be changed by a fork: such starts begin from nothing. As soon as
the code of the small service lies compiled on the disk, the template loads it too, so that its forks need not.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).parents[1]
SRC = os.pathsep.join((str(ROOT / "src"), str(ROOT / "clients" / "python" / "src")))
#: Variables that are read by the interpreter, the loader, on import, or for the place of compiled code.
EARLY = ("PYTHON", "LD_", "NUMBA_", "OMP_", "OPENBLAS_", "MKL_", "MALLOC_", "SWERVE_CACHE_DIR", "XDG_CACHE_HOME", "HOME")
#: What the template imports: all that `swerve serve` needs.
MODULES = (
    "swerve.cli.serve", "swerve.service.http.server", "swerve.dashboard", "swerve.proxy.run", "swerve.store.sqlite",
    "swerve.cli.simulate", "swerve.experiments", "swerve.evaluate",
)  # fmt: skip
MOST_BYTES = 1 << 18
_STATUS = struct.Struct("<i")


class Forked:
    """A process started by the template, with what the tests use of `subprocess.Popen`."""

    def __init__(self, keeper: IO[bytes], stdout: IO[str]) -> None:
        self._keeper, self.stdout = keeper, stdout
        self.returncode: int | None = None
        said = keeper.read(_STATUS.size)
        if len(said) < _STATUS.size:
            raise AssertionError("the template process could not start the command")
        (self.pid,) = _STATUS.unpack(said)

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit status; a negative one is the number of a signal."""
        if self.returncode is None:
            if not select.select([self._keeper], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("swerve", timeout or 0.0)
            (self.returncode,) = _STATUS.unpack(self._keeper.read(_STATUS.size))
            self._keeper.close()
        return self.returncode

    def poll(self) -> int | None:
        """Return the exit status, None while the process runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0.0)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, if the process still runs."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float | None = None) -> tuple[str, None]:
        """Wait for the end; return the rest of the output."""
        deadline = None if timeout is None else time.monotonic() + timeout
        said = []
        while True:
            left = None if deadline is None else max(deadline - time.monotonic(), 0.0)
            if not select.select([self.stdout], [], [], left)[0]:
                raise subprocess.TimeoutExpired("swerve", timeout or 0.0)
            part = self.stdout.read()
            if not part:
                break
            said.append(part)
        self.wait(timeout)
        return "".join(said), None


Process = subprocess.Popen[str] | Forked


class Template:
    """The process that has imported everything, and forks."""

    def __init__(self) -> None:
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        env = {**os.environ, "PYTHONPATH": SRC, "PYTHONUNBUFFERED": "1"}
        self.early = early_of(env)
        self.socket, self.owner = ours, os.getpid()
        with its:
            command = [sys.executable, __file__, str(its.fileno())]
            self.process = subprocess.Popen(command, env=env, pass_fds=[its.fileno()], stdin=subprocess.DEVNULL)
        atexit.register(self.close)

    def start(self, arguments: list[str], env: dict[str, str], cwd: Path, stderr: int) -> Forked:
        """Start Python with these arguments: `-m swerve …`, or a script's path and what it takes."""
        output, its_output = os.pipe()
        status, its_status = os.pipe()
        try:
            order = json.dumps({"arguments": arguments, "env": env, "cwd": str(cwd)}).encode()
            socket.send_fds(self.socket, [order], [its_output, stderr, its_status])
        finally:
            os.close(its_output)
            os.close(its_status)
        return Forked(os.fdopen(status, "rb", buffering=0), os.fdopen(output, encoding="utf-8"))

    def close(self) -> None:
        """End the template; processes that it started go on."""
        if os.getpid() == self.owner:
            self.socket.close()
            self.process.wait(10)


_template: Template | None = None


def early_of(env: dict[str, str]) -> dict[str, str]:
    """Return the variables that only a new interpreter reads."""
    return {name: value for name, value in env.items() if name.startswith(EARLY)}


def start(command: tuple[str, ...] | list[str], env: dict[str, str], cwd: Path, stderr: IO[Any]) -> Process:
    """Start a command, its output piped; `python -m swerve …` and `python SCRIPT.py …` as a fork of the template."""
    global _template
    words = list(command)
    if words[:3] == [sys.executable, "-m", "swerve"] or (words[0] == sys.executable and words[1].endswith(".py")):
        _template = _template or Template()
        if early_of(env) == _template.early:
            return _template.start(words[1:], env, cwd, stderr.fileno())
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True, env=env, cwd=cwd)


def run(*command: str, cwd: Path | None = None, timeout: float = 120.0, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, with further variables; its output and its errors are in the result."""
    env = {**os.environ, "PYTHONPATH": SRC, "PYTHONUNBUFFERED": "1", **more}
    with tempfile.TemporaryFile("w+", encoding="utf-8") as errors:
        child = start(command, env, cwd or Path.cwd(), errors)
        try:
            said, _ = child.communicate(timeout)
        except BaseException:
            child.kill()
            raise
        finally:
            if child.stdout is not None:
                child.stdout.close()
        errors.seek(0)
        return subprocess.CompletedProcess(command, child.wait(), said, errors.read())


def keep(order: dict[str, Any], output: int, errors: int, status: int) -> None:
    """Fork the process, and write its number and its exit status: the work of a keeper."""
    number = os.fork()
    if not number:
        os.close(status)
        os.dup2(output, 1)
        os.dup2(errors, 2)
        os.close(output)
        os.close(errors)
        become(order)
    os.close(output)
    os.close(errors)
    os.write(status, _STATUS.pack(number))
    ended = os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])
    with contextlib.suppress(BrokenPipeError):
        os.write(status, _STATUS.pack(ended))


def become(order: dict[str, Any]) -> None:
    """Run the command in this process, and end it."""
    import runpy

    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.environ.clear()
    os.environ.update(order["env"])
    os.chdir(order["cwd"])
    first, *rest = order["arguments"]
    module = first == "-m"
    sys.argv = rest if module else [first, *rest]
    sys.path[0] = order["cwd"] if module else str(Path(first).absolute().parent)
    code: Any = 0
    try:
        if module:
            runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(first, run_name="__main__")
    except SystemExit as end:
        code = end.code
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    # as the interpreter ends, except that nothing of the template is torn down
    import threading

    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    if isinstance(code, str):
        print(code, file=sys.stderr)
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code or 0)


def load_code() -> bool:
    """Load the compiled code of the tests' small service; False while it is not complete on the disk."""
    from service.running import SMALL  # the folder of this file is on the path of a script

    from swerve.service.config.load import resolve
    from swerve.service.config.settings import settings_of
    from swerve.service.config.toml import Document
    from swerve.service.warm import NO_KEY, SCRATCH, mark_of
    from swerve.serving.ranker import Ranker

    config = resolve(Document("", {"policy": SMALL["policy"], "signals": SMALL["signals"]}, {}))
    ranker = Ranker(settings_of(config)._replace(budget=SCRATCH), NO_KEY)
    marks = [mark_of(ranker, shelf) for shelf in ranker.rows.tables]
    if not all(mark is not None and mark.exists() for mark in marks):
        return False
    for shelf in ranker.rows.tables:
        ranker.compile(shelf)
    return True


def main(channel: socket.socket) -> None:
    """Import everything, then fork for each order until the tests end."""
    import importlib

    for module in MODULES:
        importlib.import_module(module)
    loaded = False
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # keepers are reaped by the system
    while True:
        order, files, _, _ = socket.recv_fds(channel, MOST_BYTES, 3)
        if not order:
            return
        loaded = loaded or load_code()
        if not os.fork():
            channel.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            keep(json.loads(order), *files)
            os._exit(0)
        for file in files:
            os.close(file)


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
