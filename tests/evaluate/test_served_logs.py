"""Recordings of our own ranker with swaps, with known truth: estimates for other orders cover it as often as they say.

The log's policy learns while it serves. Its propensities are exact (`ucb1` does not draw), or estimated from draws (`swerve`).
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from serving.scripted import Recorder, Script, ranker

from swerve.evaluate.history import examination
from swerve.evaluate.judging import Least, judge
from swerve.evaluate.readers import read
from swerve.evaluate.targets import Clicks, Given
from swerve.policies.patient import Patient
from swerve.policies.swerve.listed import Listed

#: How likely a person who looks at a result clicks it, in the given order, by query.
ATTRACTIVE = {
    "boots": {"a": 0.2, "b": 0.5, "c": 0.1},
    "coats": {"a": 0.4, "b": 0.3, "c": 0.35},
    "hats": {"a": 0.1, "b": 0.2, "c": 0.6},
}
SEEN = [examination(position) for position in (1, 2, 3)]
SWAPS = 0.5
EXACT: dict[str, Any] = {"spec": "ucb1"}
ESTIMATED: dict[str, Any] = {
    "spec": Patient(Listed(), click_wait=5.0), "draws": 200, "plan": (0, 1, 2, 5), "numbers": ("news",),
}  # fmt: skip


def value(query: str, order: list[str]) -> float:
    return sum(ATTRACTIVE[query][result] * seen for result, seen in zip(order, SEEN, strict=True))


def serve(path: Path, seed: int, lists: int, **settings: Any) -> Path:
    """Write the recording of a ranker whose pages are looked at and clicked by position."""
    rng = np.random.default_rng(seed)
    script = Script(ranker(slots=3, swaps=SWAPS, per_session=0, **settings))
    script.ranker.issued = 1000 * seed  # decisions of another life: other swaps
    recorder = Recorder(path, {}, script.ranker, script.now)
    queries = list(ATTRACTIVE)
    for number in range(lists):
        query = queries[rng.integers(3)]
        script.now += 2.0
        place, asked = script.asking(query, ["a", "b", "c"])
        decided = script.ranker.rank([(place, asked)], script.now)[0]
        assert decided is not None
        looks = rng.random(3) < [ATTRACTIVE[query][result] * seen for result, seen in zip(decided.ranking, SEEN, strict=True)]
        if looks.any():
            positions = [1 + int(slot) for slot in np.flatnonzero(looks)]
            script.click(decided, positions)
        assert number or decided.swapped is None or decided.swapped[0] < decided.swapped[1]
    recorder.close(script.now)
    return path


class Watched(Clicks):
    """A target that learns from the log, and the true values of what it would have shown."""

    def __init__(self) -> None:
        self.values: list[float] = []

    def orders(self, lists: Any) -> Any:
        orders = super().orders(lists)
        self.values += [value(asked.entry.query, order) for asked, order in zip(lists, orders, strict=True)]
        return orders


def covered(folder: Path, logs: int, lists: int, settings: dict[str, Any]) -> dict[str, float]:
    """The share of estimates, over logs, whose interval has the true value of each target."""
    hits: dict[str, list[bool]] = {}
    refused = 0
    for seed in range(logs):
        path = serve(folder / "log", seed, lists, **settings)
        target, least = Watched(), Least()
        queries = []
        for entry in read([path]):
            least.add(entry)
            queries.append(entry.query)
        truths = {"given": np.mean([value(query, ["a", "b", "c"]) for query in queries])}
        found = judge(read([path]), [Given(), target], least.by_slot)
        truths["clicks"] = np.mean(target.values)
        for each in found:
            assert each.lists == lists
            refused += each.refused is not None
            for name, estimate in each.estimates.items():
                hits.setdefault(f"{each.target} {name}", []).append(estimate.low <= truths[each.target] <= estimate.high)
        shutil.rmtree(path)
    assert refused <= 2 * logs / 500  # both targets lie inside the support
    return {name: float(np.mean(every)) for name, every in sorted(hits.items())}


def test_intervals_from_the_rankers_own_recordings_cover_the_truth(tmp_path: Path):
    """0.95 − 4 standard errors of 40 logs."""
    shares = covered(tmp_path, 40, 800, EXACT)
    assert len(shares) == 8
    assert all(share >= 0.81 for share in shares.values()), shares


@pytest.mark.slow
@pytest.mark.parametrize("settings", [EXACT, ESTIMATED], ids=["exact", "estimated"])
def test_nominal_95_percent_intervals_cover_between_93_and_97_percent_of_served_logs(tmp_path: Path, settings: dict[str, Any]):
    for name, share in covered(tmp_path, 1000, 1000, settings).items():
        assert 0.93 <= share <= 0.97, (name, share)
