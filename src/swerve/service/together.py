"""What workers tell each other: what operators have set, who has sent how much, what an experiment counts, what they have learnt.

Operators' changes go to the first worker, one after the other. It writes them, gives all others its present state (rules, audit,
experiment) before it answers, and again to whoever says that it has an older one: each worker says so when it starts and in every
exchange. So a message may be lost, repeated or late. What is counted travels as sums that only grow.
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

#: The paths at which workers tell each other things.
STATE, EXCHANGE, DELETE, DECISIONS = b"/inner/state", b"/inner/exchange", b"/inner/delete", b"/inner/decisions"
#: Seconds in which a worker takes up what operators have set, and in which it answers an exchange.
STATE_SECONDS, ANSWER_SECONDS = 1.0, 1.0
#: Seconds that a deletion may take on another worker.
DELETE_SECONDS = 60.0
#: Seconds for which a start waits for what operators have set.
START_SECONDS = 1.0
#: Bytes of the mark of a start.
BOOT_BYTES = 8

_pack, _unpack = msgspec.msgpack.encode, msgspec.msgpack.decode


class State(msgspec.Struct):
    """What operators have set, as the first worker has it: its start, a number that grows with each change, the records."""

    boot: bytes
    number: int
    records: dict[str, bytes]


class Message(msgspec.Struct):
    """What a worker tells another one."""

    worker: int
    boot: bytes
    known: tuple[bytes, int]  # start and number of the state that it has
    spent: dict[str, int]  # requests of each API key that it has taken so far
    spaces: dict[str, int]  # and of each namespace
    changes: list[Change]  # for the audit
    first: int  # the number of the first of these
    events: list[Relayed]  # of the experiment
    part: int  # the number of this part of them
    learning: bytes  # what it has learnt that queries share, see `swerve.serving.exchange`
    sessions: bytes  # that have asked it
    sample: dict[str, Any] | None = None  # for the live page


class Answered(msgspec.Struct):
    """The answer to it."""

    state: State | None  # the present one, if the other has an older one
    guards: dict[str, Tracked] | None = None
    report: Report | None = None


class Deletion(msgspec.Struct):
    """A deletion, and who asks for it."""

    request: DeleteRequest
    by: str | None
    within: list[str] | None


class Deleted(msgspec.Struct):
    """What has become of it."""

    done: DeleteResponse | None = None
    status: int = 0
    error: Error | None = None


class Heard:
    """What a worker has heard of another one."""

    def __init__(self, message: Message) -> None:
        self.boot, self.spent, self.spaces = message.boot, message.spent, message.spaces
        self.changes = self.part = 0


class Together:
    """The side of a service that talks with the other workers."""

    def __init__(self, service: Service, crew: Crew) -> None:
        self.service, self.crew, self.boot = service, crew, os.urandom(BOOT_BYTES)
        self.spreading = Spreading(service.feedback, crew)
        self.number = 0
        self.known: tuple[bytes, int] = (b"", -1)
        self.report: Report | None = None  # of the experiment, as the first worker has it
        #: Returns what the live pages of other workers show of this one; set by the page.
        self.sample: Callable[[], dict[str, Any] | None] = lambda: None
        self.samples: dict[int, dict[str, Any]] = {}  # of the other workers, likewise
        self.away: set[int] = set()  # workers that did not answer the last time
        self._heard: dict[int, Heard] = {}
        self._changes: list[Change] = []  # that the first worker does not have yet
        self._told = 0  # of these, before the first one
        self._events: list[Relayed] = []
        self._part = 0
        self._experiment = b""  # its record, as it was taken up last
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
        while first is not None:
            try:
                await self._tell(first, self._news(), START_SECONDS)
                break
            except Away:
                if loop.time() > until:
                    log.warning("worker %d does not answer: what operators have set meanwhile comes later", FIRST)
                    break
                await asyncio.sleep(AWAY_SECONDS)
        self._task = asyncio.get_running_loop().create_task(self._run(), name="swerve-exchange")

    def stop(self) -> None:
        """End it."""
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
        """Return what all other workers are told."""
        exchange = self.service.ranker.exchange
        learning, sessions = (exchange.learning(), exchange.sessions()) if self.service.committer.begun else (b"", b"")
        return Message(
            self.crew.index, self.boot, self.known, spent_of(self.service.throttle.buckets),
            spent_of(self.service.namespaces.buckets), [], self._told, [], 0, learning, sessions, self.sample(),
        )  # fmt: skip

    async def _tell(self, sibling: Sibling, news: Message, within: float) -> None:
        """Tell a sibling what is new. Raises `Away`."""
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
        """Take up what another worker tells, and return the answer."""
        message, service = _unpack(body, type=Message), self.service
        heard = self._heard.get(message.worker)
        if heard is None or heard.boot != message.boot:
            heard = self._heard[message.worker] = Heard(message)  # what it has taken before is not known here, and over
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
        """Give all workers the present state; return when those that are there have it. Of the first worker."""
        self.number += 1
        body = _pack(self._state())

        async def one(sibling: Sibling) -> None:
            try:
                await sibling.ask(b"POST", STATE, (), body, STATE_SECONDS)
            except Away:
                log.info("worker %d does not answer: it gets what operators have set when it does", sibling.index)

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
                    log.warning("what operators have set is in force, and could not be written: the next start asks for it")
            service.control.load(state.records)
            if state.records[EXPERIMENT] != self._experiment:
                self._experiment = state.records[EXPERIMENT]
                service.experiments.load(state.records)
            self.known = state.boot, state.number

    async def take_body(self, body: bytes) -> None:
        """Take up the state in a body."""
        await self.take(_unpack(body, type=State))

    # ------------------------------------------------------------------ deletions
    async def delete_elsewhere(self, request: DeleteRequest, by: str | None, within: Within) -> list[DeleteResponse]:
        """Delete on all other workers. Raises `Refused`, or `Unavailable` if one of them is away or could not."""
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
        """Return the decisions of those of these query ids that are known here."""
        return _pack(self.service.ubi.decisions(_unpack(body, type=list[str])))


def spent_of(buckets: dict[str, Bucket]) -> dict[str, int]:
    """Return the requests that were taken so far."""
    return {name: bucket.taken for name, bucket in buckets.items()}


def share(buckets: dict[str, Bucket], before: dict[str, int], spent: dict[str, int], now: float) -> None:
    """Take what another worker has taken since it told last: so the average of all workers holds."""
    for name, taken in spent.items():
        bucket = buckets.get(name)
        if bucket is not None and (new := taken - before.get(name, 0)):
            bucket.share(new, now)
            before[name] = taken
