"""Runs on disk: complete, self-describing, and never confused with runs of another plan or of other code."""

from __future__ import annotations

import importlib
import json
import linecache
import sys

import numpy as np
import pyarrow.parquet as pq
import pytest

from swerve import BWC, UCB1, Rectangle, SwerveError, Testable, Traffic, __version__, simulate
from swerve.simulate.results import Plan, Results, Run, read_file, read_run, run_path, write_run

ENVIRONMENT = Traffic(queries=2, impressions=400)


def sample(seed=3):
    return Run(
        seed, np.array([1, 2]), np.array([0.5, 0.75]), np.array([0.0, 1.0]), {"misses": 2, "regret": 0.75}, {"k": 1, "gap": 0.1}
    )


def same(one, two):
    return (
        (one.seed, one.counts, one.facts) == (two.seed, two.counts, two.facts)
        and (one.rounds == two.rounds).all()
        and (one.regret == two.regret).all()
        and (one.clicks == two.clicks).all()
    )


def test_a_run_comes_back_as_it_was(tmp_path):
    plan = Plan(UCB1(), ENVIRONMENT)
    path = write_run(tmp_path / "new", plan, sample())
    assert path == run_path(tmp_path / "new", plan, 3)
    assert [p.name for p in path.parent.iterdir()] == [path.name]  # no incomplete file remains
    assert same(read_run(tmp_path / "new", plan, 3), sample())
    assert read_run(tmp_path / "new", plan, 4) is None


def test_the_file_says_what_made_it(tmp_path):
    plan = Plan(BWC(Testable(UCB1(alpha=2), length=50), Rectangle()), ENVIRONMENT, "query", 7, "log")
    about = json.loads(pq.read_schema(write_run(tmp_path, plan, sample())).metadata[b"swerve"])
    assert about["policy"] == repr(plan.policy)
    assert about["environment"] == repr(ENVIRONMENT)
    assert (about["pooling"], about["points"], about["spacing"]) == ("query", "7", "log")
    assert (about["seed"], about["version"]) == (3, __version__)


def test_a_run_of_an_earlier_version_is_read(tmp_path, monkeypatch):
    plan = Plan(UCB1(), ENVIRONMENT)
    monkeypatch.setattr("swerve.version.__version__", "0.1.0")
    about = json.loads(pq.read_schema(write_run(tmp_path, plan, sample())).metadata[b"swerve"])
    monkeypatch.undo()
    assert about["version"] == "0.1.0" != __version__
    assert same(read_run(tmp_path, plan, 3), sample())


def test_plans_that_differ_have_different_names(tmp_path):
    plans = [
        Plan(UCB1(), ENVIRONMENT),
        Plan(UCB1(alpha=0.6), ENVIRONMENT),
        Plan(UCB1(), Traffic(queries=2, impressions=401)),
        Plan(UCB1(), ENVIRONMENT, pooling="query"),
        Plan(UCB1(), ENVIRONMENT, points=50),
        Plan(UCB1(), ENVIRONMENT, spacing="log"),
    ]
    assert len({run_path(tmp_path, plan, 0) for plan in plans}) == len(plans)


MINE = """
from swerve.bandits.ucb1 import UCB1
from swerve.core.contract import select
class Mine(UCB1):
    pass
@select.register(Mine)
def _(spec, row, pool, available, now):
    return RULE
"""


def test_edited_code_of_a_user_is_another_plan(tmp_path, monkeypatch):
    """Otherwise a run of the old bandit would be read as one of the new bandit."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    digests = []
    for rule in ("0", "1"):
        (tmp_path / "mine_for_results.py").write_text(MINE.replace("RULE", rule))
        importlib.invalidate_caches()
        sys.modules.pop("mine_for_results", None)
        linecache.checkcache()
        module = importlib.import_module("mine_for_results")
        digests.append(Plan(module.Mine(), ENVIRONMENT).digest)
    assert digests[0] != digests[1]


@pytest.mark.parametrize("content", [b"", b"no parquet"])
def test_a_broken_file_is_named(tmp_path, content):
    path = tmp_path / "ucb1-x-0.parquet"
    path.write_bytes(content)
    with pytest.raises(SwerveError, match="is not a run of Swerve") as caught:
        read_file(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_results_sum_up_their_runs():
    results = Results(Plan(UCB1(), ENVIRONMENT), [sample(1), sample(2)])
    assert results.curves.tolist() == [[0.5, 0.75], [0.5, 0.75]]
    assert results.regret.tolist() == [0.75, 0.75]
    assert results.count("misses").tolist() == [2.0, 2.0]
    summary = results.summary()
    assert (summary["runs"], summary["seed"], summary["mean"], summary["sd"]) == (2, 1, 0.75, 0.0)
    assert summary["counters"] == {"misses": 2.0, "regret": 0.75}
    assert json.loads(json.dumps(summary)) == summary


def test_an_unknown_counter_is_named_with_the_known_ones():
    results = Results(Plan(UCB1(), ENVIRONMENT), [sample(1)])
    with pytest.raises(SwerveError, match=r"^unknown counter 'mises'; did you mean 'misses'\? \(known: misses, regret\)$"):
        results.count("mises")


def test_one_run_has_no_spread():
    summary = Results(Plan(UCB1(), ENVIRONMENT), [sample(4)]).summary()
    assert summary["sd"] is None
    assert summary["seeds"] == [4]
    with pytest.raises(SwerveError, match="no run has finished"):
        Results(Plan(UCB1(), ENVIRONMENT), []).summary()


def test_spread_is_that_of_a_sample():
    results = simulate(UCB1(), ENVIRONMENT, runs=3)
    assert results.summary()["sd"] == pytest.approx(np.std(results.regret, ddof=1))
