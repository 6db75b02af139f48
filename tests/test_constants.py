"""Numbers quoted in the documentation equal the constants of the code."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"

#: A page, a sentence with one number per constant, and the constants in that order.
QUOTED = [
    (
        "service.md",
        r"A checkpoint takes up to (\d+) rows; if memory is nearly full of unwritten rows, or more than ([\d,]+) wait, (\d+)",
        [
            "swerve.service.checkpoints:MOST_ROWS",
            "swerve.service.checkpoints:MANY_WAIT",
            "swerve.service.checkpoints:PRESSED_ROWS",
        ],
    ),
    ("evaluate.md", r"At most ([\d,]+) queries are watched", ["swerve.evaluate.history:MOST_QUERIES"]),
    ("evaluate.md", r"wait for their clicks are bounded \(([\d,]+);", ["swerve.evaluate.readers.opened:MOST_OPEN"]),
    (
        "evaluate.md",
        r"at most ([\d,]+) lists are played \(longer ones are shortened in proportion\), of a band ([\d,]+)",
        ["swerve.evaluate.forecast:MOST_LISTS", "swerve.evaluate.forecast:PLAYED"],
    ),
    ("evaluate.md", r"if the effective lists are fewer than (\d+)", ["swerve.evaluate.estimators:FEWEST"]),
    ("service.md", r"for the last ([\d,]+) pairs of a session and a query", ["swerve.serving.people:MOST"]),
    ("service.md", r"in memory, for the last ([\d,]+) sessions", ["swerve.serving.people:MOST"]),
    ("service.md", r"they may add, in each phase, (\d+) units", ["swerve.serving.ledger:ANONYMOUS"]),
    ("service.md", r"a signed token of (\d+) characters for one slot", ["swerve.serving.tokens:ONE_SLOT"]),
    ("service.md", r"characters for one slot, (\d+) for ten", ["swerve.serving.tokens:TEN_SLOTS"]),
    ("dashboard.md", r"is cut off when (\d+) messages wait", ["swerve.dashboard.hub:MOST_WAITING"]),
    (
        "dashboard.md",
        r"\| ([\d,]+) at a time; (\d+) different queries",
        ["swerve.dashboard.hub:MOST_READERS", "swerve.dashboard.hub:MOST_WATCHED"],
    ),
    ("dashboard.md", r"more than (\d+) messages of a kind", ["swerve.dashboard.rings:KEPT_WHOLE"]),
]


@pytest.mark.parametrize(
    ("page", "sentence", "constants"), QUOTED, ids=[f"{page}:{names[0].partition(':')[2]}" for page, _, names in QUOTED]
)
def test_the_page_quotes_the_code(page, sentence, constants):
    found = re.search(sentence, (DOCS / page).read_text(encoding="utf-8"))
    assert found is not None, "the sentence has changed: change it here too"
    for quoted, constant in zip(found.groups(), constants, strict=True):
        module, _, name = constant.partition(":")
        assert float(quoted.replace(",", "")) == float(getattr(importlib.import_module(module), name)), constant


def test_what_the_pages_say_of_blame():
    """The page names every classifier that can blame a feature for a positive context."""
    from swerve.classifiers.quantile import QuantileBox
    from swerve.classifiers.rectangle import Rectangle
    from swerve.core.contract import blame

    assert {cls.__name__ for cls in blame.implementations if cls.__module__.startswith("swerve.classifiers")} == {
        QuantileBox.__name__,
        Rectangle.__name__,
    }
    text = (DOCS / "policies.md").read_text(encoding="utf-8")
    assert "`QuantileBox` and `Rectangle` say which feature is to blame" in text
