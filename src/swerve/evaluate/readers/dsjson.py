"""Decisions of Vowpal Wabbit, dsjson: one decision a line, with the probabilities of all its actions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from swerve.evaluate.lists import Shown
from swerve.evaluate.readers.fields import inside, number_of, numbers_in, text_of
from swerve.evaluate.readers.source import Source
from swerve.serving.times import seconds

#: The query of lines without a mapped one: dsjson has no queries.
ALL = "(all)"


def read(sources: Sequence[Source], columns: dict[str, str]) -> Iterator[Shown]:
    """Yield each decision as a list of one result: the action that was taken. A cost below 0 is a click."""
    for source in sources:
        for line in source.objects():
            entry = decision_of(line, columns, source)
            if entry is not None:
                yield entry


def decision_of(line: dict[str, Any], columns: dict[str, str], source: Source) -> Shown | None:
    """Return a decision, or None."""
    if "_outcomes" in line:
        source.drop("a decision with several slots (_outcomes), which is not read")
        return None
    if "_label_cost" not in line:
        source.drop("no decision (no _label_cost): an observation or a dangling reward")
        return None
    actions, chances = line.get("a"), line.get("p")
    cost, action = number_of(line["_label_cost"]), number_of(line.get("_label_Action"))
    propensity = number_of(line.get("_label_probability"))
    if cost != cost or action != action or not 0.0 < propensity <= 1.0:
        source.drop("a decision without cost, action or probability")
        return None
    if not isinstance(actions, list) or not isinstance(chances, list) or len(actions) != len(chances) or int(action) not in actions:
        actions, chances = None, None
    names = names_of(line, columns)
    chosen = named(int(action), names)
    offered = None if actions is None else [named(each, names) for each in actions]
    if offered is not None and len(set(offered)) < len(offered):
        source.drop("two actions with one id")
        return None
    query = text_of(inside(line, columns["query"])) if "query" in columns else ALL
    if query is None:
        source.drop(f"no query at {columns['query']}")
        return None
    return Shown(
        seconds(line.get("Timestamp", line.get("timestamp"))),
        query,
        [chosen],
        [1] if cost < 0.0 else [],
        [propensity],
        numbers_in(inside(line, columns["signals"])) if "signals" in columns else None,
        1,
        offered,
        None if chances is None else [number_of(chance) for chance in chances],
    )


def names_of(line: dict[str, Any], columns: dict[str, str]) -> list[str | None]:
    """Return the ids of the actions, where `--map shown=PATH` says where they are inside an action."""
    path = columns.get("shown")
    many = inside(line, "c._multi")
    return [text_of(inside(each, path)) for each in many] if path and isinstance(many, list) else []


def named(action: Any, names: list[str | None]) -> str:
    """Return the id of an action, from 1, or its number."""
    if isinstance(action, int) and 0 < action <= len(names) and names[action - 1] is not None:
        return str(names[action - 1])
    return str(action)
