"""Who wants what when: a scenario as the simulated users live it, with what the search engine has on offer for them."""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable
from typing import NamedTuple

from swerve.core.errors import SwerveError, nearest, shown
from swerve.demo.clicks import chance
from swerve.demo.corpus import Document
from swerve.demo.scenarios import Point, Scenario, Story
from swerve.demo.search import Search

HOUR = 3600.0
#: Seconds that things stay as they are at least: shares, rates and events are looked at so often.
SLICE = 300.0
#: Results that the search engine gives.
RESULTS = 10
#: A shift by hand: the share that its meaning takes, how many times as many ask, for how long, and as long again to calm down.
TAKEN, BURST, HOLD = 0.75, 4.0, 12.0 * HOUR
#: And the stories about it: so many times as many, and so many more.
STORIES, MORE_STORIES = 6.0, 12.0


class View(NamedTuple):
    """A query at one time: what its users want, what is on offer for them in the search engine's order, each document's chance
    of a click on top by its id, and the document with the best one."""

    shares: dict[str, float]
    offer: tuple[Document, ...]
    chances: dict[str, float]
    leader: Document


class Event(NamedTuple):
    """Another document is best from this time on: seconds since the scenario's beginning here, unix time in the world."""

    query: str
    at: float
    before: Document
    after: Document


class Wish(NamedTuple):
    """A shift by hand: what takes the lead, since when, and which meaning leads in the scenario itself."""

    meaning: str
    since: float
    instead: str


def rhythm(now: float) -> float:
    """How busy an hour of the day is, 1 on average: three times as much in the afternoon (UTC) as in the middle of the night."""
    return 1.0 + 0.5 * math.sin(2.0 * math.pi * (now / HOUR - 9.0) / 24.0)


