"""Experiments as data: smaller versions, and each cell played once."""

from __future__ import annotations

import dataclasses
import math

import pytest

from swerve import EXP3S, Traffic
from swerve.core.errors import SwerveError
from swerve.environments import SingleEvent
from swerve.experiments import EXPERIMENTS, Experiment, Setting, run, total_rounds

SMALL = Experiment(
    name="small",
    title="Two columns, two rows",
    axis="fraction",
    settings=tuple(
        Setting(value, Traffic(queries=4, impressions=8000, shifting_share=value, features=2, order="uniform"))
        for value in (0.0, 0.5)
    ),
    policies={"ora": "ora", "bwc": "bwc(length=20, epsilon=0.3, margin=0.1)"},
    tags=("test",),
    paper={(0.5, "ora"): 400.0},
    points=4,
)


def test_ids_are_stable_names():
    assert SMALL.ids == ["small/0", "small/1"]
    assert EXPERIMENTS["fractions"].ids[3] == "fractions/3"
    assert EXPERIMENTS["fractions"].settings[3].value == 0.375


def test_scaled_sets_the_impressions_and_drops_the_printed_figures():
    scaled = SMALL.scaled(400)
    assert [s.environment.impressions for s in scaled.settings] == [400, 400]
    assert [s.environment.queries for s in scaled.settings] == [4, 4]
    assert scaled.paper == {}
    assert SMALL.scaled(None) is SMALL


def test_thinned_keeps_the_length_of_a_query_and_shrinks_the_printed_figures():
    full = EXPERIMENTS["fractions"]
    thin = full.thinned(20)
    for before, after in zip(full.settings, thin.settings, strict=True):
        assert after.value == before.value
        assert after.environment.rounds_per_query == before.environment.rounds_per_query == 30_000
        assert after.environment == dataclasses.replace(before.environment, queries=20, impressions=600_000)
    assert thin.paper.keys() == full.paper.keys()
    assert thin.paper[0.5, "bwc"] == pytest.approx(99_400 / 5)
    assert thin.paper[0.0, "ora"] == pytest.approx(17_200 / 5)


@pytest.mark.parametrize("change", [lambda e: e.scaled(1000), lambda e: e.thinned(20)])
def test_a_horizon_is_no_size_that_can_be_set(change):
    fixed = dataclasses.replace(SMALL, settings=(Setting(1.0, SingleEvent(horizon=1000)),))
    with pytest.raises(SwerveError, match="small: its size cannot be set"):
        change(fixed)


def test_every_setting_meets_every_policy_tuned_to_its_problem():
    experiment = dataclasses.replace(SMALL, policies={"ucb1": "ucb1", "exp3s": "exp3s"})
    cells = [(setting.value, name, spec) for setting, name, spec in experiment.cells()]
    assert [(value, name) for value, name, _ in cells] == [(0.0, "ucb1"), (0.0, "exp3s"), (0.5, "ucb1"), (0.5, "exp3s")]
    tuned = cells[1][2]
    assert isinstance(tuned, EXP3S)
    assert tuned.gamma == pytest.approx(math.sqrt(5 * math.log(5 * 2000) / 2000))  # T is one query's rounds, not all impressions
    assert tuned.alpha == pytest.approx(1 / 2000)


def test_a_cell_is_a_row(made_up):
    cell = made_up("fractions", 0.25, "bwc", [30.0, 50.0], paper=80.0)
    assert cell.as_row() == {
        "experiment": "fractions",
        "setting": 0.25,
        "policy": "bwc",
        "mean": 40.0,
        "sd": pytest.approx(math.sqrt(200.0)),
        "runs": 2,
        "paper": 80.0,
        "ratio": 0.5,
    }
    assert cell.error == pytest.approx(10.0)


def test_one_run_has_no_spread_and_no_printed_figure_no_ratio(made_up):
    cell = made_up("fractions", 0.25, "bwc", [30.0])
    assert (cell.sd, cell.error, cell.ratio) == (0.0, 0.0, None)


def test_a_small_experiment_has_these_figures():
    cells = run(SMALL, runs=2, seed=3)
    assert {(c.setting, c.policy): c.mean for c in cells} == pytest.approx(
        {
            (0.0, "ora"): 350.2265604098561,
            (0.0, "bwc"): 484.75244579923867,
            (0.5, "ora"): 618.4029019290609,
            (0.5, "bwc"): 741.3270834299365,
        },
        rel=1e-12,
    )
    assert [c.paper for c in cells] == [None, None, 400.0, None]
    assert [len(c.results.rounds) for c in cells] == [4] * 4


def test_progress_adds_up_to_the_total_also_when_runs_come_from_disk(tmp_path):
    for _ in range(2):
        ticks = []
        run(SMALL, runs=2, out=tmp_path, progress=ticks.append)
        assert sum(tick.rounds for tick in ticks) == total_rounds(SMALL, 2) == 2 * 2 * 2 * 8000


def test_a_second_call_plays_nothing_and_more_runs_only_the_new_ones(tmp_path):
    first = run(SMALL, runs=2, out=tmp_path)
    files = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert len(files) == 8
    second = run(SMALL, runs=2, out=tmp_path)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == files
    assert [cell.as_row() for cell in first] == [cell.as_row() for cell in second]
    third = run(SMALL, runs=3, out=tmp_path)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}.items() > files.items()
    assert [len(cell.results.runs) for cell in third] == [3] * 4
    assert len(list(tmp_path.iterdir())) == 12
