"""The simulated world: users who ask, look and click by the scenario's intents, in front of a live service and its rivals.

Requests are made up slice by slice of simulated time, from the seed alone: how far a step goes changes nothing about who asks what
and when. They go to the service in batches over its real interface; clicks follow some seconds later, and those who found nothing
ask again and say what they mean. Rivals meet the same users. The questions that are asked again are real traffic for the
service, but in no sum: whether they are asked depends on the ranking.
"""

from __future__ import annotations

import datetime
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from swerve.client.exchange import RankArguments, Ranking
from swerve.core.errors import SwerveError
from swerve.core.rng import Stream, split
from swerve.demo.clicks import TRAITS, User, clicked, user
from swerve.demo.corpus import Document, documents, queries
from swerve.demo.intents import HOUR, RESULTS, SLICE, Event, Intents, View, rhythm
from swerve.demo.rivals import Ask, Places, rivals, warm
from swerve.demo.scenarios import Scenario
from swerve.demo.search import Search
from swerve.demo.tallies import Tallies

#: Impressions that go to the service in one batch at most, and the simulated seconds that it may span: within it nothing is learnt.
BATCH, SPAN = 100, 3600.0
#: Seconds that a user takes to click, or to ask again.
THINK = 5.0
#: Events that a report holds.
SHOWN = 50
LIVE = "swerve"


class Client(Protocol):
    """What is needed of `swerve.Client`."""

    def rank_many(self, requests: Iterable[RankArguments]) -> list[Ranking]:
        """The orders of several queries."""

    def feedback_many(self, decisions: Iterable[tuple[str | None, str | None]]) -> list[bool]:
        """What was clicked."""


class Scene(NamedTuple):
    """A query as long as nothing about it changes: its view, its number and the arms on offer for rivals, and their rankings."""

    query: str
    view: View
    ids: list[str]
    number: int
    arms: tuple[int, ...]
    mask: int
    rankings: dict[int, tuple[Document, ...]]


class Impression(NamedTuple):
    """One user in front of one query."""

    at: float
    scene: Scene
    news: int
    user: User
    session: str


