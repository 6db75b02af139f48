"""The users' process: plays a scenario in front of the service, at the speed that is wanted, and says how it goes.

It hears orders and gives reports over a pipe, as plain dictionaries. The real work is `World`'s; here is only its pace.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from swerve.client.client import Client
from swerve.core.errors import SwerveError
from swerve.demo import scenarios
from swerve.demo.clock import PACE, Shared
from swerve.demo.world import World

REPORTS = 0.25  # seconds between reports
STEP = 0.05  # seconds of real time in a step


class Orders(NamedTuple):
    """How to begin."""

    address: str
    scenario: str
    seed: int
    speed: float


class Player:
    """A world and its pace: simulated minutes per second, paused or not."""

    def __init__(self, world: World, speed: float) -> None:
        self.world, self.speed, self.paused = world, speed, False
        self.problem: str | None = None  # why the last order was not followed
        self._marks: list[tuple[float, float]] = []  # real and simulated time, of the last seconds
        self._due = time.perf_counter()
        self._played = 0.0  # seconds of real time in which something was played

    @property
    def idle(self) -> bool:
        """Whether there is nothing to play now."""
        return self.paused or self.world.ended

    def play(self, now: float) -> float:
        """Play what is due at this real time; the seconds until the next step. Time that could not be kept up with is left out."""
        gone = now - self._due
        self._due = now
        if self.idle:
            self._marks.clear()
            return STEP
        self._played += gone
        self.world.step(self.world.now + min(gone, STEP * 4) * self.speed * PACE)
        self._marks.append((time.perf_counter(), self.world.now))
        while self._marks[-1][0] - self._marks[0][0] > 3.0:
            self._marks.pop(0)
        return max(0.0, STEP - (time.perf_counter() - now))

    def reached(self) -> float:
        """The speed of the last seconds."""
        if len(self._marks) < 2:
            return 0.0
        (began, then), (ended, now) = self._marks[0], self._marks[-1]
        return (now - then) / PACE / max(ended - began, 1e-6)

    def order(self, order: dict[str, Any]) -> None:
        """Do what a person wants."""
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
        """How it goes, for the page."""
        state = {"speed": self.speed, "reached": round(self.reached(), 1), "paused": self.paused, "ended": self.world.ended}
        return {**self.world.report(), **state, "problem": self.problem}

    def summary(self) -> dict[str, Any]:
        """What it all came to, and in how many seconds of real time."""
        summary = self.world.summary()
        return {**summary, "seconds": round(self._played, 1), "speed": round(summary["days"] * 1440.0 / max(self._played, 1e-6), 1)}


def main(orders: Orders, shared: Shared, pipe: Connection) -> None:
    """Run until the other end of the pipe is gone or says so."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the other process hears it, and ends this one
    try:
        with Client(orders.address, timeout=5.0, feedback_timeout=10.0) as client:
            scenario = scenarios.load(orders.scenario)

            def advance(now: float) -> None:
                shared.value = now

            world = World(scenario, seed=orders.seed, client=client, began=shared.value, advance=advance)
            if pipe.recv()["do"] == "begin":  # the service is ready
                play(Player(world, orders.speed), pipe)
    except SwerveError as error:
        with contextlib.suppress(OSError):
            pipe.send({"failed": str(error)})
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass  # whoever started this is gone
    sys.stdout.flush()
    os._exit(0)  # compiled code is of no use to anybody any more


def play(player: Player, pipe: Connection) -> None:
    """Play, listen and report, until the order to end."""
    told, wait = 0.0, 0.0
    while True:
        while pipe.poll(wait):
            order = pipe.recv()
            if order["do"] == "end":
                pipe.send({"summary": player.summary()})
                return
            player.order(order)
            told, wait = 0.0, 0.0
        now = time.perf_counter()
        wait = player.play(now)
        if now - told >= REPORTS:
            told = now
            pipe.send({"report": player.report()})
