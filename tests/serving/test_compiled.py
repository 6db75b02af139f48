"""Compiled kernels of the service give the bytes of the interpreted ones: same requests, same clicks, same records."""

from __future__ import annotations

import numpy as np
import pytest
from serving.scripted import KEY, Script

from swerve.core.engine import Entry
from swerve.service.config.settings import settings_in
from swerve.serving.ranker import Ranker

#: Those of the tests of the service, so that the compiled code is the same.
NUMBERS = {"ts": {"news": "count", "given": "raw"}, "swerve": {"news": "count"}}


def played(spec: str, slots: int) -> tuple[list[list[str]], list[float], list[bytes]]:
    """Rank and click at random, with sessions, numbers and a shift; return the rankings, propensities and records."""
    tables = {"policy": {"spec": spec, "arms": 8, "slots": slots, "seed": 11}, "signals": {"numbers": NUMBERS[spec]}}
    script = Script(Ranker(settings_in("test", tables), KEY))
    rng = np.random.default_rng(5)
    rankings: list[list[str]] = []
    chances: list[float] = []
    for step in range(120):
        query, offer = f"q{rng.integers(2)}", [f"doc-{number}" for number in rng.permutation(8)[: rng.integers(2, 8)]]
        decided = script.rank(query, offer, step=5.0, session=f"s{rng.integers(20)}", signals={"news": float(rng.integers(9))})
        rankings.append(decided.ranking)
        chances += decided.chances
        if rng.random() < 0.5:
            script.click(decided, decided.ranking[int(rng.integers(min(3, len(offer))))], step=1.0)
        if step == 60:
            script.ranker.shift(script.place("q0"), script.now)
    return rankings, chances, [script.place(query).record.tobytes() for query in ("q0", "q1")]


@pytest.mark.compiled
@pytest.mark.parametrize(("spec", "slots"), [("ts", 1), ("swerve", 5)])
def test_compiled_equals_interpreted_to_the_byte(spec, slots, monkeypatch):
    compiled = played(spec, slots)
    with monkeypatch.context() as patched:
        patched.setattr(Entry, "bind", lambda entry, *specs, variant="": entry.plain)
        assert played(spec, slots) == compiled
