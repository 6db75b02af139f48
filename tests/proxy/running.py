"""Proxies as processes: `swerve proxy`, and `swerve serve` with the proxy inside."""

from __future__ import annotations

import contextlib
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from service.running import Running, running

Tables = dict[str, dict[str, Any]]


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as opened:
        return int(opened.getsockname()[1])


class Proxied(Running):
    """`swerve proxy`; `port` is its own."""

    def _whole(self) -> None:
        """It is ready when it says so."""


@contextlib.contextmanager
def proxied(folder: Path, upstream: int, service: int | None = None, changes: Tables | None = None) -> Iterator[Proxied]:
    """Yield a proxy in front of an engine."""
    away = free_port() if service is None else service
    own = {"listen": "127.0.0.1:0", "upstream": f"http://127.0.0.1:{upstream}", "service": f"http://127.0.0.1:{away}"}
    changes = changes or {}
    tables = {**changes, "proxy": {**own, "deadline_ms": 2000.0, **changes.get("proxy", {})}}
    made = Proxied(folder, tables, (sys.executable, "-m", "swerve", "proxy"))
    try:
        made.start()
        yield made
    finally:
        made.kill()


class Served(Running):
    """`swerve serve` with the proxy inside; `proxy` is the proxy's port."""

    proxy = 0


@contextlib.contextmanager
def served(folder: Path, upstream: int, rules: list[dict[str, Any]], **more: Any) -> Iterator[Served]:
    """Yield a service with the proxy inside."""
    port = free_port()
    tables = {"proxy": {"listen": f"127.0.0.1:{port}", "upstream": f"http://127.0.0.1:{upstream}", "rules": rules, **more}}
    with running(folder, tables) as made:
        one = Served.__new__(Served)
        one.__dict__ = made.__dict__
        one.proxy = port
        yield one
