"""State tables: the record types that hold a policy's state."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.extending import overload

from swerve.core.contract import contribution_layout, layout, pool_layout
from swerve.core.errors import SwerveError
from swerve.core.spec import Spec, record_dtype
from swerve.core.verbs import kernel

#: The sizes of records: a table for 5 arms has room for 8. Each size is compiled once.
CAPACITIES = (8, 16, 32, 64)

Table = np.ndarray[Any, np.dtype[Any]]


def capacity(what: str, wanted: int) -> int:
    """Return the smallest size that holds `wanted` arms or features.

    >>> capacity("arms", 5), capacity("features", 40)
    (8, 64)
    """
    for size in CAPACITIES:
        if wanted <= size:
            return size
    raise SwerveError(f"{what} = {wanted} is not allowed; {what} must be at most {CAPACITIES[-1]}")


UNUSED = "unused"  # the one field of a part without fields


def nested(fields: list[tuple[Any, ...]]) -> np.dtype[Any]:
    """Return a record type for a part that may have no fields (compiled records cannot be empty)."""
    return record_dtype(fields or [(UNUSED, "i8")])


def row_dtype(spec: Spec, arms: int, features: int) -> np.dtype[Any]:
    """Return the record type of one query's state: the policy's fields and the generation of each arm."""
    room = capacity("arms", arms)
    return record_dtype([*layout(spec, room, capacity("features", features)), ("generation", "u1", room)])


def pool_dtype(spec: Spec, features: int) -> np.dtype[Any]:
    """Return the record type of the knowledge shared by a group of queries."""
    return nested(pool_layout(spec, capacity("features", features)))


def contribution_dtype(spec: Spec, features: int) -> np.dtype[Any]:
    """Return the record type of what a worker has contributed to the knowledge of a group."""
    return nested(contribution_layout(spec, capacity("features", features)))


def pools_nothing(record: np.dtype[Any]) -> bool:
    """Return whether a record of a group has no field that anything could be kept in."""
    if record.fields is None:
        return False
    return all(name == UNUSED or pools_nothing(part) for name, (part, *_) in record.fields.items())


@kernel
def bit(arm):
    """Return the mask of one arm. Masks are signed 64-bit words."""
    return np.int64(1) << np.int64(arm)


@kernel
def has(mask, arm):
    """Return whether the arm's bit is set."""
    return (mask >> np.int64(arm)) & np.int64(1) != 0


def lowest(mask: Any) -> int:
    """Return the index of the lowest bit that is set; one must be. `mask & (mask - 1)` is the mask without it.

    A loop over set bits takes one branch that cannot be predicted, its end; a loop that asks for each bit takes many.

    >>> lowest(0b1010), lowest(-1 << 63)
    (1, 63)
    """
    return (int(mask) & -int(mask)).bit_length() - 1


#: For counting set bits: every second bit, two of every four, four of every eight, the lowest of every eight.
TWOS, FOURS, EIGHTS = np.uint64(0x5555555555555555), np.uint64(0x3333333333333333), np.uint64(0x0F0F0F0F0F0F0F0F)
LOWEST = np.uint64(0x0101010101010101)


def _lowest(mask):
    # the zeros below the lowest bit, as ones, are counted in a way that compilers know: on a processor they make one instruction
    word = np.uint64(mask)
    word = ~word & (word - np.uint64(1))
    word = word - ((word >> np.uint64(1)) & TWOS)
    word = (word & FOURS) + ((word >> np.uint64(2)) & FOURS)
    word = (word + (word >> np.uint64(4))) & EIGHTS
    return np.int64((word * LOWEST) >> np.uint64(56))


@overload(lowest)
def _(mask):
    return _lowest


lowest.compiled = _lowest  # type: ignore[attr-defined]  # lets the fingerprint of code see the compiled form


def full_mask(arms: int) -> int:
    """Return the mask of the first `arms` arms as a signed word.

    >>> full_mask(5), full_mask(64)
    (31, -1)
    """
    return -1 if arms == 64 else (1 << arms) - 1
