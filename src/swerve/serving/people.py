"""What sessions have asked and been shown: the last query of each, so that a reformulation can be counted for the query before it;
the last ranking for each query, so that a reload or the next page brings no other order; and units of evidence, so that one person
cannot outweigh many.

A *unit* of evidence is a page that the policy learns from, with its clicks if any come. By default a session has one unit for each
result on top of a query's page in each phase: repeated requests and repeated clicks teach nothing more. Session ids come from the
application and are trusted. All of it is kept in memory only, bounded, under a hash: after a restart a few reformulations are lost,
a reload may bring another order, and each session has its units again.

It lies in columns, which compiled code reads and writes for requests that are decided together (`swerve.serving.people_kernels`).
Python keeps what is rare: rankings under rules or in shadow mode, and what more than one page of a phase has taught.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct

from swerve.core.siphash import KEY_BYTES, hash_text
from swerve.serving import kernels, people_kernels as compiled
from swerve.serving.keys import Hash, owner_of, signed, words_of
from swerve.serving.people_kernels import (
    APART,
    ASIDE,
    CLICKED,
    FROM_ELSEWHERE,
    KEPT_IN_PYTHON,
    MADE,
    MOVES,
    OF_CODES,
    OF_EXPLORED,
    OF_FILLED,
    OF_NUMBER,
    OF_OFFER,
    OF_PHASE,
    OF_SEEN,
    OF_SHORTS,
    OF_SIZE,
    OF_START,
    OF_SWAPPED,
    PENDING,
    PLACE,
    SPENT_APART,
    TAUGHT,
    TAUGHT_PHASE,
    TAUGHT_SHORTS,
    WHAT,
    WHAT_2,
    WHO,
    people_dtype,
)
from swerve.serving.place import Place
from swerve.serving.requests import Decided, Prepared
from swerve.serving.tokens import NAMES, Signed, page_of

if TYPE_CHECKING:
    from swerve.serving.settings import Settings

#: Sessions, and pairs of a session and a query, that are remembered at most; bounds the memory.
MOST = 50_000
MASK = (1 << 64) - 1
WORD = 8  # bytes
#: The key of the hashes of sessions, of this process unless several workers exchange sessions, see `hash_sessions_by`.
_secret = bytearray(os.urandom(KEY_BYTES))
SECRET = np.frombuffer(_secret, np.uint64)
SECRET.flags.writeable = False  # to compiled code, which has one form for all
_hash = hash_text.bind()


def name_of(session: str | None) -> int:
    """Return the hash of a session in this process, 0 only for None. The interpreter's hash has a random key per process."""
    return 0 if session is None else hash(session) & MASK or 1


def person_of(request: Prepared) -> int:
    """Return the hash of a request's session, 0 for none. A session of one namespace is not that of another."""
    session = request.session
    if session is None:
        return 0
    name = session if request.namespace is None else f"{request.namespace}\0{session}"
    return _hash(SECRET, name.encode("utf-8", "surrogatepass"))[0] or 1


def hash_sessions_by(key: bytes) -> None:
    """Key the hashes of sessions by a secret that all workers have, so that they mean the same session by the same hash."""
    _secret[:] = hashlib.blake2b(b"sessions", key=key, digest_size=KEY_BYTES).digest()


def key_of(words: Sequence[int]) -> bytes:
    """Return the key that two words are."""
    return words[0].to_bytes(WORD, "little") + words[1].to_bytes(WORD, "little")


class Spent(Struct, gc=False):
    """What one session has taught about one query in one phase, by the keyed hash of each result."""

    phase: int
    shows: list[int]  # each result's hash as often as its show was evidence; mostly once
    clicks: tuple[int, ...] = ()
    results: tuple[int, ...] = ()  # those that were on top, on which the session has no units left

    def use(self, top: int, limit: int) -> None:
        """Note that this result was on top."""
        if (limit == 1 or self.shows.count(top) >= limit) and top not in self.results:
            self.results += (top,)


class Aside(Struct, gc=False):
    """What Python keeps of a page."""

    spent: Spent | None = None
    decided: Decided | None = None


