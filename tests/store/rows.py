"""Small rows for tests, each identified by a number."""

from __future__ import annotations

import hashlib
from dataclasses import replace

from swerve.store import Row


def key(number: int) -> bytes:
    return hashlib.blake2b(number.to_bytes(8, "little"), digest_size=16).digest()


def row(number: int, version: int = 1, *, day: int = 20_000, level: int = 3, shifted: float = 0.0, size: int = 200) -> Row:
    """Return the row with this number and version; both determine its record."""
    seed = hashlib.blake2b(f"{number}/{version}".encode()).digest()
    record = (seed * (size // len(seed) + 1))[:size]
    return Row(key(number), version, 1, day, level, shifted, record, f"names of {number}".encode())


def newer(old: Row, **changes: object) -> Row:
    return replace(old, version=old.version + 1, **changes)  # type: ignore[arg-type]
