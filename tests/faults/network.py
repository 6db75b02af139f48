"""A network between a service and a server of its store, which a test breaks: namespaces of the kernel, joined by a router.

    this process and the service — router — wire — the server, in a namespace of its own

The router forwards packets. By a rule it drops all of them, or those of one direction, silently, as a cable that is cut or a
firewall does; or it answers in the server's place that there is no such connection (a reset), as a host that was started again
does. A narrow link lets few bytes through. On the wire every packet can take a while, and some be lost.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from faults import wire
from faults.disk import can_mount
from postgres import Place, end_with_parent

#: Addresses that are reserved for measuring networks; two networks of four addresses each.
BLOCK = "198.18.{}.{}"


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"ip {' '.join(words)}: {done.stderr.strip()}")


class Network:
    """Two namespaces and their links; skips a test by name where they cannot be made."""

    def __init__(self, folder: Path) -> None:
        if shutil.which("ip") is None or not can_mount():
            pytest.skip("network namespaces need root and the program ip (iproute2)")
        if not os.access("/dev/net/tun", os.W_OK):
            pytest.skip("a slow network needs /dev/net/tun")
        self.number = os.getpid() % 250
        self.router, self.far = f"swerve-r{self.number}", f"swerve-f{self.number}"
        self.near, self.inner, self.outer, self.last = (f"swv{self.number}{letter}" for letter in "abcd")
        self.host = self._address(6)
        self.control = folder / "wire.bin"
        self.wire: subprocess.Popen[str] | None = None
        self.set(0.0, 0.0)
        try:
            self._make()
        except OSError as error:
            self.remove()
            pytest.skip(f"network namespaces cannot be made here: {error}")

    def _address(self, last: int) -> str:
        return BLOCK.format(self.number, last)

    def _make(self) -> None:
        for namespace in (self.router, self.far):
            _ip("netns", "add", namespace)
            _ip("-n", namespace, "link", "set", "lo", "up")
        _ip("link", "add", self.near, "type", "veth", "peer", "name", self.inner, "netns", self.router)
        command = [sys.executable, wire.__file__, self.router, self.outer, self.far, self.last, str(self.control)]
        self.wire = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=end_with_parent)
        assert self.wire.stdout is not None
        if self.wire.stdout.readline() != "ready\n":
            raise OSError("the wire cannot be made")
        self._up([], self.near, 1)
        self._up(["-n", self.router], self.inner, 2)
        self._up(["-n", self.router], self.outer, 5)
        self._up(["-n", self.far], self.last, 6)
        _ip("-n", self.far, "route", "add", "default", "via", self._address(5))
        _ip("route", "add", f"{self._address(4)}/30", "via", self._address(2))
        with self.inside(self.router):
            subprocess.run(["sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"], check=True)

    def _up(self, at: list[str], link: str, last: int) -> None:
        _ip(*at, "addr", "add", f"{self._address(last)}/30", "dev", link)
        _ip(*at, "link", "set", link, "up")

    @contextlib.contextmanager
    def inside(self, namespace: str) -> Iterator[None]:
        """Let this thread, and what it starts, be in a namespace."""
        with open("/proc/thread-self/ns/net") as before:
            wire.enter(f"/var/run/netns/{namespace}")
            try:
                yield
            finally:
                wire.enter(f"/proc/self/fd/{before.fileno()}")

    def place(self) -> Place:
        """Return where a server runs beyond the router."""
        return Place(self.host, lambda: self.inside(self.far))

    # ------------------------------------------------------------------ faults
    def set(self, seconds: float, lost: float) -> None:
        with open(self.control, "r+b" if self.control.exists() else "wb") as file:  # in place, because the wire has it mapped
            file.write(wire.CONTROL.pack(seconds, lost))

    @contextlib.contextmanager
    def slow(self, seconds: float, lost: float) -> Iterator[None]:
        """Let every packet take a while each way, and lose some, while this lasts."""
        self.set(seconds, lost)
        try:
            yield
        finally:
            self.set(0.0, 0.0)

    @contextlib.contextmanager
    def _rule(self, *rule: str) -> Iterator[None]:
        _ip("-n", self.router, "rule", "add", "pref", "1", *rule)
        try:
            yield
        finally:
            _ip("-n", self.router, "rule", "del", "pref", "1", *rule)

    def dropped(self) -> contextlib.AbstractContextManager[None]:
        """Drop everything."""
        return self._rule("blackhole")

    def deaf(self) -> contextlib.AbstractContextManager[None]:
        """Drop what is sent to the server."""
        return self._rule("to", self.host, "blackhole")

    def mute(self) -> contextlib.AbstractContextManager[None]:
        """Drop what the server sends: what it was asked has happened, and nobody is told."""
        return self._rule("from", self.host, "blackhole")

    @contextlib.contextmanager
    def reset(self) -> Iterator[None]:
        """Reset connections, and refuse new ones."""
        route = ("local", self.host, "dev", "lo", "table", "local")
        _ip("-n", self.router, "route", "add", *route)
        try:
            yield
        finally:
            _ip("-n", self.router, "route", "del", *route)

    @contextlib.contextmanager
    def narrow(self, rate: str = "128kbit") -> Iterator[None]:
        """Let few bytes through, in both directions; what would wait longer than a second is lost."""
        with contextlib.ExitStack() as undo:
            for link in (self.inner, self.outer):
                words = ["tc", "-n", self.router, "qdisc"]
                shape = ["root", "tbf", "rate", rate, "burst", "4kb", "latency", "1s"]
                done = subprocess.run([*words, "add", "dev", link, *shape], capture_output=True, text=True, check=False)
                if done.returncode:
                    pytest.skip(f"the kernel cannot make a link narrow: {done.stderr.strip()}")
                undo.callback(subprocess.run, [*words, "del", "dev", link, "root"], check=True)
            yield

    def remove(self) -> None:
        if self.wire is not None:
            self.wire.kill()
            self.wire.wait()
            assert self.wire.stdout is not None
            self.wire.stdout.close()
        for words in (["link", "del", self.near], ["netns", "del", self.router], ["netns", "del", self.far]):
            with contextlib.suppress(OSError):
                _ip(*words)
