"""Search traffic with whole result pages: people read down a page and may click several results."""

from __future__ import annotations

import dataclasses
import math
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from swerve.core.examination import CLICKS, NO_GRADE, SLOTS, grades_of
from swerve.core.rng import Stream, at, split
from swerve.core.spec import Choice, Count, Natural, Probability, Range, record_dtype
from swerve.core.tables import CAPACITIES, Table
from swerve.core.verbs import kernel
from swerve.environments.browsing import browse, ideal, offer, rate, worth
from swerve.environments.clicks import any_click, best_clicks, best_gains, clicks_on, gain_of, intent_of
from swerve.environments.histories import INTENTS, MOVES
from swerve.environments.schedule import ORDERS
from swerve.environments.shifts import Shifts
from swerve.environments.worlds import World, segment_dtype, world

PAGE_MOVES = (*MOVES, "intents")
VALUES = ("gain", "click")
SCORES = ("hidden", "sent")
SENT = SCORES.index("sent")
GAIN = VALUES.index("gain")

# people with three intents, which share a page: each intent has its own results
OWN_RESULTS = 5  # of each intent; the results beyond those of all intents belong to none
OWN_LOW, OWN_HIGH = 0.2, 0.8  # attractiveness of a result for the people of its own intent
FOREIGN_HIGH = 0.05  # and, at most, for all others
SHARE_LOW, SHARE_HIGH = 0.4, 0.7  # share of the leading intent
SEARCHED_SLOTS = 5  # the best page for `click` is found by a search of all pages, which more slots make too long


class Pages(Shifts):
    """Queries whose result pages are read slot by slot, with the shifts and signals of `Shifts`.

    The first `slots` of the `results` candidates of a query are shown. People read a page by the click model `clicks` (see
    `swerve.core.examination`) and may click several results; a click probability of `Shifts` is the attractiveness of a result:
    the probability that a person who looks at it clicks it. `click_scale` multiplies all of them.

    `engine` is the quality of the given order, which sorts the results by their attractiveness in the first round plus a normal
    error with this standard deviation, and never adapts: 0 is the perfect order, inf a random one. With `right_share` > 0 the top
    of the given order is the best result in exactly this share of the queries; in the others the best result has changed places
    with a random other one of the page.

    With `scores="sent"` policies also see the engine's scores, the attractiveness with its error, as grades
    (`swerve.core.examination.grades_of`).

    `moves` may also be `intents`: three groups of people, with 5 results each that attract them by U[0.2, 0.8]; all other results
    attract them by U[0, 0.05]. One group has a share of U[0.4, 0.7], the rest is divided at random; at an event another group
    takes the lead, and all shares are redrawn.

    `value` is the value of a page, and regret is the value lost to the best page of the round:

    - `gain`: discounted cumulative gain, Σ attractiveness / log₂(1 + position), whatever the click model;
    - `click`: the probability of at least one click.

    Source: the click models are named in `swerve.core.examination`. Discounted cumulative gain: Järvelin and Kekäläinen (ACM TOIS
    20, 2002); the probability of a click as the value of a page with several intents: Radlinski, Kleinberg and Joachims (ICML
    2008).

    >>> drawn = world(Pages(queries=2, impressions=200, events_high=1, results=12, clicks="pbm", engine=0), 0)
    >>> first = drawn.segments[0]
    >>> [int(arm) for arm in first["given"][:3]] == [int(arm) for arm in (-first["chance"]).argsort()[:3]]
    True
    """

    queries: Natural = 40
    impressions: Natural = 160_000
    results: Annotated[int, Range(3, CAPACITIES[-1])] = 20
    shifting_share: Probability = 1.0
    events_high: Count = 4
    best_low: Probability = 0.4
    best_high: Probability = 0.8
    other_low: Probability = 0.0
    other_high: Probability = 0.3
    moves: Annotated[str, Choice(PAGE_MOVES)] = "all"
    order: Annotated[str, Choice(ORDERS)] = "uniform"
    clicks: Annotated[str, Choice(CLICKS)] = "ubm"
    slots: Annotated[int, Range(1, SLOTS)] = 10
    engine: float = 0.05
    right_share: Probability = 0.0
    scores: Annotated[str, Choice(SCORES)] = "hidden"
    click_scale: Annotated[float, Range(0.0, 1.0, open_low=True)] = 1.0
    value: Annotated[str, Choice(VALUES)] = "gain"

    def check(self) -> None:
        super().check()
        if self.slots > self.results:
            self.refuse("slots", f"≤ results = {self.results}")
        if not self.engine >= 0.0:
            self.refuse("engine", "≥ 0, where inf is a random order")
        if self.moves == "intents":
            if self.results < INTENTS * OWN_RESULTS:
                self.refuse("results", f"≥ {INTENTS * OWN_RESULTS}, of which each of {INTENTS} intents has {OWN_RESULTS}")
            if self.glide_rounds > 0:
                self.refuse("glide_rounds", "0 if moves = intents")
        if self.value == "click" and self.slots > SEARCHED_SLOTS:
            self.refuse("slots", f"≤ {SEARCHED_SLOTS} if value = click")


