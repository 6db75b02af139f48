"""How many bytes the records of queries take in the store: `python tools/measure_records.py [CANDIDATES]`.

Queries of the default policy are asked, with a click on half of their pages; after some pages the packed bytes of their records are
printed, the mean over the queries.
"""

from __future__ import annotations

import random
import statistics
import sys

import numpy as np

from swerve.service.config.sections import Config
from swerve.service.config.settings import settings_of
from swerve.serving.messages import Event
from swerve.serving.outcomes import Outcome
from swerve.serving.ranker import Ranker
from swerve.serving.replay import ticket_of
from swerve.serving.requests import Prepared
from swerve.store.packed import PER_BYTE, WORD, WORDS, pack

QUERIES, PAGES = 20, (1, 10, 100, 1000)
START, GAP = 1.8e9, 7.0  # Unix time of the first request; mean seconds between two
CLICKED = (0, 0, 1, 2, 3)  # slots, drawn evenly


def packed_bytes(record: bytes) -> int:
    """Return the bytes of the bitmap and of the words that are not zero."""
    words = np.frombuffer(record, WORDS)
    return -(-len(words) // PER_BYTE) + WORD * int(np.count_nonzero(words))


def main(candidates: int) -> None:
    """Print the bytes of records with this many candidates."""
    settings = settings_of(Config())
    ranker, draw, now = Ranker(settings._replace(budget=16 << 20), bytes(32)), random.Random(1), START
    offer = [f"doc-{number:02d}" for number in range(candidates)]
    asked = []
    for number in range(QUERIES):
        key = ranker.key_of(f"query {number}")
        place = ranker.fresh(key, f"query {number}", candidates, now)
        assert place is not None, "the memory is large enough"
        asked.append((place, Prepared(key, f"query {number}", list(offer), slots=settings.slots)))
    print(f"{candidates} candidates: {asked[0][0].shelf.dtype.itemsize:,} bytes in memory")
    done = 0
    for pages in PAGES:
        for _ in range(pages - done):
            for place, prepared in asked:
                now += draw.expovariate(1.0 / GAP)
                decided = ranker.rank([(place, prepared)], now)[0]
                if draw.random() < 1 / 2:
                    ticket = ticket_of(decided, ranker.life)
                    event = Event("click", result=decided.ranking[draw.choice(CLICKED)])
                    ranker.feedback(place, ticket, decided.signed.number, Outcome(0, ticket.seen), [event], None, now + 3.0)
        done = pages
        records = [place.shelf.words[place.index].tobytes() for place, _ in asked]
        needed = statistics.mean(map(packed_bytes, records))
        taken = statistics.mean(len(form) for form, _ in pack(records))
        print(f"  after {pages:,} pages: {needed:,.0f} bytes packed, {taken:,.0f} in the store")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 8)
