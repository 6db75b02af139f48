"""Runs on a Ray cluster: tasks are plain data, have the bytes of the threads, and are repeated when their node is lost."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import pickle
import random
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import mock

import pytest
from click.testing import CliRunner

from swerve import UCB1, SwerveError, Traffic, policy, simulate
from swerve.cli import app
from swerve.core import loading
from swerve.core.spec import Spec
from swerve.simulate import Plan, Worlds, cluster
from swerve.simulate.devices import together
from swerve.simulate.runner import play_run

INSTALLED = importlib.util.find_spec("ray") is not None
needs_ray = pytest.mark.skipif(not INSTALLED, reason="the extra swerve[ray] is not installed")
EXAMPLE = Path(__file__).parents[2] / "examples" / "own_bandit.py"
SMALL = Traffic(queries=2, impressions=400)
#: Seconds for a command of the slow tests, and for processes to end.
PATIENCE, ENDING = 240, 20


def bytes_of(run):
    """Return everything of a run, for comparisons."""
    return run.seed, run.rounds.tobytes(), run.regret.tobytes(), run.clicks.tobytes(), repr(run.counts), repr(run.facts)


# ---------------------------------------------------------------- options and tasks, without Ray


@pytest.mark.parametrize("words", [["simulate", "ucb1"], ["compare"], ["reproduce"], ["evaluate", __file__]])
def test_without_the_extra_the_command_line_says_so_in_one_line(words):
    with mock.patch("importlib.util.find_spec", return_value=None):
        done = CliRunner().invoke(app, [*words, "--on", "ray:10.0.0.1:6379"])
    assert isinstance(done.exception, SwerveError)
    line = "--on ray:10.0.0.1:6379 needs the package ray; install Swerve with its extra `ray`, here and on every node"
    assert str(done.exception) == line


def test_without_the_extra_python_is_told_so():
    with (
        mock.patch("importlib.util.find_spec", return_value=None),
        pytest.raises(SwerveError, match='device="ray" needs the package ray'),
    ):
        simulate(UCB1(), SMALL, runs=1, device="ray")


@pytest.mark.parametrize("place", ["rays", "tpu", "gpu:0", ""])
def test_an_unknown_place_is_refused(place):
    done = CliRunner().invoke(app, ["simulate", "ucb1", "--on", place])
    assert str(done.exception) == f"--on {place} is not allowed; it must be cpu, gpu, ray or ray:ADDRESS"


@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize("name", ["swerve", "bwc(length=20)", "Oracle(Thompson(a=2))"])
def test_a_task_is_plain_data_and_plays_the_run_of_a_thread(name):
    plan = Plan(policy(name), SMALL, (0, 1), 5, "log")
    order = cluster.order_of(plan)
    assert all(isinstance(part, str | int | tuple | None) for part in order)
    order = pickle.loads(pickle.dumps(order))
    played = cluster.Run(*cluster.swerve_task(cluster.versions(), "swerve.simulate.cluster:play_one", order, 7))
    assert bytes_of(played) == bytes_of(play_run(plan, Worlds(SMALL)[7]))


@pytest.mark.usefixtures("uncompiled")
def test_the_users_own_file_travels_with_a_task(tmp_path, monkeypatch):
    own = tmp_path / "own_bandit.py"
    own.write_bytes(EXAMPLE.read_bytes())
    with own_classes():
        loading.load_file(own, "--load")
        plan = Plan(policy("Softmax(temperature=0.05)"), SMALL)
        order, expected = cluster.order_of(plan), play_run(plan, Worlds(SMALL)[0])
        assert (own.name, own.read_bytes()) in order.files
        own.write_text("# edited")
        with pytest.raises(SwerveError, match="has changed since it was loaded"):
            cluster.order_of(plan)
    own.unlink()
    monkeypatch.setattr(cluster, "cache_root", lambda: tmp_path)
    with own_classes():  # a node, which has never heard of the file
        assert bytes_of(cluster.Run(*cluster.play_one(order, 0))) == bytes_of(expected)


@contextlib.contextmanager
def own_classes():
    """Forget inside and after the block what was loaded."""
    tables = [*loading.REGISTRIES, loading._LOADED]
    with contextlib.ExitStack() as stack:
        for table in tables:
            stack.enter_context(mock.patch.dict(table))
        loading._LOADED.clear()
        yield


def test_a_class_that_no_node_knows_is_refused():
    class Mine(Spec):
        """A class of a test."""

    with pytest.raises(SwerveError, match=r"Mine of .*test_ray is not allowed on Ray.*--load FILE"):
        cluster.order_of(Plan(UCB1(), Mine()))


def test_a_node_with_other_code_refuses_to_play():
    order = cluster.order_of(Plan(UCB1(), SMALL))._replace(digest="another", code="Swerve 9")
    with pytest.raises(SwerveError, match=r"has other code \(Swerve .*\) than this machine \(Swerve 9\)"):
        cluster.play_one(order, 0)
    with pytest.raises(SwerveError, match=r"has other code \(Swerve .*\) than this machine \(Swerve 9\)"):
        cluster.swerve_task("Swerve 9", "swerve.simulate.cluster:play_one", order, 0)


def test_the_first_error_of_jobs_at_once_is_raised_while_others_still_play():
    stop = threading.Event()

    def fail():
        raise ValueError("no")

    executor = ThreadPoolExecutor(2)
    with pytest.raises(ValueError, match="no"):
        together([(lambda: stop.wait(30), executor), (fail, executor)], stop)
    assert stop.is_set()


@needs_ray
@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1", "here", "here:there"])
def test_an_address_that_cannot_be_joined_is_told_in_one_line(address):
    with pytest.raises(SwerveError, match=f"ray:{address} cannot be joined: ") as caught:
        simulate(UCB1(), SMALL, runs=1, device=f"ray:{address}")
    assert "\n" not in str(caught.value)


# ---------------------------------------------------------------- on two nodes


def descendants(roots):
    """Return processes and everything that they have started, by number."""
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError):
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
    found = set(roots)
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def alive(processes):
    """Return those of the processes that run."""
    out = set()
    for number in processes:
        with contextlib.suppress(OSError):
            if (Path("/proc") / str(number) / "stat").read_text().rpartition(")")[2].split()[0] != "Z":
                out.add(number)
    return out


def title(number):
    """Return what a process calls itself: Ray's have the name of the task that they do."""
    with contextlib.suppress(OSError):
        return (Path("/proc") / str(number) / "cmdline").read_text()
    return ""


