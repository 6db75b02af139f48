"""The verbs of an environment, and the tables of a drawn problem instance.

An environment spec describes a family of problems; `world(spec, seed)` draws one instance of it. The instance is data: the query of
each round (`schedule`), the progress of each query (`cursors`), and the click probabilities between events (`segments`). The
questions of a round (is it an event, what is the context, is this arm clicked, how good is the best arm) are verbs over that data.
All randomness is keyed by (seed, query, round) and never depends on the policy, so that runs of different policies are paired.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from swerve.core.errors import SwerveError
from swerve.core.rng import at, split, unit
from swerve.core.spec import Spec, record_dtype
from swerve.core.tables import Table, capacity, nested
from swerve.core.verbs import kernel, verb

NEVER = np.iinfo(np.int64).max  # the round of an event that does not occur


@kernel
def _advance(spec, scene, segments, cursor):
    cursor.t += 1
    cursor.signal = 0
    if cursor.t == cursor.ahead:
        cursor.segment += 1
        line = segments[cursor.segment]
        cursor.ahead = line.until
        cursor.signal = line.signal
        return line.event
    return 0


@kernel
def _chance(spec, scene, segments, cursor, arm):
    return segments[cursor.segment].chance[arm]


@kernel
def _best(spec, scene, segments, cursor):
    return segments[cursor.segment].best


@kernel
def _click(spec, scene, segments, cursor, arm):
    return unit(at(cursor.clicks, cursor.t)) < chance(spec, scene, segments, cursor, arm)


@verb
def world(spec, seed):
    """Draw a problem instance."""


@verb(default=_advance)
def advance(spec, scene, segments, cursor):
    """Move the cursor to the query's next round; return 1 if it is an event, else 0."""


@verb
def context(spec, scene, cursor, event, x):
    """Write the round's context into x; `event` is 1 if the round is an event, else 0."""


@verb(default=_chance)
def chance(spec, scene, segments, cursor, arm):
    """Return an arm's click probability in this round."""


@verb(default=_best)
def best(spec, scene, segments, cursor):
    """Return the best arm's click probability in this round."""


@verb(default=_click)
def click(spec, scene, segments, cursor, arm):
    """Return whether this arm would be clicked in this round."""


CURSOR = record_dtype(
    [
        ("t", "i8"),  # rounds of this query so far
        ("segment", "i8"),  # the current line of `segments`
        ("ahead", "i8"),  # the round of the next line
        ("signal", "i8"),  # the signal in this round's context, 0 for none: not every event is announced in its own round
        ("clicks", "u8"),  # stream of click uniforms, one per round
        ("contexts", "u8"),  # stream of contexts
    ]
)


@dataclasses.dataclass
class World:
    """One drawn instance. `k`, `shift` (ε_S) and `gap` (Δ) are the quantities of the paper's bounds."""

    spec: Spec
    seed: int
    arms: int
    features: int
    schedule: NDArray[np.int32]
    rounds: NDArray[np.int64]  # the number of rounds of each query
    cursors: Table
    segments: Table
    scene: Table
    owner: NDArray[np.int64]  # the query of each segment

    @property
    def queries(self) -> int:
        """Return the number of queries."""
        return len(self.cursors)

    @functools.cached_property
    def events(self) -> NDArray[np.int64]:
        """Return the number of events of each query."""
        return np.bincount(self.owner, weights=self.segments["event"], minlength=self.queries).astype(np.int64)

    @functools.cached_property
    def k(self) -> int:
        """Return the number of events of all queries together."""
        return int(self.events.sum())

    @property
    def chances(self) -> NDArray[np.float64]:
        """Return the click probabilities, one row per segment."""
        table: NDArray[np.float64] = self.segments["chance"][:, : self.arms]
        return table

    @functools.cached_property
    def shift(self) -> float:
        """Return ε_S: the least distance of a formerly best arm below the new best at an event (inf without events).

        With ties, the formerly best arm that falls furthest counts. Where click probabilities glide, the last ones before the next
        event count.
        """
        happened = np.flatnonzero(self.segments["event"])
        if not happened.size:
            return float("inf")
        begins = np.flatnonzero(np.diff(self.owner, prepend=-1) != 0)  # a query's first line; it is no event
        following = np.union1d(happened, begins)
        after = np.append(following, len(self.segments))[np.searchsorted(following, happened, side="right")]
        before, last = self.chances[happened - 1], self.chances[after - 1]  # the last line before the query's next event
        former = before == before.max(axis=1, keepdims=True)
        fallen = np.where(former, last, np.inf).min(axis=1)
        return float((last.max(axis=1) - fallen).min())

    @functools.cached_property
    def gap(self) -> float:
        """Return Δ: the least suboptimality of a suboptimal arm in any round (inf when no arm is suboptimal)."""
        short = self.chances.max(axis=1, keepdims=True) - self.chances
        positive = short[short > 0.0]
        return float(positive.min()) if positive.size else float("inf")

    @property
    def distance(self) -> int:
        """Return the least number of rounds between two events of a query; the start counts as an event (NEVER without events)."""
        out, query, last = int(NEVER), -1, 1
        for owner, line in zip(self.owner, self.segments, strict=True):
            if owner != query:
                query, last = owner, 1
            elif line["event"]:
                out, last = min(out, int(line["since"]) - last), int(line["since"])
        return out


