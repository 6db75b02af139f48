"""The users' process: plays a scenario in front of the service at the wanted speed, and reports its state.

It receives orders and sends reports over a pipe, as plain dictionaries. `World` does the work; this module sets the pace.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from swerve.core.errors import SwerveError
from swerve.demo import scenarios
from swerve.demo.clock import PACE, Shared
from swerve.demo.operator import Operator
from swerve.demo.world import World
from swerve_client import Client, ClientError
from swerve_client.forms import ServiceAway

REPORT_EVERY = 0.25  # seconds between reports: often enough for a page that moves
STEP_SECONDS = 0.05  # real time per step
CATCH_UP_STEPS = 4  # steps of delay that are caught up with; a longer delay is skipped
SPEED_SECONDS = 3.0  # the reached speed is measured over this time
LEAST_SECONDS = 1e-6  # avoids a division by zero
RANK_SECONDS, FEEDBACK_SECONDS = 5.0, 10.0  # timeouts: a batch of a hundred on a busy machine
MINUTES_PER_DAY = 1440.0


class Orders(NamedTuple):
    """The settings of the users' process."""

    address: str
    scenario: str
    seed: int
    speed: float


class Player:
    """A world, its operator and its pace: simulated minutes per second, paused or not."""

    def __init__(self, world: World, speed: float, operator: Operator) -> None:
        self.world, self.speed, self.operator, self.paused = world, speed, operator, False
        self.problem: str | None = None  # why the last order failed
        self._marks: list[tuple[float, float]] = []  # real and simulated times of the last seconds
        self._due = time.perf_counter()
        self._played = 0.0  # seconds of real time in which something was played

    @property
    def idle(self) -> bool:
        """Whether there is nothing to play now."""
        return self.paused or self.world.ended

    def play(self, now: float) -> float:
        """Play the part that is due at this real time; return the seconds until the next step. Long delays are skipped."""
        gone = now - self._due
        self._due = now
        if self.idle:
            self._marks.clear()
            return STEP_SECONDS
        self._played += gone
        self.operator.step()
        self.world.step(self.world.now + min(gone, STEP_SECONDS * CATCH_UP_STEPS) * self.speed * PACE)
        self._marks.append((time.perf_counter(), self.world.now))
        while self._marks[-1][0] - self._marks[0][0] > SPEED_SECONDS:
            self._marks.pop(0)
        return max(0.0, STEP_SECONDS - (time.perf_counter() - now))

    def reached(self) -> float:
        """Return the speed of the last seconds."""
        if len(self._marks) < 2:
            return 0.0
        (began, then), (ended, now) = self._marks[0], self._marks[-1]
        return (now - then) / PACE / max(ended - began, LEAST_SECONDS)

    def order(self, order: dict[str, Any]) -> None:
        """Carry out a person's order."""
        self.problem, value = None, order.get("value")
        try:
            match order["do"]:
                case "pause":
                    self.paused = True
                case "resume":
                    self.paused = False
                case "speed":
                    self.speed = float(order["value"])
                case "scenario":
                    self.world.switch(scenarios.load(order["value"]))
                    self.paused, self._played = False, 0.0
                case "shift":
                    self.world.shift(value)
        except SwerveError as error:
            self.problem = str(error)
        self._due = time.perf_counter()

    def report(self) -> dict[str, Any]:
        """Return the state, for the page."""
        state = {"speed": self.speed, "reached": round(self.reached(), 1), "paused": self.paused, "ended": self.world.ended}
        return {**self.world.report(), **state, "problem": self.problem, "pinned": self.operator.now()}

    def summary(self) -> dict[str, Any]:
        """Return the totals, and the seconds of real time that they took, with those since the last step began."""
        played = self._played + (0.0 if self.idle else time.perf_counter() - self._due)
        summary = self.world.summary()
        speed = round(summary["days"] * MINUTES_PER_DAY / max(played, LEAST_SECONDS), 1)
        pin = self.operator.pinned
        pinned = None if pin is None else {**pin, "searches": summary.pop("pinned")}
        return {**summary, "seconds": round(played, 1), "speed": speed, "pinned": pinned}


def main(orders: Orders, shared: Shared, pipe: Connection) -> None:
    """Run until the pipe closes or an order ends it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server's process receives it and ends this one
    try:
        with Client(orders.address, timeout=RANK_SECONDS, feedback_timeout=FEEDBACK_SECONDS) as client:
            scenario = scenarios.load(orders.scenario)

            def advance(now: float) -> None:
                shared.value = now

            world = World(scenario, seed=orders.seed, client=client, began=shared.value, advance=advance)
            if pipe.recv()["do"] == "begin":  # the service is ready
                play(Player(world, orders.speed, Operator(world, client)), pipe)
    except (SwerveError, ClientError) as error:
        with contextlib.suppress(OSError):
            pipe.send({"failed": str(error)})
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass  # the server's process is gone
    sys.stdout.flush()
    os._exit(0)  # skips the slow release of compiled code


def play(player: Player, pipe: Connection) -> None:
    """Play, receive orders and report, until the order to end."""
    reported, wait = 0.0, 0.0
    while True:
        while pipe.poll(wait):
            order = pipe.recv()
            if order["do"] == "end":
                pipe.send({"summary": player.summary()})
                return
            player.order(order)
            reported, wait = 0.0, 0.0
        now = time.perf_counter()
        try:
            wait = player.play(now)
        except ServiceAway:
            if not pipe.poll():
                raise
            continue  # the service is stopping: its order to end has come meanwhile
        if now - reported >= REPORT_EVERY:
            reported = now
            pipe.send({"report": player.report()})
