"""Measure a journal of the default policy: bytes of a decision and of a click, and how fast they are played.

python tools/measure_journal.py [DECISIONS] [QUERIES] [SLOTS]
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
import zlib
from pathlib import Path

from swerve.service.config.settings import settings_in
from swerve.serving.entries import RANKED, RESPONDED, SIZE_AT
from swerve.serving.entry_kernels import ANSWERS, DECISIONS, OTHERS
from swerve.serving.messages import Event
from swerve.serving.notes import write_down
from swerve.serving.outcomes import Outcome
from swerve.serving.playing import Player
from swerve.serving.ranker import Ranker
from swerve.serving.replay import ticket_of
from swerve.serving.requests import Prepared
from swerve.store.journal import Journal, tail

KEY, START, CANDIDATES = bytes(32), 1.8e9, 8
#: Decisions of one block.
GROUP = 1000


def main(decisions: int = 200_000, queries: int = 2_000, slots: int = 10) -> None:
    """Write a journal, read it back and play it."""
    import numpy as np

    settings = settings_in("measure", {"policy": {"slots": slots}})
    ranker, rng, now = Ranker(settings, KEY), random.Random(1), START
    notes = write_down(ranker, {}, now)
    offer = [f"result-{number}" for number in range(CANDIDATES)]
    ranker.compile(ranker.rows.tables[0])
    sizes: dict[int, list[int]] = {RANKED: [], RESPONDED: []}
    with tempfile.TemporaryDirectory() as folder:
        journal = Journal(Path(folder) / "journal")
        written = time.perf_counter()
        for number in range(decisions):
            now += 0.01
            text = f"query {int(queries * rng.random() ** 2)}"
            key = ranker.key_of(text)
            place = ranker.rows.get(key) or ranker.fresh(key, text, CANDIDATES, now)
            assert place is not None
            asked = Prepared(key, text, [*offer], session=f"s{rng.randrange(1 << 20)}", slots=slots)
            (decided,) = ranker.rank([(place, asked)], now)
            assert decided is not None
            ticket = ticket_of(decided, ranker.life)
            events = [Event("click", position=1 + rng.randrange(min(slots, 3)))]
            ranker.feedback(place, ticket, decided.signed.number, Outcome(0, ticket.seen), events, None, now)
            if number % GROUP == GROUP - 1:
                journal.put(*notes.take())
                journal.sync(now)
        journal.put(*notes.take())
        journal.sync(now)
        written = time.perf_counter() - written
        journal.close()
        content = b"".join(block.content for block in tail(journal.folder))
        words, at = np.frombuffer(content, np.int64), 0
        while at < len(words):
            size = int(words[at]) >> SIZE_AT
            sizes.setdefault(int(words[at]) & 255, []).append(8 * size)
            at += size
        player = Player(lambda started: Ranker(settings, KEY), steps=0)
        blocks = list(tail(journal.folder))
        player.play(blocks[0])  # compiles
        before = player.counts[DECISIONS] + player.counts[ANSWERS]
        began = time.perf_counter()
        for block in blocks[1:]:
            player.play(block)
        took = time.perf_counter() - began
        played = player.counts[DECISIONS] + player.counts[ANSWERS] - before
        began = time.perf_counter()
        for _ in tail(journal.folder):
            pass
        read = time.perf_counter() - began
        assert player.counts[OTHERS] == 0
        assert player.ranker is not None
        for place in ranker.rows:
            assert player.ranker.rows.places[place.key].record.tobytes() == place.record.tobytes()
        for kind, name in ((RANKED, "decision"), (RESPONDED, "click")):
            print(f"{name}: {sum(sizes[kind]) / len(sizes[kind]):.0f} bytes")
        print(f"compressed: {len(zlib.compress(content)) / len(content):.2f} of the bytes")
        print(f"played: {played / took / 1e6:.2f} million decisions and clicks a second, {queries:,} queries, the same bytes")
        print(f"read: {sum(map(len, sizes.values())) / read / 1e6:.1f} million entries a second")
        print(f"decided and written down: {2 * decisions / written / 1e6:.3f} million a second, one by one, from Python")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