@dataclasses.dataclass(frozen=True)
class Line:
    """The click probabilities of a query from round `since` on, whether that round is an event, and its signal.

    `signal` is 0 for none; the environment's `context` defines the meaning of other numbers.
    """

    since: int
    chances: list[float]
    event: bool = True
    signal: int = 1


def unannounced(changes: Mapping[int, Sequence[float]], signals: Mapping[int, int] | None = None) -> list[Line]:
    """Return a query's history from data: the click probabilities from each round on, and signals apart from them.

    An event is the round in which another result becomes best; other changes are steps of a glide. Only an oracle is told of
    events: no context announces one, unless `signals` has a signal in its round. The first lead after equal probabilities is no
    event.

    >>> unannounced({1: [0.1, 0.5], 100: [0.2, 0.5], 200: [0.6, 0.5]})[2]
    Line(since=200, chances=[0.6, 0.5], event=True, signal=0)
    """
    heard = signals or {}
    out: list[Line] = []
    leader: int | None = None
    for since in sorted({*changes, *heard}):
        now = list(changes[since]) if since in changes else out[-1].chances
        top = [arm for arm, probability in enumerate(now) if probability == max(now)]
        event = leader is not None and leader not in top
        if event or (leader is None and len(top) == 1):
            leader = top[0]
        out.append(Line(since, now, event, heard.get(since, 0)))
    return out


@functools.cache
def segment_dtype(arms: int) -> np.dtype[Any]:
    """Return the record type of a segment: click probabilities from `since` to before `until`, and the event of its first round."""
    room = capacity("arms", arms)
    return record_dtype(
        [("since", "i8"), ("until", "i8"), ("event", "i8"), ("signal", "i8"), ("best", "f8"), ("chance", "f8", room)]
    )


def blank(queries: int, lines: int, arms: int) -> tuple[Table, NDArray[np.int64], Table]:
    """Return empty segments, their owners, and cursors."""
    return np.zeros(lines, segment_dtype(arms)), np.zeros(lines, np.int64), np.zeros(queries, CURSOR)


@functools.cache
def scene_dtype(fields: tuple[tuple[Any, ...], ...]) -> np.dtype[Any]:
    """Return the record type of a scene."""
    return nested(list(fields))


def scene_of(fields: list[tuple[Any, ...]], facts: dict[str, Any]) -> Table:
    """Return a scene: the facts that the environment's own `context` reads."""
    table = np.zeros(1, scene_dtype(tuple(fields)))
    for name, fact in facts.items():
        table[0][name] = fact
    return table


def assemble(
    spec: Spec,
    seed: int,
    *,
    arms: int,
    features: int,
    histories: Sequence[Sequence[Line | tuple[int, list[float]]]],
    schedule: NDArray[np.int32],
    scene: list[tuple[Any, ...]] | None = None,
    facts: dict[str, Any] | None = None,
) -> World:
    """Return a world from each query's history: the rounds at which its click probabilities change, starting with round 1.

    An entry (round, probabilities) is an announced event; a `Line` can be anything else, and `unannounced` makes them from data.
    `scene` and `facts` are the fields and the values that the environment's own `context` reads.
    """
    capacity("arms", arms), capacity("features", features)
    rounds = np.bincount(schedule, minlength=len(histories)).astype(np.int64)
    segments, owner, cursors = blank(len(histories), sum(map(len, histories)), arms)
    line = 0
    for query, history in enumerate(histories):
        lines = [entry if isinstance(entry, Line) else Line(*entry) for entry in history]
        if not lines or lines[0].since != 1:
            raise SwerveError(f"the history of query {query} must begin with round 1")
        cursors[query]["segment"] = line
        cursors[query]["ahead"] = lines[1].since if len(lines) > 1 else NEVER
        cursors[query]["clicks"] = split(seed, "clicks", query)
        cursors[query]["contexts"] = split(seed, "contexts", query)
        for number, entry in enumerate(lines):
            if len(entry.chances) != arms:
                raise SwerveError(f"query {query}, round {entry.since}: {len(entry.chances)} click probabilities for {arms} arms")
            segments[line]["since"] = entry.since
            segments[line]["until"] = lines[number + 1].since if number + 1 < len(lines) else NEVER
            if number > 0:  # the first round of a query cannot be an event
                segments[line]["event"], segments[line]["signal"] = entry.event, entry.signal
            segments[line]["chance"][:arms] = entry.chances
            segments[line]["best"] = max(entry.chances)
            owner[line] = query
            line += 1
    table = scene_of(scene or [], facts or {})
    return World(spec, seed, arms, features, schedule, rounds, cursors, segments, table, owner)
