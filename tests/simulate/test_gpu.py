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

from swerve import BWC, UCB1, Hull, Rectangle, Swerve, SwerveError, Testable as TestableBandit, Traffic, simulate
from swerve.cli import app
from swerve.core import gpu_driver
from swerve.experiments import EXPERIMENTS, run
from swerve.policies import POLICIES
from swerve.simulate import SharedWorlds, gpu_compiler
from swerve.simulate.devices import CPU, CUDA, Job, Memory, at_once, left_to_cores, need_gpu

TOOL = Path(__file__).parents[2] / "tools" / "gpu_proof.py"
INSTALLED = importlib.util.find_spec("numba_cuda") is not None
needs_compiler = pytest.mark.skipif(not INSTALLED, reason="the extra swerve[gpu] is not installed")
#: A policy for each way to spread the work, and one with an exponential function; `bwc` learns in so few rounds with a short test.
FEW = ("exp3s", "bwc(length=20)", "swerve")
POOLED = BWC(TestableBandit(UCB1(), length=20), Rectangle())
SMALL = Traffic(queries=2, impressions=200)
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


def job(play, policy=None, environment=None, runs=10):
    """Return a job that plays the paper's traffic."""
    return Job(play, policy or UCB1(), environment or Traffic(), runs)


def test_jobs_on_the_processor_are_done_in_turn():
    done = []
    jobs = [job(lambda device, number=number: done.append((number, device))) for number in (1, 2)]
    assert at_once(jobs, CPU, threading.Event()) == [None, None]
    assert done == [(1, CPU), (2, CPU)]


@needs_compiler
def test_jobs_for_a_gpu_are_done_at_once_and_an_error_stops_the_others():
    stop, both = threading.Event(), threading.Barrier(2, timeout=30)

    def fail(device):
        both.wait()
        raise ValueError("no")

    def wait(device):
        both.wait()
        assert stop.wait(30)

    with pytest.raises(ValueError, match="no"):
        at_once([job(fail), job(wait)], CUDA, stop)
    assert stop.is_set()


@needs_compiler
def test_jobs_that_are_too_small_for_a_gpu_are_played_by_the_processor():
    interleaved = Traffic(order="uniform")
    jobs = [job(lambda device: device), job(lambda device: device, POOLED, interleaved)]
    assert at_once(jobs, CUDA, threading.Event()) == [CUDA if os.cpu_count() <= 25 else CPU, CPU]


def test_a_job_is_left_to_the_cores_unless_all_small_ones_together_are_worth_a_gpu():
    paper = [job(None, UCB1()), job(None, POOLED), job(None, POOLED, Traffic(order="uniform"))]
    assert left_to_cores(paper, 16) == ({2}, {2})  # one query after the other: waves; all together: a thread for each run
    assert left_to_cores(paper, 64) == ({0, 1, 2}, {0, 1, 2})  # 64 cores are faster than a GPU with 1,000 threads
    many = [job(None, POOLED, Traffic(order="uniform"), 200) for _ in range(4)]
    assert left_to_cores(many, 16) == ({0, 1, 2, 3}, set())
    large = [job(None, Swerve(), Traffic(order="uniform"), 10_000)]  # its record does not fit into what a thread has at hand
    assert left_to_cores(large, 16) == (set(), {0})


def test_memory_is_taken_in_turn_and_given_back():
    memory, order = Memory(100), []
    begun, second = threading.Event(), threading.Event()

    def play():
        begun.set()
        with memory.taken(60):
            order.append("second")
        second.set()

    with memory.taken(60):
        other = threading.Thread(target=play)
        other.start()
        assert begun.wait(30)
        assert not second.wait(0.2)
        order.append("first")
    other.join(30)
    assert order == ["first", "second"]
    with memory.taken(1000):  # who needs more than there is gets all of it
        assert memory.left == 0
    assert memory.left == 100


def test_shared_instances_go_with_the_last_job():
    shared = SharedWorlds([SMALL, SMALL])
    with shared.of(SMALL) as first:
        kept = first[0]
    with shared.of(SMALL) as second:
        assert second is first
        assert second[0] is kept
    with shared.of(SMALL) as third:
        assert third is not first


# ---------------------------------------------------------------- compiling


def test_a_machine_without_the_driver_is_told_so(monkeypatch):
    monkeypatch.setattr(gpu_driver, "LIBRARY", "libcuda.of.nobody.so")
    with pytest.raises(gpu_driver.DriverError, match="the driver is missing"):
        gpu_driver.Driver()


def test_a_small_kernel_has_each_module_once_and_a_large_one_calls_what_it_calls_twice(monkeypatch):
    body = "".join(f"  %{line} = add i64 0, {line}\n" for line in range(30))
    twice, once = (
        f'define linkonce_odr i64 @"{name}"({{i8*, i64}} %x) alwaysinline\n{{\n{{}}}}'.replace("{}", "LINES") for name in "ab"
    )
    twice, once = (text.replace("LINES", body) for text in (twice, once))
    main = 'define void @"main"()\n{\n  %1 = call i64 @"a"()\n  %2 = call i64 @"a"()\n  %3 = call i64 @"b"()\n}'
    assert gpu_compiler.smaller([main, twice, twice, once]) == [main, twice, once]
    monkeypatch.setattr(gpu_compiler, "LARGE", 10)
    assert gpu_compiler.smaller([main, twice, once]) == [main, twice, once]  # 30 lines that ask to be inlined are
    monkeypatch.setattr(gpu_compiler, "MUST_BE_INLINED", 30)
    assert gpu_compiler.smaller([main, twice, once]) == [main, twice.replace("alwaysinline\n", " noinline\n"), once]


@needs_compiler
@pytest.mark.slow
def test_a_kernel_is_compiled_in_a_process_of_its_own_and_nothing_of_the_compiler_is_imported_here(tmp_path):
    code = (
        "import sys; from swerve.simulate.gpu_kernels import sum_queries; from swerve.simulate.gpu_compiler import machine_code; "
    )
    code += (
        "import numpy as np; columns = (np.dtype('f8'), 2); entry, cubin = machine_code(sum_queries, (), (columns, int, columns), "
    )
    code += (
        "(9, 0), True); assert 'sum_queries' in entry and cubin[:4] == b'\\x7fELF', entry; assert 'numba.cuda' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300, cwd=tmp_path)
