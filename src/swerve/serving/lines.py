"""Where the rows of all queries are while a journal is played: a table from keys to rows, for compiled code.

Tests: tests/serving/test_playing.py.
"""

from __future__ import annotations

import numpy as np

from swerve.serving.entries import BYTE
from swerve.serving.entry_kernels import LINE_WORDS, put_line, spread_lines
from swerve.serving.keys import owner_of

#: Lines of the table that leads from a key to a row, at first; it has twice as many whenever half of them are taken.
FIRST_LINES = 1 << 12


class Lines:
    """Where the rows of all queries are, for compiled code."""

    def __init__(self) -> None:
        self.table = np.zeros((FIRST_LINES, LINE_WORDS), np.int64)
        self._taken = 0

    def put(self, key: bytes, where: int) -> None:
        """Set where the row of a query is; `NOWHERE`: it has none any more."""
        self._taken += bool(put_line(self.table, owner_of(key), owner_of(key[BYTE:]), where))  # type: ignore[no-untyped-call]
        if 2 * self._taken > len(self.table):
            self.grow()

    def grow(self) -> None:
        """Make the table twice as large."""
        larger = np.zeros((2 * len(self.table), LINE_WORDS), np.int64)
        spread_lines.bind()(self.table, larger)
        self.table = larger
