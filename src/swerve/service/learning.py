"""A store that begins warm: what a service would have learnt, had it served the traffic of a log.

A recording of Swerve is replayed: with the same secrets, every record has the bytes that serving gave it. Other logs have rankings
that Swerve did not make; they teach as `POST /v1/observe` does. A list without a session counts as a session of its own.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from swerve.core.errors import SwerveError
from swerve.core.examination import SLOTS
from swerve.service.batches import row_of
from swerve.service.config.settings import settings_in
from swerve.serving.messages import Event, key_text
from swerve.serving.migration import Layouts
from swerve.serving.outcomes import Outcome
from swerve.serving.ranker import Ranker
from swerve.serving.replay import Replay, ticket_of
from swerve.serving.requests import Prepared
from swerve.store.protocol import Batch, Store

#: Rows of one commit.
ROWS_AT_ONCE = 1024
#: Seconds between two lists of a log without times.
STEP = 1.0


class Shown(Protocol):
    """A list of a log, as the readers of `swerve.evaluate` make it."""

    time: float  # NaN where the log has no time
    query: str
    shown: list[str]
    clicks: list[int]  # positions, from 1
    signals: dict[str, float] | None
    top: int  # position of the first result


class Learnt(msgspec.Struct):
    """What was learnt."""

    lists: int = 0
    clicks: int = 0
    queries: int = 0
    too_long: int = 0  # lists of which only the first results were learnt


def learn_recordings(paths: Sequence[Path], query_key: bytes, store: Store, progress: Callable[[int, int], None]) -> Learnt:
    """Replay the recordings of all shares of a store, that of share 0 first, and write what was learnt to an empty store.

    Each share is replayed by itself, as it was served: what it took up of the others is in its recording. The store gets the rows
    of all, and what queries share as share 0 knows it. Share 0 is written last, without the queries that another share has: it has
    those too that nobody has asked since there were fewer shares. `progress` is told the number of a recording, and the bytes read
    of it.
    """
    replays, known, learnt = list[Replay](), set[bytes](), Learnt()
    for number, path in enumerate(paths):
        replay = Replay(path, functools.partial(settings_in, str(path)), query_key, moved=len(paths) > 1)
        counts = replay.run(lambda read, number=number: progress(number, read))  # type: ignore[misc]
        learnt.lists += counts.requests
        learnt.clicks += counts.clicks
        replays.append(replay)
        if replay.ranker.life.store != replays[0].ranker.life.store:
            raise SwerveError(f"{path} and {paths[0]} are recordings of different stores; one store is learnt from one")
    for replay in (*replays[1:], replays[0]):
        ranker = replay.ranker if replay.secrets == replay.ranker.key_of("") else renamed(replay)
        write_rows(ranker, store, known)
    store.checkpoint(Batch(groups=ranker.shared(max(replay.player.last for replay in replays)), epoch=store.epoch))
    learnt.queries = len(known)
    return learnt


def renamed(replay: Replay) -> Ranker:
    """Return a ranker with the rows of a recording that was made under another query key, under the keys of its own. Queries whose
    text the recording does not have are left out: their keys cannot be made."""
    before = replay.ranker
    ranker = Ranker(before.settings, replay.query_key)
    ranker.share(before.shared(replay.player.last))
    for place in before.rows:
        text = replay.player.texts.get(place.key)
        if text is not None:
            shelf = ranker.rows.shelf_for(place.shelf.arms, place.shelf.rival)
            row = ranker.restore(ranker.key_of(text), place.shelf.words[place.index].tobytes(), place.names(), 0, shelf)
            assert row is not None, "as many rows fit into memory as before"
            row.dirty = True
    return ranker


def learn_lists(lists: Iterable[Shown], ranker: Ranker) -> tuple[Learnt, float]:
    """Let a ranker observe lists, in the order of their times; return what was learnt and the time of the last list."""
    learnt, now, most = Learnt(), 0.0, ranker.settings.arms
    numbers = set(ranker.settings.numbers)
    for entry in lists:
        if entry.top != 1:
            raise SwerveError("this log has results one by one; a policy for pages needs whole lists")
        now = max(now, entry.time) if math.isfinite(entry.time) else now + STEP
        text = key_text(entry.query)
        key, shown = ranker.key_of(text), entry.shown[:most]
        place = ranker.rows.get(key) or ranker.fresh(key, text, len(shown), now)
        if place is None:
            raise SwerveError(
                f"the log has more queries than store.cache_mb holds ({len(ranker.rows):,}); raise it for this command"
            )
        signals = {name: value for name, value in (entry.signals or {}).items() if name in numbers}
        session = f"list {learnt.lists}"
        prepared = Prepared(key, text, [*shown], None, {**signals}, session, SLOTS, as_given=True)
        decided = ranker.rank([(place, prepared)], now)[0]
        learnt.lists += 1
        learnt.too_long += len(shown) < len(entry.shown)
        clicks = [Event("click", position=position) for position in entry.clicks if position <= len(shown)]
        if decided is not None and clicks:
            ticket = ticket_of(decided, ranker.life)
            before = Outcome(0, ticket.seen)
            after = ranker.feedback(place, ticket, decided.signed.number, before, clicks, None, now)
            learnt.clicks += after.clicked.bit_count()
    learnt.queries = len(ranker.rows)
    return learnt, now


def write(ranker: Ranker, store: Store, now: float) -> None:
    """Write all rows of a ranker, and what they share, to an empty store."""
    write_rows(ranker, store, set())
    store.checkpoint(Batch(groups=ranker.shared(now), epoch=store.epoch))


def write_rows(ranker: Ranker, store: Store, known: set[bytes]) -> None:
    """Write the rows of a ranker whose keys are not known, and note these."""
    layouts = Layouts(store, ranker)
    places = [place for place in ranker.rows if place.key not in known]
    known.update(place.key for place in places)
    for start in range(0, len(places), ROWS_AT_ONCE):
        some = places[start : start + ROWS_AT_ONCE]
        store.checkpoint(Batch([row_of(place, layouts.ids, store.epoch) for place in some], epoch=store.epoch))
