"""Intents over time: the wanted meanings of a scenario and the results that the search engine offers."""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable
from typing import NamedTuple

from swerve.core.errors import SwerveError, nearest, shown
from swerve.demo.clicks import chance
from swerve.demo.corpus import Document
from swerve.demo.pages import Pages
from swerve.demo.scenarios import Point, Scenario, Story
from swerve.demo.search import Search

HOUR = 3600.0
#: Seconds for which shares, rates and leaders are constant; they are computed for each slice.
SLICE_SECONDS = 300.0
#: Results that the search engine returns.
RESULTS = 10
#: A shift by hand: the share of its meaning, the factor of requests, and the seconds that it lasts; then it fades over as many.
SHIFT_SHARE, SHIFT_FACTOR, SHIFT_SECONDS = 0.75, 4.0, 12.0 * HOUR
#: News about a shift by hand: the factor of stories, and additional stories per hour.
SHIFT_STORIES_FACTOR, SHIFT_STORIES = 6.0, 12.0
#: The daily rhythm: its amplitude, and the hour (UTC) at which traffic rises above its average.
AMPLITUDE, MORNING, DAY_HOURS = 0.5, 9.0, 24.0


class View(NamedTuple):
    """A query at one time: shares of its meanings, the offer in the search engine's order, each document's probability of a click
    on top by its id, the document with the highest probability, and the value of each page of the offer."""

    shares: dict[str, float]
    offer: tuple[Document, ...]
    chances: dict[str, float]
    leader: Document
    pages: Pages


class Event(NamedTuple):
    """A change of the best document: in seconds since the scenario's beginning here, in unix time in the world."""

    query: str
    at: float
    before: Document
    after: Document


class Wish(NamedTuple):
    """A shift by hand: the meaning that takes the lead, the time of the shift, and the meaning that leads in the scenario."""

    meaning: str
    since: float
    instead: str


def rhythm(now: float) -> float:
    """Return the factor of an hour's traffic, 1 on average: three times as much in the afternoon (UTC) as at night."""
    return 1.0 + AMPLITUDE * math.sin(2.0 * math.pi * (now / HOUR - MORNING) / DAY_HOURS)


