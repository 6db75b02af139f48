"""The ledger outside the service: the clicks that the store must, may and must not contain, across restores.

Each decision gets the same feedback, however often it is sent. Its click is in one of three states with respect to the store that
is at the path now:

- `ABSENT`: never sent to this store, so it must not be counted;
- `MAYBE`: sent, and the answer is missing or was 503: it is counted once or not at all;
- `PRESENT`: acknowledged, so it is counted exactly once.

A restore sets all clicks back to the backup's state. A backup contains the clicks acknowledged before it began. It may contain
clicks that were sent before its end and not acknowledged before its beginning. A *life* of the store ends with each restore: lives
have even numbers, and the number is odd while the file is being swapped. An answer proves something only about the life in which
its request was sent.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

ABSENT, MAYBE, PRESENT = 0, 1, 2
#: Seconds within which the service notices that its wall clock was set ahead: it checks every five.
FOLLOWED = 15.0
#: Answers of feedback that count in the totals.
COUNTED = ("learned", "late", "ignored")

Pair = tuple[str, str]  # query, candidate


@dataclass(eq=False, slots=True)
class Click:
    """One decision and what is said of it: the candidate that was clicked, None for none."""

    token: str
    query: str
    clicked: str | None
    made: float = 0.0  # when it was decided
    ahead: float = 0.0  # seconds by which the clock had been set ahead until then, as far as the service had noticed
    born: int = 0  # the life in which it was decided
    state: int = ABSENT
    status: str | None = None  # the answer that made it `PRESENT`
    sends: int = 0  # in all lives
    tries: int = 0  # sends since it was last `ABSENT`
    life: int = -1  # in which it was last sent
    flying: int = 0  # requests without an answer yet


@dataclass(frozen=True, slots=True)
class Sent:
    """One request with a click, in the click's state when it was sent."""

    click: Click
    life: int
    firm: bool  # whether an acknowledgement proves that the click is in the store of this life


