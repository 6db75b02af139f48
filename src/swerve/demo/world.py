"""The simulated world: users who ask, look and click by the scenario's intents, in front of a live service and its rivals.

Requests are generated in slices of simulated time, from the seed alone: the length of a step does not change the
requests. They go to the service in batches over its HTTP interface. Clicks follow some seconds later, and users without a click ask
again with the meaning. Rivals meet the same users. Repeated questions are real traffic for the service but are not counted,
because they depend on the ranking. Beside the famous queries of the scenario users ask rare ones, the tail, which are counted
apart as well.
"""

from __future__ import annotations

import bisect
import datetime
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from swerve.core.errors import SwerveError
from swerve.core.rng import Stream, split
from swerve.demo import tail
from swerve.demo.clicks import TRAITS, User, clicked, user
from swerve.demo.corpus import Document, documents, queries
from swerve.demo.intents import HOUR, RESULTS, SLICE_SECONDS, Event, Intents, View, rhythm
from swerve.demo.results import LIVE, report_of, summary_of
from swerve.demo.rivals import Arms, Ask, rivals, warm
from swerve.demo.scenarios import Scenario, Story
from swerve.demo.search import Search
from swerve.demo.tallies import Tallies
from swerve_client.forms import RankArguments, Ranking

#: Most impressions of one batch, and the most simulated seconds that it spans: the service learns nothing within a batch.
BATCH_IMPRESSIONS, BATCH_SPAN = 100, 3600.0
#: Seconds that a user takes to click, or to ask again.
THINK_SECONDS = 5.0
#: Most rare queries in a report: those that began last.
YOUNG_SHOWN = 4
MINUTE, DAY = 60.0, 86_400.0
#: Decimals of times in summaries.
DECIMALS = 3


class Client(Protocol):
    """The methods of `swerve.Client` that the world uses."""

    def rank_many(self, requests: Iterable[RankArguments]) -> list[Ranking]:
        """Return the orders of several queries."""

    def feedback_many(self, decisions: Iterable[tuple[str | None, str | None]]) -> list[bool]:
        """Report clicks."""


class Scene(NamedTuple):
    """A query while nothing about it changes: what it is about, whether it is rare, its view, its number and arms for the rivals;
    by first arm, the rankings and what they lose to the best page."""

    query: str
    about: str
    rare: bool
    view: View
    ids: list[str]
    number: int
    arms: tuple[int, ...]
    mask: int
    rankings: dict[int, tuple[Document, ...]]
    losses: dict[int, float]


class Impression(NamedTuple):
    """One user in front of one query."""

    at: float
    scene: Scene
    news: int
    user: User
    session: str


