"""The history of one query, seen from outside, and whether a counter of clicks explains it.

A history has clicks and reads. Each has the moment at which it was sent and the one at which its answer came, by the clock of the
process that keeps the history. A click names its candidate; one decision counts once, however often its feedback is sent. A read
has the clicks of all candidates. Three outcomes of a click are possible: acknowledged, so it counts once from then on; never sent
before a read was answered, so that read must not have it; or neither, and it counts once or not at all.

- `bounds` judges each read by itself.
- `order` judges the history as a whole: it is *linearisable* if every click and every read can be given one moment between its
  sending and its answer, so that each read has exactly the clicks of earlier moments. A click that was never acknowledged may have
  a moment, later than any answer even, or none.

A *crash* is a moment at which the process that has the query is killed. A click that was not acknowledged by then may be undone by
it, and counted later again when it is sent again: what a process had in memory and not on the disk is gone. A read across a crash
is judged by `bounds` alone. Kills of the store's server are no crashes: the process that has the query goes on.

`order` takes one step for each beginning and each answer, in their order, and keeps the least state that explains the answers so
far: it counts a click when its acknowledgement, or the answer of a read, leaves no choice, and of several clicks on a candidate the
one that is acknowledged first. `tests/faults/test_history.py` compares it with a search through all orders.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

Counts = Mapping[str, int]


@dataclass(eq=False, slots=True)
class Click:
    """The feedback of one decision: when it was first sent, and when it was first acknowledged."""

    candidate: str
    sent: float
    acknowledged: float = math.inf


@dataclass(eq=False, slots=True)
class Read:
    """One look at the state of a query: when it was sent and answered, and the clicks of each candidate."""

    sent: float
    answered: float
    counts: Counts


@dataclass(frozen=True, slots=True)
class Crash:
    """A kill of the process that has the query: from before the signal was sent until the process was known to be gone."""

    began: float
    ended: float


@dataclass(slots=True)
class History:
    """The history of one query, from a moment at which its counts were known."""

    before: Counts = field(default_factory=dict)
    clicks: list[Click] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    crashes: list[Crash] = field(default_factory=list)


def bounds(history: History) -> list[str]:
    """Return what is wrong with single reads: acknowledged clicks that are lost; clicks that nobody sent, or that count twice."""
    wrong = []
    sent: dict[str, list[float]] = {}
    acknowledged: dict[str, list[float]] = {}
    for click in history.clicks:
        sent.setdefault(click.candidate, []).append(click.sent)
        acknowledged.setdefault(click.candidate, []).append(click.acknowledged)
    for read in history.reads:
        for name in sorted({*sent, *read.counts, *history.before}):
            before, found = history.before.get(name, 0), read.counts.get(name, 0)
            least = before + sum(at < read.sent for at in acknowledged.get(name, ()))
            most = before + sum(at < read.answered for at in sent.get(name, ()))
            if not least <= found <= most:
                what = f"{least - found} lost" if found < least else f"{found - most} too many"
                wrong.append(f"{name}: {found} clicks at {read.answered:.3f}, {least} to {most} are possible: {what}")
    return wrong


def order(history: History) -> str | None:
    """Return why no order of clicks and reads explains the history; None if one does."""
    return _Order(history).judge()


#: The kinds of events, in the order in which those of one moment are taken: what touches at its ends overlaps.
_CLICK_SENT, _READ_SENT, _CRASHED, _CLICK_ANSWERED, _READ_ANSWERED = range(5)


class _Order:
    """The least state that explains a history up to a moment."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.state = Counter(history.before)
        self.counted: set[Click] = set()
        self.waiting: dict[str, list[Click]] = {}  # sent and not counted, by candidate
        self.open: list[Read] = []  # sent, and without their moment

    def judge(self) -> str | None:
        for at, kind, what in self._events():
            if kind == _CLICK_SENT:
                self.waiting.setdefault(what.candidate, []).append(what)
            elif kind == _READ_SENT:
                self.open.append(what)
                self._settle()
            elif kind == _CRASHED:
                self._crash(at)
            elif kind == _CLICK_ANSWERED:
                if what not in self.counted:
                    self._acknowledge(what)
            elif what in self.open and not self._reach(what.counts):
                return self._why(what)
        return None

    def _events(self) -> list[tuple[float, int, object]]:
        history = self.history
        crossing = {
            read for read in history.reads for crash in history.crashes if read.sent <= crash.ended and read.answered >= crash.began
        }
        events: list[tuple[float, int, object]] = []
        for click in history.clicks:
            events.append((click.sent, _CLICK_SENT, click))
            if click.acknowledged < math.inf:
                events.append((click.acknowledged, _CLICK_ANSWERED, click))
        for read in history.reads:
            if read not in crossing:
                events += (read.sent, _READ_SENT, read), (read.answered, _READ_ANSWERED, read)
        events += ((crash.began, _CRASHED, crash) for crash in history.crashes)
        return sorted(events, key=lambda event: event[:2])

    def _settle(self) -> None:
        """Give all reads that see exactly this state their moment now: it changes nothing."""
        self.open = [read for read in self.open if Counter(read.counts) != self.state]

    def _count(self, click: Click) -> None:
        self.waiting[click.candidate].remove(click)
        self.counted.add(click)
        self.state[click.candidate] += 1

    def _crash(self, at: float) -> None:
        """Undo what was not acknowledged: it may be counted again, or not."""
        for click in [click for click in self.counted if click.acknowledged > at]:
            self.counted.remove(click)
            self.state[click.candidate] -= 1
            self.waiting[click.candidate].append(click)
        self._settle()

    def _acknowledge(self, click: Click) -> None:
        """Count a click that must be counted by now, after the reads that can only be before it."""
        name = click.candidate
        for read in self._below(None):
            if read.counts.get(name, 0) <= self.state[name]:
                self._step(read.counts)
        if click in self.counted:
            return
        self._count(click)
        self._settle()

    def _reach(self, counts: Counts) -> bool:
        """Count clicks until the state is the one that a read saw, by way of the states of other reads that are below it."""
        for read in self._below(counts):
            self._step(read.counts)
        return self._step(counts)

    def _below(self, counts: Counts | None) -> list[Read]:
        """Return the open reads that saw no more than these counts, those that saw least first."""
        chosen = [read for read in self.open if counts is None or all(n <= counts.get(name, 0) for name, n in read.counts.items())]
        return sorted(chosen, key=lambda read: sum(read.counts.values()))

    def _step(self, counts: Counts) -> bool:
        """Count the clicks between the state and these counts, if that is possible."""
        chosen = []
        for name in {*self.state, *counts}:
            more = counts.get(name, 0) - self.state[name]
            found = sorted(self.waiting.get(name, ()), key=lambda click: click.acknowledged)[: max(more, 0)]
            if more < 0 or len(found) < more:
                return False
            chosen += found
        for click in chosen:
            self._count(click)
        self._settle()
        return True

    def _why(self, read: Read) -> str:
        told = []
        for name in sorted({*self.state, *read.counts}):
            found, least = read.counts.get(name, 0), self.state[name]
            most = least + len(self.waiting.get(name, ()))
            if not least <= found <= most:
                told.append(f"{name} {found}, {least} to {most} are possible")
        return f"no order explains the read that was answered at {read.answered:.3f}: {'; '.join(told) or 'it contradicts another'}"


def judge(histories: Mapping[str, History]) -> list[str]:
    """Return everything that is wrong with the histories of queries, each candidate of which is named after its query."""
    wrong = []
    for query, history in histories.items():
        foreign = {name for read in history.reads for name in read.counts if not name.startswith(f"{query}/")}
        wrong += [f"{query} has clicks of another query: {name}" for name in sorted(foreign)]
        told = bounds(history)
        if not told and (why := order(history)) is not None:
            told = [why]
        wrong += [f"{query}: {line}" for line in told]
    return wrong


def total(reads: Sequence[Read]) -> int:
    """Return the clicks of the last read."""
    return sum(max(reads, key=lambda read: read.answered).counts.values()) if reads else 0
