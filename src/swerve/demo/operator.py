"""The operator of the demo: once in a scenario a person pins a result of its first query, with an expiry and a note."""

from __future__ import annotations

import logging
from typing import Any, Protocol

from swerve.demo.world import World
from swerve.serving.control import Rule
from swerve_client import ClientError

log = logging.getLogger("swerve.demo")

HOUR = 3600.0
#: Seconds of simulated time after the beginning of a scenario, and how long the pin holds: seven seconds at the default speed.
PIN_AFTER, PIN_SECONDS = 36 * HOUR, 24 * HOUR
#: Below the top: what an editor wants to be seen, although people want something else.
PIN_POSITION = 2
PIN_NOTE = "an editor's choice, for a day"


class Client(Protocol):
    """The method of `swerve.Client` that the operator uses."""

    def pin(self, result: str, position: int, *, query: str, until: float, note: str) -> Rule:
        """Show a result at a position."""


class Operator:
    """Pins the result that the search engine puts last, for the scenario's first query."""

    def __init__(self, world: World, client: Client) -> None:
        self.world, self.client = world, client
        self._began: float | None = None  # of the scenario in which a pin was set
        self.pinned: dict[str, Any] | None = None

    def step(self) -> None:
        """Set the pin of the present scenario if it is time."""
        world = self.world
        if self._began != world.began:
            self.pinned = None
        if self._began == world.began or world.now < world.began + PIN_AFTER:
            return
        self._began = world.began
        query = world.scenario.queries[0].query
        result = world.intents.view(query, world.now - world.began).offer[-1].id
        until = world.now + PIN_SECONDS
        try:
            self.client.pin(result, PIN_POSITION, query=query, until=until, note=PIN_NOTE)
        except ClientError as error:  # the simulation goes on without it
            log.warning("the pin was not set: %s", error)
            return
        self.pinned = {"query": query, "result": result, "position": PIN_POSITION, "at": world.now, "until": until}

    def now(self) -> dict[str, Any] | None:
        """Return the pin while it holds, for the page."""
        return self.pinned if self.pinned is not None and self.world.now < self.pinned["until"] else None
