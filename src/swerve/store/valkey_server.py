"""What a Valkey server promises: its settings, its replicas, its files.

An append is acknowledged when the server replies. Only with the settings of `WANTED` does it write and sync its append-only file
before that. They can be changed while the server runs, so they are checked every few seconds.
"""

from __future__ import annotations

import time
from typing import NamedTuple

from swerve.store.protocol import StoreError
from swerve.store.valkey_link import Link

#: The settings with which a reply means that what was written is on the disk, and stays there.
WANTED = {"appendonly": "yes", "appendfsync": "always", "no-appendfsync-on-rewrite": "no", "maxmemory-policy": "noeviction"}
#: Seconds between two looks at a rewrite of the server's file, and seconds that it may take.
LOOK_EVERY, REWRITE_SECONDS = 0.02, 60.0
#: Milliseconds that replicas have to write and sync.
REPLICAS_MS = 1500


class Promise(NamedTuple):
    """What a server promises. `trouble` is empty if what it acknowledges is durable; else the reason why not. `replicas` must have
    what was written on their disks before it counts."""

    trouble: str
    replicas: int


def promise_of(link: Link) -> Promise:
    """Return what a server promises. Raises `StoreError` for a server that cannot have a store at all."""
    told = link.info("default")
    if told.get("role") == "slave":
        raise StoreError("gone", f"{link.address} is a replica: name the primary")
    if told.get("cluster_enabled") == "1":
        raise StoreError("io", f"{link.address} is a node of a cluster, which is not supported: use a server of its own")
    trouble = _settings(link)
    # a replica that is still receiving its first copy cannot be promoted
    replicas = sum(name.startswith("slave") and "state=online" in value for name, value in told.items())
    if replicas and link.call("COMMAND", "INFO", "WAITAOF")[0] is None:
        trouble = trouble or (
            f"it has {replicas} replicas and no WAITAOF (Valkey, or Redis from 7.2 on, has it), so that a replica that is promoted "
            "may lack clicks"
        )
        replicas = 0
    return Promise(trouble, 0 if trouble else replicas)


def _settings(link: Link) -> str:
    """Return what is wrong with the settings of a server, in words; empty if they are right."""
    try:
        told = link.call("CONFIG", "GET", *WANTED)
    except StoreError as error:
        if error.kind != "io" or error.uncertain:
            raise
        return f"its settings cannot be read, because CONFIG is forbidden ({error})"
    found = dict(zip(*[iter(one.decode() for one in told)] * 2, strict=True))
    wrong = [f"{name} {found.get(name, 'unknown')}" for name, wanted in WANTED.items() if found.get(name) != wanted]
    if not wrong:
        return ""
    needed = ", ".join(f"{name} {wanted}" for name, wanted in WANTED.items() if found.get(name) != wanted)
    return f"it has {', '.join(wrong)}; it needs {needed}"


def wait_for_replicas(link: Link, replicas: int) -> None:
    """Wait until the replicas have on their disks what this connection wrote last. Raises "slow" with `uncertain`."""
    own, theirs = link.call("WAITAOF", 1, replicas, REPLICAS_MS)
    if own < 1 or theirs < replicas:
        raise StoreError(
            "slow",
            f"{link.address}: {theirs} of {replicas} replicas have written to their disks (appendonly yes, appendfsync)",
            uncertain=True,
        )


def rewrite_files(link: Link) -> None:
    """Rewrite the server's files, so that they no longer contain what was removed or replaced. Raises "locked" with `uncertain`
    when that takes too long."""
    until = time.monotonic() + REWRITE_SECONDS
    files = []
    if _idle(link, until).get("aof_enabled") == "1":
        files.append(("BGREWRITEAOF", "aof_last_bgrewrite_status"))
    if _saves(link):
        files.append(("BGSAVE", "rdb_last_bgsave_status"))
    for command, status in files:
        _idle(link, until)
        while True:
            try:
                link.call(command)
                break
            except StoreError as error:
                if "progress" not in str(error):
                    raise
            _idle(link, until)
        if _idle(link, until).get(status) != "ok":
            raise StoreError(
                "io", f"{link.address}: it is deleted, but the files still have it, because {command} failed", uncertain=True
            )


def _saves(link: Link) -> bool:
    """Return whether the server writes snapshots by itself; True if its settings cannot be read."""
    try:
        return bool(link.call("CONFIG", "GET", "save")[1])
    except StoreError as error:
        if error.kind != "io" or error.uncertain:
            raise
        return True


def _idle(link: Link, until: float) -> dict[str, str]:
    """Wait until the server rewrites no file, and return the section `persistence` of its `INFO` then."""
    while True:
        told = link.info("persistence")
        busy = ("aof_rewrite_in_progress", "aof_rewrite_scheduled", "rdb_bgsave_in_progress")
        if all(told.get(name) == "0" for name in busy):
            return told
        if time.monotonic() > until:
            raise StoreError(
                "locked",
                f"{link.address}: it is deleted, but the server's files still have it: rewriting them takes longer than "
                f"{REWRITE_SECONDS:g} s; delete it again",
                uncertain=True,
            )
        time.sleep(LOOK_EVERY)
