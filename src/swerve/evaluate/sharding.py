"""A log that is read and folded in shards, which may be worked on anywhere, to the bits of one pass over it.

A round has some pieces of the log. Its lists are read piece by piece, and folded by parts of the queries, each part with the state
that it had after the round before. Everything that all queries have together is made here, in the order of the log: where queries
begin and which are forgotten, the mean rate so far, the policy's own pages, and the sums of the estimators.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from swerve.core.examination import SLOTS
from swerve.evaluate.estimators import Estimation, Judgement
from swerve.evaluate.folding import Portion, Rows, histories_in
from swerve.evaluate.history import CURVE, MOST_QUERIES, Histories, History, Watched
from swerve.evaluate.judging import BATCH, Least, Slots
from swerve.evaluate.pieces import PARTS, Cut, Read, part_of, pieces
from swerve.evaluate.rates import Mean
from swerve.evaluate.readers import plain
from swerve.evaluate.readers.fields import mapping
from swerve.evaluate.readers.source import size_of
from swerve.evaluate.tally import Tally
from swerve.evaluate.targets import MOST_ROWS, Policy, check_names

#: Pieces of a round.
AT_ONCE = 32
#: Does pieces of work, `folding.work` with each of the orders, anywhere; yields their numbers and results as they come.
Run = Callable[[list[tuple[Any, ...]]], Iterable[tuple[int, Any]]]
CURVE_VALUES = np.array(CURVE)


class Log(NamedTuple):
    """A log, and who reads it."""

    paths: Sequence[Path]
    form: str
    columns: dict[str, str]
    run: Run
    at_once: int = AT_ONCE


def log_of(paths: Sequence[Path], form: str, columns: Sequence[str], run: Run) -> Log:
    """Return a log that is read in shards."""
    return Log(paths, form, mapping(tuple(columns), plain.FIELDS), run)


class Pass:
    """One reading of a log."""

    kind: str

    def __init__(self, most: int) -> None:
        self.watched, self.mean = Watched(most), Mean()
        self.states = [b""] * PARTS
        self.asked: list[int] = []  # the parts whose results are awaited

    def over(self, log: Log, progress: Callable[[int], None] = lambda read: None) -> None:
        """Read the log; `progress` is called with the bytes read. While one round is folded, the next one is read."""
        waiting: list[tuple[Any, ...]] = []
        parts, at = pieces(log.paths, log.form, log.columns), 0
        while True:
            some: list[Cut | Read] = list(islice(parts, log.at_once))
            cuts = [number for number, each in enumerate(some) if isinstance(each, Cut)]
            orders = [*waiting, *(("read", log.form, log.columns, *some[number]) for number in cuts)]
            results: list[Any] = [None] * len(orders)
            for number, result in log.run(orders) if orders else ():
                results[number] = result
            if waiting:
                self.take(results[: len(waiting)])
                progress(at)
            for number, read in zip(cuts, results[len(waiting) :], strict=True):
                some[number] = read
            reads = [each for each in some if isinstance(each, Read)]
            waiting, at = self.orders(reads), reads[-1].at if reads else at
            if not some:
                progress(sum(map(size_of, log.paths)))
                return

    def orders(self, reads: Sequence[Read]) -> list[tuple[Any, ...]]:
        """Return what is to be done with the lists of a round."""
        portions: list[list[Portion]] = [[] for _ in range(PARTS)]
        before, forgotten, some = {*self.watched.lists}, self.watched.forgotten, []
        for read in reads:
            self.see(read)
            begins = self.watched.add_all(read.queries, read.codes)
            priors = self.mean.before(read.tops, read.sizes, read.clicks)
            before.update(read.queries)
            parts = np.array([part_of(query) for query in read.queries], np.int64)[read.codes]
            for part in np.unique(parts).tolist():
                own = parts == part
                portions[part].append(Portion(read.lists[part], begins[own], priors[own]))
            some.append(parts)
        gone: list[list[str]] = [[] for _ in range(PARTS)]
        if self.watched.forgotten > forgotten:
            for query in sorted(before - self.watched.lists.keys()):
                gone[part_of(query)].append(query)
        self.asked = [part for part in range(PARTS) if portions[part] or gone[part]]
        self.noted(reads, some)
        return [(self.kind, self.states[part], portions[part], gone[part], *self.more()) for part in self.asked]

    def see(self, read: Read) -> None:
        """Note what a piece says of the whole log."""

    def noted(self, reads: Sequence[Read], parts: Sequence[NDArray[np.int64]]) -> None:
        """Note the lists of a round, whose parts are these."""

    def more(self) -> tuple[Any, ...]:
        """Return what else a part is told."""
        return ()

    @abstractmethod
    def take(self, results: Sequence[Any]) -> None:
        """Take the results of the parts of a round."""


class Reading(Pass):
    """The first reading: what was read, the histories of queries, and the smallest propensities."""

    kind = "histories"

    def __init__(self, form: str, columns: dict[str, str], most: int = MOST_QUERIES) -> None:
        super().__init__(most)
        self.form, self.tally, self.columns, self.least = form, Tally(), plain.Columns(columns), Least()

    def see(self, read: Read) -> None:
        """Add what was counted."""
        for query in read.queries:
            self.tally.name(query)
        if read.tally is not None:
            self.tally.merge(read.tally)
        if read.columns is not None and self.form == "plain":
            self.columns.merge(read.columns, self.tally)
        self.least.merge(read.least)

    def take(self, results: Sequence[Any]) -> None:
        """Keep the states."""
        for part, state in zip(self.asked, results, strict=True):
            self.states[part] = state

    def histories(self) -> Histories:
        """Return all histories, as they come first in the log."""
        out, found = Histories(self.watched.most), dict[str, History]()
        for state in self.states:
            found |= histories_in(state)
        out.watched, out.by_query = self.watched, {query: found[query] for query in self.watched.lists}
        return out


class Judging(Pass):
    """The second reading: what other rankings would have brought."""

    kind = "judging"

    def __init__(self, names: Sequence[str], least: NDArray[np.float64], most: int = MOST_QUERIES, rows: int = MOST_ROWS) -> None:
        super().__init__(most)
        check_names(names)
        self.names, self.found = tuple(names), [Estimation(name, least) for name in names]
        self.policy = Policy(rows) if Policy.name in names else None
        self.rows: Rows = {}  # those that wait, fewer than `BATCH`
        self.queries: list[str] = []  # theirs
        self._judged: tuple[NDArray[np.int64], list[str]] = np.zeros(0, np.int64), []

    def more(self) -> tuple[Any, ...]:
        """Return the targets, and whether the policy has room for further queries."""
        full = self.policy is not None and len(self.policy.rows) >= self.policy.most
        return self.names, full

    def noted(self, reads: Sequence[Read], parts: Sequence[NDArray[np.int64]]) -> None:
        """Note the lists that are judged, by their parts and queries."""
        own = [part[read.judged] for read, part in zip(reads, parts, strict=True)]
        queries = [read.queries[code] for read in reads for code in read.codes[read.judged].tolist()]
        self._judged = np.concatenate(own) if own else np.zeros(0, np.int64), queries

    def take(self, results: Sequence[Any]) -> None:
        """Put the rows of all parts in the order of the log, and judge those of whole batches."""
        parts, queries = self._judged
        merged: Rows = {}
        for part, (state, rows) in zip(self.asked, results, strict=True):
            self.states[part] = state
            own = parts == part
            for name, values in rows.items():
                if name not in merged:
                    merged[name] = np.zeros((len(parts), *values.shape[1:]), values.dtype)
                merged[name][own] = values
        if not merged:
            return
        self.rows = {name: np.concatenate([self.rows[name], values]) if self.rows else values for name, values in merged.items()}
        self.queries += queries
        whole = len(self.queries) // BATCH * BATCH
        self._judge(whole)

    def _judge(self, upto: int) -> None:
        """Judge the rows up to one, and forget them."""
        for start in range(0, upto, BATCH):
            own = slice(start, min(start + BATCH, upto))
            rows = {name: values[own] for name, values in self.rows.items()}
            for estimation, name in zip(self.found, self.names, strict=True):
                chances, worth = rows[f"{name} chances"], rows[f"{name} worth"]
                if self.policy is not None and name == Policy.name:
                    chances, worth = pages(self.policy, rows, self.queries[own], chances, worth)
                estimation.add(rows["clicks"], rows["propensities"], chances, rows["hoped"], worth)
        self.rows = {name: values[upto:].copy() for name, values in self.rows.items()}
        self.queries = self.queries[upto:]

    def judgements(self) -> list[Judgement]:
        """Return the judgement on each target."""
        self._judge(len(self.queries))
        return [each.judge() for each in self.found]


def pages(policy: Policy, rows: Rows, queries: Sequence[str], chances: Slots, worth: Slots) -> tuple[Slots, Slots]:
    """Return the chances of what was shown on the pages that the policy draws, and what is expected of these; where it has no room,
    those that are given."""
    places = [policy.row_of(query) if wants else None for query, wants in zip(queries, rows["wants"].tolist(), strict=True)]
    numbers = np.array([-1 if place is None else place.number for place in places])
    own = np.flatnonzero((numbers >= 0) & rows["fits"])
    if not len(own):
        return chances, worth
    asked = rows["asked"][own].copy()
    asked[:, 0] = numbers[own]
    made = policy.fleet.replay(asked, rows["given"][own].astype(np.int64), rows["finals"][own].astype(np.int64), rows["times"][own])
    there = ~np.isnan(rows["propensities"][own]) & (np.arange(SLOTS) < asked[:, 2:3])
    value = np.take_along_axis(rows["by_arm"][own], np.maximum(made, 0), axis=1) * CURVE_VALUES
    chances, worth = chances.copy(), worth.copy()
    chances[own] = np.where(there & (made == rows["shown"][own]), 1.0, 0.0)
    worth[own] = np.where(there, value, 0.0)
    return chances, worth


def read_shards(log: Log, progress: Callable[[int], None] = lambda read: None, **limits: int) -> Reading:
    """Read a log for the first time."""
    out = Reading(log.form, log.columns, **limits)
    out.over(log, progress)
    if log.form == "plain":
        out.columns.check()
    return out


def judge_shards(
    log: Log,
    names: Sequence[str],
    least: NDArray[np.float64],
    progress: Callable[[int], None] = lambda read: None,
    **limits: int,
) -> list[Judgement]:
    """Return the judgement on each target, by a second reading of a log."""
    out = Judging(names, least, **limits)
    out.over(log, progress)
    return out.judgements()