class World:
    """Simulated users of one live service. `now` is simulated unix time, and what `advance` is told is the service's.

    client: the service. began: its time when the scenario begins. advance: called with the time before the service is asked.
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
    ) -> None:
        self.seed, self.client, self.now = seed, client, began
        self._publish, self._search = advance, search or Search()
        self._documents = {document.id: document for document in documents()}
        self._numbers = {query: number for number, query in enumerate(queries())}
        self._places = Places()
        warm()
        self._rivals = rivals(len(self._numbers), seed, began)
        self._clock = -math.inf  # the latest time that was told
        self._best: dict[str, Document] = {}  # the best document of each query, for all impressions made so far
        self._run = self._sessions = self._shifts = 0
        self._told: set[str] = set()  # queries whose event the oracle is to hear of
        self._begin(scenario)

    def _begin(self, scenario: Scenario) -> None:
        self.scenario, self.intents = scenario, Intents(scenario, self._search)
        self.began = self.now
        self.ends = self.began + scenario.length
        self.seconds = 0.0  # of real time that playing took
        self.tallies = Tallies([LIVE, *self._rivals])
        self._waiting: deque[Impression | Event] = deque()  # made, not played yet
        self._made, self._slices = 0.0, 0  # how far impressions are made, in seconds since the beginning; and in how many slices
        self._scenes: dict[str, Scene] = {}
        self._stories: tuple[int, list[int]] = -1, []  # the hour, and the stories about each query in it

    @property
    def ended(self) -> bool:
        """Whether the scenario is over."""
        return self.now >= self.ends

    # ------------------------------------------------------------------ what happens
    def step(self, until: float) -> int:
        """Play everything up to the simulated time `until`, or the scenario's end; how many impressions that were."""
        started, until = time.perf_counter(), min(until, self.ends)
        played = 0
        while batch := self._batch(until):
            played += self._play(batch)
        self.now = max(self.now, until)
        self._advance(self.now)
        self.seconds += time.perf_counter() - started
        return played

    def shift(self, query: str | None = None) -> str:
        """Let another meaning take the lead of a query (None: of the scenario's first one) now; which one it is."""
        query = self.scenario.queries[0].query if query is None else query
        if self.ended:
            raise SwerveError(f"{self.scenario.name} is over: nobody asks any more; begin a scenario first")
        since = self.now - self.began
        others = self.intents.others(query, since)
        if not others:
            raise SwerveError(f"everything on offer for {query!r} means the same: there is nothing to shift to")
        self._shifts += 1
        meaning = others[Stream(split(self.seed, "shift", self._shifts)).integer(0, len(others) - 1)]
        self.intents.shift(query, meaning, since)
        self._waiting.clear()  # who was to come meant something else
        self._made, self._stories = since, (-1, [])
        return meaning

    def switch(self, scenario: Scenario) -> None:
        """Begin another scenario now. Sums start anew; what the service and its rivals have learnt stays."""
        phases = self.tallies.phases()
        self._run += 1
        self._begin(scenario)
        self.tallies.carry(phases)

    # ------------------------------------------------------------------ who asks
    def _batch(self, until: float) -> list[Impression | Event]:
        """The next things to happen, up to a time."""
        out: list[Impression | Event] = []
        while len(out) < BATCH:
            if not self._waiting:
                if self.began + self._made >= until:
                    break
                self._fill()
            elif self._waiting[0].at > until or (out and self._waiting[0].at - out[0].at > SPAN):
                break
            else:
                out.append(self._waiting.popleft())
        return out

    def _fill(self) -> None:
        """Make up the next slice: events first, then who asks, in the order of time."""
        since = self._made
        self._made = min((math.floor(since / SLICE) + 1) * SLICE, self.scenario.length)
        start, seconds = self.began + since, self._made - since
        scenes = [self._scene(story.query, since) for story in self.scenario.queries]
        for scene in scenes:
            leader, before = scene.view.leader, self._best.get(scene.query)
            if before is not None and before.id != leader.id:
                self._waiting.append(Event(scene.query, start, before, leader))
            self._best[scene.query] = leader
        stories = self._news(since)
        hours = rhythm(start) * seconds / HOUR
        random = np.random.default_rng(split(self.seed, "users", self._run, self._slices))
        counts = random.poisson([self.intents.rate(scene.query, since) * hours for scene in scenes])
        whose = np.repeat(np.arange(len(scenes)), counts)
        times = start + seconds * random.random(len(whose))
        draws = random.random((len(whose), TRAITS + 2 * RESULTS)).tolist()
        for k in np.argsort(times, kind="stable").tolist():
            scene, number = scenes[whose[k]], int(whose[k])
            self._sessions += 1
            one = user(scene.query, scene.view.shares, draws[k])
            self._waiting.append(Impression(float(times[k]), scene, stories[number], one, f"user-{self._sessions}"))
        self._slices += 1

    def _scene(self, query: str, since: float) -> Scene:
        view = self.intents.view(query, since)
        scene = self._scenes.get(query)
        if scene is None or scene.view is not view:
            arms = tuple(self._places.arm(query, document.id) for document in view.offer)
            rankings = {
                arm: (document, *(other for other in view.offer if other is not document))
                for arm, document in zip(arms, view.offer, strict=True)
            }
            ids = [document.id for document in view.offer]
            mask = sum(1 << arm for arm in arms)
            scene = self._scenes[query] = Scene(query, view, ids, self._numbers[query], arms, mask, rankings)
        return scene

    def _news(self, since: float) -> list[int]:
        """The stories of the last hour about each query: a feed that counts at random around what the scenario says."""
        hour = int(since // HOUR)
        if self._stories[0] != hour:
            random = np.random.default_rng(split(self.seed, "news", self._run, hour, self._shifts))
            expected = [self.intents.news(story.query, since) for story in self.scenario.queries]
            self._stories = hour, random.poisson(expected).tolist()
        return self._stories[1]

    # ------------------------------------------------------------------ what they do
    def _play(self, batch: list[Impression | Event]) -> int:
        """Play what happens up to the batch's last moment; how many impressions that were."""
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
            place = clicked(one.user, self._seen(answer.ranking, one.user))
            if place >= 0:
                clicks.append((answer.decision, answer.ranking[place]))
            elif one.user.again:
                again.append(one)
            chances, best = one.scene.view.chances, one.scene.view.chances[one.scene.view.leader.id]
            top = chances[answer.ranking[0]]
            self.tallies.served(one.scene.query, one.at, answer.phase, top / best, one.scene.view.shares)
            self.tallies.count(LIVE, place, best - top)
            self._compete(one, best)
        self._advance(batch[-1].at + THINK)
        self.client.feedback_many(clicks + self._ask_again(again))
        return len(asked)

    def _compete(self, one: Impression, best: float) -> None:
        """The same user in front of the rivals' rankings."""
        scene, who = one.scene, one.user
        ask = Ask(scene.number, scene.arms, scene.mask, one.at, float(one.news), scene.query in self._told)
        self._told.discard(scene.query)
        for name, rival in self._rivals.items():
            ranking = scene.rankings[rival.choose(ask)]
            place = clicked(who, ranking)
            rival.learn(ask, place == 0, place >= 0, place < 0 and who.again)
            self.tallies.count(name, place, best - scene.view.chances[ranking[0].id])

    def _ask_again(self, again: list[Impression]) -> list[tuple[str | None, str | None]]:
        """Those who clicked nothing say what they mean, in the same session; their clicks."""
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
            place = clicked(who, self._seen(answer.ranking, who))
            if place >= 0:
                clicks.append((answer.decision, answer.ranking[place]))
        return clicks

    def _seen(self, ranking: Sequence[str], who: User) -> list[Document]:
        return [self._documents[name] for name in ranking[: who.looks]]

    def _advance(self, now: float) -> None:
        """Tell the time; it never goes back, though a click may come after the next request."""
        if now > self._clock:
            self._clock = now
            self._publish(now)

    # ------------------------------------------------------------------ what it came to
    def report(self) -> dict[str, Any]:
        """Where things stand, as the page shows it."""
        since = min(self.now - self.began, self.scenario.length - 1.0)
        day = datetime.datetime.fromtimestamp(self.scenario.begins + since, datetime.UTC)
        views = {story.query: self.intents.view(story.query, since) for story in self.scenario.queries}
        shifts = self.tallies.shifts[-SHOWN:]
        return {
            "scenario": self.scenario.name,
            "title": self.scenario.title,
            "now": self.now,
            "began": self.began,
            "ends": self.ends,
            "day": f"{day.day} {day:%b %Y}",
            "ended": self.ended,
            "impressions": self.tallies.impressions,
            "regret": {name: round(line.regret, 3) for name, line in self.tallies.lines.items()},
            "ctr": {name: round(self._rate(line.clicks), 5) for name, line in self.tallies.lines.items()},
            "events": [shift.as_dict() for shift in shifts],
            "intent": {query: {name: round(share, 4) for name, share in view.shares.items()} for query, view in views.items()},
            "best": {query: view.leader.id for query, view in views.items()},
            "adapt": [{"query": one.event.query, "at": one.event.at, "impressions": one.impressions} for one in shifts],
        }

    def summary(self) -> dict[str, Any]:
        """What it all came to."""
        tallies = self.tallies
        ctr = {name: self._rate(line.clicks) for name, line in tallies.lines.items()}
        gained = ctr[LIVE] - ctr["fixed"]
        simulated = self.now - self.began
        return {
            "scenario": self.scenario.name,
            "seed": self.seed,
            "impressions": tallies.impressions,
            "ctr": {name: round(rate, 5) for name, rate in ctr.items()},
            "ctr_top": {name: round(self._rate(line.tops), 5) for name, line in tallies.lines.items()},
            "ctr_gained": {
                "points": round(100.0 * gained, 3),
                "percent": round(100.0 * gained / ctr["fixed"], 2) if ctr["fixed"] else None,
            },
            "regret": {name: round(line.regret, 3) for name, line in tallies.lines.items()},
            "events": [{**shift.as_dict(), "impressions": shift.impressions} for shift in tallies.shifts],
            "alarms": tallies.alarms,
            "alarms_off_events": tallies.off_events,
            "false_alarms": tallies.false_alarms,
            "degraded": tallies.degraded,
            "days": round(simulated / 86_400.0, 3),
            "seconds": round(self.seconds, 3),
            "speed": round(simulated / 60.0 / self.seconds, 1) if self.seconds else None,
        }

    def _rate(self, clicks: int) -> float:
        return clicks / max(self.tallies.impressions, 1)


def _request(text: str, ids: list[str], one: Impression) -> RankArguments:
    return {"query": text, "candidates": ids, "signals": {"news": float(one.news)}, "session": one.session}
