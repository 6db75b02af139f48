"""Decisions for queries: what the service does between a request and its answer, without a network, a thread or a clock.

The same object serves live, replays a recording (`swerve replay`) and runs in tests: time is an argument, randomness is state, and
a sequence of calls gives the same rankings and the same record bytes every time.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from swerve.core.spec import pack
from swerve.serving import kernels
from swerve.serving.arms import Arms, written
from swerve.serving.common import Commons
from swerve.serving.exchange import Exchange
from swerve.serving.keys import KEY as KEY, Keys, owner_of, signed
from swerve.serving.ledger import MISPLACED, NOBODY
from swerve.serving.messages import ids_of, newest_of
from swerve.serving.notes import Notes
from swerve.serving.packing import WORDS, Packing
from swerve.serving.people import People, person_of
from swerve.serving.place import Place
from swerve.serving.requests import Asking, Decided, Misplaced, Prepared, grades_in
from swerve.serving.responses import Responses
from swerve.serving.rows import Rows, Shelf
from swerve.serving.ruled import ruled
from swerve.serving.settings import Settings
from swerve.serving.tokens import NAMES, NUMBER_BITS, Signed, page_of
from swerve.store.protocol import Life
from swerve_client.naming import CONTROL, namespace_in

#: Groups of the code for one capacity, which two processes can compile at the same time: `rank` alone takes three quarters.
GROUPS = ("rank", "feedback")
#: The column of a swap in an answer, see `swerve.serving.kernels`.
SWAPPED = kernels.SWAPPED - kernels.ASKED
#: Begins the names of the shared records of the control arm's policy.
RIVAL = "control "
#: The life of a ranker without a store.
NO_STORE = Life(store=0, mark=0, id=1)


class Ranker:
    """Holds the queries in memory: ranks their candidates, learns from feedback, and gives records to the store."""

    def __init__(self, settings: Settings, query_key: bytes, life: Life = NO_STORE) -> None:
        self.settings = settings
        self.query_key = query_key
        self.keys = Keys(query_key, settings.seed)
        self.key_of, self.key_from, self.word_of = self.keys.of, self.keys.named, self.keys.word
        self.life = life
        self.issued = 0
        self.features = len(settings.plan)
        self.rows = Rows(
            settings.policy, settings.senses, settings.arms, self.features, len(settings.numbers), settings.budget, query_key,
            settings.rival,
        )  # fmt: skip
        self.forget_sessions()
        self.senses = pack(settings.senses)
        self.arms = Arms(self.rows, settings, self.senses)
        self.commons = Commons(settings, settings.policy, self.senses)
        #: What the queries share for the policy of the control arm, where that has one of its own.
        self.rivals = None if settings.rival is None else Commons(settings, settings.rival, self.senses, RIVAL)
        self.pools = self.commons.of(None).pools  # of queries without a namespace
        self.unwritten: deque[tuple[float, Place]] = deque()  # rows that changed, and since when
        self.learnt = False  # whether what all queries share has changed since it was last written
        self.notes: Notes | None = None  # writes down everything that changes, see `swerve.serving.notes`
        share = round(1000 * settings.anonymous_share) if settings.per_session else -1
        self.fixed = {shelf: kernels.fixed_of(shelf.dtype, settings.plan, share, settings.swaps) for shelf in self.rows.tables}
        self.packing = Packing(self)
        self.responses = Responses(self)
        self.exchange = Exchange(self)  # with other workers
        self.feedback = self.responses.apply
        self._way = kernels.GIVEN if settings.shadow else 0

    def compile(self, shelf: Shelf, groups: Collection[str] = GROUPS) -> None:
        """Compile (or load) groups of the code for one capacity, by calls for a row that nobody sees."""
        place = Place(b"")
        shelf.take(place)
        self.join(place, None)
        common = place.common
        before = common.pools.copy(), common.owns.copy(), common.seasons.copy(), self.issued
        notes, self.notes, self.arms.notes = self.notes, None, None
        if "feedback" in groups:  # the row has no owner yet: these calls return at once
            self.responses.compile(place)
            self.people.compile()
            shelf.calls.left(self.senses, shelf.table, place.index, NOBODY, 0.0, 0.0)
            shelf.calls.shift(shelf.params, shelf.table, place.index, NOBODY, 0.0)
            shelf.calls.vacate(shelf.params, shelf.table, place.index, NOBODY, 0)
        if "rank" in groups:
            self.arms.begin(place, 1, 0.0)
            self.notes = Notes(len(self.settings.numbers))  # nobody reads them: what writes requests down is compiled too
            self.rank([(place, Prepared(b"", "", ["0", "1"]))], 0.0)
            if self.exchange.on:
                self.exchange.compile()
        common.pools[:], common.owns[:], common.seasons[:], self.issued = before
        self.notes = self.arms.notes = notes
        self.unwritten.clear()
        self.learnt = False
        self.rows.extras -= place.extra
        shelf.give(place)

    # ------------------------------------------------------------------ what all queries share
    def shared(self, now: float) -> dict[str, bytes]:
        """Return what queries share, and the time, as records for the store."""
        rivals = {} if self.rivals is None else self.rivals.records()
        return {**self.commons.records(), **rivals, "clock": struct.pack("<d", now)}

    def share(self, records: Mapping[str, bytes]) -> None:
        """Set what queries share from the records of an earlier start."""
        for commons in (self.commons, self.rivals):
            if commons is not None:
                commons.take(records)

    def forget_sessions(self) -> None:
        """Forget all sessions, as a start does."""
        self.people = People(self.settings)

    # ------------------------------------------------------------------ queries
    def text_of(self, key: bytes) -> str | None:
        """Return the text of a query in memory, if texts are kept."""
        place = self.rows.get(key)
        return None if place is None else place.query

    def fresh(self, key: bytes, text: str | None, arms: int, now: float, rival: bool = False) -> Place | None:
        """Add a query that nobody has asked before and return its place; None when there is no room. `rival` says whether it is for
        the policy of the control arm, where the text does not."""
        place = self.rows.add(key, arms, rival or (text is not None and CONTROL in text))
        if place is not None:
            self.join(place, namespace_in(text))
            word = self.word_of(text, key)
            self.arms.begin(place, word, now)
            if self.notes is not None:
                self.notes.begun(place, word, now)
            if self.settings.keep_text:
                place.query = text
        return place

    def blank(self, shelf: Shelf, key: bytes) -> bytes:
        """Return the record of a new query, as bytes."""
        shelf.words[shelf.spare] = 0
        word = np.uint64(self.word_of(None, key))
        shelf.calls.begin(shelf.params, self.senses, shelf.table, shelf.spare, owner_of(key), word, 0.0)
        fresh: bytes = shelf.words[shelf.spare].tobytes()
        return fresh

    def restore(self, key: bytes, record: bytes, names: bytes, version: int, shelf: Shelf) -> Place | None:
        """Add a query from the store, with its record in the layout of a shelf; return its place, None when there is no room."""
        place = self.rows.add(key, shelf.arms, shelf.rival)
        if place is not None:
            place.shelf.words[place.index] = np.frombuffer(record, np.uint64)
            place.shelf.numbers[place.index, place.shelf.at["owner"]] = place.owner  # older records have none
            place.rename(names, self.rows.short)
            self.join(place, place.namespace)
            if not self.settings.keep_text:
                place.query = None
            self.rows.recount(place)
            place.version = version
        return place

    def join(self, place: Place, namespace: str | None) -> None:
        """Set the namespace of a query."""
        commons = self.rivals if place.shelf.rival and self.rivals is not None else self.commons
        place.namespace, place.common = namespace, commons.of(namespace)

    def mark(self, place: Place, now: float) -> None:
        """Note that a row has changed and must be written."""
        if not place.dirty:
            place.dirty = True
            self.unwritten.append((now, place))

    @property
    def next_number(self) -> int:
        """The number of the next decision."""
        return (self.life.id << NUMBER_BITS | self.issued) + 1

    @property
    def pressed(self) -> bool:
        """Whether memory is nearly full of unwritten rows. Only written rows can be dropped to make room."""
        return 2 * len(self.unwritten) > len(self.rows) and self.rows.used > 0.9 * self.rows.budget

    # ------------------------------------------------------------------ rank
    def rank(self, requests: Sequence[tuple[Place, Prepared]], now: float) -> list[Decided | None]:
        """Decide for each request, in order. None: the request has more new candidates than there is room for.

        A session that repeats its request is shown the same ranking. Consecutive requests share a compiled call. Another call
        begins with a request whose row lies in another table or namespace, that brings a candidate that is new to its row, that has
        other candidates than an earlier request of the call for the same query, whose session has asked the same query in the
        call, or that follows a request which was not decided.
        """
        if len(requests) == 1:
            ((place, request),) = requests
            person = person_of(request)
            if person and (again := self._again(place, request, person, now)) is not None:
                return [again]
            asking = self._asking(place, request, person, now)
            return [None] if asking is None else self._decide([asking], requests, now)
        held: list[Place] = []
        try:
            return self._in_order(requests, now, held)
        finally:
            for place in held:
                place.pinned -= 1

    def _in_order(self, requests: Sequence[tuple[Place, Prepared]], now: float, held: list[Place]) -> list[Decided | None]:
        out: list[Decided | None] = []
        run: list[Asking] = []
        asked: list[tuple[Place, Prepared]] = []
        shelf: Shelf | None = None
        asked_by: set[tuple[int, Place]] = set()  # sessions and queries of the run
        rows: set[Place] = set()  # queries of the run

        def decide() -> None:
            if run:
                out.extend(self._decide(run, asked, now))
                run.clear()
                asked.clear()
                asked_by.clear()
                rows.clear()

        for pair in requests:
            place, request = pair
            if place.raw is None or place.raw != request.raw:
                if not held:  # a row that grows must not push out the row of a later request
                    held += [each for each, _ in requests]
                    for each in held:
                        each.pinned += 1
                # An arm may change hands, and a row has the candidates of one request: decide first what came before.
                if place in rows or (run and any(candidate not in place.arms for candidate in request.ids())):
                    decide()
            person = person_of(request)
            if run and (
                place.shelf is not shelf or place.common is not run[0][0].common or (person and (person, place) in asked_by)
            ):
                decide()  # the session's earlier evidence must be counted first
            if person and (again := self._again(place, request, person, now)) is not None:
                decide()
                out.append(again)
                continue
            asking = self._asking(place, request, person, now)
            if asking is None:
                decide()
                out.append(None)
                continue
            shelf = place.shelf
            if person:
                asked_by.add((person, place))
            rows.add(place)
            run.append(asking)
            asked.append(pair)
        decide()
        return out

    def _again(self, place: Place, request: Prepared, person: int, now: float) -> Decided | None:
        """Return the ranking that the session was shown a short time ago for the same candidates, or None."""
        where = self.people.at(signed(person), place.owner, place.second)
        if where is None or request.as_given or self.settings.steady <= 0.0:  # nearly always
            return None
        decided = self.people.decided(where, person, place, request, self.rows.short)
        ruling = request.ruling
        slots = request.slots if ruling is None else ruling.slots
        if decided is None or not 0.0 <= now - decided.at <= self.settings.steady or decided.ruling != ruling:
            return None
        if len(decided.chances) != min(slots, len(decided.ranking)):
            return None
        if decided.control != request.control or decided.signed.arm != request.arm:  # the experiment has gone on
            return None
        if decided.phase != place.shelf.numbers[place.index, place.shelf.at["phase"]]:
            return None
        return msgspec.structs.replace(decided, report=0, again=True)

    def _asking(self, place: Place, request: Prepared, person: int, now: float) -> Asking | None:
        """Give the candidates their arms and collect what the compiled call needs; None when there are too many candidates."""
        if place.query is None and self.settings.keep_text:
            place.query = request.text
            self.rows.recount(place)
        if place.namespace != request.namespace:  # feedback made the row, and knew its key alone
            self.join(place, request.namespace)
            place.told = 0  # so that it is written down with its namespace
        if self.notes is not None:
            self.notes.tell(place, request.text)
        raw = request.raw
        if raw is None or place.raw != raw:  # most requests repeat the candidates of the one before
            candidates = request.read()
            published = newest_of(candidates)
            if not self.arms.admit(place, ids_of(candidates), now):
                return None
            place.grades = grades_in(candidates)
            if raw is not None:
                self.rows.remember(place, raw, published)
        else:
            published = place.published
        given = self.packing.numbers_in(request.signals)
        way = self._way | request.as_given | request.control
        keep = 0 if request.as_given or self._way else kernels.KEEP_PAGE | request.arm * kernels.KEEP_ARM
        if request.control:
            keep |= kernels.KEEP_CONTROL
        if request.ruling is not None:
            way |= kernels.HELD | kernels.UNSWAPPED if place.shelf.held else kernels.UNSWAPPED
            keep = kernels.KEPT_APART
        return place, signed(person), published, given, request.slots, way, keep

    def left(self, shelf: Shelf | None, key: bytes, when: float, now: float) -> tuple[int, int]:
        """Note that a session went on, to a query on a shelf (None: of another worker), from a query that it asked at `when`;
        return the row of that one and its owner, for the compiled call, which notes it if the row is on the same shelf. The row is
        negative otherwise."""
        row = self.rows.get(key)
        if row is None:
            return -1, 0
        if not row.dirty:
            self.mark(row, now)
        if row.shelf is shelf:
            return row.index, row.owner
        if self.notes is not None:
            self.notes.know(row)
        written(row, row.shelf.calls.left(self.senses, row.shelf.table, row.index, row.owner, when, now))
        if self.notes is not None:
            self.notes.gone_on(row.key, when, now)
        return -1, 0

    def _decide(self, run: Sequence[Asking], requests: Sequence[tuple[Place, Prepared]], now: float) -> list[Decided | None]:
        """Decide requests whose rows lie in the same table."""
        answers, chances, orders, number = self.packing.decide(run, now)
        rival = run[0][0].shelf.rival
        out: list[Decided | None] = []
        aside = self._way != 0 and self.settings.steady > 0.0  # in shadow mode rankings are kept with the policy's choice
        for asking, (place, request), answer, chance, order in zip(run, requests, answers, chances, orders, strict=True):
            filled, start, phase, explored, report, signal, evidence, seen = answer[:8]
            if filled < 0:
                if filled == MISPLACED:
                    raise Misplaced(place)
                out.append(None)
                number += 1
                continue
            if not place.dirty:
                self.mark(place, now)
            ranking = place.last if order == place.order else [place.ids[arm] for arm in order]
            if request.ruling is not None:
                out.append(ruled(self, asking, request, ranking, answer, chance, number, now))
                number += 1
                continue
            session, shorts = asking[1] & WORDS, place.shorts
            page = page_of(answer[8 : 8 + filled], [shorts[arm] & NAMES for arm in order[:filled]])
            token = Signed(place.key, start, phase, number, session, evidence != 0, seen, place.mask, page, request.arm, rival)
            decided = Decided(ranking, token, chance, explored, phase, report, signal, now, control=request.control)
            if answer[SWAPPED]:
                decided.swapped = [answer[SWAPPED] & 15, answer[SWAPPED] >> 4]
            if aside and session and not request.as_given:
                self.people.keep(session, place.key, decided)
            out.append(decided)
            number += 1
        if self._way:
            self._note_choices(run, out)
        return out

    def _note_choices(self, run: Sequence[Asking], out: Sequence[Decided | None]) -> None:
        """Note what the policy would have shown, in shadow mode."""
        for asking, decided, arms in zip(run, out, self.packing.choices(len(run)), strict=True):
            if decided is None:
                continue
            place, ruling = asking[0], decided.ruling
            filled, count = min(asking[4], len(place.order)), len(decided.chances)
            choice: list[Any] = list(map(place.ids.__getitem__, arms[:filled]))
            if ruling is not None:
                rest: list[Any] = [name for name in map(place.ids.__getitem__, place.order) if name not in choice]
                choice = ruling.arrange([*choice, *rest])
            decided.choice = choice[:count]

    # ------------------------------------------------------------------ shifts
    def shift(self, place: Place, now: float) -> int:
        """Start a query over because an operator says that it has shifted; return the new phase."""
        if self.notes is not None:
            self.notes.know(place)
        phase = written(place, place.shelf.calls.shift(place.shelf.params, place.shelf.table, place.index, place.owner, now))
        self.mark(place, now)
        if self.notes is not None:
            self.notes.shifted(place.key, now)
        return phase
