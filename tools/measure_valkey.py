"""Measure what queries take in a Valkey server, and how fast rows and entries are written.

python tools/measure_valkey.py valkey://HOST:PORT/NUMBER?prefix=NEW [--rows N]

The prefix must not be there yet; its keys are removed afterwards. Rows have the size of a query of 8 candidates under the default
policy, packed as such records are (docs/store.md), the ids of 8 candidates, and one used decision.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time

from swerve.core.errors import SwerveError
from swerve.store import Batch, Entries, Row, open_store
from swerve.store.packed import pack
from swerve.store.urls import store_exists
from swerve.store.valkey_link import Link
from swerve.store.valkey_owned import WRITE_SECONDS
from swerve.store.valkey_urls import address_of

#: Bytes of a record, of its words that are not zero, and of the ids of its candidates.
RECORD, FILLED, NAMES = 2808, 1200, 120
#: Rows of a checkpoint, bytes of an entry, and calls that are timed.
ROWS, ENTRY, CALLS = 64, 100, 500
MILLI, MB = 1e3, 1e6


def row_of(number: int, dice: random.Random) -> Row:
    """Return a row."""
    record = dice.randbytes(FILLED).replace(b"\0", b"\1") + bytes(RECORD - FILLED)
    return Row(dice.randbytes(16), 1, 1, 20_000 + number % 90, number % 12, 0.0, record, dice.randbytes(NAMES))


def used_memory(link: Link) -> int:
    """Return the bytes that the server uses."""
    return int(link.info("memory")["used_memory"])


def main() -> None:
    """Fill a store, and print what it takes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("store", help="address of a store that is not there yet")
    parser.add_argument("--rows", type=int, default=100_000, help="rows (100000)")
    asked = parser.parse_args()
    if store_exists(asked.store):
        raise SwerveError("this store is there already: name another prefix")
    address, dice = address_of(asked.store), random.Random(1)
    link = Link(address, "measured", WRITE_SECONDS)
    before = used_memory(link)
    store = open_store(asked.store)
    try:
        spent = list[float]()
        for start in range(0, asked.rows, ROWS):
            some = range(start, min(start + ROWS, asked.rows))
            batch = Batch([row_of(number, dice) for number in some], [(1 << 40 | number, 1) for number in some], epoch=store.epoch)
            since = time.perf_counter()
            store.checkpoint(batch)
            spent.append(time.perf_counter() - since)
        each = (used_memory(link) - before) / asked.rows
        row = row_of(0, dice)
        stored = len(pack([row.record])[0][0])
        print(f"{asked.rows:,} rows, each {stored:,} bytes of record and {NAMES} of ids: {each:,.0f} bytes of memory a row")
        print(f"store.size() says {store.size().data / asked.rows:,.0f}; a million queries: {each:,.0f} MB")
        print(f"a checkpoint of {ROWS} rows: {statistics.median(spent) * MILLI:.2f} ms")
        appended = list[float]()
        for _ in range(CALLS):
            since = time.perf_counter()
            store.append([Entries(dice.randbytes(ENTRY), 1)], 0.0)
            appended.append(time.perf_counter() - since)
        late = statistics.quantiles(appended, n=100)[-1]
        print(f"an append: {statistics.median(appended) * MILLI:.2f} ms, 99 of 100 below {late * MILLI:.2f} ms")
        size = store.size()
        print(f"an entry of {ENTRY} bytes, appended alone: {size.log / CALLS:,.0f} bytes of block")
    finally:
        store.close()
        keys = list(link.call("KEYS", f"{address.keys}*"))
        link.call("UNLINK", *keys)
        link.close()


if __name__ == "__main__":
    main()
