"""The logs of Swerve's own stores (`store.journal_days`), see `swerve.serving.recording`."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence

from swerve.core.errors import SwerveError
from swerve.evaluate.lists import Shown
from swerve.evaluate.readers.opened import Opened, click
from swerve.evaluate.readers.source import Source
from swerve.serving.recording import Answered, Line, Ranked, Ruled, lines_of
from swerve_client.naming import without_arm


def read(sources: Sequence[Source], columns: dict[str, str]) -> Iterator[Shown]:
    """Yield the pages of recordings, which are read side by side in the order of their times: those of the shares of a store say
    what happened at the same time. The number of a decision begins with the life of its store."""
    opened = Opened()
    for source in sources:
        if not source.path.is_dir():
            raise SwerveError(
                f"{source.name} is no log of Swerve: that is a folder such as swerve.db.journal, see store.journal_days"
            )
    every = (timed(index, source) for index, source in enumerate(sources))
    for _, _, source, line in heapq.merge(*every, key=lambda item: item[:2]):
        if isinstance(line, Ranked):
            yield from opened.add((source.name, line.number), page_of(line))
        elif isinstance(line, Ruled):
            entry = opened.get((source.name, line.number))
            if entry is not None:
                entry.shown, entry.propensities = line.page, None if entry.propensities is None else line.propensities
        elif isinstance(line, Answered):
            feedback(line, opened.get((source.name, line.number)), source)
    yield from opened.rest()


def timed(index: int, source: Source) -> Iterator[tuple[float, int, Source, Line]]:
    """Yield what a recording says, with its time: never before that of the line before it, whose time a line without one has."""
    latest = -math.inf
    for number, line in lines_of(source.path, source.progress):
        source.number, source.raw = number, line
        source.tally.lines += 1
        latest = max(latest, getattr(line, "now", latest))
        yield latest, index, source, line


def page_of(line: Ranked) -> Shown:
    """Return the page of a decided request."""
    query = without_arm(line.query)  # both arms of an experiment rank the same query
    signals = line.signals or None
    return Shown(line.now, query, line.page, [], line.propensities, signals, 1, line.candidates, None, line.candidates)


def feedback(line: Answered, entry: Shown | None, source: Source) -> None:
    """Add the clicks of feedback to its page."""
    if entry is None:
        source.drop("feedback for a decision that is not in the recording")
        return
    shown = line.shown
    if shown and len(set(shown)) < len(shown):
        source.drop("feedback whose list has a result twice")
        return
    if shown and shown != entry.shown:
        clicked = [entry.shown[position - 1] for position in entry.clicks]
        entry.shown, entry.propensities = shown, None  # the page was replaced: its propensities are those of another page
        entry.clicks = sorted(shown.index(result) + 1 for result in clicked if result in shown)
    for event in line.events:
        if event.kind != "click":
            source.drop(f"feedback with an event that is no click: {event.kind[:40]}")
            continue
        at = entry.shown.index(event.result) + 1 if event.result in entry.shown else event.position or 0
        if not click(entry, at):
            source.drop("a click below the page, or on a result that is not on it")
