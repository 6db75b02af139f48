"""A process that commits batches and prints each acknowledged one: `python writer.py URL [ROWS]`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from store.rows import key, row

from swerve.store import Batch, open_store


def main() -> None:
    url, rows = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 3
    store = open_store(url)
    first = store.load([key(0)])[0]
    version = getattr(first, "version", 0)
    while True:
        version += 1
        changed = [row(i, version, level=version % 5, size=2200) for i in range(rows)]
        store.checkpoint(Batch(changed, [(version * 100 + i, i) for i in range(3)], {"count": str(version).encode()}))
        print(version, flush=True)


if __name__ == "__main__":
    main()
