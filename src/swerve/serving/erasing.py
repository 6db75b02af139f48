"""Deletion for good: of a query, or of a candidate in one query or in all; from memory, from stored records and from the audit.

What was deleted is named by keyed hashes alone: the key of the query, and the hash of the candidate's id. These hashes are kept for
the window of feedback, so that a late click on an earlier ranking brings nothing back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from swerve.serving.control import Change, Rule
from swerve.serving.keys import Hash, owner_of
from swerve.serving.messages import Event
from swerve.serving.migration import GENERATION, Layouts, for_pages, policy_in
from swerve.serving.place import PACK, UNPACK, Place
from swerve.serving.ranker import KEY, Ranker
from swerve.serving.rows import Shelf
from swerve.store.layouts import convert, layout_of
from swerve.store.protocol import Row

#: The record of the store that names what was deleted lately.
DELETED = "deleted"
#: Begins the name of a candidate that was deleted.
HASH = "hash:"


class Target(Struct, frozen=True):
    """What is deleted, without its text: the key of a query (None: all, of a namespace if there is one), the hash of a result; and
    the key of the query's record for the policy of the control arm."""

    key: bytes | None
    result: int | None = None
    namespace: str | None = None
    rival: bytes | None = None

    @property
    def keys(self) -> list[bytes]:
        """The keys of the query's records."""
        return [key for key in (self.key, self.rival) if key is not None]

    @property
    def query_name(self) -> str | None:
        """The query as the audit names it."""
        return None if self.key is None else KEY + self.key.hex()

    @property
    def result_name(self) -> str | None:
        """The result as the audit names it."""
        return None if self.result is None else f"{HASH}{self.result:016x}"

    def concerns(self, key: bytes, namespace: str | None) -> bool:
        """Return whether a query is concerned."""
        return key in self.keys if self.key is not None else self.namespace is None or self.namespace == namespace


class Gone(Struct, omit_defaults=True):
    """One deletion, as the store keeps it."""

    at: float
    key: str | None = None
    result: int | None = None
    namespace: str | None = None
    rival: str | None = None


def target_of(ranker: Ranker, key: bytes | None, result: int | None, namespace: str | None) -> Target:
    """Return what is deleted where a person names a query, a result, or both."""
    return Target(key, result, namespace, None if key is None else ranker.keys.rival(key))


class Erased:
    """The deletions of the last `window` seconds: decisions from before them bring nothing back."""

    def __init__(self, window: float) -> None:
        self.window = window
        self.gone: list[tuple[float, Target]] = []
        self._queries: dict[bytes, float] = {}
        self.results: list[tuple[float, Target]] = []  # those of results

    def load(self, kept: Mapping[str, bytes], now: float) -> None:
        """Take up the record of a store."""
        found = msgspec.json.decode(kept[DELETED], type=list[Gone]) if DELETED in kept else []
        made = [(one.at, Target(_bytes(one.key), one.result, one.namespace, _bytes(one.rival))) for one in found]
        self._set(made, now)

    def _set(self, gone: Iterable[tuple[float, Target]], now: float) -> None:
        self.gone = [(at, target) for at, target in gone if now - at <= self.window]
        self.results = [(at, target) for at, target in self.gone if target.result is not None]
        self._queries = {key: at for at, target in self.gone if target.result is None for key in target.keys}

    def note(self, target: Target, now: float) -> None:
        """Add a deletion."""
        self._set([*self.gone, (now, target)], now)

    def without(self, target: Target, at: float, now: float) -> None:
        """Take back a deletion that could not be written."""
        self._set([one for one in self.gone if one != (at, target)], now)

    def record(self) -> bytes:
        """Return the record for the store."""
        lines = [Gone(at, _hex(t.key), t.result, t.namespace, _hex(t.rival)) for at, t in self.gone]
        return msgspec.json.encode(lines)

    def query(self, key: bytes, at: float) -> bool:
        """Return whether a query was deleted since the time of a decision."""
        return at <= self._queries.get(key, -1.0)

    def left_of(self, place: Place, at: float, events: list[Event], short: Hash) -> list[Event]:
        """Return the events on a decision without those that name a result which was deleted since."""
        hidden = {t.result for since, t in self.results if at <= since and t.concerns(place.key, place.namespace)}
        if not hidden:
            return events
        return [event for event in events if event.result is None or short(event.result) not in hidden]


def _hex(key: bytes | None) -> str | None:
    return None if key is None else key.hex()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


def forget(ranker: Ranker, target: Target, now: float) -> list[Place]:
    """Delete from memory; return the rows that are gone, or that have lost the result."""
    if target.key is not None:
        places = [place for place in map(ranker.rows.get, target.keys) if place is not None]
    else:
        places = [place for place in ranker.rows if target.concerns(place.key, place.namespace)]
    if target.result is None:
        for place in places:
            place.dirty = False
            ranker.rows.drop(place)
        if ranker.notes is not None:  # rows that are not in memory too
            for key in {place.key for place in places} | set(target.keys):
                ranker.notes.deleted(key, now)
        ranker.unwritten = type(ranker.unwritten)((at, place) for at, place in ranker.unwritten if not place.gone)
        touched = places
    else:
        touched = [place for place in places if _strip(ranker, place, target.result, now)]
    keys = {place.key for place in touched} | set(target.keys)
    ranker.people.forget(keys)
    return touched


