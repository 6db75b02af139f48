"""Plain logs, one list a line: JSON lines, CSV or Parquet, with a mapping of columns."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from typing import Any

from swerve.core.errors import SwerveError
from swerve.evaluate.lists import Shown
from swerve.evaluate.readers.fields import chances_of, inside, items_of, number_of, numbers_in, text_of, texts_of
from swerve.evaluate.readers.source import Source
from swerve.evaluate.tally import Tally
from swerve.serving.times import seconds

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


#: Sets of columns whose usual names are remembered.
MOST_SHAPES = 1000


class Columns:
    """Which columns a plain log has, noted for each of the first `MOST_SHAPES` sets of them, and whether all mapped ones came."""

    def __init__(self, columns: dict[str, str]) -> None:
        self.columns = columns
        self.missing = dict(columns)
        self.names: list[str] = []  # of the first line
        self.shapes: dict[tuple[str, ...], list[tuple[str, str]]] = {}  # by set, the fields that were read from columns

    def see(self, line: dict[str, Any], tally: Tally) -> None:
        """Note the columns of a line."""
        shape = tuple(line)
        if shape not in self.shapes and len(self.shapes) < MOST_SHAPES:
            self._note(shape, columns_in(line, self.columns), tally)
        if self.missing:  # until each was there once
            self.names = self.names or list(line)
            self.missing = {field: name for field, name in self.missing.items() if name not in line and inside(line, name) is None}

    def _note(self, shape: tuple[str, ...], fields: list[tuple[str, str]], tally: Tally) -> None:
        self.shapes[shape] = fields
        tally.found(fields, shape)

    def merge(self, other: Columns, tally: Tally) -> None:
        """Add what was noted of the next part of a log."""
        for shape, fields in other.shapes.items():
            if shape not in self.shapes and len(self.shapes) < MOST_SHAPES:
                self._note(shape, fields, tally)
        self.names = self.names or other.names
        self.missing = {field: name for field, name in self.missing.items() if field in other.missing}

    def check(self) -> None:
        """Raise if no line had a column that the mapping names."""
        if self.missing and self.names:
            told = ", ".join(f"{name} (for {field})" for field, name in self.missing.items())
            raise SwerveError(f"no line has the mapped column {told}; the first line has {', '.join(self.names)}")


def read(sources: Sequence[Source], columns: dict[str, str]) -> Iterator[Shown]:
    """Yield the lists of plain logs; raises if no line has a column that the mapping names."""
    seen = Columns(columns)
    for source in sources:
        yield from lists_in(source, seen)
    seen.check()


def lists_in(source: Source, seen: Columns) -> Iterator[Shown]:
    """Yield the lists of a file, and note its columns."""
    for line in source.records():
        seen.see(line, source.tally)
        entry = list_of(line, seen.columns, source)
        if entry is not None:
            yield entry


@functools.lru_cache(MOST_SHAPES)
def usual_in(names: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Return the fields that these columns have by a usual name. Lines of a log mostly have the same columns.

    >>> usual_in(("ts", "q", "level"))
    (('time', 'ts'), ('query', 'q'))
    """
    found = ((field, next((name for name in usual if name in names), None)) for field, usual in USUAL.items())
    return tuple((field, name) for field, name in found if name is not None)


def columns_in(line: dict[str, Any], columns: dict[str, str]) -> list[tuple[str, str]]:
    """Return the fields that a line has, each with its column."""
    usual = [(field, name) for field, name in usual_in(tuple(line)) if field not in columns]
    return [*usual, *[(field, name) for field, name in columns.items() if name in line or inside(line, name) is not None]]


def fields_in(line: dict[str, Any], columns: dict[str, str]) -> dict[str, Any]:
    """Return the values of the fields: from their mapped columns, or else from the first usual ones."""
    row = {field: line[name] for field, name in usual_in(tuple(line))}
    for field, column in columns.items():
        row[field] = inside(line, column)
    return row


def list_of(line: dict[str, Any], columns: dict[str, str], source: Source) -> Shown | None:
    """Return the list of a line, or None."""
    row = fields_in(line, columns).get
    query, shown = text_of(row("query")), texts_of(row("shown"))
    if query is None:
        source.drop("no query")
        return None
    if not shown:
        source.drop("no results shown")
        return None
    if len(set(shown)) < len(shown):
        source.drop("a result twice in one list")
        return None
    clicks = clicks_of(row("clicks"), row("positions"), shown)
    if clicks is None:
        source.drop("a click on a result or position that the list does not have")
        return None
    when = row("time")
    at = seconds(when)
    if at != at and when not in (None, ""):
        source.drop("a time that cannot be read")
        return None
    wanted = row("propensities")
    chances = None if wanted is None or wanted == "" else chances_of(wanted, len(shown))
    if chances is None and wanted not in (None, ""):
        source.drop("propensities that are not one number in (0, 1] for each result")
        return None
    signals = numbers_in(row("signals")) or {}
    for field in columns:
        if field.startswith("signal."):
            number = number_of(row(field))
            if math.isfinite(number):
                signals[field.removeprefix("signal.")] = number
    given = list(dict.fromkeys(texts_of(row("given"))))
    return Shown(at, query, shown, clicks, chances, signals or None, 1, given or None, None, given or None)


def clicks_of(results: Any, positions: Any, shown: list[str]) -> list[int] | None:
    """Return the clicked positions, from ids or from positions; None if one is not on the list."""
    out = set()
    for name in texts_of(results):
        if name not in shown:
            return None
        out.add(shown.index(name) + 1)
    for each in items_of(positions) or []:
        position = number_of(each)
        if each not in (None, "") and not 1 <= position <= len(shown):  # also what is no number
            return None
        if position != position:
            continue
        out.add(int(position))
    return sorted(out)
