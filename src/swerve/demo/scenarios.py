"""Scenarios as data: the wanted meanings, the number of requests and the news about each query, day by day.

Each file of `scenarios/` is one scenario. A point states the values from a time on; omitted values stay as they were. Between
points values are constant (`between = "step"`) or interpolated to the next point ("linear").
"""

from __future__ import annotations

import datetime
import functools
import itertools
import tomllib
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta

from swerve.core.errors import SwerveError, nearest, shown
from swerve.demo import tail
from swerve.demo.corpus import documents, meanings, queries

DAY = 86_400.0
#: Shares of a background query, which never change: the leader's and the second's; the other meanings share the rest equally.
LEADER_SHARE, SECOND_SHARE = 0.5, 0.2
#: Stories per hour about a query at rest.
STORIES_AT_REST = 1.0
#: Shares in a file may be rounded: their sum may differ from 1 (or 100 %) by this much of it.
SUM_TOLERANCE = 0.02
PERCENT = 100.0


class Step(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A point in a file."""

    at: Any  # a date or a time
    shares: dict[str, Annotated[float, Meta(ge=0)]] | None = None
    volume: Annotated[float, Meta(gt=0)] | None = None
    news: Annotated[float, Meta(ge=0)] | None = None
    publish: tuple[str, ...] = ()


class Asked(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A query in a file."""

    text: str
    per_hour: Annotated[float, Meta(gt=0)]
    points: Annotated[tuple[Step, ...], Meta(min_length=1)]
    between: Literal["step", "linear"] = "step"


class File(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A scenario in a file."""

    name: str
    title: str
    story: str
    begins: Any
    days: Annotated[float, Meta(gt=0)]
    background: Annotated[float, Meta(ge=0)]
    tail: Annotated[float, Meta(ge=0)] = 0.0  # requests per hour for rare queries, once all of them have begun
    query: tuple[Asked, ...] = ()


class Point(NamedTuple):
    """The values from `at` seconds after the beginning on: shares of the meanings, factor of requests, stories per hour."""

    at: float
    shares: dict[str, float]
    volume: float
    news: float


class Story(NamedTuple):
    """One query of a scenario: requests per hour at rest, its points in time, and the times at which keys are published.

    A rare query is `about` an ambiguous one and `begins` at a time of its own; the others are there from the beginning.
    """

    query: str
    per_hour: float
    linear: bool
    points: tuple[Point, ...]
    published: tuple[tuple[float, str], ...] = ()
    about: str = ""
    begins: float = 0.0

    @property
    def subject(self) -> str:
        """The ambiguous query whose meanings its users want."""
        return self.about or self.query


class Scenario(NamedTuple):
    """Several days of searching: the famous queries, and a tail of rare ones in the order in which they begin. Times inside are
    seconds since `begins` (unix seconds, UTC)."""

    name: str
    title: str
    story: str
    begins: float
    days: float
    queries: tuple[Story, ...]
    tail: tuple[Story, ...] = ()

    @property
    def length(self) -> float:
        """Seconds from beginning to end."""
        return self.days * DAY

    def known(self, since: float) -> frozenset[str]:
        """Return the keys published up to `since` seconds after the beginning."""
        return frozenset(key for story in self.queries for at, key in story.published if at <= since)


def names() -> tuple[str, ...]:
    """Return the names of the scenarios, in the order in which the page offers them."""
    found = {entry.name.removesuffix(".toml") for entry in _folder().iterdir() if entry.name.endswith(".toml")}
    first = [name for name in ("hurricane", "independence-day", "tomato", "storm", "quiet") if name in found]
    return (*first, *sorted(found - set(first)))


@functools.lru_cache
def load(name: str) -> Scenario:
    """Return a scenario by its name.

    >>> load("hurricane").title
    'The hurricanes of 2017'
    """
    if name not in names():
        raise SwerveError(f"there is no scenario {shown(name)}; there are {', '.join(names())}{nearest(name, names())}")
    return read((_folder() / f"{name}.toml").read_text(encoding="utf-8"), f"{name}.toml")


def read(text: str, name: str) -> Scenario:
    """Parse a scenario; `name` is the file's name, for errors."""
    try:
        file = msgspec.convert(tomllib.loads(text), File)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise SwerveError(f"{name}: {error}") from None
    if name != f"{file.name}.toml":
        raise SwerveError(f"{name}: name = {shown(file.name)} is not allowed; it must be that of the file")
    begins = _unix(file.begins, name)
    stories = [_story(asked, begins, file.days * DAY, f"{name}: query {asked.text!r}") for asked in file.query]
    asked = [story.query for story in stories]
    if len(set(asked)) < len(asked):
        raise SwerveError(f"{name}: {', '.join(asked)}: each query may be there once")
    others = [query for query in queries() if query not in asked]
    stories += [_at_rest(query, file.background / len(others)) for query in others if file.background]
    if not stories:
        raise SwerveError(f"{name}: the scenario has no queries; background must be > 0 or there must be a [[query]]")
    rare = _tail(file.tail, file.days * DAY) if file.tail else ()
    return Scenario(file.name, file.title, file.story, begins, file.days, tuple(stories), rare)


def _story(asked: Asked, begins: float, length: float, where: str) -> Story:
    if asked.text not in queries():
        raise SwerveError(f"{where} is not in the corpus{nearest(asked.text, queries())}")
    points: list[Point] = []
    published: list[tuple[float, str]] = []
    keys = {document.published for document in documents() if document.published is not None}
    for step in asked.points:
        at = _unix(step.at, where) - begins
        before = points[-1] if points else Point(-1.0, {}, 1.0, STORIES_AT_REST)
        if not points and at != 0.0:
            raise SwerveError(f"{where}: the first point is at {step.at}; it must be when the scenario begins")
        if at <= before.at or at >= length:
            raise SwerveError(f"{where}: the point at {step.at} must come after the one before, and before the scenario's end")
        if unknown := [key for key in step.publish if key not in keys]:
            raise SwerveError(f"{where}: nothing in the corpus waits for {shown(unknown[0])} to be published")
        shares = before.shares if step.shares is None else _shares(asked.text, step.shares, f"{where}, {step.at}")
        if not shares:
            raise SwerveError(f"{where}: the first point must have shares")
        volume = before.volume if step.volume is None else step.volume
        points.append(Point(at, shares, volume, before.news if step.news is None else step.news))
        published += [(at, key) for key in step.publish]
    return Story(asked.text, asked.per_hour, asked.between == "linear", tuple(points), tuple(published))


def _shares(query: str, given: dict[str, float], where: str) -> dict[str, float]:
    """Return the shares of every meaning of the query, summing to 1; a file may have them rounded, or in percent."""
    known = meanings(query)
    for meaning in given:
        if meaning not in known:
            raise SwerveError(f"{where}: nothing in the corpus means {shown(meaning)}; there is {', '.join(known)}")
    total = sum(given.values())
    if not (abs(total - 1.0) <= SUM_TOLERANCE or abs(total - PERCENT) <= SUM_TOLERANCE * PERCENT):
        raise SwerveError(f"{where}: shares sum to {total:g}; they must sum to 1, or to 100")
    return {meaning: given.get(meaning, 0.0) / total for meaning in known}


def _at_rest(query: str, per_hour: float) -> Story:
    """Return a background query, with constant shares of the meanings that always exist.

    The first meaning of its file leads for every other query, the second one for the rest: a search engine's own order is right for
    some queries and wrong for others.
    """
    always = {document.meaning for document in documents() if document.query == query and document.published is None}
    ordered = [meaning for meaning in meanings(query) if meaning in always]
    if queries().index(query) % 2:
        ordered[:2] = reversed(ordered[:2])
    rest = (1.0 - LEADER_SHARE - SECOND_SHARE) / max(len(ordered) - 2, 1)
    weights = dict(zip(ordered, [LEADER_SHARE, SECOND_SHARE, *itertools.repeat(rest, len(ordered))], strict=False))
    total = sum(weights.values())
    shares = {meaning: weights.get(meaning, 0.0) / total for meaning in meanings(query)}
    return Story(query, per_hour, False, (Point(0.0, shares, 1.0, STORIES_AT_REST),))


def _tail(per_hour: float, length: float) -> tuple[Story, ...]:
    """Return the rare queries, in the order in which they begin."""
    made = [
        Story(one.text, asked, False, (Point(0.0, tail.shares(one), 1.0, STORIES_AT_REST),), about=one.about, begins=begins)
        for one, asked, begins in zip(tail.rare(), tail.frequencies(per_hour), tail.beginnings(length), strict=True)
    ]
    return tuple(sorted(made, key=lambda story: story.begins))


def _unix(when: Any, where: str) -> float:
    """Return a date or time of a file as unix seconds; without a time zone it is UTC."""
    if isinstance(when, datetime.date) and not isinstance(when, datetime.datetime):
        when = datetime.datetime(when.year, when.month, when.day)
    if not isinstance(when, datetime.datetime):
        raise SwerveError(f"{where}: {shown(when)} is no time; it must be like 2017-08-21 or 2017-08-21T18:00:00Z")
    return (when if when.tzinfo else when.replace(tzinfo=datetime.UTC)).timestamp()


def _folder() -> Traversable:
    return resources.files("swerve.demo") / "scenarios"
