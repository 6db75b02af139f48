"""The first start: ready with the smallest capacity; queries that need a larger one get the given order until it is compiled."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import subprocess
import sys
import threading

from numba.core.dispatcher import Dispatcher
from service.running import SMALL, SRC

from swerve.service.config.load import resolve
from swerve.service.config.toml import Document
from swerve.service.http.schemas import read_feedback, read_rank
from swerve.service.runtime import Service
from swerve.service.secrets import Secrets
from swerve.store import open_store

FEW, MANY = ["a", "b", "c"], [f"doc-{number}" for number in range(12)]


def asked(query: str, candidates: list[str]) -> bytes:
    return json.dumps({"query": query, "candidates": candidates}).encode()


def test_ready_with_the_smallest_capacity_while_the_others_compile(tmp_path):
    tables = {**SMALL, "policy": {"spec": "ts", "arms": 16}, "store": {"url": f"sqlite:///{tmp_path}/swerve.db"}}
    config = resolve(Document("test", tables, {}))
    go_on = threading.Event()

    async def play() -> None:
        service = Service(config, open_store(config.store.url), Secrets((b"k" * 32,), b"q" * 32))
        run = service._warming.run

        def slowly(ready) -> None:
            """Delay the compilation of the larger capacity until the test allows it."""

            def told(arms: int) -> None:
                if arms > 8:
                    assert go_on.wait(240.0)
                ready(arms)

            run(told)

        service._warming.run = slowly
        await service.start()
        assert service.availability.trouble() is None
        small = await service.ranking.rank_one(read_rank(asked("small", FEW)))
        assert not small.degraded
        before = service.metrics.degraded("starting").value
        large = await service.ranking.rank_one(read_rank(asked("large", MANY)))
        grown = await service.ranking.rank_one(read_rank(asked("small", MANY)))
        for answer in (large, grown):
            assert answer.degraded and answer.ranking == MANY
        assert service.metrics.degraded("starting").value == before + 2
        assert not (await service.ranking.rank_one(read_rank(asked("small", FEW)))).degraded  # it was not evicted
        go_on.set()
        for _ in range(2400):
            if service.ranker.rows.ready:
                break
            await asyncio.sleep(0.1)
        for query in ("large", "small"):
            answer = await service.ranking.rank_one(read_rank(asked(query, MANY)))
            assert not answer.degraded and sorted(answer.ranking) == sorted(MANY)
        assert await service.stop()

    asyncio.run(play())


def test_nothing_is_compiled_for_a_request_once_the_service_is_ready(tmp_path):
    """The first ranking would wait for it, and all others with it, for seconds."""
    tables = {**SMALL, "store": {"url": f"sqlite:///{tmp_path}/swerve.db"}}
    config = resolve(Document("test", tables, {}))

    def compiled() -> set[str]:
        gc.unfreeze()  # the service freezes what lives long
        found = [one for one in gc.get_objects() if issubclass(type(one), Dispatcher)]  # not what proxies stand for
        return {f"{one.py_func.__module__}.{one.py_func.__name__}{types}" for one in found for types in one.overloads}

    async def play() -> None:
        service = Service(config, open_store(config.store.url), Secrets((b"k" * 32,), b"q" * 32))
        await service.start()
        for _ in range(2400):
            if service.ranker.rows.ready:
                break
            await asyncio.sleep(0.1)
        before = compiled()
        for session in ("a", None, "a"):
            body = json.dumps({"query": "first", "candidates": FEW, **({"session": session} if session else {})}).encode()
            answer = await service.ranking.rank_one(read_rank(body))
            said = {"decision": answer.decision, "events": [{"kind": "click", "result": "a"}]}
            assert (await service.feedback.one(read_feedback(json.dumps(said).encode()))).status == "learned"
        assert compiled() == before
        assert await service.stop()

    asyncio.run(play())


MARK = """
from swerve.service.config.load import load
from swerve.service.config.settings import settings_of
from swerve.service.warm import NO_KEY, mark_of
from swerve.serving.ranker import Ranker
ranker = Ranker(settings_of(load()), NO_KEY)
print(mark_of(ranker, ranker.rows.shelves[0]))
"""


def test_code_for_another_processor_is_not_taken_for_complete(tmp_path):
    """A cache folder may come with an image or a volume from another machine; Numba loads only code for its own processor."""

    def mark(**variables: str) -> bytes:
        environment = {**os.environ, "PYTHONPATH": SRC, "SWERVE_CACHE_DIR": str(tmp_path), **variables}
        done = subprocess.run(
            [sys.executable, "-c", MARK], env=environment, capture_output=True, text=True, check=True, timeout=120
        )
        return done.stdout

    assert mark(NUMBA_CPU_NAME="generic") != mark(NUMBA_CPU_NAME="x86-64-v3", NUMBA_CPU_FEATURES="")
