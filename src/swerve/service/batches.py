"""Batches: rows as the store takes them, committed around version conflicts and damaged pages.

`row_of` runs on the event loop, where rows change; `commit` runs in the writer's thread.
"""

from __future__ import annotations

from collections.abc import Mapping

from swerve.serving.requests import Misplaced
from swerve.serving.rows import Place, Shelf
from swerve.store.protocol import DAY, Batch, Conflict, Row, Store, StoreError

#: Commits of one batch that may end in a conflict. A conflict names the versions that differ, so the second attempt
#: normally succeeds; the last attempt raises.
MOST_CONFLICTS = 3


def row_of(place: Place, layouts: Mapping[Shelf, int]) -> Row:
    """Return a query in memory as the next version of its stored row; `layouts` has the id of each table's layout."""
    shelf, index = place.shelf, place.index
    at = shelf.at
    if shelf.numbers[index, at["owner"]] != place.owner:
        raise Misplaced(place)  # the record of one query must not be stored under the key of another
    return Row(
        place.key,
        place.version + 1,
        layouts[shelf],
        int(shelf.floats[index, at["seen"]] // DAY),
        (int(shelf.numbers[index, at["requests"]]) + 1).bit_length() - 1,
        float(shelf.floats[index, at["shifted"]]),
        shelf.words[index].tobytes(),
        place.names(),
    )


def commit(store: Store, rows: list[Row], used: list[tuple[int, int, bytes]], shared: dict[str, bytes]) -> frozenset[bytes]:
    """Commit rows, used decisions (number, outcome, key of the row) and shared records; return the keys of the rows that cannot be
    written because their page is damaged.

    Such a row must not block the others: where the store does not name the damaged rows, each row is committed alone.
    """
    lost: set[bytes] = set()
    while True:
        good = [row for row in rows if row.key not in lost]
        try:
            insist(store, Batch(good, [(number, outcome) for number, outcome, key in used if key not in lost], shared))
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
            insist(store, Batch([row], [(number, outcome) for number, outcome, key in used if key == row.key], {}))
        except StoreError as error:
            if error.kind != "corrupt":
                raise
            store.probe()  # raises when the whole store is damaged rather than this row
            lost.add(row.key)
    return frozenset(lost)


def insist(store: Store, batch: Batch) -> None:
    """Commit a batch, with memory's version where memory and store differ.

    This process owns the store, so memory is right: the stored row has expired meanwhile, or an earlier commit of the batch was
    written although it ended in an error.
    """
    for _ in range(MOST_CONFLICTS):
        try:
            return store.commit(batch)
        except Conflict as conflict:
            for row in batch.rows:
                if row.key in conflict.versions:
                    row.version = conflict.versions[row.key] + 1
    store.commit(batch)
