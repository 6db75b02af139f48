"""Click probabilities from a file: events, contexts that announce nothing, and every wrong file."""

from __future__ import annotations

import numpy as np
import pytest

from swerve import Series, SwerveError, Thompson, environment, policy, simulate
from swerve.core.spec import pack
from swerve.environments import unannounced, world
from swerve.environments.worlds import Line, advance, context

TWO = "query,a,b,c\nq1,0.5,0.1,0.1\nq1,0.5,0.1,0.1\nq2,0.1,0.2,0.7\nq1,0.2,0.6,0.1\nq1,0.3,0.6,0.1\n"


@pytest.fixture
def series(tmp_path):
    def make(text=TWO, **fields):
        path = tmp_path / "series.csv"
        path.write_text(text, encoding="utf-8")
        return Series(str(path), **{"rounds": 100, **fields})

    return make


def contexts(instance):
    """Return (query, round, event, context) of every round."""
    spec, scene, cursors = pack(instance.spec)[0], instance.scene[0], instance.cursors.copy()
    for query in instance.schedule:
        x = np.zeros(instance.features)
        event = advance(spec, scene, instance.segments, cursors[query])
        context(spec, scene, cursors[query], event, x)
        yield int(query), int(cursors[query].t), int(event), x


def test_rows_are_rounds_and_an_event_is_another_best_result(series):
    drawn = world(series(), 0)
    assert (drawn.arms, drawn.queries, drawn.rounds.tolist(), drawn.k) == (3, 2, [400, 100], 1)
    lines = [(int(s["since"]), int(s["event"]), s["chance"][:3].tolist()) for s in drawn.segments[drawn.owner == 0]]
    assert lines == [(1, 0, [0.5, 0.1, 0.1]), (201, 1, [0.2, 0.6, 0.1]), (301, 0, [0.3, 0.6, 0.1])]
    assert series().rounds_per_query == 400


def test_by_default_no_context_announces_an_event(series):
    rows = list(contexts(world(series(features=2), 3)))
    assert [(query, t) for query, t, event, _ in rows if event] == [(0, 201)]
    assert all((x < 0.5).all() for *_, x in rows)
    assert not world(series(), 0).segments["signal"].any()


def test_announced_events_and_nothing_else_are_in_the_context(series):
    loud = [(query, t) for query, t, _, x in contexts(world(series(features=2, announced=True), 3)) if (x == 1.0).any()]
    assert loud == [(0, 201)]


@pytest.mark.usefixtures("uncompiled")
def test_only_an_oracle_is_told(series):
    spec = series()
    assert simulate(policy("oracle-ts"), spec, runs=1, points=1).count("restarts").tolist() == [1.0]
    blind = [simulate(Thompson(), series(announced=loud), runs=1, points=1).regret[0] for loud in (False, True)]
    assert blind[0] == blind[1]


def test_a_file_is_found_in_the_folder_of_data_and_its_text_reads_back(series, tmp_path, monkeypatch):
    series()
    monkeypatch.setenv("SWERVE_DATA", str(tmp_path))
    spec = environment("series('series.csv', rounds=10, order=sequential)")
    assert world(spec, 0).rounds.tolist() == [40, 10]
    assert environment(repr(spec)) == spec


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has 0 columns of results; it must have 2 to 64"),
        ("a\n0.5\n", "has 1 columns"),
        ("a,b\n", "holds no rows"),
        ("a,b\n0.5,0.2\n0.5\n", "line 3: not a click probability"),
        ("a,b\n0.5,1.2\n", "line 2: not a click probability"),
        ("a,b\n0.5,nan\n", "line 2: not a click probability"),
        ("a,b\n0.5,much\n", "line 2: not a click probability"),
    ],
)
def test_a_wrong_file_is_refused_with_its_line(series, text, message):
    with pytest.raises(SwerveError, match=message):
        world(series(text), 0)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(SwerveError, match=r"nowhere.csv cannot be read \(No such file"):
        world(Series(str(tmp_path / "nowhere.csv")), 0)
    with pytest.raises(SwerveError, match="file must be the name of a CSV file"):
        Series("")


def test_the_first_lead_after_equal_probabilities_is_no_event_and_signals_stand_apart():
    lines = unannounced({1: [0.1, 0.1], 5: [0.1, 0.2], 9: [0.3, 0.2]}, {7: 2})
    assert lines == [
        Line(1, [0.1, 0.1], False, 0), Line(5, [0.1, 0.2], False, 0), Line(7, [0.1, 0.2], False, 2), Line(9, [0.3, 0.2], True, 0)
    ]  # fmt: skip