class World:
    """Simulated users of one live service. `now` is simulated unix time; `advance` passes it to the service.

    client: the service. began: its time when the scenario begins. advance: called with the time before the service is asked.
    compete: whether rivals rank for the same users; without them there are no reports.
    """

    def __init__(
        self,
        scenario: Scenario,
        *,
        seed: int = 0,
        client: Client,
        began: float,
        advance: Callable[[float], None] = lambda now: None,
        search: Search | None = None,
        compete: bool = True,
    ) -> None:
        self.seed, self.client, self.now = seed, client, began
        self._publish, self._search = advance, search or Search()
        self._documents = {document.id: document for document in documents()}
        known = (*queries(), *(rare.text for rare in tail.rare()))
        self._numbers = {query: number for number, query in enumerate(known)}
        self._arms = Arms()
        if compete:
            warm()
        self._rivals = rivals(len(self._numbers), seed, began) if compete else {}
        self._clock = -math.inf  # the latest time passed to `advance`
        self._best: dict[str, Document] = {}  # the best document of each query at the end of the generated impressions
        self._run = self._sessions = self._shifts = 0
        self._told: set[str] = set()  # queries with an event that the oracle has not been told of yet
        self._begin(scenario)

    def _begin(self, scenario: Scenario) -> None:
        self.scenario, self.intents = scenario, Intents(scenario, self._search)
        self.began = self.now
        self.ends = self.began + scenario.length
        self.seconds = 0.0  # of real time spent playing
        self.tallies = Tallies([LIVE, *self._rivals])
        self._waiting: deque[Impression | Event] = deque()  # generated, not played yet
        self._made, self._slices = 0.0, 0  # end of the generated impressions in seconds, and slices so far
        self._scenes: dict[str, Scene] = {}
        self._births = [story.begins for story in scenario.tail]
        self._rare: tuple[object, list[Scene], list[float]] = None, [], []  # the tail, while none of it begins or changes
        self._stories: tuple[int, list[int]] = -1, []  # the hour, and the stories about each query in that hour

    @property
    def ended(self) -> bool:
        """Whether the scenario is over."""
        return self.now >= self.ends

    # ------------------------------------------------------------------ playing
    def step(self, until: float) -> int:
        """Play everything up to the simulated time `until`, or to the scenario's end; return the number of impressions."""
        started, until = time.perf_counter(), min(until, self.ends)
        played = 0
        while batch := self._batch(until):
            played += self._play(batch)
        self.now = max(self.now, until)
        self._advance(self.now)
        self.seconds += time.perf_counter() - started
        return played

    def shift(self, query: str | None = None) -> str:
        """Give another meaning the lead of a query (None: of the scenario's first query) now; return the meaning."""
        query = self.scenario.queries[0].query if query is None else query
        if self.ended:
            raise SwerveError(f"{self.scenario.name} is over: its users have left; begin a scenario first")
        since = self.now - self.began
        others = self.intents.others(query, since)
        if not others:
            raise SwerveError(f"everything on offer for {query!r} means the same: there is nothing to shift to")
        self._shifts += 1
        meaning = others[Stream(split(self.seed, "shift", self._shifts)).integer(0, len(others) - 1)]
        self.intents.shift(query, meaning, since)
        self._waiting.clear()  # these users were drawn with the old shares
        self._made, self._stories = since, (-1, [])
        return meaning

    def switch(self, scenario: Scenario) -> None:
        """Begin another scenario now. Totals start over; the service and its rivals keep what they have learnt."""
        phases = self.tallies.phases()
        self._run += 1
        self._begin(scenario)
        self.tallies.carry(phases)

    # ------------------------------------------------------------------ generating users
    def _batch(self, until: float) -> list[Impression | Event]:
        """Return the next impressions and events, up to a time."""
        out: list[Impression | Event] = []
        while len(out) < BATCH_IMPRESSIONS:
            if not self._waiting:
                if self.began + self._made >= until:
                    break
                self._fill()
            elif self._waiting[0].at > until or (out and self._waiting[0].at - out[0].at > BATCH_SPAN):
                break
            else:
                out.append(self._waiting.popleft())
        return out

    def _fill(self) -> None:
        """Generate the next slice: events first, then impressions in the order of time."""
        since = self._made
        self._made = min((math.floor(since / SLICE_SECONDS) + 1) * SLICE_SECONDS, self.scenario.length)
        start, seconds = self.began + since, self._made - since
        famous = [self._scene(story, since) for story in self.scenario.queries]
        for scene in famous:
            leader, before = scene.view.leader, self._best.get(scene.query)
            if before is not None and before.id != leader.id:
                self._waiting.append(Event(scene.query, start, before, leader))
            self._best[scene.query] = leader
        rare, rates = self._tail(since)
        scenes = [*famous, *rare]
        stories = self._news(since)
        hours = rhythm(start) * seconds / HOUR
        random = np.random.default_rng(split(self.seed, "users", self._run, self._slices))
        rates = [*(self.intents.rate(scene.query, since) for scene in famous), *rates]
        counts = random.poisson(np.array(rates) * hours)
        whose = np.repeat(np.arange(len(scenes)), counts)
        times = start + seconds * random.random(len(whose))
        draws = random.random((len(whose), TRAITS + 2 * RESULTS)).tolist()
        for k in np.argsort(times, kind="stable").tolist():
            scene, number = scenes[whose[k]], int(whose[k])
            self._sessions += 1
            one = user(scene.about, scene.view.shares, draws[k])
            self._waiting.append(Impression(float(times[k]), scene, stories[number], one, f"user-{self._sessions}"))
        self._slices += 1

    def _tail(self, since: float) -> tuple[list[Scene], list[float]]:
        """Return the rare queries that have begun, and their requests per hour."""
        begun = bisect.bisect_right(self._births, since)
        key = begun, self.intents.known(since)
        if self._rare[0] != key:
            stories = self.scenario.tail[:begun]
            self._rare = key, [self._scene(story, since) for story in stories], [story.per_hour for story in stories]
        return self._rare[1:]

    def _scene(self, story: Story, since: float) -> Scene:
        query = story.query
        view = self.intents.view(query, since)
        scene = self._scenes.get(query)
        if scene is None or scene.view is not view:
            arms = tuple(self._arms.arm(query, document.id) for document in view.offer)
            rankings = {
                arm: (document, *(other for other in view.offer if other is not document))
                for arm, document in zip(arms, view.offer, strict=True)
            }
            ids = [document.id for document in view.offer]
            mask = sum(1 << arm for arm in arms)
            pages = view.pages
            losses = {arm: pages.best - pages.chance([one.id for one in ranking]) for arm, ranking in rankings.items()}
            number, rare = self._numbers[query], bool(story.about)
            scene = Scene(query, story.subject, rare, view, ids, number, arms, mask, rankings, losses)
            self._scenes[query] = scene
        return scene

    def _news(self, since: float) -> list[int]:
        """Return the stories of the last hour about each query: Poisson around the scenario's numbers."""
        hour = int(since // HOUR)
        if self._stories[0] != hour:
            random = np.random.default_rng(split(self.seed, "news", self._run, hour, self._shifts))
            expected = [self.intents.news(story.query, since) for story in (*self.scenario.queries, *self.scenario.tail)]
            self._stories = hour, random.poisson(expected).tolist()
        return self._stories[1]

    # ------------------------------------------------------------------ asking and clicking
    def _play(self, batch: list[Impression | Event]) -> int:
        """Play a batch up to its last moment; return the number of impressions."""
        asked = [one for one in batch if isinstance(one, Impression)]
        self._advance(batch[-1].at)
        answers = iter(self.client.rank_many([_request(one.scene.query, one.scene.ids, one) for one in asked]) if asked else [])
        clicks: list[tuple[str | None, str | None]] = []
        again: list[Impression] = []
        for one in batch:
            if isinstance(one, Event):
                self.tallies.shifted(one)
                self._told.add(one.query)
                continue
            answer = next(answers)
            index = clicked(one.user, self._seen(answer.ranking, one.user))
            if index >= 0:
                clicks.append((answer.decision, answer.ranking[index]))
            elif one.user.again:
                again.append(one)
            scene, view = one.scene, one.scene.view
            share = view.chances[answer.ranking[0]] / view.chances[view.leader.id]
            held = answer.arm == "control"  # shown the engine's order: no ranking of Swerve, and compared with no rival
            self.tallies.served(scene.query, one.at, answer.phase, share, view.shares, scene.rare, held)
            self.tallies.pinned += any(mark.kind == "pin" for mark in answer.ruled)
            if not held:
                self.tallies.count(LIVE, index, view.pages.best - view.pages.chance(answer.ranking), scene.rare)
            self._compete(one, held)
        self._advance(batch[-1].at + THINK_SECONDS)
        self.client.feedback_many(clicks + self._ask_again(again))
        return len(asked)

    def _compete(self, one: Impression, held: bool) -> None:
        """Show the rivals' rankings to the same user; they learn from held-out users too, who are not counted."""
        scene, who = one.scene, one.user
        ask = Ask(scene.number, scene.arms, scene.mask, one.at, float(one.news), scene.query in self._told)
        self._told.discard(scene.query)
        for name, rival in self._rivals.items():
            first = rival.choose(ask)
            index = clicked(who, scene.rankings[first])
            rival.learn(ask, index == 0, index >= 0, index < 0 and who.again)
            if not held:
                self.tallies.count(name, index, scene.losses[first], scene.rare)

    def _ask_again(self, again: list[Impression]) -> list[tuple[str | None, str | None]]:
        """Let users without a click ask again with the meaning, in the same session; return their clicks."""
        requests: list[RankArguments] = []
        users: list[User] = []
        for one in again:
            text = f"{one.user.query} {one.user.meaning}"
            found = self.intents.find(text, one.at - self.began)
            if found:
                requests.append(_request(text, [document.id for document in found], one))
                users.append(one.user._replace(luck=one.user.luck[RESULTS:]))
        clicks: list[tuple[str | None, str | None]] = []
        for answer, who in zip(self.client.rank_many(requests) if requests else [], users, strict=True):
            index = clicked(who, self._seen(answer.ranking, who))
            if index >= 0:
                clicks.append((answer.decision, answer.ranking[index]))
        return clicks

    def _seen(self, ranking: Sequence[str], who: User) -> list[Document]:
        return [self._documents[name] for name in ranking[: who.looks]]

    def _advance(self, now: float) -> None:
        """Pass the time on; it never goes back, although a click may come after the next request."""
        if now > self._clock:
            self._clock = now
            self._publish(now)

    # ------------------------------------------------------------------ results
    def report(self) -> dict[str, Any]:
        """Return the state of the scenario, for the page."""
        since = min(self.now - self.began, self.scenario.length - 1.0)
        day = datetime.datetime.fromtimestamp(self.scenario.begins + since, datetime.UTC)
        views = {story.query: self.intents.view(story.query, since) for story in self.scenario.queries}
        begun = self.scenario.tail[: bisect.bisect_right(self._births, since)]
        return {
            "scenario": self.scenario.name,
            "title": self.scenario.title,
            "now": self.now,
            "began": self.began,
            "ends": self.ends,
            "day": f"{day.day} {day:%b %Y}",
            "ended": self.ended,
            **report_of(self.tallies, views),
            "young": [story.query for story in begun[: -YOUNG_SHOWN - 1 : -1]],
        }

    def summary(self) -> dict[str, Any]:
        """Return the totals."""
        simulated = self.now - self.began
        return {
            "scenario": self.scenario.name,
            "seed": self.seed,
            **summary_of(self.tallies),
            "days": round(simulated / DAY, DECIMALS),
            "seconds": round(self.seconds, DECIMALS),
            "speed": round(simulated / MINUTE / self.seconds, 1) if self.seconds else None,
        }


def _request(text: str, ids: list[str], one: Impression) -> RankArguments:
    return {"query": text, "candidates": ids, "signals": {"news": float(one.news)}, "session": one.session}
