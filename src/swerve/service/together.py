"""What workers tell each other: what operators have set, requests against rates, an experiment's events, what they have learnt.

Operators' changes go to the first worker, one after the other. Before it answers, it writes them and sends its state (rules, audit,
experiment) to all others. It sends the state again to each worker that reports an older one; workers report theirs when they start
and in every exchange. So a message may be lost, repeated or late. Counts are sent as sums that only grow.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from swerve.service.availability import Unavailable
from swerve.service.control import AUDIT, RULES
from swerve.service.crew import EXCHANGE_SECONDS, FIRST, Crew
from swerve.service.experiments import EXPERIMENT
from swerve.service.namespaces import Within
from swerve.service.relaying import Relayed
from swerve.service.siblings import AWAY_SECONDS, Away, Sibling
from swerve.service.spreading import Spreading
from swerve.service.throttle import Bucket
from swerve.serving.control import Change, DeleteRequest, DeleteResponse, Kept
from swerve.serving.experiment import KeptExperiment, Report
from swerve.serving.lift import Tracked
from swerve.serving.messages import Error, Refused, encode

if TYPE_CHECKING:
    from swerve.service.runtime import Service

log = logging.getLogger("swerve.service")

#: The paths of messages between workers.
STATE, EXCHANGE, DELETE, DECISIONS = b"/inner/state", b"/inner/exchange", b"/inner/delete", b"/inner/decisions"
#: Seconds that a worker has to take up what operators have set, and to answer an exchange.
STATE_SECONDS, ANSWER_SECONDS = 1.0, 1.0
#: Seconds that a deletion may take on another worker.
DELETE_SECONDS = 60.0
#: Seconds for which a start waits for the first worker, which has what operators have set.
START_SECONDS = 1.0
#: Bytes of the random mark that tells one start of a worker from another.
BOOT_BYTES = 8

_pack, _unpack = msgspec.msgpack.encode, msgspec.msgpack.decode


class State(msgspec.Struct):
    """What operators have set: the mark of the first worker's start, a number that grows with each change, the records."""

    boot: bytes
    number: int
    records: dict[str, bytes]


class Message(msgspec.Struct):
    """What a worker tells another one every second."""

    worker: int
    boot: bytes
    known: tuple[bytes, int]  # mark and number of the state that it has
    spent: dict[str, int]  # requests of each API key that it has taken since its start
    spaces: dict[str, int]  # the same for each namespace
    changes: list[Change]  # for the audit
    first: int  # the number of the first of these changes
    events: list[Relayed]  # of the experiment
    part: int  # the number of this list of events; a repeated message has the same one
    learning: bytes  # what it has learnt that queries share, see `swerve.serving.exchange`
    sessions: bytes  # the sessions that have asked it
    sample: dict[str, Any] | None = None  # for the live page


class Answered(msgspec.Struct):
    """The answer to a `Message`; workers other than the first one leave all of it empty."""

    state: State | None  # if the worker that asks has an older one
    guards: dict[str, Tracked] | None = None
    report: Report | None = None


class Deletion(msgspec.Struct):
    """A deletion, the name of its caller, and the namespaces that the caller may use."""

    request: DeleteRequest
    by: str | None
    within: list[str] | None


class Deleted(msgspec.Struct):
    """The outcome of a `Deletion`."""

    done: DeleteResponse | None = None
    status: int = 0
    error: Error | None = None


class Heard:
    """What a worker has taken up of another one's messages."""

    def __init__(self, message: Message) -> None:
        self.boot, self.spent, self.spaces = message.boot, message.spent, message.spaces
        self.changes = self.part = 0


