"""A recording replayed through the library gives the same rankings and the same record bytes."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from service.running import Running, running
from service.test_same_kernels import stored

from swerve import SwerveError
from swerve.service.config.settings import settings_in
from swerve.serving.replay import Replay

QUERIES = ["hurricane", "oasis", "jaguar", "Tomato  ", "café"]


def replay_of(path, key: bytes) -> Replay:
    return Replay(path, key, lambda tables: settings_in(str(path), tables))


def traffic(service: Running, requests: int, seed: int) -> None:
    """Send requests of all kinds: batches, sessions, dates, new candidates, late and repeated feedback, an operator's shift."""
    rng = random.Random(seed)
    http, waiting = service.client(), []
    for t in range(requests):
        query = rng.choice(QUERIES)
        candidates: list[Any] = [f"{query}-{number}" for number in rng.sample(range(12), rng.randint(2, 8))]
        if rng.random() < 0.2:
            candidates[0] = {"id": candidates[0], "published_at": 1.7e9 + t}
        more = {"session": f"s{rng.randrange(5)}"} if rng.random() < 0.5 else {}
        if rng.random() < 0.1:
            asked = [{"query": other, "candidates": candidates} for other in rng.choices(QUERIES, k=4)]
            waiting += http.call("POST", "/v1/rank/batch", asked).json
        else:
            waiting.append(http.rank(query, candidates, **more).json)
        while len(waiting) > rng.randrange(6):
            answer = waiting.pop(rng.randrange(len(waiting)))
            assert not answer["degraded"]
            clicked = rng.choice([answer["ranking"][0], answer["ranking"][-1], None])
            for _ in range(rng.choice([1, 1, 2])):
                http.feedback(answer["decision"], clicked)
        if t % 97 == 96:
            http.call("POST", "/v1/queries/oasis/shift", {})


@pytest.mark.parametrize("seed", [None, 5])
def test_a_replay_gives_the_same_rankings_and_bytes(tmp_path: Path, seed: int | None):
    recording = tmp_path / "requests.jsonl"
    changes: dict[str, dict[str, Any]] = {"log": {"record": str(recording)}, "policy": {"spec": "ts", "arms": 16}}
    if seed is not None:
        changes["policy"]["seed"] = seed
    with running(tmp_path, changes) as service:
        traffic(service, 250, seed=1)
        assert service.stop() == 0
        service.start()  # the recording continues after a restart
        traffic(service, 100, seed=2)
        assert service.stop() == 0
    assert recording.stat().st_mode & 0o777 == 0o600
    ranker, layouts, store = stored(service)
    try:
        replay = replay_of(recording, ranker.query_key)
        counts = replay.run()
        assert counts.requests >= 350
        assert (counts.same, counts.first_difference) == (counts.requests, None)
        assert counts.queries == len(QUERIES)
        for place in replay.ranker.rows:
            row = store.load([place.key])[0]
            assert layouts.view(row).tobytes() == place.record.tobytes()
        # without the secrets the random streams differ, unless a seed is given
        strangers = replay_of(recording, b"x" * 32).run()
        assert (strangers.same == strangers.requests) is (seed is not None)
    finally:
        store.close()


def test_a_recording_that_was_cut_off_is_played_up_to_there(tmp_path: Path):
    recording = tmp_path / "requests.jsonl"
    with running(tmp_path, {"log": {"record": str(recording)}}) as service:
        traffic(service, 40, seed=3)
        service.stop()
    whole = recording.read_bytes()
    recording.write_bytes(whole[: len(whole) // 2])
    assert 0 < replay_of(recording, b"x" * 32).run().requests < 45


def test_what_is_no_recording_is_refused_with_its_line(tmp_path: Path):
    path = tmp_path / "no.jsonl"
    path.write_text('{"type":"rank"}\n')
    with pytest.raises(SwerveError, match=r"no\.jsonl:1"):
        replay_of(path, b"x" * 32).run()
    path.write_text("")
    with pytest.raises(SwerveError, match="empty"):
        replay_of(path, b"x" * 32).run()
