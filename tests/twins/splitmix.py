"""Splitmix64 from its published definition (Steele, Lea, Flood 2014), and the streams named by a path."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

MASK = 2**64 - 1
GAMMA = 0x9E3779B97F4A7C15


def finish(z: int) -> int:
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def word(start: int, t: int) -> int:
    """Return the t-th word of the stream, t = 1, 2, …"""
    return finish((start + t * GAMMA) & MASK)


def as_unit(bits: int) -> float:
    return (bits >> 11) / 2**53


def named(seed: int, *path: object) -> int:
    """Return the start of the stream with this path."""
    text = "/".join(str(part) for part in (seed, *path))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def words(start: int) -> Callable[[], int]:
    """Return a callable that gives the next word."""
    state = [start]

    def following() -> int:
        state[0] = (state[0] + GAMMA) & MASK
        return finish(state[0])

    return following


def uniforms(start: int) -> Callable[[], float]:
    following = words(start)
    return lambda: as_unit(following())
