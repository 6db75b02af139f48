"""What an experiment has counted: totals by arm, and the difference between the arms, always valid.

The unit of the comparison is the *visit*: what one unit (a session, say) searches from its first search on, for `visit` seconds. It
is judged as many seconds after that; later clicks count in the totals only. The outcome of a visit is the mean over its searches,
in [0, 1]: searches of one session depend on each other, visits of different units do not. A unit is compared once, by its first
visit. A step of the sequence is

    Z = (Y − m) (A − p),

with the outcome Y, the mean m of the visits before, A = 1 for a treated unit, and p the share of treated units at its first search.
Given the past its mean is p (1 − p) times the effect on this visit, whatever the traffic does meanwhile, and also where p is
ramped, by whatever rule: so ΣZ / Σp(1 − p) estimates the effect, each visit weighed by what it can tell. A difference of means
would mistake a Monday at 5 % against a Tuesday at 50 % for an effect. |Z| ≤ 1, which is all that `sequence` needs.

Tests: tests/serving/test_lift.py.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct, field

from swerve.serving.experiment import Arms, ArmTotals, Effect, Guarded, Line, Outcomes, Verdict
from swerve.serving.holdout import TREATED, Unit
from swerve.serving.sequence import bound, log_wealth, more_until

#: The probability that an effect is ever called although there is none: each line has its own.
ERROR = 0.05
#: Clicks of a search that count at most: an outcome must be bounded, and the closer the bound, the narrower the interval.
MOST_CLICKS = 3
#: Visits that wait to be judged at most; a unit that comes while there is no room is not compared. Searches of one visit at most.
MOST_OPEN, MOST_SEARCHES = 100_000, 50
#: Segments, and queries with the most traffic, that have a line of their own.
MOST_SEGMENTS, MOST_QUERIES = 50, 1000
#: Begins the name of a query's line.
KEY = "key:"
#: Bits of a table of the units that were seen, and how many it takes: then 1 % of new units are taken for seen ones.
SEEN_BITS, MOST_SEEN = 1 << 23, 800_000


class Tally(Struct, array_like=True):
    """One sequence: the sums of its steps, and the plain means of the arms. Pairs have the control first."""

    since: float = 0.0  # visits that began earlier do not count
    visits: int = 0
    total: float = 0.0  # ΣZ
    squares: float = 0.0  # ΣZ²
    weight: float = 0.0  # Σp(1 − p)
    arm_visits: list[int] = field(default_factory=lambda: [0, 0])
    arm_sums: list[float] = field(default_factory=lambda: [0.0, 0.0])

    def add(self, outcome: float, treated: bool, share: float) -> None:
        """Count a visit."""
        mean = (sum(self.arm_sums) + 0.5) / (self.visits + 1)
        step = (outcome - mean) * (treated - share)
        self.visits += 1
        self.total += step
        self.squares += step * step
        self.weight += share * (1.0 - share)
        self.arm_visits[treated] += 1
        self.arm_sums[treated] += outcome

    def effect(self, scale: float = 1.0, error: float = ERROR) -> Effect:
        """Return the effect; outcomes are multiplied by `scale`. A negative one turns helps into hurts."""
        control, treated = (
            scale * total / visits if visits else None for total, visits in zip(self.arm_sums, self.arm_visits, strict=True)
        )
        verdict: Verdict = "undecided"
        if self.weight <= 0.0:
            return Effect(verdict, treated, control, None, None, None, None, self.visits, None)
        width = float(bound(self.squares, error / 2))
        middle, low, high = (scale * (self.total + more) / self.weight for more in (0.0, -width, width))
        low, high = sorted((low, high))
        if low > 0.0 or high < 0.0:
            verdict = "helps" if self.total > 0.0 else "hurts"
        relative = middle / control if control else None
        more = more_until(self.total, self.squares, error / 2)
        most = abs(scale)  # no difference is larger
        return Effect(
            verdict, treated, control, middle, max(low, -most), min(high, most), relative, self.visits,
            None if more is None else math.ceil(more * self.visits),
        )  # fmt: skip


class Tracked(Struct, array_like=True):
    """The line of one segment or query; a query's has the state of its guard."""

    tally: Tally
    rank: int = 0  # what keeps it among the lines with the most traffic
    look: int = 1
    guarded: float = 0.0  # when the query went back to its given order; 0: it has not
    until: float = 0.0  # when it tries again
    why: str = ""

    def error(self, guard: float) -> float:
        """Return the error that this look may spend: the looks together spend `guard`."""
        return guard * 6.0 / (math.pi * self.look) ** 2


