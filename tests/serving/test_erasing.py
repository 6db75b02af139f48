"""A row without a candidate: the stored bytes are those that memory has after the same deletion."""

from __future__ import annotations

import numpy as np
import pytest
from service.test_ranking import service_at

from swerve.service.batches import row_of
from swerve.serving.erasing import OF_ARMS, Erased, Eraser, Target, forget, zeroed
from swerve.serving.messages import Event
from swerve.serving.place import UNPACK
from swerve.serving.requests import Prepared
from swerve.store.layouts import layout_of


def filled(folder, spec: str = "ts"):
    now = [1.7e9]
    service = service_at(folder, now, policy={"spec": spec, "arms": 16, "seed": 3, "slots": 1})
    ranker = service.ranker
    for step in range(60):
        now[0] += 30.0
        text = f"q{step % 3}"
        key, offer = ranker.key_of(text), ["a", "b", "c", *[f"d{arm}" for arm in range(step % 3)]]
        place = ranker.rows.get(key) or ranker.fresh(key, text, len(offer), now[0])
        ranker.rank([(place, Prepared(key, text, [*offer], session=f"s{step}", slots=1))], now[0])
    return service, now[0]


@pytest.mark.parametrize("spec", ["ts", "ucb1"])
def test_a_stored_row_and_one_in_memory_lose_the_same(tmp_path, spec):
    service, now = filled(tmp_path / "s", spec)
    ranker, eraser = service.ranker, Eraser(service.ranker, service.layouts)
    result = ranker.rows.short("b")
    before = {place.key: row_of(place, service.layouts.ids, 1) for place in ranker.rows}
    stored = {key: eraser.without(row, result) for key, row in before.items()}
    touched = forget(ranker, Target(None, result), now)
    assert len(touched) == 3
    for place in ranker.rows:
        row, other = row_of(place, service.layouts.ids, 1), stored[place.key]
        assert other is not None and (row.record, row.names, row.layout) == (other.record, other.names, other.layout)
        assert row.record != before[place.key].record and "b" not in UNPACK.decode(row.names).ids
        assert "b" not in place.arms and ranker.rows.short("b") not in place.shorts
        assert eraser.without(row, result) is None
        assert {place.ids[arm] for arm in place.arms.values()} == set(place.arms)
    assert forget(ranker, Target(None, result), now) == []


def test_a_record_of_another_policy_keeps_its_ledger(tmp_path):
    service, _ = filled(tmp_path / "s")
    place = next(iter(service.ranker.rows))
    row = row_of(place, service.layouts.ids, 1)
    text = service.layouts.known[row.layout]
    layout, arm = layout_of(text)[0], place.arms["b"]
    was = np.frombuffer(row.record, layout)[0]["ledger"]
    now = np.frombuffer(zeroed(row.record, text, arm), layout)[0]["ledger"]
    for name in was.dtype.names:
        same = np.array_equal(was[name], now[name], equal_nan=was[name].dtype.kind == "f")
        if name in OF_ARMS:
            assert (now[name][arm] == 0).all() and np.array_equal(np.delete(was[name], arm), np.delete(now[name], arm))
        else:
            assert same, name


def test_memory_forgets_a_query_wherever_it_is_named(tmp_path):
    service, now = filled(tmp_path / "s")
    ranker = service.ranker
    key = ranker.key_of("q1")
    (place,) = forget(ranker, Target(key), now)
    assert place.gone and ranker.rows.get(key) is None and all(place is not other for _, other in ranker.unwritten)
    assert key not in ranker.people.known() and len(ranker.people.known()) == 2
    assert len(ranker.rows) == 2


def test_decisions_from_before_a_deletion_are_known_for_the_window(tmp_path):
    erased = Erased(window=100.0)
    erased.note(Target(b"k"), 50.0)
    erased.note(Target(None, 7, "toys"), 60.0)
    assert erased.query(b"k", 50.0) and not erased.query(b"k", 50.1) and not erased.query(b"x", 0.0)
    other = Erased(window=100.0)
    other.load({"deleted": erased.record()}, 61.0)
    assert other.gone == erased.gone and other.query(b"k", 1.0)
    service, _ = filled(tmp_path / "s")
    place = next(iter(service.ranker.rows))
    events = [Event("click", "b"), Event("click", "a"), Event("click", position=1)]
    short = service.ranker.rows.short
    assert erased.left_of(place, 1.0, events, short) == events
    erased.note(Target(place.key, short("b")), 70.0)
    assert erased.left_of(place, 70.0, events, short) == events[1:] and erased.left_of(place, 71.0, events, short) == events
    erased.note(Target(b"z"), 151.0)
    assert not erased.query(b"k", 1.0) and len(erased.gone) == 3