class Intents:
    """A scenario with a search engine. All times are seconds since the scenario's beginning."""

    def __init__(self, scenario: Scenario, search: Search) -> None:
        self.scenario, self.search = scenario, search
        self.stories = {story.query: story for story in scenario.queries}
        self._times = {story.query: [point.at for point in story.points] for story in scenario.queries}
        self._published = sorted({0.0, *(at for story in scenario.queries for at, _ in story.published)})
        self._known = [scenario.known(at) for at in self._published]
        self._found: dict[tuple[str, frozenset[str]], tuple[Document, ...]] = {}
        self._scripted: dict[str, tuple[object, View]] = {}
        self._wished: dict[str, tuple[object, View]] = {}
        self._wishes: dict[str, Wish] = {}

    def known(self, since: float) -> frozenset[str]:
        """What is published."""
        return self._known[max(bisect.bisect_right(self._published, since) - 1, 0)]

    def find(self, text: str, since: float) -> tuple[Document, ...]:
        """What the search engine has for a text; asked once for each set of published keys."""
        known = self.known(since)
        found = self._found.get((text, known))
        if found is None:
            found = self._found[text, known] = tuple(self.search.find(text, RESULTS, known))
        return found

    def view(self, query: str, since: float) -> View:
        """What users want and what is on offer."""
        told = self._told(query, since)
        wish = self._wish(query, told)
        if wish is None:
            return told
        key = (wish, told)
        made = self._wished.get(query)
        if made is None or made[0] != key:
            made = self._wished[query] = key, _view(query, _taken(told.shares, wish.meaning), told.offer)
        return made[1]

    def _level(self, query: str, since: float, of: Callable[[Point], float]) -> float:
        """A number of the query's points at a time, between two of them in a straight line where the story says so."""
        story = self.stories[query]
        k, part = self._place(story, since)
        level = of(story.points[k])
        return level + part * (of(story.points[k + 1]) - level) if part else level

    def rate(self, query: str, since: float) -> float:
        """Requests an hour, before the rhythm of the day."""
        volume = self._level(query, since, lambda point: point.volume)
        return self.stories[query].per_hour * (volume + self._burst(query, since, BURST) - 1.0)

    def news(self, query: str, since: float) -> float:
        """Stories an hour to expect."""
        news = self._level(query, since, lambda point: point.news)
        return news * self._burst(query, since, STORIES) + MORE_STORIES * (self._burst(query, since, 2.0) - 1.0)

    def events(self, query: str) -> list[Event]:
        """The moments at which another document becomes best, as the scenario has them."""
        out: list[Event] = []
        before = self._told(self._checked(query), 0.0).leader
        for k in range(1, math.ceil(self.scenario.length / SLICE)):
            leader = self._told(query, k * SLICE).leader
            if leader.id != before.id:
                out.append(Event(query, k * SLICE, before, leader))
            before = leader
        return out

    def others(self, query: str, since: float) -> list[str]:
        """The meanings that could take the lead: something on offer has them, and they do not lead now."""
        view = self.view(self._checked(query), since)
        return [meaning for meaning in dict.fromkeys(one.meaning for one in view.offer) if meaning != view.leader.meaning]

    def shift(self, query: str, meaning: str, since: float) -> None:
        """Let a meaning take the lead now, until the scenario itself has another leader or there is another shift."""
        if meaning not in self.others(query, since):
            raise SwerveError(f"{meaning!r} cannot take the lead of {query!r}; these can: {', '.join(self.others(query, since))}")
        self._wishes[query] = Wish(meaning, since, self._told(query, since).leader.meaning)

    # ------------------------------------------------------------------ what the scenario says
    def _checked(self, query: str) -> str:
        if query not in self.stories:
            known = ", ".join(self.stories)
            raise SwerveError(f"nobody asks {shown(query)} in {self.scenario.name}; they ask {known}{nearest(query, self.stories)}")
        return query

    def _place(self, story: Story, since: float) -> tuple[int, float]:
        """The last point, and how far on the way to the next one it is, where that matters."""
        k = max(bisect.bisect_right(self._times[story.query], since) - 1, 0)
        if not story.linear or k + 1 == len(story.points):
            return k, 0.0
        here, there = story.points[k].at, story.points[k + 1].at
        return k, (since - here) / (there - here)

    def _told(self, query: str, since: float) -> View:
        story = self.stories[query]
        k, part = self._place(story, since)
        offer = self.find(query, since)
        key = (k, part, offer)
        made = self._scripted.get(query)
        if made is None or made[0] != key:
            shares = story.points[k].shares
            if part:
                later = story.points[k + 1].shares
                shares = {meaning: share + part * (later[meaning] - share) for meaning, share in shares.items()}
            made = self._scripted[query] = key, _view(query, shares, offer)
        return made[1]

    # ------------------------------------------------------------------ what somebody wished for
    def _wish(self, query: str, told: View) -> Wish | None:
        wish = self._wishes.get(query)
        if wish is not None and told.leader.meaning != wish.instead:
            del self._wishes[query]  # the story goes on
            return None
        return wish

    def _burst(self, query: str, since: float, factor: float) -> float:
        """What a shift by hand multiplies by: so much while it is new, then less and less."""
        wish = self._wishes.get(query)
        if wish is None:
            return 1.0
        calm = (since - wish.since - HOLD) / HOLD
        return 1.0 + (factor - 1.0) * min(max(1.0 - calm, 0.0), 1.0)


def _view(query: str, shares: dict[str, float], offer: tuple[Document, ...]) -> View:
    if not offer:
        raise SwerveError(f"the corpus has nothing for {query!r}")
    chances = {document.id: chance(document, query, shares) for document in offer}
    return View(shares, offer, chances, max(offer, key=lambda document: chances[document.id]))


def _taken(shares: dict[str, float], meaning: str) -> dict[str, float]:
    """The shares when one meaning takes most of them; the others keep their proportions."""
    rest = 1.0 - shares[meaning]
    scale = (1.0 - TAKEN) / rest if rest > 0.0 else 0.0
    return {one: TAKEN if one == meaning else share * scale for one, share in shares.items()}
