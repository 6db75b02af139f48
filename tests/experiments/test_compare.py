"""Comparisons: figures against hand calculations and SciPy, resuming, stopping, and claims."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from scipy import stats
from twins import hurricane

from swerve.core.errors import SwerveError
from swerve.environments import workload
from swerve.experiments.compare import (
    BARS,
    ORACLE,
    RIVALS,
    cells_of,
    compare,
    rows_of,
    total_rounds,
    verdicts,
)
from swerve.experiments.comparison import Comparison, Stopped
from swerve.experiments.intervals import interval, ratio_of, student_quantile
from swerve.policies import policy
from swerve.simulate import simulate

SMALL = {"queries": 3, "impressions": 6000, "runs": 3, "threads": 1}


@pytest.fixture
def judged():
    """A function that makes a comparison of a policy with its rivals from ratios, with little noise between runs."""

    def make(cells, runs=4, **rivals):
        noise = np.linspace(-1.0, 1.0, runs)
        asked = ("new", *RIVALS)
        rows = []
        for (name, fraction), ratio in cells.items():
            regrets = {text: 1000.0 * rivals.get(text.replace("-", "_"), 5.0) + 3.0 * noise for text in RIVALS}
            regrets |= {"new": 1000.0 * ratio + noise, ORACLE: np.full(runs, 1000.0)}
            rows += rows_of(name, fraction, asked, "new", 0, regrets, {})
        return Comparison(asked, "new", runs, 0, rows, {})

    return make


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.95, 0.999])
@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 5, 9, 19, 20, 101, 2000])
def test_students_quantile_is_scipys(confidence, freedom):
    assert student_quantile(confidence, freedom) == pytest.approx(stats.t.ppf((1 + confidence) / 2, freedom), rel=1e-9)


def test_a_paired_interval_is_scipys():
    one, two = np.random.default_rng(5).normal((100.0, 90.0), (20.0, 5.0), (17, 2)).T
    mean, low, high = interval(one - two)
    expected = stats.ttest_rel(one, two).confidence_interval(0.95)
    assert mean == pytest.approx(float(np.mean(one - two)))
    assert (low, high) == pytest.approx((expected.low, expected.high))


def test_the_interval_of_a_ratio_is_near_fiellers():
    draw = np.random.default_rng(6)
    base = draw.normal(1000.0, 60.0, 20)
    own = 1.4 * base + draw.normal(0.0, 90.0, 20)
    ratio, low, high = ratio_of(own, base)
    assert ratio == pytest.approx(own.mean() / base.mean())
    # Fieller, Journal of the Royal Statistical Society B, 1954: the ratios r that a paired t test of own − r·base does not reject
    t = stats.t.ppf(0.975, 19)
    a, b = base.mean() ** 2 - t**2 * base.var(ddof=1) / 20, own.mean() * base.mean() - t**2 * np.cov(own, base)[0, 1] / 20
    c = own.mean() ** 2 - t**2 * own.var(ddof=1) / 20
    root = math.sqrt(b * b - a * c)
    assert (low, high) == pytest.approx(((b - root) / a, (b + root) / a), abs=0.05 * (high - low))


def test_a_reference_without_regret_has_no_ratio():
    assert ratio_of(np.ones(3), np.zeros(3)) == (None, None, None)


def test_rows_are_what_simulate_says():
    found = compare(["ucb1", "ts"], ["clear"], [0.5], seed=7, **SMALL)
    problem = workload("clear", 0.5, queries=3, impressions=6000)
    regret = {
        name: np.array([simulate(policy(name, arms=5, horizon=2000), problem, runs=1, seed=s).regret[0] for s in (7, 8, 9)])
        for name in ("ucb1", "ts", ORACLE)
    }
    first, second = found.rows
    assert [row.policy for row in found.rows] == ["ucb1", "ts"]
    for row in found.rows:
        own = regret[row.policy]
        assert (row.workload, row.fraction, row.runs, row.seed, row.against) == ("clear", 0.5, 3, 7, "ucb1")
        assert row.mean == pytest.approx(own.mean())
        assert row.sd == pytest.approx(own.std(ddof=1))
        assert row.ratio == pytest.approx(own.mean() / regret[ORACLE].mean())
        assert row.ratio_low < row.ratio < row.ratio_high
        assert row.seconds > 0
    assert (first.difference, first.difference_low, first.difference_high) == (None, None, None)
    difference = regret["ucb1"] - regret["ts"]
    half = stats.t.ppf(0.975, 2) * difference.std(ddof=1) / math.sqrt(3)
    assert second.difference == pytest.approx(difference.mean())
    assert (second.difference_low, second.difference_high) == pytest.approx((difference.mean() - half, difference.mean() + half))
    order = sorted(("ucb1", "ts"), key=lambda name: regret[name].mean())
    assert {row.policy: row.rank for row in found.rows} == {order[0]: 1, order[1]: 2}
    assert all(np.array_equal(found.regrets["clear", 0.5, name], regret[name]) for name in regret)


def test_policies_are_tuned_to_the_workload():
    found = compare(["exp3s"], ["zipf"], [0.1], queries=2, impressions=3000, runs=1, threads=1)
    problem = workload("zipf", 0.1, queries=2, impressions=3000)
    tuned = policy("exp3s", arms=10, horizon=problem.rounds_per_query)
    assert found.rows[0].mean == simulate(tuned, problem, runs=1, seed=100).regret.mean()


def test_rows_come_in_the_order_that_was_asked_for_and_each_policy_once():
    found = compare(["ts", "ucb1", "ts"], ["mixed", "clear"], [0.5, 0.0], runs=1, queries=2, impressions=600, threads=1)
    cells = [("mixed", 0.5), ("mixed", 0.0), ("clear", 0.5), ("clear", 0.0)]
    assert found.cells == cells
    assert [(row.workload, row.fraction, row.policy) for row in found.rows] == [
        (*c, name) for c in cells for name in ("ts", "ucb1")
    ]


def test_the_oracle_has_a_row_only_when_asked_and_its_ratio_is_one():
    found = compare(["ucb1", ORACLE], ["clear"], [0.5], **SMALL)
    row = found.row("clear", 0.5, ORACLE)
    assert (row.ratio, row.ratio_low, row.ratio_high) == (1.0, 1.0, 1.0)
    with pytest.raises(SwerveError, match=r"oracle-ts did not play clear at 0\.5"):
        compare(["ucb1"], ["clear"], [0.5], **SMALL).row("clear", 0.5, ORACLE)


def test_differences_may_be_taken_to_any_player():
    rows = {row.policy: row for row in compare(["ucb1", "ts"], ["clear"], [0.5], against=ORACLE, **SMALL).rows}
    for row in rows.values():
        assert row.against == ORACLE
        assert row.difference == pytest.approx(row.mean / row.ratio - row.mean)


def test_one_run_has_no_spread_and_no_interval():
    row = compare(["ucb1", "ts"], ["clear"], [0.5], **{**SMALL, "runs": 1}).rows[1]
    assert row.difference is not None
    assert row.ratio is not None
    assert (row.sd, row.ratio_low, row.ratio_high, row.difference_low, row.difference_high) == (None,) * 5
    assert row.decided == 0


def test_equal_means_share_a_rank_and_decided_needs_the_whole_interval():
    regrets = {"a": np.array([1.0, 3.0]), "b": np.array([2.0, 2.0]), "c": np.array([9.0, 9.5]), ORACLE: np.array([1.0, 1.0])}
    rows = {row.policy: row for row in rows_of("w", 0.0, ["c", "a", "b"], "b", 0, regrets, {})}
    assert {name: row.rank for name, row in rows.items()} == {"a": 1, "b": 1, "c": 3}
    assert rows["a"].decided == 0
    assert rows["c"].decided == -1
    assert {row.policy: row.decided for row in rows_of("w", 0.0, ["c", "b"], "c", 0, regrets, {})} == {"c": 0, "b": 1}


def test_fewer_queries_are_as_long_as_before():
    cells = cells_of(["clear", "zipf"], [0.1], queries=10)
    assert {(problem.queries, problem.impressions) for problem in cells.values()} == {(10, 300_000)}
    assert total_rounds(cells, ["ts", ORACLE, "ts"], 4) == 4 * 2 * 600_000
    assert total_rounds(cells, ["ts"], 4) == 4 * 2 * 600_000


def test_a_workload_made_from_records_is_played_once_without_a_fraction(tmp_path, monkeypatch):
    monkeypatch.setenv("SWERVE_DATA", str(hurricane.write(tmp_path)))
    found = compare(["ts", "ucb1"], ["hurricane-10k", "clear"], [0.0, 0.5], runs=2, queries=2, impressions=600, threads=1)
    assert found.cells == [("hurricane-10k", None), ("clear", 0.0), ("clear", 0.5)]
    first = found.row("hurricane-10k", None, "ts")
    assert first.as_dict()["fraction"] is None
    assert first.mean == simulate(policy("ts"), workload("hurricane-10k", impressions=600), runs=2, seed=100).regret.mean()
    with pytest.raises(SwerveError, match=r"^glr-ts did not play hurricane-10k$"):
        found.row("hurricane-10k", None, "glr-ts")


def test_sizes_that_a_workload_does_not_have_are_not_its_own():
    cells = cells_of(["hurricane-10k", "clear"], [0.1], queries=10)
    assert [problem.impressions for problem in cells.values()] == [10_000, 300_000]


def test_finished_runs_are_read_and_more_runs_only_add(tmp_path):
    def rows(runs):
        found = compare(["ts"], ["clear", "mixed"], [0.5], queries=3, impressions=6000, runs=runs, threads=1, out=tmp_path)
        return [dataclasses.replace(row, seconds=0.0) for row in found.rows]

    first = rows(2)
    files = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert len(files) == 2 * 2 * 2  # workloads, policies with the oracle, runs
    assert rows(2) == first
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == files
    more = rows(3)
    assert len(list(tmp_path.iterdir())) == 2 * 2 * 3
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in files.items())
    assert [row.runs for row in more] == [3, 3]


def test_a_stopped_comparison_keeps_whole_cells():
    played = 0

    def stop(tick):
        nonlocal played
        played += tick.rounds
        if played > 1200 + 600 + 1:  # the first cell, the first of two policies of the second, and a little
            raise KeyboardInterrupt

    with pytest.raises(Stopped, match="stopped after 1 finished cells") as stopped:
        compare(["ts"], ["clear", "mixed"], [0.5], runs=1, queries=2, impressions=600, threads=1, progress=stop)
    assert [row.workload for row in stopped.value.comparison.rows] == ["clear"]


def test_a_workload_that_cannot_be_drawn_is_said_before_anything_is_played(tmp_path):
    with pytest.raises(SwerveError, match="do not fit into"):
        compare(["ts"], ["clear", "gradual"], [1.0], runs=1, queries=4, impressions=2000, threads=1, out=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_standings_over_all_cells_by_hand(judged):
    found = judged({("clear", 0.0): 2.0, ("mixed", 0.1): 0.5}, glr_ts=1.0, ts=0.8)
    by_name = {standing.policy: standing for standing in found.standings()}
    new = by_name["new"]
    assert (new.ratio, new.worst, new.where, new.rank) == (pytest.approx(1.0), pytest.approx(2.0), "clear 0", 2.0)
    assert (new.better, new.worse) == (0, 0)
    assert (by_name["ts"].better, by_name["ts"].worse) == (1, 1)
    assert by_name["ts"].rank == 1.5
    assert (by_name["cusum-klucb"].better, by_name["cusum-klucb"].worse) == (2, 0)
    assert [standing.policy for standing in found.standings()] == ["ts", "new", "glr-ts", "cusum-klucb"]


def test_bars_hold_up_to_the_bar_itself(judged):
    for (name, fraction), bar in BARS.items():
        (good,) = verdicts(judged({(name, fraction): bar}))
        (bad,) = verdicts(judged({(name, fraction): bar + 0.01}))
        assert (good.holds, good.bar, good.above) == (True, bar, ())
        assert (bad.holds, bad.within, bad.above) == (False, False, ())


def test_a_cell_without_a_bar_is_judged_by_the_rivals(judged):
    (free,) = verdicts(judged({("late", 0.1): 40.0}, glr_ts=41.0, cusum_klucb=50.0, ts=60.0))
    assert (free.bar, free.holds) == (None, True)
    (lost,) = verdicts(judged({("late", 0.1): 40.0}, glr_ts=39.0, cusum_klucb=50.0, ts=39.5))
    assert (lost.within, lost.holds, lost.above) == (True, False, ("glr-ts", "ts"))


def test_records_have_no_bar_but_rivals(judged):
    (free,) = verdicts(judged({("hurricane", None): 4.0}))
    assert (free.bar, free.holds) == (None, True)
    (lost,) = verdicts(judged({("hurricane", None): 6.0}))
    assert (lost.holds, lost.above) == (False, RIVALS)


def test_the_worst_cell_of_a_standing_is_named_with_its_fraction_if_it_has_one(judged):
    assert judged({("hurricane", None): 2.0, ("clear", 0.5): 1.0}).standings()[0].where == "hurricane"
    assert judged({("hurricane", None): 1.0, ("clear", 0.5): 2.0}).standings()[0].where == "clear 0.5"


def test_losing_to_a_rival_counts_only_for_certain_and_where_something_shifts(judged):
    assert verdicts(judged({("clear", 0.0): 1.04}, ts=1.0))[0].holds
    assert not verdicts(judged({("clear", 0.1): 1.0}, ts=0.9))[0].holds
    assert verdicts(judged({("clear", 0.1): 1.0}, ts=0.9999))[0].holds  # worse, but within the interval


def test_no_ratio_is_no_success(judged):
    found = judged({("clear", 0.1): 0.5})
    rows = [dataclasses.replace(row, ratio=None) for row in found.rows]
    assert not verdicts(dataclasses.replace(found, rows=rows))[0].holds


def test_bars_need_every_rival_and_two_runs(judged):
    found = judged({("clear", 0.1): 0.5})
    with pytest.raises(SwerveError, match="the bars also need the policies glr-ts, ts"):
        verdicts(dataclasses.replace(found, policies=("new", "cusum-klucb")))
    with pytest.raises(SwerveError, match="the bars need intervals, which need at least 2 runs"):
        verdicts(dataclasses.replace(found, runs=1))


@pytest.mark.parametrize(
    ("policies", "workloads", "fractions", "more", "message"),
    [
        ([], ["clear"], [0.1], {}, "policies = .* is not allowed; there must be at least one"),
        (["ts"], [], [0.1], {}, "workloads = .* is not allowed; there must be at least one"),
        (["ts"], ["clear"], [], {}, "fractions = .* is not allowed; there must be at least one"),
        (["ts"], ["clear"], [1.5], {}, r"fraction = 1.5 is not allowed; fraction must be in \[0, 1\]"),
        (["ts"], ["clear"], [math.nan], {}, r"fraction = nan is not allowed; fraction must be in \[0, 1\]"),
        (["ts"], ["claer"], [0.1], {}, "unknown workload 'claer'; did you mean 'clear'"),
        (["tss"], ["clear"], [0.1], {}, "unknown policy 'tss'"),
        (["ts"], ["clear"], [0.1], {"against": "ucb1"}, "against = 'ucb1' is not allowed; it must be one of the policies: ts"),
        (["ts"], ["clear"], [0.1], {"runs": 0}, "runs = 0 is not allowed"),
        (["ts"], ["clear"], [0.1], {"impressions": 10}, "impressions = 10 is not allowed"),
    ],
)
def test_a_wrong_request_is_one_line(policies, workloads, fractions, more, message):
    with pytest.raises(SwerveError, match=message) as refused:
        compare(policies, workloads, fractions, **more)
    assert "\n" not in str(refused.value)
