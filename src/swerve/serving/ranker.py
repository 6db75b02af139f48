"""Decisions for queries: what the service does between a request and its answer, without a network, a thread or a clock.

The same object serves live, replays a recording (`swerve replay`) and runs in tests: time is an argument, randomness is state, and
a sequence of calls gives the same rankings and the same record bytes every time.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec
import numpy as np

from swerve.core import engine, rng
from swerve.core.spec import pack
from swerve.core.tables import nested, pool_dtype
from swerve.serving import kernels
from swerve.serving.evidence import Evidence
from swerve.serving.messages import Candidates, RankRequest, ids_of, newest_of, normalise, read_candidates
from swerve.serving.rows import Place, Rows, Shelf, owner_of
from swerve.serving.sessions import Sessions, name_of
from swerve.serving.settings import Settings, shared_name
from swerve.serving.tokens import NUMBER_BITS, Signed, Ticket
from swerve.signals import begin_season, season_layout
from swerve.store.protocol import Life

HEX = set("0123456789abcdef")
ASK = struct.Struct(f"={kernels.ASKED}q")
ANSWER = struct.Struct(f"={kernels.ASKS - kernels.ASKED}q")
#: The life of a ranker without a store.
NO_STORE = Life(store=0, mark=0, id=1)


class Misplaced(RuntimeError):  # noqa: N818 - it names what was found
    """A record belongs to another query than the one it was used for: nothing was written, and there is a defect to be found."""

    def __init__(self, place: Place) -> None:
        super().__init__(f"the row of query {place.key.hex()} is not where it should be")


class Prepared(NamedTuple):
    """A request that was read and checked, ready to be decided.

    `candidates` is None where `raw` is what the row remembers of the request before: then nothing has to be read.
    """

    key: bytes
    query: str
    candidates: Candidates | None
    raw: msgspec.Raw | None = None
    signals: dict[str, float] | None = None
    session: str | None = None

    def read(self) -> Candidates:
        """The candidates; a row that was let go since no longer remembers them."""
        if self.candidates is not None:
            return self.candidates
        assert self.raw is not None, "a request has its candidates read, or as they were sent"
        return read_candidates(self.raw)

    def ids(self) -> list[str]:
        """The candidates' ids, in the given order."""
        return ids_of(self.read())

    def request(self) -> RankRequest:
        """The request itself."""
        return RankRequest(self.query, self.read(), self.signals, self.session)


class Decided(msgspec.Struct, gc=False):
    """A ranking: the order to show, and all that its feedback needs."""

    ranking: list[str]
    signed: Signed
    chance: float
    explored: bool
    phase: int
    report: int  # what happened to the policy, see `swerve.core.contract`
    signal: int  # that raised an alarm


#: A request on its way: row, candidates, arms, mask, session (0 for none), the newest candidate's date, the caller's numbers,
#: the row that the session came from (when it lies in the same table; negative for none), whose that is and the time, and the arms
#: that the session was heard on, in which phase.
Asking = tuple[Place, list[str], list[int], int, int, float, Sequence[float], int, int, float, int, int]


def picker(names: tuple[str, ...]) -> Callable[[dict[str, float]], Any]:
    """A function that takes the values of these names out of a table; faster than asking for each."""
    if len(names) > 1:
        return itemgetter(*names)
    return lambda given: [given[name] for name in names]