class Intents:
    """A scenario with a search engine. All times are seconds since the scenario's beginning."""

    def __init__(self, scenario: Scenario, search: Search) -> None:
        self.scenario, self.search = scenario, search
        self.stories = {story.query: story for story in (*scenario.queries, *scenario.tail)}
        self._times = {query: [point.at for point in story.points] for query, story in self.stories.items()}
        self._published = sorted({0.0, *(at for story in scenario.queries for at, _ in story.published)})
        self._known = [scenario.known(at) for at in self._published]
        self._found: dict[tuple[str, frozenset[str]], tuple[Document, ...]] = {}
        self._scripted: dict[str, tuple[object, View]] = {}
        self._wished: dict[str, tuple[object, View]] = {}
        self._wishes: dict[str, Wish] = {}

    def known(self, since: float) -> frozenset[str]:
        """Return the published keys at a time."""
        return self._known[max(bisect.bisect_right(self._published, since) - 1, 0)]

    def find(self, text: str, since: float) -> tuple[Document, ...]:
        """Return the search engine's results for a text; the engine is asked once per set of published keys."""
        known = self.known(since)
        found = self._found.get((text, known))
        if found is None:
            found = self._found[text, known] = tuple(self.search.find(text, RESULTS, known))
        return found

    def view(self, query: str, since: float) -> View:
        """Return the shares and the offer of a query at a time."""
        scripted = self._script(query, since)
        wish = self._wish(query, scripted)
        if wish is None:
            return scripted
        key = (wish, scripted)
        made = self._wished.get(query)
        if made is None or made[0] != key:
            made = self._wished[query] = (
                key,
                _view(self.stories[query].subject, _taken(scripted.shares, wish.meaning), scripted.offer),
            )
        return made[1]

    def _level(self, query: str, since: float, of: Callable[[Point], float]) -> float:
        """Return a number of the query's points at a time, interpolated if the story is linear."""
        story = self.stories[query]
        k, part = self._segment(story, since)
        level = of(story.points[k])
        return level + part * (of(story.points[k + 1]) - level) if part else level

    def rate(self, query: str, since: float) -> float:
        """Return the requests per hour, before the daily rhythm."""
        volume = self._level(query, since, lambda point: point.volume)
        return self.stories[query].per_hour * (volume + self._burst(query, since, SHIFT_FACTOR) - 1.0)

    def news(self, query: str, since: float) -> float:
        """Return the expected stories per hour."""
        news = self._level(query, since, lambda point: point.news)
        return news * self._burst(query, since, SHIFT_STORIES_FACTOR) + SHIFT_STORIES * (self._burst(query, since, 2.0) - 1.0)

    def events(self, query: str) -> list[Event]:
        """Return the changes of the best document that the scenario contains."""
        out: list[Event] = []
        before = self._script(self._checked(query), 0.0).leader
        for k in range(1, math.ceil(self.scenario.length / SLICE_SECONDS)):
            leader = self._script(query, k * SLICE_SECONDS).leader
            if leader.id != before.id:
                out.append(Event(query, k * SLICE_SECONDS, before, leader))
            before = leader
        return out

    def others(self, query: str, since: float) -> list[str]:
        """Return the meanings that could take the lead: those on offer that do not lead now."""
        view = self.view(self._checked(query), since)
        return [meaning for meaning in dict.fromkeys(one.meaning for one in view.offer) if meaning != view.leader.meaning]

    def shift(self, query: str, meaning: str, since: float) -> None:
        """Give a meaning the lead now, until the scenario's own leader changes or there is another shift."""
        if meaning not in self.others(query, since):
            raise SwerveError(f"{meaning!r} cannot take the lead of {query!r}; these can: {', '.join(self.others(query, since))}")
        self._wishes[query] = Wish(meaning, since, self._script(query, since).leader.meaning)

    # ------------------------------------------------------------------ the scenario
    def _checked(self, query: str) -> str:
        if query not in self.stories:
            known = ", ".join(story.query for story in self.scenario.queries)
            raise SwerveError(
                f"{shown(query)} is no query of {self.scenario.name}; there are {known}{nearest(query, self.stories)}"
            )
        return query

    def _segment(self, story: Story, since: float) -> tuple[int, float]:
        """Return the index of the last point, and the fraction of the way to the next one if the story is linear."""
        k = max(bisect.bisect_right(self._times[story.query], since) - 1, 0)
        if not story.linear or k + 1 == len(story.points):
            return k, 0.0
        here, there = story.points[k].at, story.points[k + 1].at
        return k, (since - here) / (there - here)

    def _script(self, query: str, since: float) -> View:
        """Return the view of the scenario itself, without shifts by hand."""
        story = self.stories[query]
        k, part = self._segment(story, since)
        offer = self.find(query, since)
        key = (k, part, offer)
        made = self._scripted.get(query)
        if made is None or made[0] != key:
            shares = story.points[k].shares
            if part:
                later = story.points[k + 1].shares
                shares = {meaning: share + part * (later[meaning] - share) for meaning, share in shares.items()}
            made = self._scripted[query] = key, _view(story.subject, shares, offer)
        return made[1]

    # ------------------------------------------------------------------ shifts by hand
    def _wish(self, query: str, scripted: View) -> Wish | None:
        """Return the query's shift by hand; drop it once the scenario's own leader has changed."""
        wish = self._wishes.get(query)
        if wish is not None and scripted.leader.meaning != wish.instead:
            del self._wishes[query]
            return None
        return wish

    def _burst(self, query: str, since: float, factor: float) -> float:
        """Return the factor of a shift by hand: `factor` while it is new, then falling to 1."""
        wish = self._wishes.get(query)
        if wish is None:
            return 1.0
        calm = (since - wish.since - SHIFT_SECONDS) / SHIFT_SECONDS
        return 1.0 + (factor - 1.0) * min(max(1.0 - calm, 0.0), 1.0)


def _view(query: str, shares: dict[str, float], offer: tuple[Document, ...]) -> View:
    if not offer:
        raise SwerveError(f"the corpus has nothing for {query!r}")
    chances = {document.id: chance(document, query, shares) for document in offer}
    leader = max(offer, key=lambda document: chances[document.id])
    return View(shares, offer, chances, leader, Pages(query, shares, offer))


def _taken(shares: dict[str, float], meaning: str) -> dict[str, float]:
    """Return the shares after one meaning takes most of them; the others keep their proportions."""
    rest = 1.0 - shares[meaning]
    scale = (1.0 - SHIFT_SHARE) / rest if rest > 0.0 else 0.0
    return {one: SHIFT_SHARE if one == meaning else share * scale for one, share in shares.items()}
