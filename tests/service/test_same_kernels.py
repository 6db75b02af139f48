"""The service decides as the simulation does: the paper's traffic over HTTP, without delay, gives the same state, byte for byte."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from service.running import Running, running

from swerve import Shifts, Traffic, world
from swerve.core.spec import pack
from swerve.environments.worlds import advance, click, context
from swerve.policies import policy
from swerve.service.config.load import load
from swerve.service.config.settings import settings_of
from swerve.service.secrets import load_secrets
from swerve.service.shared import shared_of
from swerve.serving.migration import Layouts
from swerve.serving.ranker import Ranker
from swerve.simulate.runner import Session
from swerve.store import open_store

FEATURES = 3


def config(spec: str) -> dict[str, dict[str, Any]]:
    slots = 1 if spec == "swerve" else 10  # on whole pages `swerve` is another policy
    return {
        "policy": {"spec": spec, "seed": 11, "grace_seconds": 0.0, "arms": 8, "slots": slots, "propensity_draws": 2},
        "signals": {"use": [], "numbers": {f"x{j}": "raw" for j in range(FEATURES)}},
    }


def played_over_http(service: Running, instance: Any) -> None:
    """Play the instance's rounds: contexts as the caller's signals, clicks as immediate feedback."""
    env, facts, places = pack(instance.spec)[0], instance.scene[0], instance.cursors.copy()
    x = np.zeros(instance.features)
    http = service.client()
    arms = [str(arm) for arm in range(instance.arms)]
    for number, query in enumerate(instance.schedule):
        place = places[query]
        told = advance(env, facts, instance.segments, place)
        context(env, facts, place, told, x)
        signals = {f"x{j}": None if np.isnan(x[j]) else float(x[j]) for j in range(FEATURES)}
        if number % 2:  # a missing number is null or left out
            signals = {name: value for name, value in signals.items() if value is not None}
        answer = http.rank(str(query), arms, signals=signals).json
        assert not answer["degraded"]
        if click(env, facts, instance.segments, place, int(answer["ranking"][0])):
            assert http.feedback(answer["decision"], answer["ranking"][0]).json == {"status": "learned"}


def stored(service: Running) -> tuple[Ranker, Layouts, Any]:
    """Open the store of a stopped service, and a ranker that reads it."""
    chosen = load(service.file)
    store = open_store(chosen.store.url)
    ranker = Ranker(settings_of(chosen), load_secrets(service.database.with_name("swerve.db.secrets")).query_key)
    return ranker, Layouts(store, ranker), store


def check_same(folder: Path, spec: str, traffic: Traffic | Shifts) -> None:
    instance = world(traffic, 11)
    simulated = Session(policy(spec, arms=8), instance, compiled=False)
    simulated.play(len(instance.schedule))
    with running(folder, config(spec)) as service:
        played_over_http(service, instance)
        assert service.stop() == 0
    ranker, layouts, store = stored(service)
    try:
        for query in range(instance.queries):
            row = store.load([ranker.key_of(str(query))])[0]
            ours, theirs = layouts.view(row)["policy"], simulated.fleet.table[query]
            for name in theirs.dtype.names:
                if name not in ("ripe", "opened", "kept"):  # times: the service takes them from its clock
                    assert ours[name].tobytes() == theirs[name].tobytes(), (query, name)
        ranker.share(shared_of(store))
        assert ranker.pools[0].tobytes() == simulated.fleet.pools[0].tobytes()
    finally:
        store.close()


def test_bwc_over_http_is_bwc_in_the_simulation(tmp_path):
    traffic = Traffic(queries=2, impressions=1400, shifting_share=1.0, events_high=3, features=FEATURES, order="uniform")
    check_same(tmp_path, "bwc(length=60)", traffic)


def test_missing_numbers_over_http_are_missing_features(tmp_path):
    """Null and omitted numbers are NaN: the state has the bytes of a simulation with missing features."""
    traffic = Shifts(
        queries=2, impressions=1400, shifting_share=1.0, events_high=3, features=FEATURES, missing_share=0.3, spurious_share=0.01
    )
    check_same(tmp_path, "bwc(length=60)", traffic)


@pytest.mark.slow
def test_swerve_over_http_is_swerve_in_the_simulation(tmp_path):
    traffic = Traffic(queries=2, impressions=6000, shifting_share=1.0, events_high=3, features=FEATURES, order="uniform")
    check_same(tmp_path, "swerve", traffic)
