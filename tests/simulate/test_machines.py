"""What other machines have computed, an Intel Xeon and an NVIDIA H200, by `tools/gpu_proof.py`: all have the same bits."""

from __future__ import annotations

import hashlib
import json

import pytest

from swerve.environments import workload
from swerve.experiments import EXPERIMENTS, run
from swerve.experiments.compare import sized, tuning
from swerve.policies import policy
from swerve.simulate import simulate

#: `played POLICY mixed-noisy 0.5 … 1 2`: one run of two queries, seed 100.
PLAYED = {"cusum-klucb": "5dbc80ab5ff26116", "ts": "17917e434542f5d9", "oracle-ts": "28a0c09b1933de6e"}
#: `paper … 1`: one run of each cell of the paper's tables; a digest of the digests of a row's cells.
PAPER = {
    ("fractions", "ora"): "4a8f527a5657d401",
    ("fractions", "bwc"): "c39c9a22f60e98ad",
    ("fractions", "ucb1"): "89a2aaa9f176b0e6",
    ("fractions", "exp3s"): "e7c9c85351950e3b",
    ("features", "ora"): "df3c7ae76f779098",
    ("features", "bwc"): "c09e502454391446",
    ("features", "ucb1"): "9c8a71fdb1b04649",
    ("features", "exp3s"): "5bcaedcb26246581",
}


def digest(results):
    """Return a digest of every number of every run, as tools/gpu_parts.py does."""
    hashed = hashlib.sha256()
    for each in results.runs:
        hashed.update(each.regret.tobytes() + each.clicks.tobytes() + json.dumps(each.counts, sort_keys=True).encode())
    return hashed.hexdigest()[:16]


@pytest.mark.parametrize("name", ["cusum-klucb", *(pytest.param(name, marks=pytest.mark.slow) for name in ("ts", "oracle-ts"))])
def test_a_policy_has_the_bits_of_other_machines(name):
    problem = sized(workload("mixed-noisy", 0.5), 2, None)
    assert digest(simulate(policy(name, **tuning(problem, 100)), problem, runs=1, seed=100)) == PLAYED[name]


@pytest.mark.slow
@pytest.mark.parametrize("experiment", ["fractions", "features"])
def test_the_paper_has_the_bits_of_other_machines(experiment):
    rows = {}
    for cell in run(EXPERIMENTS[experiment], runs=1):
        rows.setdefault((experiment, cell.policy), []).append(digest(cell.results))
    found = {row: hashlib.sha256("".join(cells).encode()).hexdigest()[:16] for row, cells in rows.items()}
    assert found == {row: bits for row, bits in PAPER.items() if row[0] == experiment}
