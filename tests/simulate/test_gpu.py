"""Runs on a GPU: every policy has the bytes of the interpreted loop in Numba's simulator of a GPU, and compiles without a GPU."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner

from swerve import BWC, UCB1, Hull, SwerveError, Testable as TestableBandit, Traffic, simulate
from swerve.cli import app
from swerve.experiments import EXPERIMENTS, run
from swerve.policies import POLICIES
from swerve.simulate.devices import CPU, CUDA, at_once, need_gpu

TOOL = Path(__file__).parents[2] / "tools" / "gpu_proof.py"
INSTALLED = importlib.util.find_spec("numba_cuda") is not None
needs_compiler = pytest.mark.skipif(not INSTALLED, reason="the extra swerve[gpu] is not installed")
#: A policy for each way to spread the work, and one with an exponential function; `bwc` learns in so few rounds with a short test.
FEW = ("exp3s", "bwc(length=20)", "swerve")
#: As in tools/gpu_parts.py: settings in which policies can play small problems.
SETTINGS = {"bwc-hull": "bwc-hull(radius=4, length=20)", "bwc": "bwc(length=20)"}


def reason():
    """Return why there is no GPU here, or None."""
    if not INSTALLED:
        return "the extra swerve[gpu] is not installed"
    try:
        need_gpu("this test", start=False)
    except SwerveError as error:
        return str(error)
    return None


@pytest.fixture
def gpu():
    """Skip where there is no GPU, by name."""
    why = reason()
    if why is not None:
        pytest.skip(why)


def proof(part, *arguments, simulated):
    """Run a part of tools/gpu_proof.py in a process of its own: Numba chooses its simulator when it is imported."""
    done = subprocess.run(
        [sys.executable, TOOL, part, *arguments], capture_output=True, text=True, check=True, timeout=600,
        env={**os.environ, "NUMBA_ENABLE_CUDASIM": str(int(simulated))},
    )  # fmt: skip
    found = json.loads(done.stdout.strip().splitlines()[-1])
    assert "error" not in found, found["error"]
    return found


def batches(found):
    """Return the batches that were played."""
    return [batch for batch in found.values() if isinstance(batch, dict)]


@needs_compiler
def test_the_simulator_has_the_bytes_of_the_interpreted_loop():
    found = proof("small", *FEW, simulated=True)
    assert {batch["way"] for name in FEW for batch in batches(found[name])} == {"alone", "waves", "together"}
    assert found["bwc(length=20)"]["0"]["waves"] > 1  # some queries were played again
    assert [(name, batch) for name in FEW for batch in batches(found[name]) if batch["differs"]] == []
    assert all(len(batches(found[name])) == 3 for name in FEW)


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_has_the_bytes_of_the_interpreted_loop(name):
    name = SETTINGS.get(name, name)
    played = batches(proof("small", name, simulated=True)[name])
    assert played
    assert [batch for batch in played if batch["differs"]] == []


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_compiles_without_a_gpu_and_without_contraction(name):
    found = proof("ptx", SETTINGS.get(name, name), simulated=False)
    assert found
    assert {place: batch["bad"] for place, batch in found.items() if batch["bad"]} == {}


@pytest.mark.skipif(reason() is None, reason="there is a GPU")
@pytest.mark.parametrize("command", ["simulate", "compare", "reproduce"])
def test_without_a_gpu_the_command_line_says_so_in_one_line(command):
    done = CliRunner().invoke(app, [command, *(["ucb1"] if command == "simulate" else []), "--on", "gpu"])
    assert isinstance(done.exception, SwerveError)
    line = str(done.exception)
    assert line.startswith("--on gpu needs a GPU of NVIDIA with its driver, and Swerve with its extra `gpu`; ")
    assert "\n" not in line


@pytest.mark.skipif(reason() is None, reason="there is a GPU")
def test_without_a_gpu_python_is_told_so():
    with pytest.raises(SwerveError, match='device="cuda" needs a GPU'):
        simulate(UCB1(), Traffic(queries=2, impressions=200), runs=1, device=CUDA)


def test_an_unknown_device_is_refused():
    with pytest.raises(SwerveError, match="device must be one of cpu, cuda"):
        simulate(UCB1(), Traffic(queries=2, impressions=200), runs=1, device="tpu")


# ---------------------------------------------------------------- on a GPU


@pytest.mark.gpu
@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("name", [SETTINGS.get(name, name) for name in POLICIES])
def test_a_gpu_has_the_bytes_of_the_processor(name):
    played = batches(proof("state", name, simulated=False))
    assert played
    assert [batch for batch in played if batch["differs"]] == []


@pytest.mark.gpu
@pytest.mark.usefixtures("gpu")
def test_cells_that_play_at_once_have_the_results_of_the_processor():
    experiment = EXPERIMENTS["fractions"].thinned(20)
    on, off = (run(experiment, runs=3, device=device) for device in (CUDA, CPU))
    assert [cell.as_row() for cell in on] == [cell.as_row() for cell in off]


@pytest.mark.gpu
@pytest.mark.usefixtures("gpu")
def test_a_context_that_is_refused_raises_the_error_of_the_processor():
    policy = BWC(TestableBandit(UCB1(), length=20), Hull())
    with pytest.raises(SwerveError, match="outside the domain"):
        simulate(policy, Traffic(queries=2, impressions=400, features=6), runs=2, device=CUDA)


# ---------------------------------------------------------------- several jobs at once


def test_jobs_on_the_processor_are_done_in_turn():
    done = []
    assert at_once([lambda: done.append(1), lambda: done.append(2)], CPU, threading.Event(), 10) == [None, None]
    assert done == [1, 2]


@needs_compiler
def test_jobs_for_a_gpu_are_done_at_once_and_an_error_stops_the_others():
    stop, both = threading.Event(), threading.Barrier(2, timeout=30)

    def fail():
        both.wait()
        raise ValueError("no")

    def wait():
        both.wait()
        assert stop.wait(30)

    with pytest.raises(ValueError, match="no"):
        at_once([fail, wait], CUDA, stop, 10)
    assert stop.is_set()
