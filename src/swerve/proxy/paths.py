"""Paths in JSON: looking values up, and changing one while every other byte stays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

Path = Sequence[str]
TABLE = msgspec.json.Decoder(dict[str, msgspec.Raw])
encode = msgspec.json.Encoder().encode


def path_of(text: str) -> tuple[str, ...]:
    """Return the parts of a path."""
    return tuple(text.split("."))


def look(value: Any, path: Path) -> Any:
    """Return what is at a path, or None. `*` is the only entry of an object or a list, a number an entry of a list.

    >>> look({"query": {"match": {"title": {"query": "boots"}}}}, ("query", "match", "*", "query"))
    'boots'
    >>> look({"must": [{"a": 1}, {"b": 2}]}, ("must", "1", "b")), look({"must": [1, 2]}, ("must", "*"))
    (2, None)
    """
    for part in path:
        if isinstance(value, dict):
            if part == "*" and part not in value:
                value = next(iter(value.values())) if len(value) == 1 else None
            else:
                value = value.get(part)
        elif isinstance(value, list):
            if part == "*":
                value = value[0] if len(value) == 1 else None
            else:
                value = value[int(part)] if part.isascii() and part.isdigit() and int(part) < len(value) else None
        else:
            return None
    return value


def without(text: bytes, path: Path) -> bytes:
    """Return an object in JSON without what is at a path. Objects that this empties go too, except the outermost.

    >>> without(b'{"size":1.50,"ext":{"ubi":{"a":1}}}', ("ext", "ubi"))
    b'{"size":1.50}'
    """
    return _without(text, path) or b"{}"


def _without(text: bytes, path: Path) -> bytes | None:
    table = TABLE.decode(text)
    inner = table.get(path[0])
    if inner is None:
        return text
    if len(path) == 1:
        del table[path[0]]
    else:
        if bytes(inner).lstrip()[:1] != b"{":
            return text
        made = _without(bytes(inner), path[1:])
        if made is None:
            del table[path[0]]
        elif made == bytes(inner):
            return text
        else:
            table[path[0]] = msgspec.Raw(made)
    return encode(table) if table else None


def having(text: bytes, path: Path, value: Any) -> bytes:
    """Return an object in JSON with a value at a path; objects on the way are made.

    >>> having(b'{"id":"t","params":{"q":"x"}}', ("params", "size"), 50)
    b'{"id":"t","params":{"q":"x","size":50}}'
    """
    table = TABLE.decode(text)
    if len(path) > 1:
        inner = table.get(path[0])
        table[path[0]] = msgspec.Raw(having(b"{}" if inner is None else bytes(inner), path[1:], value))
    else:
        table[path[0]] = msgspec.Raw(encode(value))
    return encode(table)
