"""Checkpoints of rows: as the store takes them, written around damaged pages.

`row_of` runs on the event loop, where rows change; `commit` runs in the writer's thread.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from swerve.serving.place import Place
from swerve.serving.requests import Misplaced
from swerve.serving.rows import Shelf
from swerve.store.protocol import DAY, Batch, Row, Store, StoreError


def row_of(place: Place, layouts: Mapping[Shelf, int], epoch: int) -> Row:
    """Return a query in memory as the row that the owner of this epoch stores; `layouts` has the id of each table's layout."""
    shelf, index = place.shelf, place.index
    at = shelf.at
    if shelf.numbers[index, at["owner"]] != place.owner:
        raise Misplaced(place)  # the record of one query must not be stored under the key of another
    return Row(
        place.key,
        epoch,
        layouts[shelf],
        int(shelf.floats[index, at["seen"]] // DAY),
        (int(shelf.numbers[index, at["requests"]]) + 1).bit_length() - 1,
        float(shelf.floats[index, at["shifted"]]),
        shelf.words[index].tobytes(),
        place.names(),
    )


def commit(store: Store, batch: Batch) -> frozenset[bytes]:
    """Write a checkpoint; return the keys of the rows that cannot be written because their page is damaged.

    Such a row must not block the others: where the store does not name the damaged rows, each row is written alone. With one of
    them the log must still be played from where it was before: `Batch.begin` is left out.
    """
    lost: set[bytes] = set()
    while True:
        good = [row for row in batch.rows if row.key not in lost]
        try:
            store.checkpoint(dataclasses.replace(batch, rows=good, begin=None if lost else batch.begin))
            return frozenset(lost)
        except StoreError as error:
            if error.kind != "corrupt" or not good:
                raise
            blamed = set(error.keys) & {row.key for row in good}
            if not blamed:
                break
            lost |= blamed
    for row in good:
        try:
            store.checkpoint(dataclasses.replace(batch, rows=[row], used=[], groups={}, begin=None))
        except StoreError as error:
            if error.kind != "corrupt":
                raise
            store.probe()  # raises when the whole store is damaged rather than this row
            lost.add(row.key)
    store.checkpoint(dataclasses.replace(batch, rows=[], begin=None if lost else batch.begin))
    return frozenset(lost)
