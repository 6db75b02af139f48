"""References for the kernels: UCB1 in plain C and in plain Python."""

from __future__ import annotations

import ctypes
import math
import random
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from swerve.core.errors import SwerveError

SOURCE = Path(__file__).with_name("reference.c")
ARMS = 5  # as many as `reference.c` has
FLAGS = ("-O3", "-march=native", "-shared", "-fPIC")


class Outcome(NamedTuple):
    """The totals of a reference run."""

    regret: float
    clicks: float
    plays: list[int]


class Reference:
    """The C loops, compiled into `folder`."""

    def __init__(self, folder: Path) -> None:
        compiler = shutil.which("gcc")
        if compiler is None:
            raise SwerveError("gcc was not found, and the benchmark compares with C; install gcc and the C library's headers")
        library = folder / "reference.so"
        command = [compiler, *FLAGS, "-o", str(library), str(SOURCE), "-lm"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
            reason = next((line for line in lines if "error" in line), lines[-1])
            raise SwerveError(f"gcc could not compile the benchmark's C loop; are the C library's headers installed? {reason}")
        self._library = ctypes.CDLL(str(library))
        for name in ("ucb1_naive", "ucb1_cached"):
            pointers = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_void_p]
            getattr(self._library, name).argtypes = [ctypes.c_int64, *pointers]
            getattr(self._library, name).restype = None

    def naive(self, rounds: int, chances: ArrayLike, seed: int = 0) -> Outcome:
        """Play with one logarithm, five divisions and five square roots per round."""
        return self._run("ucb1_naive", rounds, chances, seed)

    def cached(self, rounds: int, chances: ArrayLike, seed: int = 0) -> Outcome:
        """Play with means and 1/√n cached between rounds; the choices are the same."""
        return self._run("ucb1_cached", rounds, chances, seed)

    def _run(self, name: str, rounds: int, chances: ArrayLike, seed: int) -> Outcome:
        given = np.ascontiguousarray(chances, dtype=np.float64)
        if given.shape != (ARMS,):
            raise SwerveError(f"chances has shape {given.shape}; the C loop has {ARMS} arms")
        sums, plays = np.zeros(2), np.zeros(ARMS, np.int64)
        getattr(self._library, name)(rounds, given.ctypes.data, seed, sums.ctypes.data, plays.ctypes.data)
        return Outcome(float(sums[0]), float(sums[1]), plays.tolist())


def python_loop(rounds: int, chances: list[float], seed: int = 0) -> Outcome:
    """Play the loop of the C source in Python, written for speed: lists and local names, no NumPy."""
    uniform, log, sqrt = random.Random(seed).random, math.log, math.sqrt
    arms = range(len(chances))
    total, plays = [0.0] * len(chances), [0] * len(chances)
    regret = clicks = 0.0
    best = max(chances)
    for t in range(1, rounds + 1):
        twice = 2.0 * log(t)
        top, chosen = -1.0, 0
        for arm in arms:
            n = plays[arm]
            if n == 0:
                chosen = arm
                break
            index = total[arm] / n + sqrt(twice / n)
            if index > top:
                top, chosen = index, arm
        plays[chosen] += 1
        if uniform() < chances[chosen]:
            total[chosen] += 1.0
            clicks += 1.0
        regret += best - chances[chosen]
    return Outcome(regret, clicks, plays)
