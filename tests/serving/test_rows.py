"""A record belongs to its query: no access through another row, or through a row that has left memory."""

from __future__ import annotations

import numpy as np
import pytest
from serving.scripted import Script, ranker

from swerve.serving.ledger import MISPLACED
from swerve.serving.requests import Misplaced


def test_a_row_that_was_let_go_cannot_be_used():
    script = Script(ranker())
    decided = script.rank("q", ["a", "b"])
    place = script.place("q")
    script.ranker.rows.drop(place)
    assert place.gone
    script.place("another")  # takes the freed row
    for use in (lambda: script.ranker.shift(place, 2e6), lambda: place.record, lambda: place.index):
        with pytest.raises(AttributeError):
            use()
    assert decided.ranking


def test_no_compiled_call_writes_into_the_record_of_another_query():
    """The record names its query, and each compiled call checks that name, whatever goes wrong above it."""
    script = Script(ranker())
    script.rank("one", ["a", "b"])
    decided = script.rank("two", ["a", "b"])
    one, two = script.place("one"), script.place("two")
    before = one.shelf.words[: len(one.shelf)].copy()
    stray, two.index = two.index, one.index
    made = script.ranker
    with pytest.raises(Misplaced, match=two.key.hex()):
        script.rank("two", ["a", "b"])
    with pytest.raises(Misplaced):
        script.click(decided, decided.ranking[0])
    with pytest.raises(Misplaced):
        made.shift(two, 3e6)
    shelf = two.shelf
    assert shelf.calls.left(made.senses, shelf.table, one.index, two.owner, 0.0, 1.0) == MISPLACED
    assert shelf.calls.vacate(shelf.params, shelf.table, one.index, two.owner, 0) == MISPLACED
    two.index = stray
    assert np.array_equal(before, one.shelf.words[: len(one.shelf)])
