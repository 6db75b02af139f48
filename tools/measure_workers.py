"""Measure what several workers lose that exchange what they learn once a second: the regret of eight workers over that of one.

python tools/measure_workers.py [RUNS] [WORKLOAD …]     in simulations: pools alone, millions of rounds
python tools/measure_workers.py served [RUNS] [WORKLOAD …]    through rankers: patience, sessions, bytes of messages and of the log

The same simulated traffic is played three times: by one worker; by `WORKERS`, among which the queries are divided at random and
which exchange each simulated second what they contribute, at `RATE` requests a second in all; and by as many without any exchange.
Runs are paired by their seeds.
"""

from __future__ import annotations

import random
import sys
import time
from typing import Any, NamedTuple

import numpy as np

from swerve.core.engine import Entry
from swerve.environments import workload, world
from swerve.environments.drawing import packed
from swerve.environments.worlds import World, advance, best, chance, click, context
from swerve.experiments.intervals import ratio_of
from swerve.policies import policy
from swerve.service.config.settings import settings_in
from swerve.serving.messages import Event
from swerve.serving.notes import write_down
from swerve.serving.outcomes import Outcome
from swerve.serving.ranker import Ranker
from swerve.serving.replay import ticket_of
from swerve.serving.requests import Prepared
from swerve.simulate.sessions import Session
from swerve.simulate.workers import Workers

WORKERS = 8
#: Requests a second, of all workers: a shop with some eight million searches a day.
RATE = 100
#: Runs, and the seed of the first one: those of `swerve compare`.
RUNS, SEED = 20, 100
#: Half of the queries shift. Pages, and rankers, have fewer rounds, as they take longer.
SHIFTING = 0.5
WORKLOADS = {
    "clear-noisy": {"queries": 100, "impressions": 300_000},
    "mixed": {"queries": 100, "impressions": 300_000},
    "mixed-noisy": {"queries": 100, "impressions": 300_000},
    "page-clear-noisy": {"queries": 60, "impressions": 120_000},
    "page-mixed": {"queries": 60, "impressions": 120_000},
}
SERVED = {"clear-noisy": {"queries": 40, "impressions": 80_000}, "mixed": {"queries": 40, "impressions": 80_000}}
KEY, START = bytes(32), 1.8e9


def owners_of(queries: int, seed: int) -> list[int]:
    """Return the worker of each query: all have as many, at random."""
    owners = [number % WORKERS for number in range(queries)]
    random.Random(seed).shuffle(owners)
    return owners


def played(name: str, seed: int, queries: int, impressions: int) -> tuple[float, float, float]:
    """Return the regret of one worker, of several that exchange, and of several that do not."""
    instance = world(workload(name, SHIFTING, queries=queries, impressions=impressions), seed)
    spec = policy("swerve", arms=instance.arms, slots=getattr(instance.spec, "slots", 1))
    rounds, owners = len(instance.schedule), owners_of(queries, seed)
    alone, together, apart = Session(spec, instance), Workers(spec, instance, owners), Workers(spec, instance, owners)
    alone.play(rounds)
    while together.done < rounds:
        together.play(min(together.done + RATE, rounds))
        together.exchange()
    apart.play(rounds)
    return alone.regret, together.regret, apart.regret


# ---------------------------------------------------------------- through rankers
@Entry
def draw_rounds(env_params, scene, segments, cursors, schedule, xs, clicked, lost):
    """Write the context of each round, and for each arm whether it would be clicked, and its regret."""
    env, facts = env_params[0], scene[0]
    for t in range(len(schedule)):
        cursor = cursors[schedule[t]]
        event = advance(env, facts, segments, cursor)
        context(env, facts, cursor, event, xs[t])
        for arm in range(clicked.shape[1]):
            clicked[t, arm] = click(env, facts, segments, cursor, arm)
            lost[t, arm] = best(env, facts, segments, cursor) - chance(env, facts, segments, cursor, arm)


class Rounds(NamedTuple):
    """All that happens in a run, whatever is shown."""

    schedule: list[int]
    contexts: list[list[float]]
    clicked: Any
    lost: Any


def rounds_of(instance: World) -> Rounds:
    """Draw everything that happens in a run."""
    count = len(instance.schedule)
    xs, clicked, lost = (
        np.zeros((count, instance.features)),
        np.zeros((count, instance.arms), np.bool_),
        np.zeros((count, instance.arms)),
    )
    cursors = instance.cursors.copy()
    draw = draw_rounds.bind(instance.spec)
    draw(packed(instance.spec), instance.scene, instance.segments, cursors, instance.schedule, xs, clicked, lost)
    return Rounds(instance.schedule.tolist(), xs.tolist(), clicked, lost)


class Sizes:
    """Bytes of messages and of entries, and how many."""

    learning, learnings, sessions, entries, exchanges = 0, 0, 0, 0, 0