class Counted(Struct):
    """The record of an experiment's counts in the store."""

    since: float  # when the experiment began: identifies it
    control: ArmTotals = field(default_factory=ArmTotals)
    treated: ArmTotals = field(default_factory=ArmTotals)
    by_query: int = 0
    reward: Tally = field(default_factory=Tally)
    clicked: Tally = field(default_factory=Tally)
    clicks: Tally = field(default_factory=Tally)
    segments: dict[str, Tracked] = field(default_factory=dict)
    queries: dict[str, Tracked] = field(default_factory=dict)


class Search:
    """A search of a visit: its lines, and the clicks so far."""

    __slots__ = ("clicks", "names", "number", "reward")

    def __init__(self, number: int, names: tuple[str, ...]) -> None:
        self.number, self.names, self.clicks, self.reward = number, names, 0, 0.0


class Visit:
    """The searches of one unit."""

    __slots__ = ("began", "searches", "share", "treated", "unit")

    def __init__(self, unit: int, treated: bool, share: float, began: float) -> None:
        self.unit, self.treated, self.share, self.began = unit, treated, share, began
        self.searches: list[Search] = []


class Seen:
    """Units that were compared, for at least the last `MOST_SEEN`; a unit may be taken for one of them by mistake, never the other
    way round. Two Bloom filters: the older one is dropped when the younger is full."""

    def __init__(self) -> None:
        self._young, self._old, self._count = bytearray(SEEN_BITS // 8), bytearray(SEEN_BITS // 8), 0

    def add(self, unit: int) -> bool:
        """Note a unit; return whether it was there."""
        places = [(unit >> shift) % SEEN_BITS for shift in (0, 13, 27, 40)]
        old = self._has(self._old, places)
        if self._has(self._young, places):
            return True
        if self._count >= MOST_SEEN:
            self._young, self._old, self._count = bytearray(SEEN_BITS // 8), self._young, 0
        self._count += 1
        for place in places:
            self._young[place >> 3] |= 1 << (place & 7)
        return old

    @staticmethod
    def _has(table: bytearray, places: Iterable[int]) -> bool:
        return all(table[place >> 3] >> (place & 7) & 1 for place in places)


class Lift:
    """Counts an experiment. `visit` is the length of a visit in seconds, `guard` the error of the guard of a query, 0 for none, and
    `patience` the seconds after which a query that went back to its given order tries again; `against` names the control."""

    def __init__(self, counted: Counted, *, visit: float, guard: float, patience: float, against: str = "its given order") -> None:
        self.against = against
        self.counted, self.visit, self.guard, self.patience = counted, visit, guard, patience
        self.changed = False
        self.seen = Seen()
        self.guarded = {bytes.fromhex(name[len(KEY) :]): line for name, line in counted.queries.items() if line.guarded}
        self.forget_open()

    def forget_open(self) -> None:
        """Drop the visits that are not judged yet, at a ramp: an arm may change within them."""
        self.open: dict[int, Search] = {}  # by the decision's number
        self._visits: dict[int, Visit] = {}  # by unit
        self._queue: deque[Visit] = deque()  # the oldest first

    def totals(self, arm: int) -> ArmTotals:
        """Return the totals of an arm."""
        return self.counted.treated if arm == TREATED else self.counted.control

    # ------------------------------------------------------------------ what happens
    def searched(self, unit: Unit | None, arm: int, share: float, number: int, names: tuple[str, ...], now: float) -> None:
        """Count a search. Without a unit, or where all units have one arm, it is in the totals alone."""
        self.changed = True
        self.totals(arm).searches += 1
        if unit is None:
            self.counted.by_query += 1
            return
        visit = self._visits.get(unit.name)
        if visit is None or now - visit.began > self.visit:
            # also a unit that comes again while its visit waits to be judged: that one is its first
            if not 0.0 < share < 1.0 or len(self._queue) >= MOST_OPEN or visit is not None or self.seen.add(unit.name):
                return
            visit = self._visits[unit.name] = Visit(unit.name, arm == TREATED, share, now)
            self._queue.append(visit)
        if len(visit.searches) < MOST_SEARCHES and number not in self.open:
            search = self.open[number] = Search(number, names)
            visit.searches.append(search)

    def clicked(self, arm: int, number: int, clicks_before: int, clicks: int, reward_before: float, reward: float) -> None:
        """Count feedback: the clicks on a decision so far and before, and what its events are worth, at most 1."""
        self.changed = True
        totals = self.totals(arm)
        totals.clicks += clicks - clicks_before
        totals.clicked += (clicks > 0) - (clicks_before > 0)
        totals.reward += reward - reward_before
        search = self.open.get(number)
        if search is not None:
            search.clicks, search.reward = clicks, reward

    def judge(self, now: float, most: int) -> tuple[int, list[str]]:
        """Judge at most so many visits that are due; return how many there were, and the queries that go back to their order."""
        done, back = 0, list[str]()
        while done < most and self._queue and now - self._queue[0].began > 2.0 * self.visit:
            visit = self._queue.popleft()
            del self._visits[visit.unit]
            for search in visit.searches:
                del self.open[search.number]
            back += self._judge(visit, now)
            done += 1
        return done, back

    def _judge(self, visit: Visit, now: float) -> list[str]:
        counted, searches = self.counted, visit.searches
        self.changed = True
        totals = counted.treated if visit.treated else counted.control
        totals.visits += 1
        totals.judged += len(searches)
        totals.abandoned += sum(search.clicks == 0 for search in searches)
        count = len(searches)
        for tally, outcome in (
            (counted.reward, sum(search.reward for search in searches) / count),
            (counted.clicked, sum(search.clicks > 0 for search in searches) / count),
            (counted.clicks, sum(min(search.clicks, MOST_CLICKS) for search in searches) / (count * MOST_CLICKS)),
        ):
            tally.add(outcome, visit.treated, visit.share)
        back = []
        for name in dict.fromkeys(name for search in searches for name in search.names):
            line = self._line(name)
            if line is None or line.guarded or visit.began < line.tally.since:
                continue
            rewards = [search.reward for search in searches if name in search.names]
            line.tally.add(sum(rewards) / len(rewards), visit.treated, visit.share)
            if name.startswith(KEY) and self._worse(line, now):
                self.guarded[bytes.fromhex(name[len(KEY) :])] = line
                back.append(name)
        return back

    # ------------------------------------------------------------------ lines
    def _line(self, name: str) -> Tracked | None:
        """Return the line of a segment or query; None where there is no room. Queries with little traffic make room for others: a
        new line takes the place of the lowest one and begins with its rank, so that no busy query stays out."""
        query = name.startswith(KEY)
        lines, most = (self.counted.queries, MOST_QUERIES) if query else (self.counted.segments, MOST_SEGMENTS)
        line = lines.get(name)
        if line is None:
            rank = 0
            if len(lines) >= most:
                # a query that went back must not lose the count of its looks
                free = [(one.rank, other) for other, one in lines.items() if query and one.look == 1 and not one.guarded]
                if not free:
                    return None
                rank = lines.pop(min(free)[1]).rank
            line = lines[name] = Tracked(Tally(), rank)
        line.rank += 1
        return line

    def _worse(self, line: Tracked, now: float) -> bool:
        """Return whether the guard sends the query back to its given order now."""
        tally = line.tally
        if self.guard <= 0.0 or tally.total >= 0.0:
            return False
        target = -math.log(line.error(self.guard))
        # no stake can win more than total² / 2 squares: this spares nearly all visits the sum over stakes
        if tally.total * tally.total < 2.0 * tally.squares * target or log_wealth(-tally.total, tally.squares) < target:
            return False
        effect = tally.effect(error=2.0 * line.error(self.guard))
        line.guarded, line.until = now, now + self.patience
        treated, control = (f"{mean or 0.0:.3f}" for mean in (effect.treated, effect.control))
        line.why = f"worse than {self.against}: reward {treated} per search against {control} held out, in {tally.visits} visits"
        return True

    def on_guard(self, key: bytes, now: float) -> Tracked | None:
        """Return the line of a query that is shown in its given order; one whose time is over tries again, with a fresh look."""
        line = self.guarded.get(key)
        if line is None or now < line.until:
            return line
        del self.guarded[key]
        line.tally, line.guarded, line.look = Tally(since=now), 0.0, line.look + 1
        self.changed = True
        return None

    def forget(self, key: bytes) -> None:
        """Drop the line of a query, and what open visits would add to it; the totals keep its searches."""
        name = line_of(key)
        for search in self.open.values():
            if name in search.names:
                search.names = tuple(other for other in search.names if other != name)
        self.guarded.pop(key, None)
        self.changed = self.counted.queries.pop(name, None) is not None or self.changed

    def release(self, now: float) -> None:
        """Let queries whose time is over try again."""
        for key in list(self.guarded):
            self.on_guard(key, now)

    # ------------------------------------------------------------------ what it says
    def waiting(self) -> int:
        """Return how many visits are not judged yet."""
        return len(self._queue)

    def judged_at(self) -> float | None:
        """Return when the first of them is judged; None if there is none."""
        return self._queue[0].began + 2.0 * self.visit if self._queue else None

    def outcomes(self) -> Outcomes:
        """Return the effects over all traffic."""
        counted = self.counted
        abandonment = counted.clicked.effect(-1.0)
        for plain in ("treated", "control"):  # the tally has the share of searches with a click
            if (value := getattr(abandonment, plain)) is not None:
                setattr(abandonment, plain, 1.0 + value)
        if abandonment.difference is not None:
            abandonment.relative = abandonment.difference / abandonment.control if abandonment.control else None
        return Outcomes(counted.reward.effect(), counted.clicks.effect(MOST_CLICKS), abandonment)

    def arms(self) -> Arms:
        """Return the totals of both arms."""
        return Arms(self.counted.treated, self.counted.control)

    def lines(self, lines: dict[str, Tracked], limit: int) -> Iterator[Line]:
        """Yield the lines with the most visits."""
        for name, line in sorted(lines.items(), key=lambda item: -item[1].tally.visits)[:limit]:
            yield Line(name, line.tally.effect())

    def guards(self) -> list[Guarded]:
        """Return the queries that are shown in their given order, the latest first."""
        found = [
            Guarded(name, line.guarded, line.until, line.look, line.why)
            for name, line in self.counted.queries.items()
            if line.guarded
        ]
        return sorted(found, key=lambda one: -one.since)


def line_of(key: bytes) -> str:
    """Return the name of a query's line."""
    return KEY + key.hex()


def names_of(key: bytes, parts: Sequence[str]) -> tuple[str, ...]:
    """Return the lines that a search counts in: its query, and the parts of the query's key (without the filter and the arm).

    >>> names_of(b"ab", ["locale=en-us", "filter=x", "segment=app", "arm=control"])
    ('key:6162', 'locale=en-us', 'segment=app')
    """
    return (line_of(key), *[part for part in parts if not part.startswith(("filter=", "arm="))])
