"""`swerve serve` over a real store with injected faults: `python faulty.py --config FILE`, with any option of `swerve serve`.

`faults.json` beside FILE names the faults. Several can be active at once:

    {"full": true}                                          the database grows no further, and nothing is appended to the log
    {"load": 0.2, "commit": 0.1, "checkpoint": 0.1}         reading, appending or writing rows takes this many seconds longer
    {"error": {"kind": "io", "when": "before", "every": 2}} every second append or checkpoint fails, and writes nothing
    {"error": {"kind": "io", "when": "after", "every": 2}}  every second append or checkpoint writes, and reports a failure

`clock.bin` beside FILE has eight bytes: the seconds by which this process's wall clock is ahead of the machine's.
"""

from __future__ import annotations

import json
import mmap
import struct
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

FOLDER = Path(sys.argv[sys.argv.index("--config") + 1]).parent if "--config" in sys.argv else Path()
FILE = FOLDER / "faults.json"
CLOCK = FOLDER / "clock.bin"

if __name__ == "__main__" and CLOCK.exists():
    # before any import of the service: its clock keeps a reference to this function
    with CLOCK.open("rb") as opened:
        _shift = mmap.mmap(opened.fileno(), 8, access=mmap.ACCESS_READ)
    _wall = time.time
    time.time = lambda: _wall() + struct.unpack_from("<d", _shift)[0]

from swerve.store import Batch, Entries, StoreError, urls  # noqa: E402 - the clock comes first
from swerve.store.sqlite import SQLiteStore  # noqa: E402


class Faulty(SQLiteStore):
    """The SQLite engine with injected faults."""

    full = False
    calls = 0

    def __init__(self, *arguments: Any, **more: Any) -> None:
        self.waiting: list[Entries] = []  # for the next append that does not fail, as those of a journal do
        super().__init__(*arguments, **more)

    def _ordered(self) -> dict[str, Any]:
        faults: dict[str, Any] = json.loads(FILE.read_text()) if FILE.exists() else {}
        return faults

    def _obey(self, what: str) -> None:
        faults = self._ordered()
        time.sleep(faults.get(what, 0.0))
        if what == "checkpoint" and faults.get("full", False) != self.full and self._writer is not None:
            self.full = faults.get("full", False)
            pages = self._writer.execute("PRAGMA page_count").fetchone()[0]
            self._writer.execute(f"PRAGMA max_page_count = {pages if self.full else 1 << 30}")
        if what == "commit" and faults.get("full", False):
            raise StoreError("full", "to order, the log cannot be written")

    def _fail(self, when: str) -> None:
        """Raise the configured error if it is this call's turn."""
        error = self._ordered().get("error")
        if error is not None and error["when"] == when and self.calls % error["every"] == 0:
            raise StoreError(error["kind"], f"to order, {when} the call", uncertain=when == "after")

    def load(self, keys: Sequence[bytes]) -> Any:
        self._obey("load")
        return super().load(keys)

    def append(self, entries: Sequence[Entries], now: float) -> int:
        self.waiting += entries
        self._obey("commit")
        self.calls += 1
        self._fail("before")
        entries, self.waiting = self.waiting, []
        end = super().append(entries, now)
        self._fail("after")
        return end

    def checkpoint(self, batch: Batch) -> None:
        self._obey("checkpoint")
        self.calls += 1
        self._fail("before")
        super().checkpoint(batch)
        self._fail("after")

    def reopen(self) -> bool:
        same = super().reopen()
        if not same:
            self.waiting = []
        return same

    def probe(self) -> None:
        self._obey("checkpoint")
        self._obey("commit")
        super().probe()


if __name__ == "__main__":
    from swerve.cli import main

    urls.SQLiteStore = Faulty
    sys.argv = ["swerve", "serve", *sys.argv[1:]]
    main()
