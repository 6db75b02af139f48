"""Values of log lines, read leniently: a value of the wrong kind is missing."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from swerve.core.errors import SwerveError


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


def texts_of(value: Any) -> list[str]:
    """Return the ids in a list, see `items_of`; what cannot be an id is left out.

    >>> texts_of(["a", "b"]), texts_of(["a ", 7, None]), texts_of(None)
    (['a', 'b'], ['a', '7'], [])
    """
    if type(value) is list and value:
        try:
            if len("".join(value).split()) == 1 and "" not in value:  # nearly always: nothing to convert, nothing to strip
                return value
        except TypeError:
            pass
    return [name for each in items_of(value) or [] if (name := text_of(each)) is not None]


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


def chances_of(values: Any, length: int) -> list[float] | None:
    """Return probabilities in (0, 1], one for each of `length` results, or None."""
    if type(values) is list and len(values) == length and set(map(type, values)) == {float}:  # nearly always
        total = sum(values)
        return values if total == total and min(values) > 0.0 and max(values) <= 1.0 else None
    found = items_of(values)
    if found is None or len(found) != length:
        return None
    numbers = [number_of(value) for value in found]
    return numbers if all(0.0 < number <= 1.0 for number in numbers) else None


def numbers_in(value: Any) -> dict[str, float] | None:
    """Return the finite numbers of a mapping by their names, or None."""
    if not isinstance(value, dict):
        return None
    found = {str(name): number_of(item) for name, item in value.items() if not isinstance(item, str)}
    kept = {name: number for name, number in found.items() if math.isfinite(number)}
    return kept or None


def mapping(pairs: tuple[str, ...], known: tuple[str, ...]) -> dict[str, str]:
    """Return the mapping of fields to columns that `--map FIELD=COLUMN` gives.

    >>> mapping(("query=term",), ("query", "shown"))
    {'query': 'term'}
    """
    out = {}
    for pair in pairs:
        for part in pair.split(","):
            field, mark, column = (piece.strip() for piece in part.partition("="))
            if not mark or not column or (field not in known and not field.startswith("signal.")):
                raise SwerveError(
                    f"--map {part} is not allowed; it must be FIELD=COLUMN, FIELD one of {', '.join(known)} or signal.NAME"
                )
            out[field] = column
    return out
