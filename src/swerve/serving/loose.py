"""Values of foreign JSON, read leniently: a value of the wrong kind is missing. Logs and the collectors of others have such."""

from __future__ import annotations

import math
from typing import Any

import msgspec


def text_of(value: Any) -> str | None:
    """Return an id or a query as text; None for what cannot be one.

    >>> text_of(7.0), text_of(" a "), text_of(""), text_of({})
    ('7', 'a', None, None)
    """
    if isinstance(value, str):
        return value.strip() or None
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    try:
        return str(value) if isinstance(value, int | float) else None
    except ValueError:  # Python refuses to print whole numbers of more than 4300 digits
        return None


def number_of(value: Any) -> float:
    """Return a finite number, or NaN.

    >>> number_of("0.5"), number_of("inf"), number_of([])
    (0.5, nan, nan)
    """
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan
    return number if math.isfinite(number) else math.nan


def items_of(value: Any) -> list[Any] | None:
    """Return a list: as it is, from JSON in a text, or from a text separated by `|`, `;` or commas.

    >>> items_of("a|b"), items_of('["a", 2]'), items_of(["x"]), items_of(7), items_of(None), items_of("")
    (['a', 'b'], ['a', 2], ['x'], [7], None, [])
    """
    if value is None or isinstance(value, dict):
        return None
    if isinstance(value, list):
        return value
    if not isinstance(value, str):
        return [value]
    text = value.strip()
    if text.startswith("["):
        try:
            found = msgspec.json.decode(text)
        except msgspec.DecodeError:
            return None
        return found if isinstance(found, list) else None
    for mark in "|;,":
        if mark in text:
            return [part.strip() for part in text.split(mark)]
    return [text] if text else []


def inside(record: Any, path: str) -> Any:
    """Return a value by a path with dots; a key that has the dots itself comes first.

    >>> inside({"a": {"b": 1}}, "a.b"), inside({"a.b": 2}, "a.b"), inside({}, "a.b")
    (1, 2, None)
    """
    if isinstance(record, dict) and path in record:
        return record[path]
    value = record
    for part in path.split("."):
        if not isinstance(value, dict):
            return None
        value = value.get(part)
    return value