class Nodes:
    """A cluster of two nodes with a processor each, which listens on this machine alone."""

    def __init__(self):
        from ray.cluster_utils import Cluster

        size = {"num_cpus": 1, "object_store_memory": 80 << 20, "include_dashboard": False}
        self.cluster = Cluster(initialize_head=True, head_node_args=size)
        self.second = self.cluster.add_node(**size)
        self.address = self.cluster.address
        self.started = set()
        self.look()

    def look(self):
        """Note which processes there are."""
        nodes = [self.cluster.head_node, *self.cluster.worker_nodes]
        self.started |= descendants(
            info.process.pid for node in nodes if node for kind in node.all_processes.values() for info in kind
        )

    def kill_second(self, task="swerve"):
        """Kill a node in the middle of a task whose name begins so, without a word to the others."""
        roots = [info.process.pid for kind in self.second.all_processes.values() for info in kind]
        until = time.monotonic() + PATIENCE
        while (busy := self.halted(roots, task)) is None:
            assert time.monotonic() < until
            time.sleep(0.02)
        self.look()
        self.cluster.remove_node(self.second, allow_graceful=False)
        with contextlib.suppress(ProcessLookupError):
            os.kill(busy, signal.SIGKILL)

    def halted(self, roots, task):
        """Return a process that is halted in the middle of a task, so that it never answers; None if there is no task."""
        for each in descendants(roots):
            if title(each).startswith(f"ray::{task}"):
                os.kill(each, signal.SIGSTOP)
                if title(each).startswith(f"ray::{task}"):
                    return each
                os.kill(each, signal.SIGCONT)
        return None

    def end(self):
        """End all, and wait until nothing of it is left."""
        self.look()
        self.cluster.shutdown()
        until = time.monotonic() + ENDING
        while alive(self.started) and time.monotonic() < until:
            time.sleep(0.1)
        assert alive(self.started) == set()


@pytest.fixture
def nodes(monkeypatch):
    """Two nodes; skips by name without Ray."""
    if not INSTALLED:
        pytest.skip("the extra swerve[ray] is not installed")
    monkeypatch.setenv(cluster.BEYOND, "0")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    constants = importlib.import_module("ray._private.ray_constants")
    monkeypatch.setattr(constants, "ENABLE_RAY_CLUSTER", False)
    made = Nodes()
    assert made.address.startswith("127.0.0.1:")
    try:
        yield made
    finally:
        made.end()


def begin(*words):
    """Begin a command."""
    line = [sys.executable, "-m", "swerve.cli", *map(str, words)]
    return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def output(*words, code=0):
    """Run a command; return what it prints, and its errors."""
    running = begin(*words)
    out, errors = running.communicate(timeout=PATIENCE)
    assert running.returncode == code, errors
    return out, errors


def figures(text):
    """Return the figures of a command's JSON without the seconds that it took."""
    return json.dumps([{name: value for name, value in row.items() if name != "seconds"} for row in json.loads(text)])


