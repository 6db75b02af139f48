"""User Behavior Insights 1.3.0: queries and events, in one or several files, joined by `query_id`.

Samples in the wild break their own schema, so this is lenient: times in many forms; positions from 0 or from 1; a click that names
its object but not its position, or the reverse. Several files are read side by side in the order of their times, so that queries
and events may lie apart; lists that wait for clicks are bounded, see `opened`.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from typing import Any

from swerve.evaluate.lists import Shown
from swerve.evaluate.readers.fields import items_of, text_of
from swerve.evaluate.readers.opened import Opened, click
from swerve.evaluate.readers.source import Source
from swerve.serving.times import seconds
from swerve.serving.ubi import CLICKS, OBJECT, ORDINAL, QUERY, action_of, first_number, first_text


def read(sources: Sequence[Source], columns: dict[str, str]) -> Iterator[Shown]:
    """Yield the lists of queries with their clicks."""
    opened = Opened()
    from_zero = False  # whether a position 0 was seen: positions then begin at 0
    for _, _, source, line in heapq.merge(
        *(timed(index, source) for index, source in enumerate(sources)), key=lambda item: item[:2]
    ):
        if "action_name" in line:
            action = action_of(line)
            if action not in CLICKS:
                source.drop(f"an event that is no click: {action[:40]}")
                continue
            entry = opened.get(text_of(line.get("query_id")))
            if entry is None:
                source.drop("a click whose query is not in the log, or came later, or lies too far back")
                continue
            ordinal = first_number(line, ORDINAL)
            from_zero = from_zero or ordinal == 0
            result = first_text(line, OBJECT)
            if result in entry.shown:
                click(entry, entry.shown.index(result) + 1)
            elif ordinal == ordinal and result is None and click(entry, int(ordinal) + from_zero):
                continue
            else:
                source.drop("a click on a result that the query's hit ids do not have")
        else:
            entry = list_of(line, source)
            if entry is not None:
                yield from opened.add(text_of(line.get("query_id")), entry)
    yield from opened.rest()


def timed(index: int, source: Source) -> Iterator[tuple[float, int, Source, dict[str, Any]]]:
    """Yield the lines of a file with their times; a line without one has that of the line before it. Queries come before events."""
    latest = 0.0
    for line in source.records():
        line = line.get("_source", line)
        if not isinstance(line, dict) or not ({"query_id", "action_name"} & line.keys()):
            source.drop("neither a query nor an event of UBI")
            continue
        event = "action_name" in line
        at = seconds(line.get("timestamp"))
        if at == at:
            latest = at
        elif event:
            source.drop("an event whose time cannot be read")
            continue
        yield latest, 2 * index + event, source, line


def list_of(line: dict[str, Any], source: Source) -> Shown | None:
    """Return the list of a query, or None."""
    query = first_text(line, QUERY)
    hits = items_of(line.get("query_response_hit_ids"))
    results = [found for hit in hits or [] if (found := text_of(hit)) is not None]
    if text_of(line.get("query_id")) is None:
        source.drop("a query without query_id")
    elif query is None:
        source.drop("a query without user_query")
    elif not results:
        source.drop("a query without query_response_hit_ids")
    else:
        return Shown(seconds(line.get("timestamp")), query, list(dict.fromkeys(results)), [])
    return None
