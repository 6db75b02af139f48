"""What holds for every environment."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from swerve.bandits import UCB1
from swerve.conformance.checking import Subject, check, need, reads_back
from swerve.core.spec import pack
from swerve.environments import World, world
from swerve.environments.worlds import advance, best, chance, click, context
from swerve.simulate import Session

#: Rounds that are looked at, one by one, in an instance.
ROUNDS = 3000
#: Rounds that compiled and interpreted code play.
PLAYED = 300
#: What a context has before the environment writes it.
UNWRITTEN = 1e300


class Round(NamedTuple):
    """What the verbs say of one round."""

    query: int
    event: bool
    context: NDArray[np.float64]
    chances: list[float]
    best: float
    clicks: list[bool]


def walk(instance: World) -> Iterator[Round]:
    """Yield every round of every query from the uncompiled kernels."""
    spec, scene, cursors = pack(instance.spec)[0], instance.scene[0], instance.cursors.copy()
    for query in instance.schedule:
        cursor, x = cursors[query], np.full(instance.features, UNWRITTEN)
        told = advance(spec, scene, instance.segments, cursor)
        context(spec, scene, cursor, told, x)
        arms = range(instance.arms)
        yield Round(
            int(query), bool(told), x, [float(chance(spec, scene, instance.segments, cursor, arm)) for arm in arms],
            float(best(spec, scene, instance.segments, cursor)),
            [bool(click(spec, scene, instance.segments, cursor, arm)) for arm in arms],
        )  # fmt: skip


def tables(instance: World) -> list[bytes]:
    """Return the tables of an instance as bytes."""
    parts = (instance.schedule, instance.rounds, instance.cursors, instance.segments, instance.scene, instance.owner)
    return [part.tobytes() for part in parts]


@check("environment")
def a_seed_names_an_instance(subject: Subject) -> None:
    """a seed names an instance, and another seed another one."""
    need(tables(world(subject.spec, 1)) == tables(world(subject.spec, 1)), "two instances with seed 1 differ")
    need(tables(world(subject.spec, 1)) != tables(world(subject.spec, 2)), "seeds 1 and 2 give the same instance")


@check("environment")
def every_round_makes_sense(subject: Subject) -> None:
    """every round makes sense: contexts are finite, probabilities in [0, 1], and the best one is their maximum."""
    instance = world(subject.spec, 3)
    events = np.zeros(instance.queries, int)
    before: dict[int, list[float]] = {}
    for number, one in enumerate(itertools.islice(walk(instance), ROUNDS), start=1):
        where = f"round {number}, query {one.query}"
        need(not np.isinf(one.context).any(), f"{where}: the context {one.context.tolist()} is infinite")
        need(not (one.context == UNWRITTEN).any(), f"{where}: a feature of the context is not written")
        need(all(0.0 <= p <= 1.0 for p in one.chances), f"{where}: the click probabilities {one.chances} leave [0, 1]")
        need(math.isclose(one.best, max(one.chances)), f"{where}: `best` is {one.best}, the maximum is {max(one.chances)}")
        need(
            all(not c or p > 0 for p, c in zip(one.chances, one.clicks, strict=True)),
            f"{where}: a result of probability 0 is clicked",
        )
        if one.event:
            events[one.query] += 1
            need(one.query in before, f"{where}: the first round of a query is an event")
            need(before[one.query] != one.chances, f"{where}: an event changes nothing")
        before[one.query] = one.chances
    if len(instance.schedule) <= ROUNDS:
        need(events.tolist() == instance.events.tolist(), "the events of the rounds are not those of the instance")
    counted = np.bincount(instance.schedule, minlength=instance.queries)
    need(instance.rounds.tolist() == counted.tolist(), "the rounds of the queries are not those of the schedule")
    said = getattr(subject.spec, "rounds_per_query", None)
    need(
        said is None or said == instance.rounds.max(),
        f"`rounds_per_query` is {said}, the busiest query has {instance.rounds.max()}",
    )


@check("environment")
def compiled_equals_interpreted(subject: Subject) -> None:
    """compiled and interpreted give the same bytes."""
    instance = world(subject.spec, 4)
    fast, slow = Session(UCB1(), instance), Session(UCB1(), instance, compiled=False)
    for session in (fast, slow):
        session.see = True
        session.play(min(PLAYED, len(instance.schedule)))
    differs = [name for name in fast.state if fast.state[name] != slow.state[name]]
    need(not differs, f"compiled and interpreted differ in: {', '.join(differs)}")
    need(fast.x.tobytes() == slow.x.tobytes(), "compiled and interpreted contexts differ")


@check("environment")
def it_never_depends_on_the_policy(subject: Subject) -> None:
    """contexts and events do not depend on what is played."""
    instance = world(subject.spec, 5)
    states = []
    for policy in (UCB1(), UCB1(alpha=50.0)):
        session = Session(policy, instance, compiled=False)
        session.see = True
        session.play(min(PLAYED, len(instance.schedule)))
        states.append((session.cursors.tobytes(), session.x.tobytes()))
    need(states[0] == states[1], "two policies end in different contexts or rounds")


@check("environment")
def its_text_reads_back(subject: Subject) -> None:
    """its text reads back."""
    reads_back(subject.spec, "environment")
