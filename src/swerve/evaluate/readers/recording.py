"""Swerve's own recordings (`log.record`), see `swerve.serving.recording`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from swerve.evaluate.lists import Shown
from swerve.evaluate.readers.fields import chances_of, number_of, numbers_in, text_of
from swerve.evaluate.readers.opened import Opened, click
from swerve.evaluate.readers.source import Source
from swerve.serving.times import seconds
from swerve_client.naming import without_arm

#: Lines of what operators did, which tell nothing about rankings.
OF_OPERATORS = ("shift", "delete")
KINDS = ("swerve", "rank", "feedback", *OF_OPERATORS)


def read(sources: Sequence[Source], columns: dict[str, str]) -> Iterator[Shown]:
    """Yield the pages of recordings. Numbers of decisions begin anew with the life of a store, so each start has its own."""
    opened = Opened()
    for source in sources:
        life: str | None = None
        for line in source.objects():
            kind = line.get("type")
            if kind == "rank":
                entry = page_of(line, source)
                if entry is not None:
                    yield from opened.add((life, text_of(line.get("number"))), entry)
            elif kind == "feedback":
                feedback(line, opened.get((life, text_of(line.get("number")))), source)
            elif kind == "swerve":
                life = text_of(line.get("life"))
            elif kind not in OF_OPERATORS:
                source.drop("not a line of a recording")
    yield from opened.rest()


def page_of(line: dict[str, Any], source: Source) -> Shown | None:
    """Return the page of a decided request, or None."""
    query, page = text_of(line.get("query")), line.get("page")
    if query is None or not isinstance(page, list) or not page or not all(isinstance(result, str) for result in page):
        source.drop("a ranking without a query or a page")
        return None
    if len(set(page)) < len(page):
        source.drop("a result twice in one list")
        return None
    query = without_arm(query)  # both arms of an experiment rank the same query
    offered = line.get("candidates")
    given: list[Any] | None = None
    if isinstance(offered, list):
        given = [each.get("id") if isinstance(each, dict) else each for each in offered]
    if given is not None:
        given = list(dict.fromkeys(given)) if all(isinstance(each, str) for each in given) else None
    chances = chances_of(line.get("propensities"), len(page))
    if line.get("as_given"):
        chances = None  # another ranker made the list: the recording does not say how
    return Shown(seconds(line.get("now")), query, page, [], chances, numbers_in(line.get("signals")), 1, given, None, given)


def feedback(line: dict[str, Any], entry: Shown | None, source: Source) -> None:
    """Add the clicks of a feedback line to its page."""
    if entry is None:
        source.drop("feedback for a decision that is not in the recording")
        return
    shown = line.get("shown")
    if (
        isinstance(shown, list)
        and shown
        and (len(set(map(str, shown))) < len(shown) or not all(isinstance(each, str) for each in shown))
    ):
        source.drop("feedback whose list has a result twice, or what is no result")
        return
    if isinstance(shown, list) and shown and shown != entry.shown:
        clicked = [entry.shown[position - 1] for position in entry.clicks]
        entry.shown, entry.propensities = shown, None  # the page was replaced: its propensities are those of another page
        entry.clicks = sorted(shown.index(result) + 1 for result in clicked if result in shown)
    events = line.get("events")
    for event in events if isinstance(events, list) else [None]:
        if not isinstance(event, dict) or event.get("kind") != "click":
            kind = text_of(event.get("kind")) if isinstance(event, dict) else None
            source.drop(
                f"feedback with an event that is no click: {kind[:40]}" if kind else "feedback with an event that is no click"
            )
            continue
        position, result = number_of(event.get("position")), text_of(event.get("result"))
        at = entry.shown.index(result) + 1 if result in entry.shown else int(position) if position == position else 0
        if not click(entry, at):
            source.drop("a click below the page, or on a result that is not on it")