def files(folder):
    """Return the bytes of all files of a folder."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def wait_for(folder, count):
    """Wait until a folder has so many finished runs."""
    until = time.monotonic() + PATIENCE
    while not folder.exists() or len(list(folder.glob("*.parquet"))) < count:
        assert time.monotonic() < until
        time.sleep(0.05)


@pytest.mark.slow
def test_a_sweep_whose_node_is_killed_has_the_bytes_of_the_threads(nodes, tmp_path):
    sweep = ["compare", "-w", "clear,mixed-noisy", "-f", "0.5", "-p", "swerve,ts", "--runs", 6, "--queries", 60, "--json"]
    expected, _ = output(*sweep, "--out", tmp_path / "threads")
    running = begin(*sweep, "--out", tmp_path / "ray", "--on", f"ray:{nodes.address}")
    wait_for(tmp_path / "ray", 4)
    nodes.kill_second()
    done = len(list((tmp_path / "ray").glob("*.parquet")))
    out, errors = running.communicate(timeout=PATIENCE)
    assert running.returncode == 0, errors
    assert done < 36
    assert figures(out) == figures(expected)
    assert files(tmp_path / "ray") == files(tmp_path / "threads")
    assert len(files(tmp_path / "ray")) == 36


@pytest.mark.slow
def test_errors_own_files_and_ctrl_c_on_two_nodes(nodes, tmp_path):
    on = ["--on", f"ray:{nodes.address}"]
    own = [
        "simulate",
        "Softmax(temperature=0.05)",
        "--load",
        EXAMPLE,
        "-e",
        "traffic(queries=3,impressions=9000)",
        "--runs",
        3,
        "--json",
    ]
    assert figures(output(*own, *on)[0]) == figures(output(*own)[0])
    wrong = ["simulate", "bwc-hull", "-e", "traffic(queries=2,impressions=20000,features=6)", "--runs", 1]
    said = output(*wrong, code=2)[1]
    assert "outside the domain" in said
    assert output(*wrong, *on, code=2)[1] == said
    running = begin(
        "simulate", "swerve", "-e", "traffic(queries=20,impressions=600000)", "--runs", 400, "--out", tmp_path / "runs", *on
    )
    wait_for(tmp_path / "runs", 4)
    nodes.look()
    running.send_signal(signal.SIGINT)
    _, errors = running.communicate(timeout=ENDING)
    assert running.returncode == 130
    assert "interrupted after" in errors and "Traceback" not in errors
    assert 4 <= len(files(tmp_path / "runs")) < 400


def search_log(path, lists):
    """Write a log with propensities, whose queries shift."""
    draw = random.Random(7)
    with path.open("w") as file:
        for number in range(lists):
            query = f"q{int(draw.paretovariate(0.7)) % 400}"
            given = [f"{query}-{result}" for result in range(5)]
            shown = draw.sample(given, 5)
            liked = given[2 * number // lists]
            clicks = [result for at, result in enumerate(shown) if draw.random() < (0.6 if result == liked else 0.1) / (1 + at)]
            line = {"time": number, "query": query, "shown": shown, "clicks": clicks, "propensities": [0.2] * 5, "given": given}
            file.write(json.dumps(line) + "\n")
    return path


@pytest.mark.slow
@pytest.mark.parametrize("task", ["swerve shard of a log", "swerve part of a forecast"])
def test_an_evaluation_has_the_bytes_of_this_machine_though_a_node_is_killed(nodes, tmp_path, task):
    words = ["evaluate", search_log(tmp_path / "log.jsonl", 60_000), "--json"]
    expected, _ = output(*words)
    running = begin(*words, "--on", f"ray:{nodes.address}")
    nodes.kill_second(task)
    out, errors = running.communicate(timeout=PATIENCE)
    assert running.returncode == 0, errors
    assert out == expected
    said = json.loads(out)
    assert said["forecast"]["bands"][0]["played_lists"] > 0 and said["shifts"]["shifts"]
    assert [set(each["estimates"]) for each in said["would_it_have_helped"]["targets"]] == [{"replay", "ips", "snips", "dr"}] * 4


@pytest.mark.slow
@needs_ray
def test_a_ray_that_is_started_for_a_command_ends_with_it(tmp_path):
    words = ["reproduce", "lower-bounds", "--quick", "--runs", 2, "--json"]
    expected, _ = output(*words, "--out", tmp_path / "threads")
    running = begin(*words, "--out", tmp_path / "ray", "--on", "ray")
    wait_for(tmp_path / "ray", 4)
    started = descendants([running.pid])
    assert len(started) > 3
    out, errors = running.communicate(timeout=PATIENCE)
    assert (running.returncode, errors) == (0, "")
    assert out == expected
    assert files(tmp_path / "ray") == files(tmp_path / "threads")
    until = time.monotonic() + ENDING
    while alive(started) and time.monotonic() < until:
        time.sleep(0.1)
    assert alive(started) == set()
