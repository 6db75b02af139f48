"""No line of a log, however odd, ends the reading: it is read or dropped, and every line is accounted for."""

from __future__ import annotations

import json
import random

import pytest

from swerve.evaluate import shifts
from swerve.evaluate.forecast import forecast
from swerve.evaluate.history import Histories
from swerve.evaluate.judging import Least, judge
from swerve.evaluate.model import Model
from swerve.evaluate.readers import FORMATS, read
from swerve.evaluate.tally import Tally
from swerve.evaluate.targets import Clicks, Given, Policy, Uniform

ODD = [
    None,
    True,
    -1,
    0,
    1,
    2,
    2.5,
    1e300,
    10**25,
    "",
    "a",
    "b",
    "1e999",
    "-inf",
    "nan",
    "9" * 400,
    "2024-13-45",
    [],
    ["a"],
    ["a", "b"],
    [1, None],
    [["a"]],
    {},
    {"id": "a"},
    {"kind": "click"},
    [{"kind": "click", "position": 1e999}],
    [{"kind": "click", "position": "inf"}],
    [3],
    "rank",
    "click",
    [0.5],
    [0.5, 0.5],
    {"object": {"object_id": "a"}},
    {"object": 3, "position": {"ordinal": "inf"}},
    {"_multi": [3, {"id": []}]},
]
FIELDS = {
    "ubi": ["query_id", "user_query", "timestamp", "query_response_hit_ids", "action_name", "event_attributes", "_source"],
    "dsjson": ["_label_cost", "_label_probability", "_label_Action", "a", "p", "c", "Timestamp", "_outcomes"],
    "open-bandit": ["item_id", "position", "click", "propensity_score", "timestamp"],
    "plain": ["time", "query", "shown", "clicks", "positions", "propensities", "signals", "given"],
}
SOUND = {
    "ubi": {"query_id": "1", "user_query": "q", "timestamp": 1, "query_response_hit_ids": ["a", "b"]},
    "dsjson": {"_label_cost": -1, "_label_probability": 0.5, "_label_Action": 1, "a": [1, 2], "p": [0.5, 0.5]},
    "open-bandit": {"item_id": "a", "position": 1, "click": 0, "propensity_score": 0.5},
    "plain": {"time": 1, "query": "q", "shown": ["a", "b"], "positions": [1]},
}


def test_every_format_is_tried():
    """A recording has no lines: tests/serving/test_playing.py tries it."""
    assert set(FIELDS) == set(SOUND) == set(FORMATS) - {"swerve"}


@pytest.mark.parametrize("form", FIELDS)
def test_odd_values_are_read_or_dropped(form, tmp_path):
    rng = random.Random(form)
    lines = []
    for _ in range(3000):
        line = dict(SOUND[form])
        for field in rng.sample(FIELDS[form], rng.randint(1, 3)):
            line[field] = rng.choice(ODD)
        lines.append(json.dumps(line))
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join(lines), encoding="utf-8")
    tally = Tally()
    mapped = ["query=c.q", "shown=id"] if form == "dsjson" and rng.random() < 0.5 else []
    for entry in read([path], form, mapped, tally=tally):
        assert entry.shown
        assert all(entry.top <= position < entry.top + len(entry.shown) for position in entry.clicks)
        assert entry.propensities is None or all(0.0 < chance <= 1.0 for chance in entry.propensities)
        assert not abs(entry.time) > 1e11
    assert tally.lines == 3000
    assert tally.dropped


def test_a_quote_that_is_never_closed_does_not_hide_lines(tmp_path):
    """Lines that an open quote swallows are counted as dropped, with the line at which it opens."""
    path = tmp_path / "log.csv"
    path.write_text("query,shown\nq,a|b\n" + '"q,a|b\n' + "q,a|b\n" * 5, encoding="utf-8")
    tally = Tally()
    assert len(list(read([path], "plain", tally=tally))) == 1
    ((reason, found),) = tally.dropped.items()
    assert (reason, found.lines, found.where) == ("another number of columns than the head", 6, f"{path}:3")


def test_a_line_without_end_is_not_held_in_memory(tmp_path, monkeypatch):
    monkeypatch.setattr("swerve.evaluate.readers.source.LONGEST", 1000)
    path = tmp_path / "log.jsonl"
    good = json.dumps(SOUND["plain"])
    path.write_text(f"{good}\n{'x' * 5500}\n{good}\n", encoding="utf-8")
    tally = Tally()
    assert len(list(read([path], "plain", tally=tally))) == 2
    ((reason, found),) = tally.dropped.items()
    assert (reason, found.lines, found.where) == ("longer than 1,000 bytes", 1, f"{path}:2")


@pytest.mark.parametrize("form", FIELDS)
def test_whatever_was_read_is_judged_without_a_crash(form, tmp_path, uncompiled):
    """All stages take what the readers let through: results twice in a list, lists without candidates, no times, no clicks."""
    rng = random.Random(f"all {form}")
    lines = []
    for number in range(400):
        line = {**SOUND[form], "number": number, "query_id": str(number)}
        if form == "plain":
            line["propensities"] = [0.5, 0.5]
        if rng.random() < 0.5:
            line[rng.choice(FIELDS[form])] = rng.choice([*ODD, ["a", "a"], ["b", "b", "a"], [{"id": "a"}, "a"]])
        lines.append(json.dumps(line))
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join(lines), encoding="utf-8")
    histories, least = Histories(), Least()
    for entry in read([path], form):
        histories.add(entry)
        least.add(entry)
    found = shifts.find(histories)
    targets = [Policy(rows=3, arms=4), Clicks(), Given(), Uniform()]
    for each in judge(read([path], form), targets, least.by_slot):
        assert (each.refused is None) == bool(each.estimates)
        assert each.lists > 0 or form == "ubi"
    everything = forecast(Model(histories, found), policies=("clicks", "best")).everything
    assert everything["best"].per_list >= 0.0
