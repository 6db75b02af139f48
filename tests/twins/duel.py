"""Plays a policy and its twin side by side on the same random sequence, and fails where they differ."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any


def offer_of(mask: int, n: int) -> list[int]:
    return [arm for arm in range(n) if mask >> arm & 1]


def mask_of(arms: Any) -> int:
    return sum(1 << arm for arm in arms)


def check_duel(
    fleet: Any,
    twin: Any,
    rounds: int,
    *,
    contexts: Callable[[random.Random], list[float]] | None = None,
    seed: int = 0,
    delay: int = 0,
    changing: bool = False,
    evictions: float = 0.0,
    events: float = 0.02,
    check: Callable[[Any, Any, int], None] | None = None,
) -> None:
    """Compare query 0 of the fleet with the twin. Clicks come `delay` rounds late, and count unless the policy has restarted.

    `changing`: another offer in each round. `evictions`: how often an arm is forgotten. `events`: how often the click probabilities
    change, which `told` announces.
    """
    dice = random.Random(seed)
    n = fleet.arms
    chances = [dice.random() for _ in range(n)]
    waiting: list[tuple[int, Any, int, int]] = []  # (due, decision, twin's starts then, round of the arm's last eviction before)
    evicted = [-1] * n
    for now in range(rounds):
        event = now > 0 and dice.random() < events
        if event:
            chances = [dice.random() for _ in range(n)]
        x = contexts(dice) if contexts else []
        offer = sorted(dice.sample(range(n), dice.randint(1, n))) if changing else list(range(n))
        decision = fleet.select(0, x or None, available=mask_of(offer), told=event, now=now)
        arm = twin.decide(x, event, offer, float(now))
        assert (decision.arm, decision.start) == (arm, twin.starts), (
            f"round {now}: {decision}, twin: arm {arm}, start {twin.starts}"
        )
        if dice.random() < chances[arm]:
            waiting.append((now + delay, decision, twin.starts, now))
        due = [entry for entry in waiting if entry[0] <= now]
        waiting = [entry for entry in waiting if entry[0] > now]
        for _, then, start, shown in due:
            if evicted[then.arm] >= shown:
                continue  # an eviction drops the arm's open clicks: the arm belongs to another result now
            alive = start == twin.starts
            assert fleet.reward(0, then, now=now) == alive, f"round {now}: click of start {start}, now {twin.starts}"
            if alive:
                twin.reward(then.arm, 1.0)
        if dice.random() < evictions:
            gone = dice.randrange(n)
            fleet.evict(0, gone)
            twin.evict(gone)
            evicted[gone] = now
        if check is not None:
            check(fleet, twin, now)


def same_state(part: Any, table: Any) -> bool:
    """Return whether a combinator's inner bandit equals, to the byte, the bandit played alone (whose rows also count evictions)."""
    return all(part[name].tobytes() == table[name].tobytes() for name in part.dtype.names)