def _strip(ranker: Ranker, place: Place, result: int, now: float) -> bool:
    """Take a candidate's arm from it, with everything that the record has of it; return whether it had one."""
    if result not in place.shorts:
        return False
    arm = place.shorts.index(result)
    ranker.arms.vacate(place, arm, unnamed=True)
    ranker.mark(place, now)
    return True


class Eraser:
    """Makes stored rows without a candidate, in any thread."""

    def __init__(self, ranker: Ranker, layouts: Layouts) -> None:
        self.ranker, self.layouts = ranker, layouts

    def without(self, row: Row, result: int) -> Row | None:
        """Return a row without the candidate of this hash; None if it does not have it."""
        names = UNPACK.decode(row.names)
        short = self.ranker.rows.short
        arm = next((arm for arm, name in enumerate(names.ids) if name is not None and short(name) == result), None)
        if arm is None:
            return None
        names.ids[arm] = None
        layout, record = self._vacated(row, arm)
        return Row(row.key, row.version, layout, row.day, row.level, row.shifted, record, PACK.encode(names))

    def _vacated(self, row: Row, arm: int) -> tuple[int, bytes]:
        """Return the layout and the bytes of a record without what it has of an arm."""
        layouts = self.layouts
        shelf = layouts.shelf_of(row)
        wanted = layouts.texts[shelf]
        text = for_pages(layouts.known[row.layout], wanted)
        if policy_in(text) != policy_in(wanted) or arm >= shelf.arms:
            return row.layout, zeroed(row.record, layouts.known[row.layout], arm)
        record = row.record if text == wanted else convert(row.record, text, wanted, self._blank(shelf, row.key))
        table = np.frombuffer(bytearray(record), shelf.dtype)
        owner = int(table[0]["ledger"]["owner"])
        if shelf.calls.vacate(shelf.params, table, 0, owner, arm) != 0:
            raise RuntimeError("the record refuses its own owner")
        return layouts.ids[shelf], table.tobytes()

    def _blank(self, shelf: Shelf, key: bytes) -> bytes:
        """Return the record of a new query; not in the shelf, which another thread uses."""
        ranker, table = self.ranker, np.zeros(1, shelf.dtype)
        word = np.uint64(ranker.word_of(None, key))
        shelf.calls.begin(shelf.params, ranker.senses, table, 0, owner_of(key), word, 0.0)
        return table.tobytes()


#: The fields of the ledger that have a value for each arm.
OF_ARMS = ("first", "offered", "plays", "clicks", "phase_plays", "phase_clicks")


def zeroed(record: bytes, description: str, arm: int) -> bytes:
    """Return a record of another policy, which starts over when it is next read, with zeros in all that it has of an arm.

    In the policy's part, an array that merely is as long as there are arms loses a value too: nobody reads that part any more.
    """
    layout = layout_of(description)[0]
    table = np.frombuffer(bytearray(record), layout)
    arms = table[0]["ledger"]["plays"].shape[0]

    def clear(part: Any, name: str) -> None:
        if part.dtype.names is not None:
            for inner in part.dtype.names:
                clear(part[inner], inner)
        elif part.ndim > 1 and part.shape[1] == arms and name != GENERATION:
            part[:, arm] = 0

    for name in OF_ARMS:
        table["ledger"][name][:, arm] = 0
    clear(table[next(name for name in layout.names or () if name.startswith("policy"))], "")
    return table.tobytes()


# what operators wrote ------------------------------------------------------------------------------------------------------------

KeyFrom = Callable[[str, Mapping[str, str]], bytes]


def names_it(rule: Rule, target: Target, key_from: KeyFrom, short: Hash) -> bool:
    """Return whether a rule names the query, or the result, that is deleted."""
    key = None if rule.query is None else key_from(rule.query, rule.parts)
    if target.result is None:
        return key == target.key
    if rule.result is None or short(rule.result) != target.result:
        return False
    if target.key is not None:
        return key == target.key
    return target.namespace is None or rule.namespace == target.namespace


def scrubbed(changes: Iterable[Change], target: Target, key_from: KeyFrom, short: Hash) -> list[Change]:
    """Return the audit with the hash of what is deleted in place of its name, and without the notes of rules that named it."""

    def of_rule(rule: Rule | None) -> Rule | None:
        if rule is None or not names_it(rule, target, key_from, short):
            return rule
        if target.result is not None:
            return msgspec.structs.replace(rule, result=target.result_name, note=None)
        return msgspec.structs.replace(rule, query=target.query_name, locale=None, filter=None, segment=None, note=None)

    out: list[Change] = []
    for change in changes:
        before, after = of_rule(change.before), of_rule(change.after)
        made = change
        if before is not change.before or after is not change.after:
            made = msgspec.structs.replace(change, before=before, after=after)
        if made.query is not None and target.result is None and not made.query.startswith(KEY):
            given = {"locale": made.locale, "filter": made.filter, "segment": made.segment, "namespace": made.namespace}
            if key_from(made.query, {name: part for name, part in given.items() if part is not None}) == target.key:
                made = msgspec.structs.replace(made, query=target.query_name, locale=None, filter=None, segment=None)
        out.append(made)
    return out
