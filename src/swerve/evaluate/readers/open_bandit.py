"""Open Bandit CSV: one result at one position a row, with its propensity; there are no queries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from swerve.evaluate.lists import Shown
from swerve.evaluate.readers.fields import number_of, text_of
from swerve.evaluate.readers.source import Source
from swerve.serving.times import seconds

ALL = "(all)"
#: The lowest position that is believed.
LOWEST = 10_000
NEEDED = ("item_id", "position", "click", "propensity_score")


def read(sources: Sequence[Source], columns: dict[str, str]) -> Iterator[Shown]:
    """Yield each row as a list of one result at its position."""
    for source in sources:
        for row in source.records():
            item, position = text_of(row.get("item_id")), number_of(row.get("position"))
            clicked, propensity = number_of(row.get("click")), number_of(row.get("propensity_score"))
            query = text_of(row.get(columns["query"])) if "query" in columns else ALL
            if item is None or not 1.0 <= position <= LOWEST or clicked not in (0.0, 1.0):
                source.drop("a row without item_id, position or click")
            elif not 0.0 < propensity <= 1.0:
                source.drop("a propensity_score outside (0, 1]")
            elif query is None:
                source.drop(f"no query in {columns['query']}")
            else:
                at = int(position)
                yield Shown(seconds(row.get("timestamp")), query, [item], [at] if clicked else [], [propensity], top=at)