class Together:
    """The exchange of a worker with all others."""

    def __init__(self, service: Service, crew: Crew) -> None:
        self.service, self.crew, self.boot = service, crew, os.urandom(BOOT_BYTES)
        self.spreading = Spreading(service.feedback, crew)
        self.number = 0
        self.known: tuple[bytes, int] = (b"", -1)
        self.report: Report | None = None  # of the experiment, as the first worker has it
        #: Returns what the live pages of the other workers show of this one; the page sets it.
        self.sample: Callable[[], dict[str, Any] | None] = lambda: None
        self.samples: dict[int, dict[str, Any]] = {}  # the last ones of the other workers
        self.away: set[int] = set()  # workers that did not answer the last time
        self._heard: dict[int, Heard] = {}
        self._changes: list[Change] = []  # changes that the first worker has not acknowledged yet
        self._told = 0  # how many changes it has acknowledged
        self._events: list[Relayed] = []  # events that were sent and are not acknowledged yet
        self._part = 0
        self._experiment = b""  # the record of the experiment that was taken up last
        self._task: asyncio.Task[None] | None = None
        self._one_at_a_time = asyncio.Lock()
        service.beacons.feedback = self.spreading
        service.ubi.elsewhere = self.decisions_elsewhere
        if crew.first is None:
            service.control.published = service.experiments.published = self.publish
            service.erasing.elsewhere = self.delete_elsewhere
        else:
            service.control.noted = self._changes.append

    async def start(self) -> None:
        """Take up what operators have set, and begin to exchange."""
        loop = asyncio.get_running_loop()
        first, until = self.crew.first, loop.time() + START_SECONDS
        while first is not None and first.place is not None:
            try:
                await self._tell(first, self._news(), START_SECONDS)
                break
            except Away:
                if loop.time() > until:
                    log.warning("worker %d does not answer: until it does, rules and experiments are those stored here", FIRST)
                    break
                await asyncio.sleep(AWAY_SECONDS)
        self._task = asyncio.get_running_loop().create_task(self._run(), name="swerve-exchange")

    def stop(self) -> None:
        """End the exchange."""
        if self._task is not None:
            self._task.cancel()
        self.crew.close()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(EXCHANGE_SECONDS)
            try:
                news = self._news()
                await asyncio.gather(*(self._told_to(sibling, news) for sibling in self.crew))
            except Exception:
                log.exception("an exchange between workers failed")

    async def _told_to(self, sibling: Sibling, news: Message) -> None:
        try:
            await self._tell(sibling, news, ANSWER_SECONDS)
            self.away.discard(sibling.index)
        except Away:
            self.away.add(sibling.index)
            self.samples.pop(sibling.index, None)

    # ------------------------------------------------------------------ exchange
    def _news(self) -> Message:
        """Return the message for all other workers."""
        exchange = self.service.ranker.exchange
        learning, sessions = (exchange.learning(), exchange.sessions()) if self.service.committer.begun else (b"", b"")
        return Message(
            self.crew.index, self.boot, self.known, spent_of(self.service.throttle.buckets),
            spent_of(self.service.namespaces.buckets), [], self._told, [], 0, learning, sessions, self.sample(),
        )  # fmt: skip

    async def _tell(self, sibling: Sibling, news: Message, within: float) -> None:
        """Send a message to a sibling, and take up its answer. Raises `Away`."""
        to_first, changes = sibling.index == FIRST, list(self._changes)
        if to_first:
            if not self._events:
                self._events, self._part = self.service.experiments.told(), self._part + 1
            news = msgspec.structs.replace(news, changes=changes, events=self._events, part=self._part)
        reply = await sibling.ask(b"POST", EXCHANGE, (), _pack(news), within)
        if reply.status != 200:
            raise Away
        answered = _unpack(reply.body, type=Answered)
        if not to_first:
            return
        del self._changes[: len(changes)]
        self._told += len(changes)
        self._events = []
        self.report = answered.report
        if answered.state is not None:
            await self.take(answered.state)
        if answered.guards is not None:
            self.service.experiments.guard(answered.guards)

    def hear(self, body: bytes) -> bytes:
        """Take up the message of another worker, and return the answer."""
        message, service = _unpack(body, type=Message), self.service
        heard = self._heard.get(message.worker)
        if heard is None or heard.boot != message.boot:
            heard = self._heard[message.worker] = Heard(message)  # only what it takes from now on counts here
        now = service.clock.now()
        share(service.throttle.buckets, heard.spent, message.spent, now)
        share(service.namespaces.buckets, heard.spaces, message.spaces, now)
        if message.sample is not None:
            self.samples[message.worker] = message.sample
        if service.committer.begun and message.learning:
            service.ranker.exchange.take_up(message.worker, message.learning, now)
            service.ranker.exchange.told(message.sessions, now)
        if self.crew.first is not None:
            return _pack(Answered(None))
        for change in message.changes[max(heard.changes - message.first, 0) :]:
            service.control.add(change)
        heard.changes = max(heard.changes, message.first + len(message.changes))
        if message.part > heard.part:
            heard.part = message.part
            service.experiments.count(message.worker, message.events)
        running = service.experiments.trial is not None
        state = self._state() if message.known != (self.boot, self.number) else None
        report = service.experiments.report() if running else None
        return _pack(Answered(state, service.experiments.guards() if running else None, report))

    # ------------------------------------------------------------------ what operators set
    def _state(self) -> State:
        control, experiments = self.service.control, self.service.experiments
        records = {
            RULES: encode(Kept(control.next, control.rules())),
            AUDIT: encode(list(control.changes)),
            EXPERIMENT: encode(KeptExperiment(experiments.configured, experiments.trial)),
        }
        return State(self.boot, self.number, records)

    async def publish(self) -> None:
        """Send the state to all other workers; return when all that answer have it. Only the first worker does this."""
        self.number += 1
        body = _pack(self._state())

        async def one(sibling: Sibling) -> None:
            try:
                await sibling.ask(b"POST", STATE, (), body, STATE_SECONDS)
            except Away:
                log.info("worker %d does not answer: it gets rules and experiments when it does", sibling.index)

        await asyncio.gather(*map(one, self.crew))

    async def take(self, state: State) -> None:
        """Write the state of the first worker and put it into force, unless a later one is known."""
        async with self._one_at_a_time:
            boot, number = self.known
            if boot == state.boot and number >= state.number:
                return
            service = self.service
            if service.committer.begun:
                try:
                    await service.committer.put(state.records, service.ranker.life)
                except Unavailable:
                    log.warning("rules and experiments are in force, but could not be written: the next start asks for them again")
            service.control.load(state.records)
            if state.records[EXPERIMENT] != self._experiment:
                self._experiment = state.records[EXPERIMENT]
                service.experiments.load(state.records)
            self.known = state.boot, state.number

    async def take_body(self, body: bytes) -> None:
        """Take up the state in the body of a message."""
        await self.take(_unpack(body, type=State))

    # ------------------------------------------------------------------ deletions
    async def delete_elsewhere(self, request: DeleteRequest, by: str | None, within: Within) -> list[DeleteResponse]:
        """Delete on all other workers. Raises `Refused`, or `Unavailable` if one of them does not answer or could not delete."""
        body = _pack(Deletion(request, by, None if within is None else sorted(within)))
        try:
            replies = await asyncio.gather(*(sibling.ask(b"POST", DELETE, (), body, DELETE_SECONDS) for sibling in self.crew))
        except Away:
            raise Unavailable from None
        found = list[DeleteResponse]()
        for reply in replies:
            if reply.status != 200:
                raise Unavailable
            deleted = _unpack(reply.body, type=Deleted)
            if deleted.error is not None:
                error = deleted.error
                raise Refused(deleted.status, error.code, error.message, error.field, error.limit)
            if deleted.done is not None:
                found.append(deleted.done)
        return found

    async def delete(self, body: bytes) -> bytes:
        """Delete what the first worker asks for. Raises `Unavailable`."""
        asked = _unpack(body, type=Deletion)
        within = None if asked.within is None else frozenset(asked.within)
        try:
            return _pack(Deleted(await self.service.erasing.here(asked.request, asked.by, within)))
        except Refused as refused:
            return _pack(Deleted(None, refused.status, refused.error))

    # ------------------------------------------------------------------ query ids of collectors
    async def decisions_elsewhere(self, names: list[str]) -> dict[str, str]:
        """Return the decisions of query ids that the other workers know."""

        async def one(sibling: Sibling) -> dict[str, str]:
            try:
                reply = await sibling.ask(b"POST", DECISIONS, (), _pack(names), ANSWER_SECONDS)
            except Away:
                return {}
            return _unpack(reply.body, type=dict[str, str]) if reply.status == 200 else {}

        found: dict[str, str] = {}
        for some in await asyncio.gather(*map(one, self.crew)):
            found |= some
        return found

    async def decisions(self, body: bytes) -> bytes:
        """Return the decisions of the query ids that this worker knows."""
        return _pack(self.service.ubi.decisions(_unpack(body, type=list[str])))


def spent_of(buckets: dict[str, Bucket]) -> dict[str, int]:
    """Return how many requests each bucket has taken so far."""
    return {name: bucket.taken for name, bucket in buckets.items()}


def share(buckets: dict[str, Bucket], before: dict[str, int], spent: dict[str, int], now: float) -> None:
    """Take off the buckets what another worker has taken since its last message: so rates hold for all workers together."""
    for name, taken in spent.items():
        bucket = buckets.get(name)
        if bucket is not None and (new := taken - before.get(name, 0)):
            bucket.share(new, now)
            before[name] = taken
