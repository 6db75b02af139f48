"""Many runs: the same bytes on any number of threads, resumed or interrupted; and Theorem 1 as an inequality."""

from __future__ import annotations

import dataclasses
import math
import signal
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest
from hypothesis import given, strategies as st

from swerve import BWC, UCB1, Finite, Hull, Matrix, Oracle, Rectangle, SwerveError, Testable, Traffic, simulate
from swerve.simulate import Interrupted, checkpoints
from swerve.theory import test_length, theorem1, ucb1_regret

ENVIRONMENT = Traffic(
    queries=3, impressions=1800, results=4, shifting_share=1.0, events_low=2, events_high=4, features=2, order="uniform"
)
POLICY = BWC(Testable(UCB1(), 40), Rectangle(0.1))


def contents(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def same(one, two):
    return one.curves.tobytes() == two.curves.tobytes() and [r.counts for r in one.runs] == [r.counts for r in two.runs]


def test_threads_change_no_byte(tmp_path):
    one = simulate(POLICY, ENVIRONMENT, runs=4, threads=1, out=tmp_path / "one")
    two = simulate(POLICY, ENVIRONMENT, runs=4, threads=2, out=tmp_path / "two")
    assert same(one, two)
    assert len(contents(tmp_path / "one")) == 4
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


def test_a_run_depends_on_its_own_seed_only():
    later = simulate(POLICY, ENVIRONMENT, runs=2, seed=2)
    every = simulate(POLICY, ENVIRONMENT, runs=4, seed=0)
    assert (later.curves == every.curves[2:]).all()
    assert len({curve.tobytes() for curve in every.curves}) == 4


def test_finished_runs_are_read_and_not_played_again(tmp_path):
    first = simulate(POLICY, ENVIRONMENT, runs=2, out=tmp_path)
    stamps = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    before = contents(tmp_path)
    ticks = []
    again = simulate(POLICY, ENVIRONMENT, runs=3, out=tmp_path, progress=ticks.append)
    assert {path: path.stat().st_mtime_ns for path in stamps} == stamps
    assert {name: body for name, body in contents(tmp_path).items() if name in before} == before
    assert (again.curves[:2] == first.curves).all()
    assert same(again, simulate(POLICY, ENVIRONMENT, runs=3))
    assert sum(tick.rounds for tick in ticks) == 3 * 1800
    assert {tick.seed for tick in ticks} == {0, 1, 2}


def test_a_lost_file_comes_back_with_the_same_bytes(tmp_path):
    simulate(POLICY, ENVIRONMENT, runs=2, out=tmp_path)
    before = contents(tmp_path)
    sorted(tmp_path.iterdir())[0].unlink()
    simulate(POLICY, ENVIRONMENT, runs=2, out=tmp_path)
    assert contents(tmp_path) == before


def test_ctrl_c_keeps_what_has_finished(tmp_path):
    def stop(tick):
        if tick.seed == 2:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted, match="interrupted after 2 finished runs") as caught:
        simulate(POLICY, ENVIRONMENT, runs=4, threads=1, out=tmp_path, progress=stop)
    assert [run.seed for run in caught.value.results.runs] == [0, 1]
    assert len(contents(tmp_path)) == 2
    assert not list(tmp_path.glob("*.part"))
    whole = simulate(POLICY, ENVIRONMENT, runs=4, out=tmp_path)
    assert same(whole, simulate(POLICY, ENVIRONMENT, runs=4))


def test_another_error_in_a_run_is_not_hidden(tmp_path):
    def fail(tick):
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        simulate(UCB1(), ENVIRONMENT, runs=2, threads=1, progress=fail)


SIGNALLED = """
    import os, signal, sys
    from swerve import Traffic, UCB1, simulate
    from swerve.simulate import Interrupted
    sent = []
    def tick(news):
        if news.seed == 1 and not sent:  # run 0 is on disk: one thread takes them in order
            sent.append(os.kill(os.getpid(), signal.SIGINT))
    try:
        simulate(UCB1(), Traffic(queries=2, impressions=4000), runs=200, threads=1, out=sys.argv[1], progress=tick)
    except Interrupted as stopped:
        print("interrupted", len(stopped.results.runs))
"""


def test_a_real_sigint_stops_the_program_between_runs(tmp_path):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(SIGNALLED), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a background test runner ignores SIGINT
    )
    assert done.returncode == 0, done.stderr
    word, finished = done.stdout.split()
    assert word == "interrupted"
    assert 1 <= len(contents(tmp_path)) < 200
    assert int(finished) == len(contents(tmp_path)), "every run on disk had finished"


# ---------------------------------------------------------------- checkpoints and refusals
@given(st.integers(1, 10**6), st.integers(1, 300), st.sampled_from(["linear", "log"]))
def test_checkpoints_increase_and_end_with_the_horizon(horizon, points, spacing):
    marks = checkpoints(horizon, points, spacing)
    assert marks[-1] == horizon
    assert marks[0] >= 1
    assert (np.diff(marks) > 0).all()
    assert len(marks) <= points