def page_segment_dtype(spec: Pages) -> np.dtype[Any]:
    """Return the record type of a segment: that of other environments, the given order, and the best page's value.

    `share` and `attraction` are by intent. Without `intents` there is one, and its attractiveness is the click probability.
    """
    plain = segment_dtype(spec.results)
    assert plain.fields is not None
    room = plain["chance"].shape[0]
    intents = INTENTS if spec.moves == "intents" else 1
    return record_dtype(
        [
            *[(name, plain.fields[name][0]) for name in plain.names or ()],
            ("given", "i8", room),
            ("grade", "u1", room),  # of the results in the given order; `NO_GRADE` where scores are hidden
            ("ideal", "f8"),
            ("share", "f8", intents),
            ("attraction", "f8", (intents, room)),
        ]
    )


def normal_of(stream: Stream) -> float:
    """Draw a standard normal number (Box and Muller)."""
    radius = math.sqrt(-2.0 * math.log(1.0 - stream.uniform()))
    return radius * math.cos(2.0 * math.pi * stream.uniform())


def given_order(spec: Pages, stream: Stream, chances: list[float], right: bool | None) -> tuple[list[int], bytes]:
    """Return the engine's order of the results, and the grades of its scores; none if its scores are hidden or mean nothing.

    `right` says whether its top is the best one; None leaves that to its errors.
    """
    arms = list(range(spec.results))
    scores = chances
    if math.isinf(spec.engine):
        out = stream.choose(spec.results, spec.results)
    elif spec.engine > 0.0:
        scores = [chance + spec.engine * normal_of(stream) for chance in chances]
        out = sorted(arms, key=lambda arm: -scores[arm])
    else:
        out = sorted(arms, key=lambda arm: -chances[arm])
    if right is not None:
        best = out.index(max(arms, key=lambda arm: chances[arm]))
        out[0], out[best] = out[best], out[0]
        if not right:
            other = stream.integer(1, spec.slots - 1) if spec.slots > 1 else stream.integer(1, spec.results - 1)
            out[0], out[other] = out[other], out[0]
    if spec.scores == "hidden" or math.isinf(spec.engine):
        return out, b""
    ordered = sorted((scores[arm] for arm in out), reverse=True)  # an exchanged top has the score of its position
    return out, grades_of(ordered)


def intent_shares(stream: Stream, lead: int) -> list[float]:
    """Draw the shares of the intents, of which `lead` is the largest group."""
    first = stream.uniform(SHARE_LOW, SHARE_HIGH)
    cut = stream.uniform()
    # the rest is divided such that neither part exceeds the leader's share
    least = max(0.0, 1.0 - 2.0 * first)
    second = least + (1.0 - first - 2.0 * least) * cut
    out = [second, 1.0 - first - second]
    out.insert(lead, first)
    return out


def draw_attractions(spec: Pages, stream: Stream) -> list[list[float]]:
    """Draw the attractiveness of every result for the people of every intent."""
    owned = stream.choose(spec.results, INTENTS * OWN_RESULTS)
    out = []
    for intent in range(INTENTS):
        own = set(owned[intent * OWN_RESULTS : (intent + 1) * OWN_RESULTS])
        out.append(
            [stream.uniform(OWN_LOW, OWN_HIGH) if arm in own else FOREIGN_HIGH * stream.uniform() for arm in range(spec.results)]
        )
    return out


