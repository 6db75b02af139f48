"""What an environment must answer, and the tables that a drawn problem instance consists of.

An environment spec describes a family of problems; `world(spec, seed)` draws one instance of it. The instance is data: who asks
when (`schedule`), where each query stands (`places`), and the click probabilities between events (`segments`). The four
questions of a round (is it an event, what is the context, does this arm get a click, what would the best arm get) are verbs
over that data. Everything random is keyed by (seed, query, round), never by what a policy does, so that runs of different
policies are paired.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from swerve.core.errors import SwerveError
from swerve.core.rng import at, split, unit
from swerve.core.spec import Spec, record_dtype
from swerve.core.tables import Table, capacity, nested
from swerve.core.verbs import Verb, kernel

NEVER = np.iinfo(np.int64).max


@kernel
def _advance(spec, scene, segments, place):
    place.t += 1
    if place.t == place.ahead:
        place.segment += 1
        place.ahead = segments[place.segment].until
        return 1
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


world = Verb("world", "Draw a problem instance: `world(spec, seed)`.")
advance = Verb(
    "advance", "Go to the query's next round; 1 if it is an event, else 0: `advance(spec, scene, segments, place)`.", _advance
)
context = Verb("context", "Write the round's context into x: `context(spec, scene, place, told, x)`.")
chance = Verb("chance", "An arm's click probability in this round: `chance(spec, scene, segments, place, arm)`.", _chance)
best = Verb("best", "The best arm's click probability in this round: `best(spec, scene, segments, place)`.", _best)
click = Verb("click", "Whether this arm would be clicked in this round: `click(spec, scene, segments, place, arm)`.", _click)

PLACE = record_dtype(
    [
        ("t", "i8"),  # rounds this query has had
        ("segment", "i8"),  # which line of `segments` holds now
        ("ahead", "i8"),  # the round of its next event
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
        return np.bincount(self.owner, minlength=self.queries).astype(np.int64) - 1

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

        An event must cost at least one formerly optimal arm that much; with ties, the one that falls furthest counts.
        """
        chances, out = self.chances, np.inf
        for i in range(1, len(chances)):
            if self.owner[i] == self.owner[i - 1]:
                former = chances[i - 1] == chances[i - 1].max()
                out = min(out, chances[i].max() - chances[i][former].min())
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
        out = int(NEVER)
        starts = self.segments["since"]
        for i in range(1, len(starts)):
            if self.owner[i] == self.owner[i - 1]:
                out = min(out, int(starts[i] - starts[i - 1]))
        return out


def segment_dtype(arms: int) -> np.dtype[Any]:
    """Click probabilities between two events: from round `since` to before round `until`."""
    return record_dtype([("since", "i8"), ("until", "i8"), ("best", "f8"), ("chance", "f8", capacity("arms", arms))])


def assemble(
    spec: Spec,
    seed: int,
    *,
    arms: int,
    features: int,
    histories: list[list[tuple[int, list[float]]]],
    schedule: NDArray[np.int32],
    scene: list[tuple[Any, ...]] | None = None,
    facts: dict[str, Any] | None = None,
) -> World:
    """A world from each query's history: the rounds at which its click probabilities change, round 1 first, and what they are then.

    `scene` and `facts` are what the environment's own `context` needs to know: fields, and their values.
    """
    capacity("arms", arms), capacity("features", features)
    rounds = np.bincount(schedule, minlength=len(histories)).astype(np.int64)
    segments = np.zeros(sum(map(len, histories)), segment_dtype(arms))
    places = np.zeros(len(histories), PLACE)
    owner = np.zeros(len(segments), np.int64)
    line = 0
    for query, history in enumerate(histories):
        if not history or history[0][0] != 1:
            raise SwerveError(f"the history of query {query} must begin with round 1")
        places[query]["segment"] = line
        places[query]["ahead"] = history[1][0] if len(history) > 1 else NEVER
        places[query]["clicks"] = split(seed, "clicks", query)
        places[query]["contexts"] = split(seed, "contexts", query)
        for number, (since, chances) in enumerate(history):
            if len(chances) != arms:
                raise SwerveError(f"query {query}, round {since}: {len(chances)} click probabilities for {arms} arms")
            until = history[number + 1][0] if number + 1 < len(history) else NEVER
            segments[line]["since"], segments[line]["until"] = since, until
            segments[line]["chance"][:arms] = chances
            segments[line]["best"] = max(chances)
            owner[line] = query
            line += 1
    told = np.zeros(1, nested(scene or []))
    for name, fact in (facts or {}).items():
        told[0][name] = fact
    return World(spec, seed, arms, features, schedule, rounds, places, segments, told, owner)