def test_checkpoints_are_even_in_their_scale():
    assert checkpoints(1000, 5).tolist() == [200, 400, 600, 800, 1000]
    assert checkpoints(10_000, 5, "log").tolist() == [1, 10, 100, 1000, 10_000]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"points": 0}, "points = 0 .* ≥ 1"),
        ({"spacing": "cubic"}, "spacing = 'cubic' .* 'linear' or 'log'"),
        ({"runs": 0}, "runs = 0 .* ≥ 1"),
        ({"threads": -1}, "threads = -1 .* ≥ 1"),
    ],
)
def test_bad_settings_are_refused(fields, words):
    with pytest.raises(SwerveError, match=words):
        simulate(UCB1(), ENVIRONMENT, **{"runs": 1, **fields})


def test_a_horizon_shorter_than_a_test_is_refused_before_anything_runs():
    played = []
    with pytest.raises(SwerveError, match=r"L = 700 is not allowed; .* the 600 rounds"):
        simulate(BWC(Testable(UCB1(), 700), Rectangle()), ENVIRONMENT, progress=played.append)
    assert played == []


# ---------------------------------------------------------------- the paper's guarantee
def test_one_query_under_the_assumptions_of_theorem_1_stays_under_the_corrected_bound():
    """One query, its own classifier, events at least 2L apart, minimum shift enforced, L = 4·n/ε²·ln T: the mean of 12 runs."""
    n, shift, horizon, d, margin = 5, 0.3, 300_000, 1, 0.4
    length = test_length(n, shift, horizon)
    problem = Traffic(
        queries=1, impressions=horizon, results=n, shifting_share=1.0, events_low=3, events_high=3, features=d, margin=margin,
        edge_low=0.6, edge_high=0.6, minimum_shift=shift, minimum_event_distance=2 * length, other_low=0.0, other_high=0.1,
        best_low=0.5, best_high=0.9,
    )  # fmt: skip
    results = simulate(BWC(Testable(UCB1(), length, shift), Rectangle(margin)), problem, runs=12, pooling="query")
    gap = min(run.facts["gap"] for run in results.runs)
    assert min(run.facts["shift"] for run in results.runs) > shift
    diameter = 1 + d * math.floor(2 / margin)
    assert results.count("false_alarms").max() <= diameter
    assert results.count("misses").sum() == 0
    assert results.count("wrong_false_labels").sum() == 0
    bound = theorem1(horizon, 3, diameter, length, lambda t: ucb1_regret(t, n, gap))
    assert results.regret.mean() < bound
    assert bound < 0.25 * horizon * gap  # the bound is not vacuous: a policy that never adapts may lose more
    # BWC is useful: an oracle is better, ignoring events is worse
    ora = simulate(Oracle(UCB1()), problem, runs=12).regret.mean()
    ignorant = simulate(UCB1(), problem, runs=12).regret.mean()
    assert ora < results.regret.mean() < ignorant


@pytest.mark.parametrize("classifier", [Rectangle(radius=0.01), Hull(radius=0.01), Finite(Matrix(((1, -1), (-1, 1))))], ids=str)
@pytest.mark.usefixtures("uncompiled")
def test_a_context_outside_the_declared_domain_stops_the_run_with_one_line(classifier):
    policy = BWC(Testable(UCB1(), 20), classifier)
    with pytest.raises(SwerveError, match=r"^round 1, query \d: x = \[.*\] is not allowed; it lies outside the domain of BWC.*$"):
        simulate(policy, ENVIRONMENT, runs=1)


def test_a_policy_that_reads_contexts_needs_features():
    with pytest.raises(SwerveError, match="features = 0 is not allowed"):
        simulate(BWC(Testable(UCB1(), 20), Rectangle()), dataclasses.replace(ENVIRONMENT, features=0), runs=1)


def test_groups_may_be_listed():
    policy = BWC(Testable(UCB1(), 20), Rectangle())
    queries = ENVIRONMENT.queries
    listed = simulate(policy, ENVIRONMENT, runs=1, pooling=[0] * queries).runs[0]
    shared = simulate(policy, ENVIRONMENT, runs=1, pooling="shared").runs[0]
    assert listed.counts == shared.counts
    apart = simulate(policy, ENVIRONMENT, runs=1, pooling=list(range(queries))).runs[0]
    assert apart.counts == simulate(policy, ENVIRONMENT, runs=1, pooling="query").runs[0].counts
    assert apart.counts != shared.counts


def test_setting_stop_ends_the_runs_and_keeps_the_finished_ones():
    stop, seen = threading.Event(), []

    def tick(news):
        seen.append(news.seed)
        if news.seed == 2:
            stop.set()

    with pytest.raises(Interrupted) as ended:
        simulate(UCB1(), ENVIRONMENT, runs=50, threads=1, progress=tick, stop=stop)
    assert len(ended.value.results.runs) in (2, 3)
    assert max(seen) <= 3