class People:
    """The sessions of a ranker; of pairs of a session and a query at least the last `most` / 2 and at most `most` are known.

    >>> from swerve.serving.settings import Settings
    >>> from swerve.policies import policy
    >>> from swerve.signals import Senses
    >>> people = People(Settings(policy("ts"), Senses(), (), ()))
    >>> people.shown(7, b"jaguar of Africa", 1, [5, 6])
    >>> people.spent_by(7, b"jaguar of Africa").results, people.spent_by(8, b"jaguar of Africa")
    ((5,), None)
    >>> [people.clicked(7, b"jaguar of Africa", 1, 5, shown=True) for _ in range(2)]
    [True, False]
    """

    def __init__(self, settings: Settings, most: int = MOST) -> None:
        self.limit, self.seconds = settings.per_session, settings.steady
        self.table = np.zeros(1, people_dtype(most))
        self.all: Any = self.table[0]
        self.all["tracked"], self.all["limit"] = self.limit > 0 or self.seconds > 0.0, self.limit
        self.all["window"], self.all["steady"] = settings.reformulation, self.seconds > 0.0
        self.pages, self.page_at, self.chances = (self.all[name] for name in ("pages", "page_at", "chances"))
        self.moves = np.zeros((1, MOVES), np.uint64)
        self._asides: dict[int, Aside] = {}
        self._numbered, self._turned = 0, 0
        self._find, self._click = compiled.page_of_pair.bind(), compiled.click.bind()

    def compile(self) -> None:
        """Compile (or load) the code for one session and query, by calls for nobody."""
        _hash(SECRET, b"")
        self._find(self.table, 1, 0, 0, False)
        self._click(self.table, 1, 0, 0, 0, 0)

    # ------------------------------------------------------------------ requests that are decided together
    def room_for(self, count: int) -> Any:
        """Return the columns of what is left to do, for so many requests."""
        if len(self.moves) < count:
            self.moves = np.zeros((count, MOVES), np.uint64)
        return self.moves

    def elsewhere(self, count: int) -> list[tuple[int, bytes]]:
        """Return the requests of the last call whose sessions came from a row elsewhere, and its key."""
        left = np.flatnonzero(self.moves[:count, 0] & np.uint64(FROM_ELSEWHERE)).tolist()
        return [(k, key_of(self.moves[k, 1:].tolist())) for k in left]

    def apart(self, count: int) -> list[int]:
        """Return the requests of the last call of whose sessions Python keeps what they have taught."""
        found: list[int] = np.flatnonzero(self.moves[:count, 0] & np.uint64(SPENT_APART)).tolist()
        return found

    def teaching(self, count: int) -> list[int]:
        """Return the requests of the last call whose pages teach more than the columns hold: `shown` must be called."""
        more: list[int] = np.flatnonzero(self.moves[:count, 0]).tolist()
        return more

    # ------------------------------------------------------------------ one session and query
    def at(self, person: int, owner: int, second: int) -> tuple[int, int] | None:
        """Return where the page of a session and a query is, None if there is none; all are signed numbers: the words of a key."""
        where: tuple[int, int] = self._find(self.table, person, owner, second, False)
        return None if where[1] < 0 else where

    def _at(self, person: int, key: bytes) -> tuple[int, int] | None:
        return self.at(signed(person), owner_of(key), owner_of(key[WORD:]))

    def _claimed(self, person: int, key: bytes) -> tuple[int, int]:
        """Return where the page of a session and a query is, in the younger generation."""
        where: tuple[int, int] = self._find(self.table, signed(person), owner_of(key), owner_of(key[WORD:]), True)
        if self.all["turns"] != self._turned:
            self._drop_asides()
        return where

    def aside(self, page: Any) -> Aside | None:
        """Return what Python keeps of a page."""
        return self._asides.get(int(page[ASIDE]))

    def _apart(self, page: Any) -> Aside:
        """Return what Python keeps of a page, made if there is nothing yet."""
        found = self.aside(page)
        if found is None:
            self._numbered += 1
            page[ASIDE] = self._numbered
            found = self._asides[self._numbered] = Aside()
        return found

    def _drop_asides(self) -> None:
        """Drop what belongs to pages that are gone."""
        young, count = int(self.all["young"]), int(self.all["count"])
        known = {*self.pages[1 - young, :, ASIDE].tolist(), *self.pages[young, :count, ASIDE].tolist()}
        self._asides = {number: aside for number, aside in self._asides.items() if number in known}
        self._turned = int(self.all["turns"])

    def keep(self, person: int, key: bytes, decided: Decided) -> None:
        """Keep a ranking that columns cannot hold, to be shown again."""
        where = self._claimed(person, key)
        page = self.pages[where]
        page[MADE], page[PENDING], self.page_at[where] = 1, 0, decided.at
        self._apart(page).decided = decided

    def decided(self, where: tuple[int, int], person: int, place: Place, request: Prepared, short: Hash) -> Decided | None:
        """Return the ranking of a page, whose results are those of a request; None if there is none, or they are others."""
        page, at = self.pages[where], float(self.page_at[where])
        if page[MADE] == 0:
            return None
        if (aside := self.aside(page)) is not None and aside.decided is not None and aside.decided.at == at:
            return aside.decided if set(aside.decided.ranking) == set(request.results()) else None
        size, filled = int(page[OF_SIZE]), int(page[OF_FILLED])
        names = {short(name): name for name in request.ids()}
        shorts = page[OF_SHORTS : OF_SHORTS + size].tolist()
        if names.keys() != set(shorts):
            return None
        codes = page[OF_CODES : OF_CODES + filled].tolist()
        made, seen, number, phase = int(page[MADE]), int(page[OF_SEEN]), int(page[OF_NUMBER]), int(page[OF_PHASE])
        start, offer, arm, rival = int(page[OF_START]), signed(int(page[OF_OFFER])), made // kernels.KEEP_ARM, place.shelf.rival
        shown = page_of(codes, [name & NAMES for name in shorts[:filled]])
        token = Signed(place.key, start, phase, number, person, bool(seen & 1), seen >> 1, offer, shown, arm, rival)
        chances, explored = self.chances[where][:filled].tolist(), signed(int(page[OF_EXPLORED]))
        ranking: list[Any] = [names[name] for name in shorts]
        found = Decided(ranking, token, chances, explored, phase, 0, 0, at, control=bool(made & kernels.KEEP_CONTROL))
        if swapped := int(page[OF_SWAPPED]):
            found.swapped = [swapped & 15, swapped >> 4]
        return found

    # ------------------------------------------------------------------ evidence
    def spent_by(self, person: int, key: bytes) -> Spent | None:
        """Return what the session has taught about a query, in the last phase in which it did."""
        where = self._at(person, key)
        return None if where is None else self._spent(self.pages[where])

    def _spent(self, page: Any) -> Spent | None:
        count = page[TAUGHT]
        if count == APART:
            aside = self.aside(page)
            return None if aside is None else aside.spent
        if count == 0:
            return None
        shows = page[TAUGHT_SHORTS : TAUGHT_SHORTS + int(count)].tolist()
        clicked = int(page[CLICKED])
        made = Spent(int(page[TAUGHT_PHASE]), shows, tuple(short for slot, short in enumerate(shows) if clicked >> slot & 1))
        made.use(shows[0], self.limit)
        return made

    def _set(self, page: Any, spent: Spent) -> None:
        page[TAUGHT], page[TAUGHT_PHASE] = APART, spent.phase
        self._apart(page).spent = spent

    def shown(self, person: int, key: bytes, phase: int, results: list[int]) -> None:
        """Note that a page of results was shown to the session and that the policy learns from it; the first is on top."""
        page = self.pages[self._claimed(person, key)]
        spent = self._spent(page)
        if spent is None or spent.phase != phase:
            spent = Spent(phase, results)
        else:
            spent.shows += results
        spent.use(results[0], self.limit)
        self._set(page, spent)

    def shown_instead(self, person: int, key: bytes, phase: int, results: list[int]) -> None:
        """Note that these results were really shown on a page that the policy learns from: clicks on them are evidence too."""
        where = self._at(person, key)
        spent = None if where is None else self._spent(self.pages[where])
        if spent is not None and spent.phase == phase:
            spent.shows += [result for result in results if spent.shows.count(result) < self.limit]
            self._set(self.pages[where], spent)

    def clicked(self, person: int, key: bytes, phase: int, result: int, *, shown: bool) -> bool:
        """Return whether a click of the session is evidence; `shown` says whether the show of its own ranking was.

        A click counts for any unit that the session has for the result, also when it comes at a later show.
        """
        state: int = self._click(self.table, signed(person), owner_of(key), owner_of(key[WORD:]), phase, signed(result))
        if state >= 0:
            return state == 1
        spent = self.spent_by(person, key) if state == KEPT_IN_PYTHON else None
        if spent is None or spent.phase != phase:
            return shown
        if spent.clicks.count(result) >= spent.shows.count(result):
            return False
        spent.clicks += (result,)
        return True

    # ------------------------------------------------------------------ deletion
    def forget(self, keys: Collection[bytes]) -> None:
        """Forget that sessions asked these queries, and what they were shown and have taught."""
        gone = {words_of(key) for key in keys}
        firsts = np.array([first for first, _ in gone], np.uint64)
        for name in ("indices", "lasts"):
            table = self.all[name]
            for generation, line, *words in self._rows(table, np.isin(table[:, :, WHAT], firsts)):
                if tuple(words) not in gone:
                    continue
                if name == "indices":
                    page = self.pages[generation, int(table[generation, line, PLACE])]
                    self._asides.pop(int(page[ASIDE]), None)
                    page[:] = 0
                table[generation, line, WHAT:] = 0  # the line stays in use, for no query, so that others are still found

    @staticmethod
    def _rows(table: Any, among: Any = True) -> list[tuple[int, int, int, int]]:
        """Return generation, line and key of all lines in use, of those that are named."""
        generations, lines = np.nonzero((table[:, :, WHO] != 0) & among)
        first, second = (table[generations, lines, word].tolist() for word in (WHAT, WHAT_2))
        return list(zip(generations.tolist(), lines.tolist(), first, second, strict=True))

    def known(self) -> set[bytes]:
        """Return the keys of all queries that anything is known of."""
        found = {(first, second) for table in (self.all["indices"], self.all["lasts"]) for _, _, first, second in self._rows(table)}
        return {key_of(pair) for pair in found if pair != (0, 0)}