@dataclass(eq=False, slots=True)
class Backup:
    """The clicks in a copy of the store."""

    least: Counter[Pair]
    most: Counter[Pair]
    certain: frozenset[Click]
    clicks: dict[Click, tuple[int, str | None]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Difference:
    """A candidate with a wrong count."""

    query: str
    candidate: str
    found: int
    least: int
    most: int

    @property
    def kind(self) -> str:
        """`lost`, `doubled`, or `foreign`: a click in the record of another query."""
        if not self.candidate.startswith(f"{self.query}/"):
            return "foreign"
        return "lost" if self.found < self.least else "doubled"

    def __str__(self) -> str:
        wanted = f"{self.least}" if self.least == self.most else f"{self.least} to {self.most}"
        return f"{self.kind}: {self.candidate} in {self.query}: {self.found} clicks, {wanted} expected"


class Ledger:
    """The ledger of all clicks; thread-safe."""

    def __init__(self, window: float) -> None:
        self.window = window
        self.guard = threading.RLock()
        self.least: Counter[Pair] = Counter()  # clicks that are not sent again: the least and the greatest number of each
        self.most: Counter[Pair] = Counter()
        self.live: set[Click] = set()  # clicks that may be sent again
        self.life = 0
        self.taken_up = True  # whether the service is known to have noticed the last swap
        self.ahead = 0.0  # seconds by which all jumps have set the clock ahead
        self.jumps: list[tuple[float, float]] = []  # time and size
        self.acknowledged = 0
        self.wrong: list[str] = []  # answers that contradict an earlier one
        self._holding = False  # during a backup or a swap, no click leaves `live`
        self._leaving: list[Click] = []

    # ------------------------------------------------------------------ feedback
    def decided(self, token: str, query: str, clicked: str | None) -> Click:
        """A decision that may be answered."""
        with self.guard:
            now = time.monotonic()
            while self.jumps and self.jumps[0][0] < now - FOLLOWED:
                self.jumps.pop(0)
            noticed = self.ahead - sum(seconds for _, seconds in self.jumps)
            click = Click(token, query, clicked, now, noticed, self.life)
            self.live.add(click)
            return click

    def sending(self, clicks: Iterable[Click]) -> list[Sent]:
        """Record that clicks are about to be sent."""
        with self.guard:
            out = []
            for click in clicks:
                # an answer from memory may refer to the previous store; there is no memory of a click that was never sent
                firm = self.life % 2 == 0 and (self.taken_up or click.sends == 0)
                out.append(Sent(click, self.life, firm))
                click.sends += 1
                click.tries += 1
                click.life = self.life
                click.flying += 1
                click.state = max(click.state, MAYBE)
            return out

    def answered(self, sent: Sent, status: str | None) -> None:
        """Record the answer to a sent click: its status, or None if it was 503 or never came."""
        click = sent.click
        with self.guard:
            click.flying -= 1
            if status is None or sent.life != self.life or not sent.firm:
                return
            if status not in COUNTED:
                self._not_counted(click, status)
            elif click.state != PRESENT:
                click.state, click.status = PRESENT, status
                self.acknowledged += click.clicked is not None
            elif status != click.status:
                self.wrong.append(f"{click.token} was answered {click.status!r}, and {status!r} when it was sent again")

    def _not_counted(self, click: Click, status: str) -> None:
        """Check an expired or refused click: only decisions from before a restore may be refused, and none may expire early."""
        age = time.monotonic() - click.made + self.ahead - click.ahead
        if status == "expired" and age < self.window - 1.0:
            self.wrong.append(f"{click.token} expired after {age:.1f} of {self.window:.0f} seconds")
        elif status != "expired" and click.born == self.life:
            self.wrong.append(f"{click.token} was refused: {status}")
        if click.state == MAYBE and click.tries == 1:
            click.state, click.tries = ABSENT, 0

    def leave(self, click: Click) -> None:
        """Record that a click is not sent again."""
        with self.guard:
            if self._holding:
                self._leaving.append(click)
            elif click in self.live:
                self.live.remove(click)
                if click.clicked is not None:
                    self._add(self.least, self.most, click, click.state)

    @staticmethod
    def _add(least: Counter[Pair], most: Counter[Pair], click: Click, state: int) -> None:
        pair = (click.query, str(click.clicked))
        if state == PRESENT:
            least[pair] += 1
        if state != ABSENT:
            most[pair] += 1

    def _release(self) -> None:
        self._holding = False
        leaving, self._leaving = self._leaving, []
        for click in leaving:
            self.leave(click)

    # ------------------------------------------------------------------ faults that change the expected state
    def jumped(self, seconds: float) -> None:
        """Record that the wall clock is about to be set ahead."""
        with self.guard:
            if seconds > 0.0:
                self.ahead += seconds
                self.jumps.append((time.monotonic(), seconds))

    def backup_begins(self) -> Backup:
        """Record that a backup begins."""
        with self.guard:
            self._holding = True
            certain = frozenset(click for click in self.live if click.state == PRESENT)
            return Backup(self.least.copy(), self.most.copy(), certain)

    def backup_ends(self, backup: Backup) -> None:
        """Record that a backup is complete."""
        with self.guard:
            backup.clicks = {
                click: (PRESENT, click.status) if click in backup.certain else (MAYBE, None)
                for click in self.live
                if click.state != ABSENT
            }
            self._release()

    def swap_begins(self) -> None:
        """Record that the database is about to be replaced by a backup."""
        with self.guard:
            self._holding = True
            self.life += 1

    def swap_ends(self, backup: Backup, *, running: bool) -> None:
        """Record that it is replaced. If the service ran, clicks under way may have reached the new file, or may reach it later."""
        with self.guard:
            before = self.life
            self.life += 1
            self.taken_up = not running
            self.ahead += 1e9  # the service's time is the backup's now: earlier decisions may expire at any time
            self.least, self.most = backup.least.copy(), backup.most.copy()
            for click, (state, _) in backup.clicks.items():
                if click not in self.live and click.clicked is not None:
                    self._add(self.least, self.most, click, state)
            for click in self.live:
                state, status = backup.clicks.get(click, (ABSENT, None))
                if running and state == ABSENT and (click.flying or click.life == before or click.state == MAYBE):
                    state = MAYBE
                click.state, click.status = state, status
                click.tries = 0 if state == ABSENT else max(click.tries, 2)
            self._release()

    def noticed(self) -> None:
        """Record that the service has acknowledged a new click since the swap, so it uses the backup."""
        with self.guard:
            self.taken_up = True

    # ------------------------------------------------------------------ checks
    def unknown(self) -> int:
        """Return the number of clicks that are counted once or not at all."""
        with self.guard:
            pending = sum(click.state == MAYBE and click.clicked is not None for click in self.live)
            return pending + self.most.total() - self.least.total()

    def expected(self) -> tuple[Counter[Pair], Counter[Pair]]:
        """Return the least and the greatest number of clicks of each candidate."""
        with self.guard:
            least, most = self.least.copy(), self.most.copy()
            for click in self.live:
                if click.clicked is not None:
                    self._add(least, most, click, click.state)
            return least, most

    def compare(self, found: Mapping[str, Mapping[str, int]]) -> list[Difference]:
        """Return the differences of the queries that were read. No click may be sent between the reading and this call."""
        least, most = self.expected()
        names: dict[str, set[str]] = {query: set(counts) for query, counts in found.items()}
        for query, candidate in most:
            if query in names:
                names[query].add(candidate)
        out = []
        for query, candidates in names.items():
            for candidate in sorted(candidates):
                pair, count = (query, candidate), found[query].get(candidate, 0)
                if not least[pair] <= count <= most[pair] or not candidate.startswith(f"{query}/"):
                    out.append(Difference(query, candidate, count, least[pair], most[pair]))
        return out
