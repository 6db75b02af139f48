"""`swerve serve` over a real store with faults to order: `python faulty.py --config FILE`.

Beside FILE, `faults.json` says which: {"full": true} lets the database grow no further, {"load": 0.2, "commit": 0.1} makes it slow.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from swerve.service import server
from swerve.service.config import load
from swerve.store import Batch, Store, store_path
from swerve.store.sqlite import SQLiteStore

FILE = Path(sys.argv[-1]).with_name("faults.json")


class Faulty(SQLiteStore):
    """The embedded engine, slower or fuller than it is."""

    full = False

    def _obey(self, what: str) -> None:
        faults: dict[str, Any] = json.loads(FILE.read_text()) if FILE.exists() else {}
        time.sleep(faults.get(what, 0.0))
        if what == "commit" and faults.get("full", False) != self.full and self._writer is not None:
            self.full = faults.get("full", False)
            pages = self._writer.execute("PRAGMA page_count").fetchone()[0]
            self._writer.execute(f"PRAGMA max_page_count = {pages if self.full else 1 << 30}")

    def load(self, keys: Sequence[bytes]) -> Any:
        self._obey("load")
        return super().load(keys)

    def commit(self, batch: Batch) -> None:
        self._obey("commit")
        super().commit(batch)

    def probe(self) -> None:
        self._obey("commit")
        super().probe()


def open_faulty(url: str, *, new: bool = False) -> Store:
    return Faulty(store_path(url), new=new)


if __name__ == "__main__":
    server.open_store = open_faulty
    server.serve(load(FILE.with_name(Path(sys.argv[2]).name)), lambda line: print(line, flush=True))
