"""The hub: sends messages about a service to all readers; each message is made and encoded once, for any number of pages.

Everything here runs on the service's event loop. Messages are numbered across all kinds. A reader that lost its connection names
the last number it read and receives the messages after it. A reader that falls behind is disconnected, and resumes in the same
way.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import time
from typing import Any

from swerve.core.examination import SLOTS
from swerve.dashboard.rings import Ring, wire
from swerve.dashboard.sample import Sampler
from swerve.service.availability import Unavailable
from swerve.service.runtime import Service
from swerve.serving.holdout import CONTROL
from swerve.serving.messages import QueryState, Refused, encode
from swerve.serving.requests import Prepared
from swerve.version import __version__

log = logging.getLogger("swerve.dashboard")

SAMPLE_EVERY = 1.0  # between samples
SAMPLES_PER_COMMENT = 15  # samples between comments, which keep proxies from closing an idle connection
LINGER_SECONDS = 120.0  # seconds that a query is watched after its last reader has gone
MOST_WAITING = 64  # messages that may wait for a reader
MOST_READERS = 1000  # each costs a connection and one write per second
MOST_WATCHED = 64  # queries; each takes up to a megabyte
RETRY_FIELD = b"retry: 1000\n\n"  # milliseconds after which a browser reconnects
EPOCH_BYTES = 6  # random: no two starts of a service share them
TIME_DECIMALS = 3  # of a time in seconds: milliseconds
#: Fields that the history contains only for the newest message of a kind.
HEAVY = {"sample": ("top", "shifted", "experiment"), "demo": ("events", "best", "adapt", "slots", "head", "tail", "young")}
EVENT_ID = re.compile(r"([0-9a-f]{1,32})-([0-9]{1,18})")


class Tally:
    """The results shown for a query and the clicks on them since the last sample; the service tells it of each ranking and click.

    `places` has for each result of a page how often it was shown and the sum of its slots; `slots` the clicks by slot.
    """

    __slots__ = ("asked", "explored", "places", "ranking", "slots", "tops", "unknown")

    def __init__(self) -> None:
        self.ranking: list[str] = []
        self.asked: Prepared | None = None  # the last request
        self.unknown = False  # whether the query is in neither memory nor the store
        self.clear()

    def clear(self) -> None:
        """Begin the next second."""
        self.tops: dict[str, int] = {}
        self.places: dict[str, list[int]] = {}
        self.slots = [0] * SLOTS
        self.explored: dict[str, int] = {}

    def __call__(self, ranking: list[str], explored: int = -1, prepared: Prepared | None = None) -> None:
        if prepared is not None and prepared.arm == CONTROL and prepared.plain is None and self.ranking:
            return  # held out by an experiment: the page shows what the policy makes
        self.ranking, self.asked = ranking, prepared
        top = ranking[0]
        self.tops[top] = self.tops.get(top, 0) + 1
        for slot, result in enumerate(ranking[:SLOTS]):
            place = self.places.setdefault(result, [0, 0])
            place[0] += 1
            place[1] += slot
        if explored >= 0:
            self.explored[ranking[explored]] = self.explored.get(ranking[explored], 0) + 1

    def clicked(self, slot: int) -> None:
        """Count a click on a slot."""
        self.slots[slot] += 1

    def given(self) -> list[str]:
        """Return the order that the last request gave."""
        return [] if self.asked is None else self.asked.ids()


class Watch:
    """A watched query, under the text that its reader used."""

    def __init__(self, text: str, key: bytes, number: int) -> None:
        self.text, self.key = text, key
        self.ring = Ring(lost=number)
        self.always = False
        self.readers: set[Reader] = set()
        self.left = time.monotonic()  # when the last reader left


class Reader:
    """One page: the messages that wait for it, and whether it has ended."""

    __slots__ = ("ended", "queue", "sending", "transport", "wake", "watch")

    def __init__(self, watch: Watch | None, transport: asyncio.Transport | None) -> None:
        self.watch, self.transport = watch, transport
        self.queue: list[bytes] = []
        self.wake = asyncio.Event()
        self.sending = False  # whether it is waiting for the network
        self.ended = False

    def put(self, message: bytes) -> None:
        """Add a message; end the reader if too many messages wait."""
        if self.ended:
            return
        if len(self.queue) >= MOST_WAITING:
            log.info("a reader of the live stream does not keep up: cut off")
            return self.end()
        self.queue.append(message)
        self.wake.set()

    def take(self) -> bytes:
        """Return all waiting messages, joined."""
        data = b"".join(self.queue)
        self.queue.clear()
        return data

    def end(self) -> None:
        """End the reader. A connection that accepts no more data is aborted, because it would never end by itself."""
        self.ended = True
        self.wake.set()
        if self.sending and self.transport is not None:
            self.transport.abort()


class Hub:
    """Samples a service, watches queries, and passes on published messages. `demo` describes a simulation to the page."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.demo: dict[str, Any] | None = None
        self.epoch = os.urandom(EPOCH_BYTES).hex()
        self.number = 0  # of the last message
        self.readers: set[Reader] = set()
        self.closed = False
        self._sampler = Sampler(service)
        self._rings = {event: Ring(heavy) for event, heavy in HEAVY.items()}
        self._watches: dict[str, Watch] = {}
        self._tallies: dict[bytes, Tally] = {}
        service.ranking.watched = service.feedback.watched = self._tallies

    # ------------------------------------------------------------------ sending
    def publish(self, event: str, data: dict[str, Any]) -> None:
        """Send a message to all readers. Must be called on the service's event loop."""
        ring = self._rings.setdefault(event, Ring())
        message = self._keep(ring, event, data, data)
        for reader in self.readers:
            reader.put(message)

    def _keep(self, ring: Ring, event: str, data: dict[str, Any], brief: dict[str, Any]) -> bytes:
        self.number += 1
        encoded = encode(data)
        message = wire(event, encoded, f"{self.epoch}-{self.number}")
        ring.put(self.number, message, encoded, brief)
        return message

    # ------------------------------------------------------------------ watching
    def watch(self, text: str) -> None:
        """Watch a query from now on, with or without readers."""
        self._watched(text).always = True

    def admit(self, text: str | None) -> None:
        """Refuse a reader or a watched query beyond the limits."""
        if self.closed:
            raise Refused(503, "stopping", "the service is stopping")
        if len(self.readers) >= MOST_READERS:
            raise Refused(503, "too_many", f"{MOST_READERS} others are reading the live stream; there is no room for more")
        if text is None or text in self._watches or len(self._watches) < MOST_WATCHED:
            return
        idle = [watch for watch in self._watches.values() if not watch.readers and not watch.always]
        if not idle:
            raise Refused(503, "too_many", f"{MOST_WATCHED} queries are being watched; there is no room for more")
        self._forget(min(idle, key=lambda watch: watch.left))

    def _watched(self, text: str) -> Watch:
        watch = self._watches.get(text)
        if watch is None:
            key = self.service.ranker.key_from(text)
            watch = self._watches[text] = Watch(text, key, self.number)
            self._tallies.setdefault(key, Tally())
        return watch

    def _forget(self, watch: Watch) -> None:
        del self._watches[watch.text]
        if all(other.key != watch.key for other in self._watches.values()):
            del self._tallies[watch.key]

    # ------------------------------------------------------------------ reading
    def join(
        self, text: str | None = None, last: str = "", transport: asyncio.Transport | None = None, operate: bool = False
    ) -> Reader:
        """Return a reader of all messages and of one query; it continues after the id `last` if the messages since are kept.

        `operate` says whether the reader's key has that scope: the page then offers rules.
        """
        watch = None if text is None else self._watched(text)
        if watch is not None and not watch.ring.newest:
            self._send(watch, self._state(watch.key))  # the first page need not wait for the next second
        missed = self._missed(watch, last)
        reader = Reader(watch, transport)
        first = [RETRY_FIELD, wire("hello", encode({**self._hello(text, missed is not None), "operate": operate}))]
        reader.put(b"".join([*first, *missed]) if missed is not None else b"".join([*first, self._history(watch)]))
        self.readers.add(reader)
        if watch is not None:
            watch.readers.add(reader)
            if not watch.ring.newest and self._tallies[watch.key].unknown:
                reader.put(missing(watch.text))
        if self.closed:
            reader.end()
        return reader

    def leave(self, reader: Reader) -> None:
        """Remove a reader."""
        self.readers.discard(reader)
        if reader.watch is not None:
            reader.watch.readers.discard(reader)
            reader.watch.left = time.monotonic()

    def close(self) -> None:
        """End all readers, present and future."""
        self.closed = True
        for reader in self.readers:
            reader.end()

    def _hello(self, text: str | None, resumed: bool) -> dict[str, Any]:
        policy, names = self.service.config.policy.spec, list(self.service.names)
        return {"version": __version__, "policy": policy, "signals": names, "demo": self.demo, "query": text, "resumed": resumed}

    def _missed(self, watch: Watch | None, last: str) -> list[bytes] | None:
        """Return the messages after a message id, in order; None if some are gone."""
        found = EVENT_ID.fullmatch(last)
        if found is None or found[1] != self.epoch or int(found[2]) > self.number:
            return None
        entries: list[tuple[int, bytes]] = []
        for ring in (*self._rings.values(), *(() if watch is None else (watch.ring,))):
            since = ring.since(int(found[2]))
            if since is None:
                return None
            entries += since
        return [message for _, message in sorted(entries)]

    def _history(self, watch: Watch | None) -> bytes:
        """Return the history: brief messages, the newest of each kind in full; the query's newest state is a separate message."""
        parts = []
        for event, ring in self._rings.items():
            past = b",".join(part for part in (ring.past(), ring.newest) if part)
            parts.append(b'"%s":[%s]' % (b"samples" if event == "sample" else event.encode(), past))
        parts.append(b'"query":[%s]' % (b"" if watch is None else watch.ring.past()))
        history = wire("history", b"{" + b",".join(parts) + b"}", f"{self.epoch}-{self.number}")
        return history if watch is None or not watch.ring.newest else history + wire("query", watch.ring.newest)

    # ------------------------------------------------------------------ every second
    async def run(self) -> None:
        """Sample every second, until cancelled."""
        loop = asyncio.get_running_loop()
        due, count = loop.time(), 0
        looking: asyncio.Task[None] | None = None
        try:
            while True:
                due = max(due + SAMPLE_EVERY, loop.time())  # missed seconds are skipped
                await asyncio.sleep(due - loop.time())
                count += 1
                try:
                    self.tick()
                except Exception:  # later samples may succeed
                    log.exception("a sample failed")
                if count % SAMPLES_PER_COMMENT == 0:
                    for reader in self.readers:
                        reader.put(b":\n\n")
                if looking is None or looking.done():  # a sample must not wait for a slow store
                    looking = loop.create_task(self.look(), name="swerve-dashboard")
        finally:
            if looking is not None:
                looking.cancel()

    def tick(self) -> None:
        """Send a sample of the service, and the state of each watched query."""
        for reader in self.readers:
            if reader.transport is not None and reader.transport.is_closing():
                reader.end()
        self.publish("sample", self._sampler.take())
        states: dict[bytes, QueryState | None] = {}
        for watch in list(self._watches.values()):
            if not watch.readers and not watch.always and time.monotonic() - watch.left > LINGER_SECONDS:
                self._forget(watch)
                continue
            if watch.key not in states:
                states[watch.key] = self._state(watch.key)
            self._send(watch, states[watch.key])
        for key, tally in self._tallies.items():
            if states.get(key) is not None:
                tally.clear()  # sent
                tally.unknown = False

    def _state(self, key: bytes) -> QueryState | None:
        place = self.service.ranker.rows.get(key)
        return None if place is None else self.service.inspection.state_of(place)

    def _send(self, watch: Watch, state: QueryState | None) -> None:
        tally = self._tallies[watch.key]
        if state is None:  # not in memory; `look` reads it, or finds that it does not exist
            for reader in watch.readers if tally.unknown else ():
                reader.put(missing(watch.text))
            return
        now = round(self.service.clock.now(), TIME_DECIMALS)
        pages = {"tops": tally.tops, "places": tally.places, "slots": tally.slots, "explored": tally.explored}
        ranked = {"ranking": tally.ranking, "given": tally.given(), "ruled": self._ruled(watch.key, state, tally.ranking)}
        data = {"query": watch.text, "now": now, "state": state, **ranked, **pages}
        arms = {arm.id: (arm.plays, arm.clicks) for arm in state.arms}
        message = self._keep(watch.ring, "query", data, {"now": now, **pages, "arms": arms, "phase": state.phase})
        for reader in watch.readers:
            reader.put(message)

    def _ruled(self, key: bytes, state: QueryState, ranking: list[str]) -> list[dict[str, Any]]:
        """Return the rules in force for a query and its results: one for each kind and result, as answers of `rank` tell them."""
        book = self.service.ranking.rules
        if book is None:
            return []
        now, results = self.service.clock.now(), {None, *ranking, *(arm.id for arm in state.arms)}
        found = {
            (rule.kind, rule.result): {"kind": rule.kind, "result": rule.result, "position": rule.position, "until": rule.until}
            for rule in (*book.everywhere, *book.by_key.get(key, ()))
            if rule.holds(now) and rule.result in results and (rule.query is not None or rule.namespace in (None, state.namespace))
        }
        return list(found.values())

    async def look(self) -> None:
        """Read lists of queries, and watched queries that are not in memory."""
        try:
            if self.readers:
                await self._sampler.look()
            for key in list(self._tallies):
                await self._find(key)
        except Exception:
            log.exception("reading the lists or a watched query failed")

    async def seek(self, text: str) -> None:
        """Load a query into memory, or find that it does not exist, before a reader joins; skipped if the store is slow."""
        await self._find(self._watched(text).key)

    async def _find(self, key: bytes) -> None:
        unknown = False
        if self.service.ranker.rows.get(key) is None:
            try:
                await self._sampler.inspection.explain(f"key:{key.hex()}", {})
            except Refused:
                unknown = True
            except Unavailable:
                return
        if key in self._tallies:
            self._tallies[key].unknown = unknown


def missing(text: str) -> bytes:
    """Return the message about a query that was never asked. It is part of no history."""
    return wire("query", encode({"query": text, "missing": True}))
