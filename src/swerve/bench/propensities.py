"""What propensities cost: rankings in this process with several draws of each page, beside rankings without."""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Callable

from swerve.bench.timing import Contender, Pairs, interleave
from swerve.service.config.load import resolve
from swerve.service.config.settings import settings_of
from swerve.service.config.toml import Document
from swerve.serving.messages import Candidate
from swerve.serving.ranker import Ranker
from swerve.serving.requests import Prepared

DRAWS = (8, 64)  # the default, and what finds rarer pages
QUERIES, RANKINGS = 50, 2000  # of a turn
KEY = bytes(32)
START = 1.8e9  # Unix time of the first ranking; the next ones follow by the second
MEMORY = 16 << 20  # bytes, more than the queries need


def ranked(config: str, draws: int, candidates: int) -> Contender:
    """Return a contender that ranks, with so many draws of each page; the queries are those of its earlier turns."""
    settings = settings_of(resolve(Document("", tomllib.loads(config), {})))
    ranker = Ranker(settings._replace(draws=draws, budget=MEMORY), KEY)
    offer: list[str | Candidate] = [f"doc-{number:02d}" for number in range(candidates)]
    asked = []
    for number in range(QUERIES):
        text = f"query {number}"
        key = ranker.key_of(text)
        place = ranker.fresh(key, text, candidates, START)
        assert place is not None, "the memory is large enough"
        asked.append((place, Prepared(key, text, offer, slots=settings.slots)))
    seconds = itertools.count(START)

    def run() -> None:
        for number in range(RANKINGS):
            ranker.rank([asked[number % QUERIES]], next(seconds))

    return Contender(f"propensities-{draws}", RANKINGS, lambda: run)


def measure(config: str, candidates: int, repeats: int, tick: Callable[[int], None]) -> dict[str, Pairs]:
    """Return the seconds of a ranking with draws, by name, each beside rankings without."""
    contenders = [ranked(config, draws, candidates) for draws in DRAWS]
    return interleave(ranked(config, 0, candidates), contenders, repeats, tick=tick)
