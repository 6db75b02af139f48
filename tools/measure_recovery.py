"""Measure a start after a crash, with the default policy: how long the log is played that lies behind the checkpoints.

python tools/measure_recovery.py [QUERIES] [EVENTS] [SLOTS]

Every query is in the store; events (decisions and clicks, half each) concern all of them alike: the log has each query whole.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from pathlib import Path

from swerve.service.batches import row_of
from swerve.service.config.settings import settings_in
from swerve.service.recovering import recover
from swerve.serving.messages import Event
from swerve.serving.migration import Layouts
from swerve.serving.notes import write_again, write_down
from swerve.serving.outcomes import Outcome
from swerve.serving.playing import compile_for
from swerve.serving.ranker import Ranker
from swerve.serving.replay import ticket_of
from swerve.serving.requests import Prepared
from swerve.store import Batch, Entries, open_store

KEY, START, CANDIDATES = bytes(32), 1.8e9, 8
#: Decisions of one append; rows of one checkpoint.
GROUP, ROWS = 1000, 1000


def main(queries: int = 20_000, events: int = 200_000, slots: int = 10) -> None:
    """Fill a store, write a log, forget everything and recover."""
    tables = {"policy": {"slots": slots, "arms": CANDIDATES}, "store": {"cache_mb": 64 + queries * 8 // 1000}}
    settings = settings_in("measure", tables)
    ranker, rng, now = Ranker(settings, KEY), random.Random(1), START
    ranker.compile(ranker.rows.tables[0])
    compile_for(ranker, CANDIDATES)
    offer = [f"result-{number}" for number in range(CANDIDATES)]
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder) / 'swerve.db'}"
        store = open_store(url, most=1 << 40)
        layouts = Layouts(store, ranker)
        notes = write_down(ranker, tables, now, texts=False)

        def ask(text: str) -> tuple[object, object]:
            key = ranker.key_of(text)
            place = ranker.rows.get(key) or ranker.fresh(key, text, CANDIDATES, now)
            assert place is not None
            asked = Prepared(key, text, [*offer], session=f"s{rng.randrange(1 << 20)}", slots=slots)
            (decided,) = ranker.rank([(place, asked)], now)
            return place, decided

        for number in range(queries):
            now += 0.001
            ask(f"query {number}")
        notes.take()
        places = list(ranker.rows)
        for at in range(0, len(places), ROWS):
            store.checkpoint(Batch([row_of(place, layouts.ids, store.epoch) for place in places[at : at + ROWS]]))
        write_again(ranker, tables, now)
        store.append([Entries(*notes.take(), anew=True)], now)
        store.checkpoint(Batch(begin=0))
        for number in range(events // 2):
            now += 0.01
            place, decided = ask(f"query {rng.randrange(queries)}")
            ticket = ticket_of(decided, ranker.life)
            clicked = [Event("click", position=1 + rng.randrange(min(slots, 3)))]
            ranker.feedback(place, ticket, decided.signed.number, Outcome(0, ticket.seen), clicked, None, now)
            if number % GROUP == GROUP - 1:
                store.append([Entries(*notes.take())], now)
        store.append([Entries(*notes.take())], now)
        state = {place.key: place.record.tobytes() for place in ranker.rows}
        size = sum(path.stat().st_size for path in store.journal.folder.iterdir())
        store.close()
        store = open_store(url, most=1 << 40)
        began, spent = time.perf_counter(), time.process_time()
        done = recover(store)
        took, spent = time.perf_counter() - began, time.process_time() - spent
        assert done.others == 0
        assert store.begin == store.end
        for key, record in list(state.items())[:: max(len(state) // 1000, 1)]:
            (row,) = store.load([key])
            assert row.record == record
        store.close()
    played = done.decisions + done.feedback
    print(f"{queries:,} queries in the store, {done.rows:,} of them in a log of {size / 1e6:,.0f} MB with {played:,} events")
    print(f"recovered in {took:.1f} s, {spent:.1f} s of processor time, to the same bytes")
    print(f"a row takes {1e6 * spent / done.rows:.0f} µs of it at most, an event {1e6 * spent / played:.1f} µs at most")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
