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
from typing import Any

import numpy as np

from swerve.core import engine, rng
from swerve.core.spec import pack
from swerve.core.tables import nested, pool_dtype
from swerve.serving import kernels
from swerve.serving.arms import Arms, signed, written
from swerve.serving.evidence import Evidence
from swerve.serving.messages import ids_of, newest_of, normalise
from swerve.serving.requests import Asking, Decided, Misplaced, Prepared
from swerve.serving.rows import Place, Rows, Shelf, owner_of
from swerve.serving.sessions import Sessions, name_of
from swerve.serving.settings import Settings, shared_name
from swerve.serving.tokens import NUMBER_BITS, Signed, Ticket
from swerve.signals import begin_season, season_layout
from swerve.store.protocol import Life

HEX = set("0123456789abcdef")
ASK = struct.Struct(f"={kernels.ASKED}q")
FLOAT = struct.Struct("=d")
ANSWER = struct.Struct(f"={kernels.ASKS - kernels.ASKED}q")
#: The life of a ranker without a store.
NO_STORE = Life(store=0, mark=0, id=1)


def picker(names: tuple[str, ...]) -> Callable[[dict[str, float | None]], Any]:
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
        self.arms = Arms(self.rows, settings, self.params, self.senses)
        self.pools = np.zeros(2, pool_dtype(settings.policy, self.features))
        engine.begin_pools.plain(self.params, self.pools, self.features)
        self.seasons = np.zeros(1, nested(season_layout()))
        begin_season(self.senses[0], self.seasons[0], 0.0)
        self.unwritten: deque[tuple[float, Place]] = deque()  # rows that changed, and since when
        self.shared_name = shared_name(settings, self.pools.dtype)
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
        self.arms.begin(place, 1, 0.0)
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
            self.arms.begin(place, self.word_of(text, key), now)
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
        """Decide for each request, in order. None: the request has more new candidates than there is room for.

        One compiled call decides consecutive requests whose rows lie in the same table, as long as no new candidate and no second
        request of a session for the same query comes in between.
        """
        if len(requests) == 1:
            ((place, request),) = requests
            asking = self._asking(place, request, now)
            return [None] if asking is None else self._decide([asking], now)
        held: list[Place] = []
        try:
            return self._in_order(requests, now, held)
        finally:
            for place in held:
                place.pinned -= 1

    def _in_order(self, requests: Sequence[tuple[Place, Prepared]], now: float, held: list[Place]) -> list[Decided | None]:
        out: list[Decided | None] = []
        run: list[Asking] = []
        shelf: Shelf | None = None
        heard: set[tuple[str, Place]] = set()  # sessions and queries of the run
        for place, request in requests:
            if place.raw is None or place.raw != request.raw:
                if not held:  # a row that grows must not push out the row of a later request
                    held += [each for each, _ in requests]
                    for each in held:
                        each.pinned += 1
                if run and any(candidate not in place.arms for candidate in request.ids()):
                    out += self._decide(run, now)  # an arm may change hands: decide first what came before
                    run = []
            session = request.session
            if run and (place.shelf is not shelf or (session is not None and (session, place) in heard)):
                out += self._decide(run, now)  # the session's earlier evidence must be counted first
                run = []
                heard.clear()
            asking = self._asking(place, request, now)
            if asking is None:
                out += [*self._decide(run, now), None] if run else [None]
                run = []
                continue
            shelf = place.shelf
            if session is not None:
                heard.add((session, place))
            run.append(asking)
        return out + self._decide(run, now) if run else out

    def _asking(self, place: Place, request: Prepared, now: float) -> Asking | None:
        """Give the candidates their arms and collect what the compiled call needs; None when there are too many candidates."""
        if place.query is None and self.settings.keep_text:
            place.query = normalise(request.query)
            self.rows.recount(place)
        raw = request.raw
        if raw is None or place.raw != raw:  # most requests repeat the candidates of the one before
            candidates = request.read()
            published = newest_of(candidates)
            if not self.arms.admit(place, ids_of(candidates), now):
                return None
            if raw is not None:
                self.rows.remember(place, raw, published)
        else:
            published = place.published
        signals = request.signals
        given = self._given(signals) if signals else self._none
        session = request.session
        if session is None:
            return place, place.last, place.offer, place.mask, 0, published, given, -1, 0, 0.0, 0, 0
        left, owner, when, heard, phase = -1, 0, 0.0, 0, 0
        name = name_of(session)
        before = self.sessions.moved(name, place.key, now)
        if before is not None and (row := self.rows.get(before[0])) is not None:
            if row.shelf is place.shelf:
                left, owner, when = row.index, row.owner, before[1]
            else:
                written(row, row.shelf.calls.left(self.senses, row.shelf.table, row.index, row.owner, before[1], now))
            self.mark(row, now)
        spent = self.evidence.spent_by(name, place.key)
        if spent is not None:
            shorts, phase = place.shorts, spent.phase
            for result in spent.results:
                if result in shorts:
                    heard |= 1 << shorts.index(result)
            heard = signed(heard)
        return place, place.last, place.offer, place.mask, name, published, given, left, owner, when, heard, phase

    def _answers(self, run: list[Asking], now: float) -> tuple[list[Sequence[int]], list[float], int]:
        """Decide requests whose rows lie in one table; return the call's answers, chances, and the first decision's number."""
        shelf = run[0][0].shelf
        single = len(run) == 1
        if single:  # packing by hand takes half the time of assigning to arrays
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
        if single:
            return [ANSWER.unpack_from(asks, ASK.size)], [FLOAT.unpack_from(facts, FLOAT.size)[0]], first
        return asks[:, kernels.ASKED :].tolist(), facts[:, 1].tolist(), first

    def _decide(self, run: list[Asking], now: float) -> list[Decided | None]:
        """Decide requests whose rows lie in the same table."""
        answers, chances, number = self._answers(run, now)
        out: list[Decided | None] = []
        limited = self.evidence.limit > 0
        for asking, answer, chance in zip(run, answers, chances, strict=True):
            place, ids, offer, session = asking[0], asking[1], asking[2], asking[4]
            arm, code, phase, explored, report, signal, evidence = answer
            if arm < 0:
                if arm == kernels.MISPLACED:
                    raise Misplaced(place)
                out.append(None)
                number += 1
                continue
            at = offer.index(arm)
            if not place.dirty:
                self.mark(place, now)
            short = place.shorts[arm]
            if evidence and session and limited:
                self.evidence.shown(session, place.key, phase, short)
            order = ids if at == 0 else [ids[at], *ids[:at], *ids[at + 1 :]]
            token = Signed(place.key, code, phase, number, short, session, evidence != 0)
            out.append(Decided(order, token, chance, explored != 0, phase, report, signal))
            number += 1
        return out

    def _given(self, given: dict[str, float | None]) -> Sequence[float]:
        """Return the numbers that the caller sent, in the order of the configuration; NaN for null and for those left out."""
        try:
            picked: Sequence[float] = self._pick(given)
            if None not in picked:
                return picked
        except KeyError:
            pass
        return [math.nan if (number := given.get(name)) is None else number for name in self.names]

    def _room_for(self, count: int) -> Any:
        """Arrays for so many requests."""
        if len(self.many[0]) < count:
            self.many = self._arrays(max(count, 128))
        asks, facts = self.many
        return asks[:count], facts[:count]

    def _arrays(self, count: int) -> Any:
        return np.zeros((count, kernels.ASKS), np.int64), np.zeros((count, kernels.FACTS + len(self.settings.numbers)))

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
                spare = self.arms.free(place, set(place.arms.values()), now)  # nobody has to go for it
                if spare is not None:
                    self.rows.name(place, spare, clicked)
                    self.rows.recount(place)
                    arm = spare
        self.mark(place, now)
        outcome = place.shelf.calls.credit(
            self.params, self.senses, place.shelf.table, place.index, place.owner, arm, generation, ticket.start, ticket.phase,
            1 if top else 0, 0 if clicked is None else 1, 1 if evidence else 0, ticket.at, now,
        )  # fmt: skip
        return written(place, outcome)

    def shift(self, place: Place, now: float) -> int:
        """Somebody who knows says that this query has shifted: it starts over. The new phase."""
        phase = written(place, place.shelf.calls.shift(self.params, place.shelf.table, place.index, place.owner, now))
        self.mark(place, now)
        return phase
