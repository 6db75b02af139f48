"""Swaps in a service: answers say which positions changed places, and say nothing of it by default."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from service.test_ranking import service_at

from swerve.service.http.schemas import read_rank
from swerve.serving.messages import encode

pytestmark = pytest.mark.usefixtures("uncompiled")


@pytest.mark.parametrize("share", [1.0, 0.0])
def test_an_answer_says_which_positions_changed_places(tmp_path: Path, share: float):
    async def play() -> None:
        more = {"evaluation": {"swaps": share}} if share else {}
        service = service_at(tmp_path / "s", [1.7e9], policy={"spec": "ucb1", "arms": 16, "seed": 3}, **more)
        await service.start(whole=True)
        asked = b'{"query": "q", "candidates": ["a", "b", "c"], "session": "s"}'
        answer = await service.ranking.rank_one(read_rank(asked))
        again = await service.ranking.rank_one(read_rank(asked))
        assert again == answer  # a steady order stays as it was shown
        told = json.loads(encode(answer))
        if share:
            first, second = told["swapped"]
            assert 1 <= first < second <= 3
            assert sorted(told["propensities"]) == pytest.approx([1 / 3, 1 / 3, 1 / 3])
        else:
            assert "swapped" not in told
            assert told["propensities"] == [1.0, 1.0, 1.0]
        assert await service.stop()

    asyncio.run(play())