class Ranker:
    """The queries in memory, and what can be done with them."""

    def __init__(self, settings: Settings, query_key: bytes, life: Life = NO_STORE) -> None:
        self.settings = settings
        self.query_key = query_key
        self._keyed = hashlib.blake2b(key=query_key, digest_size=16)
        self.life = life
        self.issued = 0
        self.features = len(settings.plan)
        self.names = settings.numbers
        self.rows = Rows(
            settings.policy, settings.senses, settings.arms, self.features, len(settings.numbers), settings.budget, query_key
        )
        self.forget_sessions()
        self.params, self.senses = pack(settings.policy), pack(settings.senses)
        self.pools = np.zeros(2, pool_dtype(settings.policy, self.features))
        engine.begin_pools.plain(self.params, self.pools, self.features)
        self.seasons = np.zeros(1, nested(season_layout()))
        begin_season(self.senses[0], self.seasons[0], 0.0)
        self.unwritten: deque[tuple[float, Place]] = deque()  # rows that changed, and since when
        self.shared_name = shared_name(settings, self.pools.dtype)
        self.evicted = 0  # candidates that gave their place to another
        self.learnt = False  # whether what all queries share has changed since it was last written
        share = round(1000 * settings.anonymous_share) if settings.per_session else -1
        self.fixed = {shelf.arms: kernels.fixed_of(shelf.dtype, settings.plan, share) for shelf in self.rows.shelves}
        self.work = np.zeros(64 + self.features)
        self._fact = struct.Struct(f"={kernels.FACTS + len(settings.numbers)}d")
        self._pick = picker(settings.numbers)
        self._none = [math.nan] * len(settings.numbers)
        self.one, self.many = self._arrays(1), self._arrays(128)

    def compile(self, shelf: Shelf) -> None:
        """Compile (or load) everything for one capacity, by one request to a row that nobody sees."""
        ids = [str(arm) for arm in range(2)]
        place = Place(b"")
        shelf.take(place)
        self._begin_at(place, 1, 0.0)
        before = self.pools.copy(), self.seasons.copy(), self.issued
        self.rank([(place, Prepared(b"", "", list(ids)))], 0.0)
        shelf.calls.credit(self.params, self.senses, shelf.table, place.index, place.owner, 0, 0, 0, 0, 0, 0, 1, 0.0, 0.0)
        shelf.calls.left(self.senses, shelf.table, place.index, place.owner, 0.0, 0.0)
        shelf.calls.shift(self.params, shelf.table, place.index, place.owner, 0.0)
        shelf.calls.vacate(self.params, shelf.table, place.index, place.owner, 0)
        self.pools[:], self.seasons[:], self.issued = before
        self.unwritten.clear()
        self.learnt = False
        self.rows.extras -= place.extra
        shelf.give(place)

    # ------------------------------------------------------------------ what all queries share
    def shared(self, now: float) -> dict[str, bytes]:
        """What the queries have learnt together, and the time, as records for the store."""
        return {self.shared_name: self.pools[:1].tobytes(), "season": self.seasons.tobytes(), "clock": struct.pack("<d", now)}

    def share(self, records: Mapping[str, bytes]) -> None:
        """Take up what an earlier start had learnt."""
        for name, table in ((self.shared_name, self.pools[:1]), ("season", self.seasons)):
            if len(records.get(name, b"")) == table.nbytes:
                table[:] = np.frombuffer(records[name], table.dtype)

    def forget_sessions(self) -> None:
        """What is known of sessions begins anew, as at a start."""
        self.sessions, self.evidence = Sessions(self.settings.reformulation), Evidence(self.settings.per_session)

    # ------------------------------------------------------------------ queries
    def key_of(self, text: str) -> bytes:
        """The key that a normalised query is kept under."""
        state = self._keyed.copy()  # half the time of keying it anew
        state.update(text.encode())
        return state.digest()

    def key_from(self, text: str) -> bytes:
        """The key of a query that a person names: by its text or, with `key:` before it, by its key in hexadecimal."""
        if len(text) == 36 and text.startswith("key:") and set(text[4:]) <= HEX:
            return bytes.fromhex(text[4:])
        return self.key_of(normalise(text))

    def word_of(self, text: str | None, key: bytes) -> int:
        """The random stream of a query. Without a seed it comes from the keyed hash: the record tells nothing about the text."""
        seed = self.settings.seed
        if seed is None or text is None:
            secret = hashlib.blake2b(key, key=self.query_key, digest_size=8, person=b"swerve stream")
            return int.from_bytes(secret.digest(), "little")
        return rng.split(seed, "policy", text)

    def fresh(self, key: bytes, text: str | None, arms: int, now: float) -> Place | None:
        """A query that nobody has asked before; None when there is no room."""
        place = self.rows.add(key, arms)
        if place is not None:
            self._begin_at(place, self.word_of(text, key), now)
            if self.settings.keep_text:
                place.query = text
        return place

    def blank(self, shelf: Shelf, key: bytes) -> bytes:
        """The record of a fresh query, as bytes."""
        shelf.words[shelf.spare] = 0
        word = np.uint64(self.word_of(None, key))
        shelf.calls.begin(self.params, self.senses, shelf.table, shelf.spare, owner_of(key), word, 0.0)
        fresh: bytes = shelf.words[shelf.spare].tobytes()
        return fresh

    def restore(self, key: bytes, record: bytes, names: bytes, version: int, arms: int) -> Place | None:
        """A query from the store, its record in the current layout of this capacity; None when there is no room."""
        place = self.rows.add(key, arms)
        if place is not None:
            place.shelf.words[place.index] = np.frombuffer(record, np.uint64)
            place.shelf.numbers[place.index, place.shelf.at["owner"]] = place.owner  # older records have none
            place.rename(names, self.rows.short)
            if not self.settings.keep_text:
                place.query = None
            self.rows.recount(place)
            place.version = version
        return place

    def mark(self, place: Place, now: float) -> None:
        """The row has changed: it is to be written."""
        if not place.dirty:
            place.dirty = True
            self.unwritten.append((now, place))

    @property
    def pressed(self) -> bool:
        """Whether memory is full of rows that are not written: only those that are can make room."""
        return 2 * len(self.unwritten) > len(self.rows) and self.rows.used > 0.9 * self.rows.budget

    # ------------------------------------------------------------------ rank
    def rank(self, requests: Sequence[tuple[Place, Prepared]], now: float) -> list[Decided | None]:
        """Decide for each request, in order. None: the request cannot be decided (more new candidates than there is room for).

        Requests whose rows lie in one table are decided by one compiled call, as long as nothing has to happen in between.
        """
        if len(requests) == 1:
            return self._in_order(requests, now)
        for place, _ in requests:
            place.pinned += 1  # a row that grows must not push out one whose turn comes later
        try:
            return self._in_order(requests, now)
        finally:
            for place, _ in requests:
                place.pinned -= 1

    def _in_order(self, requests: Sequence[tuple[Place, Prepared]], now: float) -> list[Decided | None]:
        out: list[Decided | None] = []
        run: list[Asking] = []
        shelf: Shelf | None = None
        heard: set[tuple[str, bytes]] = set()  # sessions and queries of the run
        for place, request in requests:
            if self.settings.keep_text and place.query is None:
                place.query = normalise(request.query)
                self.rows.recount(place)
            ids: list[str]
            if request.raw is not None and place.raw == request.raw:  # most requests repeat the candidates of the one before
                ids, published = place.last, place.published
            else:
                candidates = request.read()
                ids, published = ids_of(candidates), newest_of(candidates)
                if run and any(candidate not in place.arms for candidate in ids):
                    out += self._decide(run, now)  # a place may change hands: what came before must be decided before
                    run = []
                if not self._admit(place, ids, now):
                    out += [*self._decide(run, now), None] if run else [None]
                    run = []
                    continue
                if request.raw is not None:
                    self.rows.remember(place, request.raw, published)
            again = request.session is not None and (request.session, place.key) in heard
            if run and (place.shelf is not shelf or again):  # what was heard of the session before must be known
                out += self._decide(run, now)
                run = []
                heard.clear()
            shelf = place.shelf
            if request.session is not None:
                heard.add((request.session, place.key))
            run.append(self.asking(place, ids, published, request.signals, request.session, now))
        return out + self._decide(run, now) if run else out

    def asking(
        self, place: Place, ids: list[str], published: float, signals: dict[str, float] | None, session: str | None, now: float
    ) -> Asking:
        """A request whose candidates have their arms, on its way."""
        left, owner, when, heard, phase = -1, 0, 0.0, 0, 0
        name = name_of(session)
        if name:
            before = self.sessions.moved(name, place.key, now)
            if before is not None and (row := self.rows.get(before[0])) is not None:
                if row.shelf is place.shelf:
                    left, owner, when = row.index, row.owner, before[1]
                else:
                    self._written(row, row.shelf.calls.left(self.senses, row.shelf.table, row.index, row.owner, before[1], now))
                self.mark(row, now)
            phase, results = self.evidence.heard_on(name, place.key, place.shorts)
            for result in results:
                heard |= 1 << place.shorts.index(result)
            heard = heard - (1 << 64) if heard >= 1 << 63 else heard
        return place, ids, place.offer, place.mask, name, published, self._given(signals), left, owner, when, heard, phase

    def answers(self, run: list[Asking], now: float) -> tuple[list[Sequence[int]], list[float], int]:
        """Decide for requests whose rows lie in the same table: the compiled call's words, chances, and the first decision's id."""
        shelf = run[0][0].shelf
        if len(run) == 1:  # packed by hand: half the time of assigning to arrays
            ((place, _, _, mask, session, newest, given, left, owner, when, heard, phase),) = run
            asks, facts = self.one
            ASK.pack_into(asks, 0, place.index, place.owner, mask, session != 0, left, owner, heard, phase)
            self._fact.pack_into(facts, 0, newest, 0.0, when, *given)
        else:
            places, _, _, masks, sessions, newests, givens, lefts, owners, whens, heards, phases = zip(*run, strict=True)
            asks, facts = self._room_for(len(run))
            asks[:, kernels.ROW] = [place.index for place in places]
            asks[:, kernels.OWNER] = [place.owner for place in places]
            asks[:, kernels.OFFER], asks[:, kernels.SESSION] = masks, [session != 0 for session in sessions]
            asks[:, kernels.LEFT], asks[:, kernels.LEFT_OWNER] = lefts, owners
            asks[:, kernels.HEARD], asks[:, kernels.HEARD_PHASE] = heards, phases
            facts[:, 0], facts[:, 2] = newests, whens
            if self.names:
                facts[:, kernels.FACTS :] = givens
        shelf.calls.rank(
            self.params, self.senses, shelf.table, shelf.words, self.fixed[shelf.arms], self.pools, self.seasons, self.work, asks,
            facts, now, self.settings.draws,
        )  # fmt: skip
        self.learnt = True
        first = (self.life.id << NUMBER_BITS | self.issued) + 1
        self.issued += len(run)
        answers = [ANSWER.unpack_from(asks, ASK.size)] if len(run) == 1 else asks[:, kernels.ASKED :].tolist()
        for asking, answer in zip(run, answers, strict=True):
            if answer[0] == kernels.MISPLACED:
                raise Misplaced(asking[0])
        return answers, facts[:, 1].tolist(), first

    def _written(self, place: Place, outcome: int) -> int:
        """What a compiled call said; raises when it refused to write into another query's record."""
        if outcome == kernels.MISPLACED:
            raise Misplaced(place)
        return int(outcome)

    def signed(self, asking: Asking, answer: Sequence[int], number: int) -> Signed:
        """What the token of a decision is made of; the session is heard."""
        place, session = asking[0], asking[4]
        arm, code, phase, *_, evidence = answer
        short = place.shorts[arm]
        if session and evidence and self.evidence.limit:
            self.evidence.shown(session, place.key, phase, short)
        return Signed(place.key, code, phase, number, short, session, evidence != 0)

    def _decide(self, run: list[Asking], now: float) -> list[Decided | None]:
        """Decide for requests whose rows lie in the same table."""
        answers, chances, first = self.answers(run, now)
        out: list[Decided | None] = []
        for number, (asking, answer, chance) in enumerate(zip(run, answers, chances, strict=True), first):
            place, ids, offer, *_ = asking
            arm, _, phase, explored, report, signal, _ = answer
            if arm < 0:
                out.append(None)
                continue
            at = offer.index(arm)
            self.mark(place, now)
            order = ids if at == 0 else [ids[at], *ids[:at], *ids[at + 1 :]]
            out.append(Decided(order, self.signed(asking, answer, number), chance, explored != 0, phase, report, signal))
        return out

    def _given(self, given: dict[str, float] | None) -> Sequence[float]:
        """The numbers that the caller sent, in the order of the configuration."""
        if not given:
            return self._none
        try:
            picked: Sequence[float] = self._pick(given)
            return picked
        except KeyError:
            return [given.get(name, math.nan) for name in self.names]

    def _room_for(self, count: int) -> Any:
        """Arrays for so many requests."""
        if len(self.many[0]) < count:
            self.many = self._arrays(max(count, 128))
        asks, facts = self.many
        return asks[:count], facts[:count]

    def _arrays(self, count: int) -> Any:
        return np.zeros((count, kernels.ASKS), np.int64), np.zeros((count, kernels.FACTS + len(self.settings.numbers)))

    # ------------------------------------------------------------------ candidates
    def _admit(self, place: Place, ids: list[str], now: float) -> bool:
        """Give every candidate an arm and note what is on offer; False when there are too many."""
        arms = place.arms
        missing = [candidate for candidate in ids if candidate not in arms]
        if missing:
            if len(ids) > self.settings.arms:
                return False
            present = {arms[candidate] for candidate in ids if candidate in arms}
            young = not arms  # the query's first candidates are not news
            for candidate in missing:
                arm = self._free_arm(place, present, now)
                if arm is None:
                    return False
                self.rows.name(place, arm, candidate)
                present.add(arm)
                if not young:
                    place.shelf.of("first", place.index)[arm] = int(now)
            self.rows.recount(place)
        place.raw, place.offer = None, [place.arms[candidate] for candidate in ids]
        place.last = [place.ids[arm] for arm in place.offer]  # the texts that are kept already, not those of this request
        mask = 0
        for arm in place.offer:
            mask |= 1 << arm
        place.mask = mask - (1 << 64) if mask >= 1 << 63 else mask
        return True

    def _free_arm(self, place: Place, present: set[int], now: float) -> int | None:
        """A place for a new candidate: a free one; else that of a candidate not offered for long; else a larger record; else that
        of the one offered longest ago, but never one of `present`."""
        room = min(place.shelf.arms, self.settings.arms)
        for arm in range(len(place.ids)):
            if place.ids[arm] is None:
                return arm
        if len(place.ids) < room:
            return len(place.ids)
        offered = place.shelf.of("offered", place.index)
        others = [arm for arm in range(room) if arm not in present]
        stalest = min(others, key=lambda arm: float(offered[arm]), default=None)
        if stalest is not None and now - float(offered[stalest]) > self.settings.forget:
            return self._vacated(place, stalest)
        if place.shelf.arms < self.settings.arms:
            if not self.rows.shelf_for(place.shelf.arms + 1).ready:
                return None  # nobody has to go because the larger capacity is not compiled yet
            if self.rows.grow(place, lambda row: self._begin_at(row, 0, now)):
                return len(place.ids)
        return None if stalest is None else self._vacated(place, stalest)

    def _begin_at(self, place: Place, word: int, now: float) -> None:
        shelf = place.shelf
        shelf.calls.begin(self.params, self.senses, shelf.table, place.index, place.owner, np.uint64(word), now)

    def _vacated(self, place: Place, arm: int) -> int:
        self.evicted += 1
        self._written(place, place.shelf.calls.vacate(self.params, place.shelf.table, place.index, place.owner, arm))
        return arm

    # ------------------------------------------------------------------ feedback, shifts
    def feedback(self, place: Place, ticket: Ticket, clicked: str | None, now: float) -> int:
        """Feedback for a decision of this query, which was not used before; what became of it: `kernels.LEARNED`, `LATE`,
        `IGNORED`."""
        arm = ticket.arm if ticket.arm < len(place.ids) else -1
        if arm >= 0 and (place.ids[arm] is None or place.shorts[arm] != ticket.top):
            arm = -1
        top = clicked is not None and self.rows.short(clicked) == ticket.top
        evidence = ticket.evidence
        if top and ticket.session and self.evidence.limit and ticket.life == self.life.mark:
            evidence = self.evidence.clicked(ticket.session, place.key, ticket.phase, ticket.top, shown=evidence)
        generation = ticket.generation
        if clicked is not None and top and arm < 0:
            # the place is another's by now, or a crash has undone what gave it: the click still counts for the candidate
            arm, generation = place.arms.get(clicked, -1), -1
            if arm < 0:
                spare = self._free_arm(place, set(place.arms.values()), now)  # nobody has to go for it
                if spare is not None:
                    self.rows.name(place, spare, clicked)
                    self.rows.recount(place)
                    arm = spare
        self.mark(place, now)
        outcome = place.shelf.calls.credit(
            self.params, self.senses, place.shelf.table, place.index, place.owner, arm, generation, ticket.start, ticket.phase,
            1 if top else 0, 0 if clicked is None else 1, 1 if evidence else 0, ticket.at, now,
        )  # fmt: skip
        return self._written(place, outcome)

    def shift(self, place: Place, now: float) -> int:
        """Somebody who knows says that this query has shifted: it starts over. The new phase."""
        phase = self._written(place, place.shelf.calls.shift(self.params, place.shelf.table, place.index, place.owner, now))
        self.mark(place, now)
        return phase
