"""Values of log lines, read leniently: a value of the wrong kind is missing."""

from __future__ import annotations

import math
from typing import Any

from swerve.core.errors import SwerveError
from swerve.serving.loose import inside as inside, items_of as items_of, number_of as number_of, text_of as text_of


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
