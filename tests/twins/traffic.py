"""Synthetic traffic from its documented keys: stream (seed, "clicks", query) and (seed, "contexts", query), one word per round.

Also the round loop in plain Python, which counts everything again.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

from twins.splitmix import GAMMA, MASK, as_unit, finish, named, word


def click(seed: int, query: int, t: int) -> float:
    """Return the number that an arm's click probability must exceed in the query's t-th round."""
    return as_unit(word(named(seed, "clicks", query), t))


def box_context(seed: int, query: int, t: int, event: bool, edges: list[float], margin: float) -> list[float]:
    """Return a context: uniform in the box; at an event one feature lies at least the margin outside it."""
    key = word(named(seed, "contexts", query), t)
    d = len(edges)
    units = [as_unit(finish((key + (j + 1) * GAMMA) & MASK)) for j in range(d + 1)]
    x = [u * edge for u, edge in zip(units, edges, strict=False)]
    if event:
        which = int(as_unit(key) * d)
        outside = edges[which] + margin
        x[which] = min(1.0, outside + units[d] * (1.0 - outside))
    return x


def plane_context(seed: int, query: int, t: int, event: bool, normal: list[float], edge: float, margin: float) -> list[float]:
    """Return a context: a height along the normal, on the right side of the plane, plus a random direction, inside the ball."""
    key = word(named(seed, "contexts", query), t)
    d = len(normal)
    units = [as_unit(finish((key + (j + 1) * GAMMA) & MASK)) for j in range(d + 2)]
    y = [2 * u - 1 for u in units[:d]]
    along = sum(a * b for a, b in zip(y, normal, strict=True))
    side = [a - along * b for a, b in zip(y, normal, strict=True)]
    square = sum(a * a for a in side)
    low, high = (edge + margin, 1.0) if event else (-1.0, edge - margin)
    height = low + units[d] * (high - low)
    scale = math.sqrt((1 - height * height) * units[d + 1] / square) if square > 0 else 0.0
    return [scale * a + height * b for a, b in zip(side, normal, strict=True)]


def play(
    seed: int, schedule: list[int], histories: list[list[tuple[int, list[float]]]], policies: list[Any], context: Any
) -> tuple[list[float], Counter[str], list[int]]:
    """Play every round of a run; return the cumulative regret after each, the counters, and the arms.

    `histories[q]` has the click probabilities of query q and their first rounds; `context(q, t, event)` gives contexts.
    """
    rounds = [0] * len(histories)
    counts: Counter[str] = Counter()
    opened_by_event = [False] * len(histories)
    born = ["learning"] * len(histories)  # the cause of the current bandit's start
    blind: list[str | None] = [None] * len(histories)  # the event that it has seen without a restart
    lost: Counter[str] = Counter({f"regret_{name}": 0.0 for name in ("learning", "testing", "false_alarm", "unseen", "missed")})
    curve, arms, regret = [], [], 0.0
    for now, query in enumerate(schedule):
        rounds[query] += 1
        t = rounds[query]
        chances = [p for since, p in histories[query] if since <= t][-1]
        event = t > 1 and any(since == t for since, _ in histories[query])
        policy = policies[query]
        arm = policy.decide(context(query, t, event), event, list(range(len(chances))), float(now))
        if policy.label is not None:
            counts["true_labels" if policy.label else "false_labels"] += 1
            if policy.label != opened_by_event[query]:
                counts["wrong_true_labels" if policy.label else "wrong_false_labels"] += 1
        # settling and an alarm may both restart in one round, which counts once
        counts["restarts"] += policy.restarts > 0
        counts["consulted"] += policy.consulted
        counts["events"] += event
        if policy.alarm:
            counts["true_alarms" if event else "false_alarms"] += 1
            opened_by_event[query] = event
        elif event:
            counts["misses" if policy.consulted else "unseen"] += 1
        if policy.alarm:
            born[query], blind[query] = "learning" if event else "false_alarm", None
        elif event:
            blind[query] = "missed" if policy.consulted else "unseen"
        elif policy.restarts > 0:
            if blind[query] or born[query] != "false_alarm":
                born[query] = "learning"
            blind[query] = None
        if click(seed, query, t) < chances[arm]:
            policy.reward(arm, 1.0)
            counts["clicks"] += 1
        regret += max(chances) - chances[arm]
        cause = blind[query] or born[query]
        if cause == "learning" and getattr(policy, "testing", False):
            cause = "testing"
        lost[f"regret_{cause}"] += max(chances) - chances[arm]
        curve.append(regret)
        arms.append(arm)
    counts["rounds"] = len(schedule)
    return curve, counts + lost, arms
