"""Rows as a service writes them, made without a service: records of the smallest layout with consistent counts."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from swerve.policies import policy
from swerve.serving.kernels import query_dtype
from swerve.serving.keys import owner_of
from swerve.serving.place import PACK, Names
from swerve.store import Row, Store, describe, layout_id

DAY = 86_400
LAYOUT = query_dtype(policy("ts", arms=8), 8, 3, 0)


def key(number: int) -> bytes:
    return hashlib.blake2b(number.to_bytes(8, "little"), digest_size=16).digest()


def made(store: Store, number: int, layout: np.dtype[Any] = LAYOUT, names: bytes | None = None, **changes: Any) -> Row:
    """Return the row of a query asked `number` + 3 times; `changes` sets fields of its ledger, arrays by their first values."""
    record = np.zeros(1, layout)
    book = record["ledger"]
    given = {"owner": owner_of(key(number)), "created": 1e9, "seen": 1e9 + number, "requests": number + 3, "phase": 1}
    given |= {"phase_requests": number + 3, "plays": [number + 2, 1], "clicks": [1], "phase_plays": [number + 2, 1]}
    for name, value in (given | changes).items():
        if name not in (layout["ledger"].names or ()):
            continue
        if isinstance(value, list):
            book[name][0, : len(value)] = value
        else:
            book[name][0] = value
    seen, asked, shifted = float(book["seen"][0]), int(book["requests"][0]), float(book["shifted"][0])
    number_of_layout = layout_id(store, describe(layout))
    packed = PACK.encode(Names(["a", "b"])) if names is None else names
    level = (max(asked, 0) + 1).bit_length() - 1
    return Row(key(number), 1, number_of_layout, int(seen // DAY), level, shifted, record.tobytes(), packed)
