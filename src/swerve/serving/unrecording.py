"""Deletion from recordings: texts are replaced where they lie, and the key of a deleted query by a random one.

What is left of a deleted query are numbers of a query that nobody can name, not even with the secrets: the hash of a text is keyed
with random bytes that are forgotten. So a replay still gives the same pages, and the same records but for their owners.

Tests: tests/serving/test_unrecording.py.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Sequence

import msgspec

from swerve.serving.entries import (
    BEGUN,
    BODY,
    BYTE,
    FILL_UP_AT,
    KEPT,
    LOADED,
    MASK,
    NAMED,
    NOW,
    OWNER,
    REPORTED,
    RULED,
    SIZE_AT,
    TOLD,
    foreign,
    words_in,
)
from swerve.serving.messages import Event
from swerve.serving.place import PACK, UNPACK
from swerve.store.blocks import Block
from swerve_client.naming import CONTROL, key_text, namespace_in

#: Begins what stands in place of a text that was deleted.
DELETED = "deleted:"
#: Bytes of a hash, and of the key that it has.
HASH, SALT = 8, 32

#: Where an entry with records of operators begins: its kind, no flags, the bytes that fill it up, its size, and no key.
_KEPT = re.compile(bytes([KEPT, 0]) + rb".\x00.{4}" + bytes(2 * BYTE), re.DOTALL)

_encode = msgspec.msgpack.Encoder().encode
_Ruled, _Reported = tuple[int, list[str], list[float]], tuple[int, list[Event], list[str] | None]
_Loaded = tuple[int, bool, str | None, bytes, bytes]


class Scrub:
    """Makes content of blocks without what is deleted: the queries of `keys`, or else a `result`, named `instead`, in all queries
    that are `concerned`, by their key and namespace."""

    def __init__(
        self,
        keys: Sequence[bytes] = (),
        result: str | None = None,
        instead: str = "",
        concerned: Callable[[bytes, str | None], bool] = lambda key, namespace: True,
    ) -> None:
        self.result, self.instead, self.concerned = result, instead, concerned
        self.keys = {} if result is not None else {key: os.urandom(len(key)) for key in keys}
        self._needles = [key[:BYTE] for key in self.keys] if result is None else [result.encode()]
        self._salt = os.urandom(SALT)
        self._namespaces: dict[bytes, str | None] = {}  # of queries, where only those of one are concerned

    def _hash(self, text: str) -> str:
        return DELETED + hashlib.blake2b(text.encode(), key=self._salt, digest_size=HASH).hexdigest()

    def name(self, name: str) -> str:
        """Return what stands in place of a candidate's name."""
        if self.result is None:
            return self._hash(name)
        return self.instead if name == self.result else name

    def text(self, text: str) -> str:
        """Return what stands in place of a query's text; what its records share with others stays."""
        return key_text(self._hash(text), namespace=namespace_in(text), arm="control" if CONTROL in text else None)

    def __call__(self, content: bytes) -> bytes:
        """Return content without what is deleted, with as many entries."""
        if self.result is None and not any(needle in content for needle in self._needles) and not _KEPT.search(content):
            return content
        block = Block(0, 0, 0, 0.0, content)
        words, at, pieces = words_in(block), 0, list[bytes]()
        while at < len(words):
            head = int(words[at])
            size = head >> SIZE_AT
            if not BODY <= size <= len(words) - at:
                raise foreign(block)
            entry = words[at : at + size].tobytes()
            key, kind = entry[OWNER * BYTE : NOW * BYTE], head & MASK
            body = entry[BODY * BYTE : len(entry) - (head >> FILL_UP_AT & MASK)]
            if kind in (BEGUN, LOADED) and self.result is not None:
                self._namespaces[key] = self._namespace(kind, body)
            if self._touches(key, kind):
                changed = self._changed(kind, body)
                if changed != body:
                    fill = -len(changed) % BYTE
                    head = head & ~(MASK << FILL_UP_AT) & (1 << SIZE_AT) - 1 | fill << FILL_UP_AT
                    head |= (BODY + (len(changed) + fill) // BYTE) << SIZE_AT
                    entry = head.to_bytes(BYTE, "little") + entry[BYTE : BODY * BYTE] + changed + bytes(fill)
            pieces.append(entry)
            at += size
        out = b"".join(pieces)
        for old, new in self.keys.items():  # in heads, where sessions came from, and as the owners of records
            out = out.replace(old[:BYTE], new[:BYTE]).replace(old[BYTE:], new[BYTE:])
        return out

    @staticmethod
    def _namespace(kind: int, body: bytes) -> str | None:
        if kind == LOADED:
            _, _, namespace, _, _ = msgspec.msgpack.decode(body, type=_Loaded)
        else:
            _, _, namespace = msgspec.msgpack.decode(body[BYTE:], type=tuple[int, bool, str | None])
        return None if namespace is None else str(namespace)

    def _touches(self, key: bytes, kind: int) -> bool:
        """Return whether an entry may have a text that is deleted."""
        if kind == KEPT:
            return True
        if kind not in (NAMED, LOADED, RULED, REPORTED, TOLD):
            return False
        return key in self.keys if self.result is None else self.concerned(key, self._namespaces.get(key))

    def _changed(self, kind: int, body: bytes) -> bytes:
        """Return the body of an entry without the texts that are deleted."""
        if kind == KEPT:  # it was for a start before the deletion, which no start needs any more
            return _encode({})
        if kind == TOLD:
            return body if self.result is not None else self.text(body.decode()).encode()
        if kind == NAMED:
            return body[:BYTE] + self.name(body[BYTE:].decode()).encode()
        if kind == RULED:
            number, page, chances = msgspec.msgpack.decode(body, type=_Ruled)
            return _encode((number, list(map(self.name, page)), chances))
        if kind == REPORTED:
            number, events, shown = msgspec.msgpack.decode(body, type=_Reported)
            for event in events:
                event.result = None if event.result is None else self.name(event.result)
                event.id = event.id if self.result is not None else None
            return _encode((number, events, None if shown is None else list(map(self.name, shown))))
        arms, rival, namespace, record, packed = msgspec.msgpack.decode(body, type=_Loaded)
        names = UNPACK.decode(packed)
        names.ids = [None if name is None else self.name(name) for name in names.ids]
        if names.query is not None and self.result is None:
            names.query = self.text(names.query)
        return _encode((arms, rival, namespace, record, PACK.encode(names)))
