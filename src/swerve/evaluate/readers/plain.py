"""Plain logs, one list a line: JSON lines, CSV or Parquet, with a mapping of columns."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from swerve.evaluate.lists import Shown
from swerve.evaluate.readers.fields import chances_of, inside, items_of, number_of, numbers_in, text_of
from swerve.evaluate.readers.source import Source
from swerve.evaluate.readers.times import seconds

#: Names of columns that are understood without a mapping, the first that a line has.
USUAL = {
    "time": ("time", "timestamp", "ts", "at", "now"),
    "query": ("query", "q", "search_term", "user_query", "keywords"),
    "shown": ("shown", "results", "ranking", "impressions", "page", "items", "objectIDs"),
    "clicks": ("clicks", "clicked", "clicked_ids", "click"),
    "positions": ("positions", "click_positions", "clicked_positions"),
    "propensities": ("propensities", "probabilities", "propensity"),
    "signals": ("signals",),
    "given": ("given", "candidates"),
}
FIELDS = tuple(USUAL)


def read(sources: Sequence[Source], columns: dict[str, str]) -> Iterator[Shown]:
    """Yield the lists of plain logs."""
    for source in sources:
        for line in source.records():
            entry = list_of(line, columns, source)
            if entry is not None:
                yield entry


def value(line: dict[str, Any], field: str, columns: dict[str, str]) -> Any:
    """Return the value of a field: from its mapped column, or else from the first usual one."""
    if field in columns:
        return inside(line, columns[field])
    return next((line[name] for name in USUAL[field] if name in line), None)


def list_of(line: dict[str, Any], columns: dict[str, str], source: Source) -> Shown | None:
    """Return the list of a line, or None."""
    query = text_of(value(line, "query", columns))
    found = items_of(value(line, "shown", columns))
    shown = [name for each in found or [] if (name := text_of(each)) is not None]
    if query is None:
        source.drop("no query")
        return None
    if not shown:
        source.drop("no results shown")
        return None
    if len(set(shown)) < len(shown):
        source.drop("a result twice in one list")
        return None
    clicks = clicks_of(line, columns, shown)
    if clicks is None:
        source.drop("a click on a result or position that the list does not have")
        return None
    wanted = value(line, "propensities", columns)
    chances = None if wanted is None or wanted == "" else chances_of(wanted, len(shown))
    if chances is None and wanted not in (None, ""):
        source.drop("propensities that are not one number in (0, 1] for each result")
        return None
    signals = numbers_in(value(line, "signals", columns)) or {}
    for field, column in columns.items():
        if field.startswith("signal."):
            number = number_of(inside(line, column))
            if math.isfinite(number):
                signals[field.removeprefix("signal.")] = number
    offered = items_of(value(line, "given", columns)) or []
    given = list(dict.fromkeys(name for each in offered if (name := text_of(each)) is not None))
    return Shown(
        seconds(value(line, "time", columns)), query, shown, clicks, chances, signals or None, 1, given or None, None, given or None
    )


def clicks_of(line: dict[str, Any], columns: dict[str, str], shown: list[str]) -> list[int] | None:
    """Return the clicked positions, from ids or from positions; None if one is not on the list."""
    out = set()
    for each in items_of(value(line, "clicks", columns)) or []:
        name = text_of(each)
        if name is None:
            continue
        if name not in shown:
            return None
        out.add(shown.index(name) + 1)
    for each in items_of(value(line, "positions", columns)) or []:
        position = number_of(each)
        if position != position:
            continue
        if not 1 <= position <= len(shown):
            return None
        out.add(int(position))
    return sorted(out)
