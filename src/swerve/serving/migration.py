"""Layouts of stored records, and the conversion of records of older layouts.

A layout's description names the policy's classes. When another policy is configured, totals, signals and names are kept and the
policy's part starts fresh; when only hyper-parameters change, everything is kept. A record of `Swerve` for one slot becomes one of
`Listed`, the same policy for pages, and keeps everything it has learnt.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from swerve.core.decisions import disown
from swerve.serving.keys import owner_of
from swerve.serving.ledger import next_phase
from swerve.serving.place import UNPACK, Place
from swerve.serving.ranker import Ranker
from swerve.serving.rows import Shelf
from swerve.store.layouts import convert, layout_id, layout_of
from swerve.store.protocol import Damaged, Row, Store


def policy_in(text: str) -> str:
    """Return the policy's classes in a layout's description."""
    return text.partition('["policy ')[2].partition('"')[0]


#: The field of a policy's record that is the table's, not the policy's.
GENERATION = "generation"
#: The class that makes a policy for one slot one for pages. Its record has that of the policy inside under `INSIDE`.
PAGES, INSIDE = "Listed", "bandit"


def for_pages(text: str, wanted: str) -> str:
    """Return a layout's description with the policy's record inside one for pages, if that is what `wanted` has; else unchanged.

    Only the description changes: the bytes of such a record are those of the record inside.
    """
    before, after = policy_in(text).split(), policy_in(wanted).split()
    if PAGES in before or PAGES not in after or [name for name in after if name != PAGES] != before:
        return text
    at = after.index(PAGES)
    layout = json.loads(text)
    for field in layout["fields"]:
        if field[0].startswith("policy "):
            field[0] = f"policy {' '.join(after)}"
            fields = field[1]["fields"]
            for _ in range(at - 1):  # through the wrappers around it
                fields = next(inner for inner in fields if inner[0] == INSIDE)[1]["fields"]
            if at == 0:
                inside = [one for one in fields if one[0] != GENERATION]
                fields[:] = [
                    [INSIDE, {"bytes": field[1]["bytes"], "fields": inside}, [], 0],
                    *[one for one in fields if one[0] == GENERATION],
                ]
            else:
                inner = next(one for one in fields if one[0] == INSIDE)
                inner[1] = {"bytes": inner[1]["bytes"], "fields": [[INSIDE, inner[1], [], 0]]}
    return json.dumps(layout, separators=(",", ":"))


def is_rival(row: Row) -> bool:
    """Return whether a stored row is that of the control arm's policy."""
    return UNPACK.decode(row.names).rival


def as_today(ranker: Ranker, key: bytes, record: bytes, text: str, shelf: Shelf) -> bytes:
    """Return a record, whose layout has the description `text`, in the layout of a shelf."""
    wanted = shelf.description
    text = for_pages(text, wanted)
    return record if text == wanted else convert(record, text, wanted, ranker.blank(shelf, key))


def restore(ranker: Ranker, key: bytes, record: bytes, names: bytes, version: int, text: str, shelf: Shelf) -> Place | None:
    """Make a row in memory from a record, whose layout has the description `text`; None when there is no room."""
    place = ranker.restore(key, as_today(ranker, key, record, text, shelf), names, version, shelf)
    if place is None:
        return None
    if policy_in(for_pages(text, shelf.description)) != policy_in(shelf.description):
        # Earlier decisions are those of another policy.
        next_phase(place.record.ledger, float(place.record.ledger.seen))  # type: ignore[no-untyped-call]
        _disown(place, record, text)
    return place


def take_over(ranker: Ranker, before: Place) -> Place | None:
    """Make a row from that of another ranker, which may have another configuration; None when there is no room."""
    was = before.shelf
    shelf, record = ranker.rows.shelf_for(was.arms, was.rival), was.words[before.index].tobytes()
    return restore(ranker, before.key, record, before.names(), 0, was.description, shelf)


def _disown(place: Place, record: bytes, text: str) -> None:
    """Raise the arms' generations beyond those of the stored record, so that its decisions match no arm of the fresh policy."""
    stored = np.frombuffer(record, layout_of(text)[0])[0]
    before = next(stored[name] for name in stored.dtype.names if name.partition(" ")[0] == "policy")["generation"]
    generation = place.record.policy.generation
    shared = min(len(before), len(generation))
    generation[:shared] = before[:shared]
    disown(place.record.policy)  # type: ignore[no-untyped-call]


class Layouts:
    """The layouts of the records in a store."""

    def __init__(self, store: Store, ranker: Ranker) -> None:
        self.ranker = ranker
        self.texts = {shelf: shelf.description for shelf in ranker.rows.tables}
        self.ids = {shelf: layout_id(store, text) for shelf, text in self.texts.items()}
        self.known = store.layouts()

    def restore(self, row: Row) -> Place | None:
        """Make a row in memory from a stored one; None when there is no room."""
        return restore(self.ranker, row.key, row.record, row.names, row.version, self.known[row.layout], self.shelf_of(row))

    def misplaced(self, row: Row) -> Damaged | None:
        """Return the error of a record that belongs to another query, else None. Records of older layouts have no owner."""
        layout = layout_of(self.known[row.layout])[0]
        if "owner" not in (layout["ledger"].names or ()):
            return None
        owner = np.frombuffer(row.record, layout)[0]["ledger"]["owner"]
        if int(owner) == owner_of(row.key):
            return None
        return Damaged(row.key, row.version, f"the record of row {row.key.hex()} belongs to another query")

    def shelf_of(self, row: Row) -> Shelf:
        """Return the shelf for a stored row: the smallest capacity that holds its arms. A record of the control arm's policy can be
        viewed, not restored, where that arm has none now."""
        rows = self.ranker.rows
        arms = layout_of(self.known[row.layout])[0]["ledger"]["plays"].shape[0]
        return rows.shelf_for(arms, is_rival(row) and bool(rows.rivals))

    def view(self, row: Row) -> Any:
        """Return the record of a stored row, to read from."""
        shelf, record = self.today(row)
        return np.frombuffer(record, shelf.dtype)[0]

    def today(self, row: Row) -> tuple[Shelf, bytes]:
        """Return a stored record in the current layout of its capacity, and its shelf."""
        shelf = self.shelf_of(row)
        return shelf, as_today(self.ranker, row.key, row.record, self.known[row.layout], shelf)