def fill_intents(spec: Pages, seed: int, owner: NDArray[np.int64], segments: Table) -> None:
    """Replace the click probabilities by those of people with several intents; events stay where they are."""
    query, lead, shares, stream = -1, 0, [0.0], Stream(0)
    attractions: list[list[float]] = []
    for line, segment in enumerate(segments):
        if owner[line] != query:
            query = int(owner[line])
            stream = Stream(split(seed, "intents", query))
            attractions = draw_attractions(spec, stream)
            lead = stream.integer(0, INTENTS - 1)
            shares = intent_shares(stream, lead)
        elif segment["event"]:
            lead = (lead + stream.integer(1, INTENTS - 1)) % INTENTS
            shares = intent_shares(stream, lead)
        segment["share"] = shares
        segment["attraction"][:, : spec.results] = attractions
        segment["chance"][: spec.results] = np.asarray(shares) @ np.asarray(attractions)


@world.register(Pages)
def _(spec: Pages, seed: int) -> World:
    moves = "all" if spec.moves == "intents" else spec.moves
    plain = {field.name: getattr(spec, field.name) for field in dataclasses.fields(Shifts)}
    drawn: World = world(Shifts(**{**plain, "moves": moves}), seed)
    segments = np.zeros(len(drawn.segments), page_segment_dtype(spec))
    for name in drawn.segments.dtype.names or ():
        segments[name] = drawn.segments[name]
    if spec.moves == "intents":
        fill_intents(spec, seed, drawn.owner, segments)
    else:
        segments["share"] = 1.0
        segments["attraction"][:, 0] = segments["chance"]
    for name in ("chance", "attraction"):
        segments[name] *= spec.click_scale
    segments["best"] = segments["chance"].max(axis=1)
    if spec.value == "gain":
        segments["ideal"] = best_gains(segments["chance"][:, : spec.results], spec.slots)
    else:
        segments["ideal"] = best_clicks(spec.clicks, segments["share"], segments["attraction"][:, :, : spec.results], spec.slots)
    orders, grades = given_orders(spec, seed, drawn, segments)
    segments["given"][:, : spec.results] = orders
    segments["grade"][:, : spec.results] = grades
    return dataclasses.replace(drawn, spec=spec, segments=segments)


def given_orders(spec: Pages, seed: int, drawn: World, segments: Table) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Return the given order of every segment, that of its query, and the grades of the scores."""
    right: list[bool | None] = [None] * spec.queries
    if spec.right_share > 0.0:
        lottery = Stream(split(seed, "right")).choose(spec.queries, spec.queries)
        count = round(spec.right_share * spec.queries)
        for number, query in enumerate(lottery):
            right[query] = number < count
    first = drawn.cursors["segment"]
    out = np.zeros((spec.queries, spec.results), np.int64)
    grades = np.full((spec.queries, spec.results), NO_GRADE, np.uint8)
    for query in range(spec.queries):
        # the engine knows how attractive results are, not how often people click: its error does not shrink with click_scale
        chances = (segments[first[query]]["chance"][: spec.results] / spec.click_scale).tolist()
        out[query], graded = given_order(spec, Stream(split(seed, "engine", query)), chances, right[query])
        if graded:
            grades[query] = np.frombuffer(graded, np.uint8)
    return out[drawn.owner], grades[drawn.owner]


@offer.register(Pages)
def _(spec, scene, segments, cursor, given):
    for rank in range(len(given)):
        given[rank] = segments[cursor.segment].given[rank]


@rate.register(Pages)
def _(spec, scene, segments, cursor, grades):
    if spec.scores != SENT:
        return False
    for rank in range(len(grades)):
        grades[rank] = segments[cursor.segment].grade[rank]
    return True


@browse.register(Pages)
def _(spec, scene, segments, cursor, page):
    line = segments[cursor.segment]
    word = at(cursor.clicks, cursor.t)
    intent = intent_of(line.share, word)
    return clicks_on(spec.clicks, line.attraction[intent], page, word)


@kernel
def value_of(spec, line, page):
    """Return the value of a page in a segment."""
    if spec.value == GAIN:
        return gain_of(line.chance, page)
    total = 0.0
    for intent in range(len(line.share)):
        total += line.share[intent] * any_click(spec.clicks, line.attraction[intent], page)
    return total


@worth.register(Pages)
def _(spec, scene, segments, cursor, page):
    return value_of(spec, segments[cursor.segment], page)


@ideal.register(Pages)
def _(spec, scene, segments, cursor):
    return segments[cursor.segment].ideal