def exchange(rankers: list[Ranker], now: float, sizes: Sizes) -> None:
    """Let every ranker take up what all others say."""
    said = [(ranker.exchange.learning(), ranker.exchange.sessions()) for ranker in rankers]
    before = [ranker.notes.take() for ranker in rankers if ranker.notes is not None]
    assert len(before) == len(rankers)
    for worker, (learning, sessions) in enumerate(said):
        sizes.learning += len(learning)
        sizes.sessions += len(sessions)
        sizes.learnings += 1
        for other in rankers:
            if other is not rankers[worker]:
                other.exchange.take_up(worker, learning, now)
                other.exchange.told(sessions, now)
    sizes.entries += sum(len(ranker.notes.take()[0]) for ranker in rankers if ranker.notes is not None)
    sizes.exchanges += len(rankers)


def serve(rounds: Rounds, settings: Any, owners: list[int], exchanging: bool, sizes: Sizes) -> float:
    """Play rounds through rankers; return the regret."""
    rankers = [Ranker(settings, KEY) for _ in range(max(owners) + 1)]
    for ranker in rankers:
        if exchanging:
            ranker.exchange.begin(START)
            write_down(ranker, {}, START)
    offer, regret = [str(arm) for arm in range(rounds.clicked.shape[1])], 0.0
    for t, (query, x) in enumerate(zip(rounds.schedule, rounds.contexts, strict=True)):
        now, ranker, text = START + t / RATE, rankers[owners[query]], str(query)
        key = ranker.key_of(text)
        place = ranker.rows.get(key) or ranker.fresh(key, text, len(offer), now)
        assert place is not None
        numbers = {f"x{j}": None if value != value else value for j, value in enumerate(x)}
        asked = Prepared(key, text, [*offer], session=f"s{t // 2}", slots=1, signals=numbers)
        (decided,) = ranker.rank([(place, asked)], now)
        assert decided is not None
        shown = int(decided.ranking[0])
        regret += float(rounds.lost[t, shown])
        if rounds.clicked[t, shown]:
            ticket = ticket_of(decided, ranker.life)
            ranker.feedback(place, ticket, decided.signed.number, Outcome(0, ticket.seen), [Event("click", str(shown))], None, now)
        if exchanging and t % RATE == RATE - 1:
            exchange(rankers, now, sizes)
    return regret


def served(name: str, seed: int, queries: int, impressions: int, sizes: Sizes) -> tuple[float, float, float]:
    """Return the regret of one ranker, of several that exchange, and of several that do not."""
    instance = world(workload(name, SHIFTING, queries=queries, impressions=impressions), seed)
    tables = {
        "policy": {"spec": "swerve", "arms": instance.arms, "slots": 1, "propensity_draws": 0},
        "signals": {"use": [], "numbers": {f"x{j}": "raw" for j in range(instance.features)}},
    }
    settings, rounds, owners = settings_in("measure", tables), rounds_of(instance), owners_of(queries, seed)
    alone = serve(rounds, settings, [0] * queries, False, sizes)
    return alone, serve(rounds, settings, owners, True, sizes), serve(rounds, settings, owners, False, sizes)


# ---------------------------------------------------------------- the table
def cell(own: Any, reference: Any) -> str:
    """Return a ratio with its interval."""
    ratio, low, high = ratio_of(own, reference)
    assert ratio is not None
    return f"{ratio:.3f}" if low is None or high is None else f"{ratio:.3f} ({low:.3f} to {high:.3f})"


def main(runs: int = RUNS, *names: str, through: bool = False) -> None:
    """Print a line of the table for each workload."""
    print("| workload | 8 workers that exchange each second, regret ÷ that of one | 8 workers without exchange |")
    print("|---|---|---|")
    for name in names or (SERVED if through else WORKLOADS):
        began, sizes = time.process_time(), Sizes()
        if through:
            found = np.array([served(name, SEED + run, **SERVED[name], sizes=sizes) for run in range(runs)])
        else:
            found = np.array([played(name, SEED + run, **WORKLOADS[name]) for run in range(runs)])
        print(f"| {name} | {cell(found[:, 1], found[:, 0])} | {cell(found[:, 2], found[:, 0])} |", flush=True)
        if sizes.learnings:
            each = sizes.learning / sizes.learnings, sizes.sessions / sizes.learnings, sizes.entries / sizes.exchanges
            print("a message has {:.0f} bytes, and {:.0f} of sessions; a second's entries of what is taken up {:.0f}".format(*each))
        print(f"{name}: {time.process_time() - began:.0f} s of processor time", file=sys.stderr)


if __name__ == "__main__":
    words = sys.argv[1:]
    through = words[:1] == ["served"]
    given = [int(word) if word.isdecimal() else word for word in words[through:]]
    main(*given, through=through)  # type: ignore[arg-type]
