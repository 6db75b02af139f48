"""What an environment must answer, and the tables that a drawn problem instance consists of.

An environment spec describes a family of problems; `world(spec, seed)` draws one instance of it. The instance is data: who asks
when (`schedule`), where each query stands (`places`), and the click probabilities between events (`segments`). The four
questions of a round (is it an event, what is the context, does this arm get a click, what would the best arm get) are verbs
over that data. Everything random is keyed by (seed, query, round), never by what a policy does, so that runs of different
policies are paired.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from swerve.core.errors import SwerveError
from swerve.core.rng import at, split, unit
from swerve.core.spec import Spec, record_dtype
from swerve.core.tables import Table, capacity, nested
from swerve.core.verbs import kernel, verb

NEVER = np.iinfo(np.int64).max


@kernel
def _advance(spec, scene, segments, place):
    place.t += 1
    place.signal = 0
    if place.t == place.ahead:
        place.segment += 1
        line = segments[place.segment]
        place.ahead = line.until
        place.signal = line.signal
        return line.event
    return 0


@kernel
def _chance(spec, scene, segments, place, arm):
    return segments[place.segment].chance[arm]


@kernel
def _best(spec, scene, segments, place):
    return segments[place.segment].best


@kernel
def _click(spec, scene, segments, place, arm):
    return unit(at(place.clicks, place.t)) < chance(spec, scene, segments, place, arm)


@verb
def world(spec, seed):
    """Draw a problem instance."""


@verb(default=_advance)
def advance(spec, scene, segments, place):
    """Go to the query's next round; 1 if it is an event, else 0."""


@verb
def context(spec, scene, place, told, x):
    """Write the round's context into x."""


@verb(default=_chance)
def chance(spec, scene, segments, place, arm):
    """An arm's click probability in this round."""


@verb(default=_best)
def best(spec, scene, segments, place):
    """The best arm's click probability in this round."""


@verb(default=_click)
def click(spec, scene, segments, place, arm):
    """Whether this arm would be clicked in this round."""


PLACE = record_dtype(
    [
        ("t", "i8"),  # rounds this query has had
        ("segment", "i8"),  # which line of `segments` holds now
        ("ahead", "i8"),  # the round of the next line
        ("signal", "i8"),  # what this round's context announces, 0 for nothing: not every event is announced in its own round
        ("clicks", "u8"),  # stream of click uniforms, one per round
        ("contexts", "u8"),  # stream of contexts
    ]
)


@dataclasses.dataclass
class World:
    """One drawn instance. `k`, `shift` (ε_S) and `gap` (Δ) are what the paper's bounds are stated in."""

    spec: Spec
    seed: int
    arms: int
    features: int
    schedule: NDArray[np.int32]
    rounds: NDArray[np.int64]  # how many rounds each query has
    places: Table
    segments: Table
    scene: Table
    owner: NDArray[np.int64]  # the query of each segment

    @property
    def queries(self) -> int:
        """How many queries there are."""
        return len(self.places)

    @property
    def events(self) -> NDArray[np.int64]:
        """The number of events of each query."""
        return np.bincount(self.owner, weights=self.segments["event"], minlength=self.queries).astype(np.int64)

    @property
    def k(self) -> int:
        """The number of events, all queries together."""
        return int(self.events.sum())

    @property
    def chances(self) -> NDArray[np.float64]:
        """Click probabilities, one line per segment."""
        table: NDArray[np.float64] = self.segments["chance"][:, : self.arms]
        return table

    @property
    def shift(self) -> float:
        """ε_S: the least that a formerly best arm falls short of the new best at an event (inf without events).

        An event must cost at least one formerly optimal arm that much; with ties, the one that falls furthest counts. Where
        click probabilities glide, what they come to before the next event counts.
        """
        chances, out = self.chances, np.inf
        for i in np.flatnonzero(self.segments["event"]):
            end = i  # the last line before the query's next event
            while end + 1 < len(chances) and self.owner[end + 1] == self.owner[i] and not self.segments["event"][end + 1]:
                end += 1
            former = chances[i - 1] == chances[i - 1].max()
            out = min(out, chances[end].max() - chances[end][former].min())
        return float(out)

    @property
    def gap(self) -> float:
        """Δ: the least suboptimality of a suboptimal arm in any round (inf when no arm is suboptimal)."""
        short = self.chances.max(axis=1, keepdims=True) - self.chances
        positive = short[short > 0.0]
        return float(positive.min()) if positive.size else float("inf")

    @property
    def distance(self) -> int:
        """The least number of rounds between two events of one query, the start counted as one (NEVER without events)."""
        out, query, last = int(NEVER), -1, 1
        for owner, line in zip(self.owner, self.segments, strict=True):
            if owner != query:
                query, last = owner, 1
            elif line["event"]:
                out, last = min(out, int(line["since"]) - last), int(line["since"])
        return out


@dataclasses.dataclass(frozen=True)
class Line:
    """From round `since` of a query on: its click probabilities, whether that round is an event, and what it announces.

    `signal` is 0 when nothing is announced; what other numbers mean is up to the environment's `context`.
    """

    since: int
    chances: list[float]
    event: bool = True
    signal: int = 1


def segment_dtype(arms: int) -> np.dtype[Any]:
    """Click probabilities from round `since` to before round `until`, and what happens in its first round."""
    room = capacity("arms", arms)
    return record_dtype(
        [("since", "i8"), ("until", "i8"), ("event", "i8"), ("signal", "i8"), ("best", "f8"), ("chance", "f8", room)]
    )


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
    """A world from each query's history: the rounds at which its click probabilities change, round 1 first, and what they are then.

    An entry (round, probabilities) is an announced event; a `Line` can say otherwise.

    `scene` and `facts` are what the environment's own `context` needs to know: fields, and their values.
    """
    capacity("arms", arms), capacity("features", features)
    rounds = np.bincount(schedule, minlength=len(histories)).astype(np.int64)
    segments = np.zeros(sum(map(len, histories)), segment_dtype(arms))
    places = np.zeros(len(histories), PLACE)
    owner = np.zeros(len(segments), np.int64)
    line = 0
    for query, history in enumerate(histories):
        lines = [entry if isinstance(entry, Line) else Line(*entry) for entry in history]
        if not lines or lines[0].since != 1:
            raise SwerveError(f"the history of query {query} must begin with round 1")
        places[query]["segment"] = line
        places[query]["ahead"] = lines[1].since if len(lines) > 1 else NEVER
        places[query]["clicks"] = split(seed, "clicks", query)
        places[query]["contexts"] = split(seed, "contexts", query)
        for number, entry in enumerate(lines):
            if len(entry.chances) != arms:
                raise SwerveError(f"query {query}, round {entry.since}: {len(entry.chances)} click probabilities for {arms} arms")
            segments[line]["since"] = entry.since
            segments[line]["until"] = lines[number + 1].since if number + 1 < len(lines) else NEVER
            if number > 0:  # in its first round a query has nothing to differ from
                segments[line]["event"], segments[line]["signal"] = entry.event, entry.signal
            segments[line]["chance"][:arms] = entry.chances
            segments[line]["best"] = max(entry.chances)
            owner[line] = query
            line += 1
    told = np.zeros(1, nested(scene or []))
    for name, fact in (facts or {}).items():
        told[0][name] = fact
    return World(spec, seed, arms, features, schedule, rounds, places, segments, told, owner)
