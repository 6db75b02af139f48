"""A recording replayed through the library gives the same rankings and the same record bytes."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest
from service.running import Running, running, until
from service.test_same_kernels import stored
from serving.scripted import Script, ranker

from swerve import SwerveError
from swerve.service.config.settings import settings_in
from swerve.serving.entries import begins
from swerve.serving.notes import write_again, write_down
from swerve.serving.recording import Ranked, lines_of
from swerve.serving.replay import NO_KEY, Replay
from swerve.store import Batch, Entries, open_store
from swerve.store.journal import Journal

QUERIES = ["hurricane", "oasis", "jaguar", "Tomato  ", "café"]


def replay_of(path: Path, key: bytes = NO_KEY) -> Replay:
    return Replay(path, lambda tables: settings_in(str(path), tables), key)


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
    recording = tmp_path / "state" / "swerve.db.journal"
    changes: dict[str, dict[str, Any]] = {"store": {"journal_days": 30}, "policy": {"spec": "ts", "arms": 16}}
    if seed is not None:
        changes["policy"]["seed"] = seed
    with running(tmp_path, changes) as service:
        traffic(service, 250, seed=1)
        assert service.stop() == 0
        service.start()  # the recording continues after a restart
        traffic(service, 100, seed=2)
        assert service.stop() == 0
    assert recording.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in recording.iterdir()} == {0o600}
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
        # keys and random streams are in the recording: the secrets are not needed
        strangers = replay_of(recording, b"x" * 32)
        assert strangers.run() == counts
        assert {place.key: place.record.tobytes() for place in strangers.ranker.rows} == {
            place.key: place.record.tobytes() for place in replay.ranker.rows
        }
    finally:
        store.close()


def test_a_recording_that_was_cut_off_is_played_up_to_there(tmp_path: Path):
    recording = tmp_path / "state" / "swerve.db.journal"
    with running(tmp_path, {"store": {"journal_days": 30}}) as service:
        traffic(service, 40, seed=3)
        service.stop()
    (segment,) = recording.glob("*.journal")
    os.truncate(segment, segment.stat().st_size // 2)
    assert 0 < replay_of(recording).run().requests < 45


def test_what_is_no_recording_is_refused(tmp_path: Path):
    with pytest.raises(SwerveError, match="is no journal"):
        replay_of(tmp_path).run()
    Journal(tmp_path / "empty").close()
    with pytest.raises(SwerveError, match="is empty"):
        replay_of(tmp_path / "empty").run()
    other = Journal(tmp_path / "other")
    other.put(b"something else")
    other.sync(1.0)
    other.close()
    with pytest.raises(SwerveError, match="no entries of the service"):
        replay_of(tmp_path / "other").run()


def test_a_recording_that_begins_with_a_full_store_replays_too(tmp_path: Path):
    """Rows that are taken up from the store are in the recording, with their records."""
    recording = tmp_path / "state" / "swerve.db.journal"
    with running(tmp_path, {"policy": {"spec": "ts", "arms": 16}}) as service:
        traffic(service, 60, seed=4)
        assert service.stop() == 0
    with running(tmp_path, {"store": {"journal_days": 30}, "policy": {"spec": "ts", "arms": 16}}) as service:
        traffic(service, 60, seed=5)
        assert service.stop() == 0
        service.start()
        until(lambda: list(recording.glob("*.journal.z")) != [])  # the segment of the first start
        assert service.stop() == 0
    _, layouts, store = stored(service)
    try:
        replay = replay_of(recording)
        counts = replay.run()
        assert counts.same == counts.requests >= 60
        assert len(replay.ranker.rows) == len(QUERIES)
        for place in replay.ranker.rows:
            assert layouts.view(store.load([place.key])[0]).tobytes() == place.record.tobytes()
    finally:
        store.close()


def test_a_recording_goes_on_after_kill_9(tmp_path: Path):
    """The store has lost what `rank` changed in the last seconds; the recording says from which records the next start went on."""
    recording = tmp_path / "state" / "swerve.db.journal"
    with running(tmp_path, {"store": {"journal_days": 30}, "policy": {"spec": "ts", "arms": 16}}) as service:
        for seed in (6, 7):
            traffic(service, 40, seed)
            service.kill()
            service.start()
        traffic(service, 40, seed=8)
        assert service.stop() == 0
    _, layouts, store = stored(service)
    try:
        replay = replay_of(recording)
        counts = replay.run()
        assert counts.same == counts.requests > 80
        for place in replay.ranker.rows:
            assert layouts.view(store.load([place.key])[0]).tobytes() == place.record.tobytes()
    finally:
        store.close()


def test_what_is_too_old_is_dropped_and_the_rest_still_replays(tmp_path: Path):
    """Five days, in which a generation of the log begins every hour; two of them are kept."""
    folder = tmp_path / "swerve.db.journal"
    script, store = Script(ranker()), open_store(f"sqlite:///{tmp_path}/swerve.db")
    notes, begun, made = write_down(script.ranker, {}, script.now), script.now, [0]
    decided = None
    for _ in range(5 * 24):
        anew = script.now - begun >= 3600.0 or not made[-1]
        if anew and made[-1]:
            store.append([Entries(*notes.take())], script.now)
            made.append(store.end)
            write_again(script.ranker, {}, script.now)
            begun = script.now
        store.append([Entries(*notes.take(), anew)], script.now)
        for _ in range(3):
            decided = script.rank("q", ["a", "b"], step=1200.0)
            script.click(decided, 1)
        store.append([Entries(*notes.take())], script.now)
        made[0] = 1
        store.checkpoint(Batch(begin=made[-1] if len(made) > 1 else 0))
        store.shrink(script.now - 2 * 86_400.0, begins)
    store.close()
    replay = replay_in(folder, script.ranker.settings)
    counts = replay.run()
    assert counts.same == counts.requests
    assert 2 * 24 * 3 <= counts.requests <= 2 * 24 * 3 + 10  # whole generations are dropped
    (place,) = replay.ranker.rows
    assert place.record.tobytes() == script.place("q").record.tobytes()
    lines = [line for _, line in lines_of(folder) if isinstance(line, Ranked)]
    assert len(lines) == counts.requests  # all of them have their query and results, for evaluation


def replay_in(folder: Path, settings: Any) -> Replay:
    return Replay(folder, lambda tables: settings)
