"""UCB1 of other libraries behind one interface: a choice and its reward, pair after pair. All libraries are optional."""

from __future__ import annotations

import importlib
import math
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from swerve.bench.timing import Clock, Contender, seconds_per_unit

ARMS = 5  # as in the C loop
SLOW_SHARE = 0.05  # share of the pairs that a slow library plays, to bound the time
TIMINGS = 7  # of each peer; they decide which peer is fastest


class Peer(NamedTuple):
    """A library with UCB1: its title, the module to import, the loop, and its share of the pairs (some are slow)."""

    title: str
    module: str
    loop: Callable[[Any, int], Callable[[], object]]
    share: float = 1.0


def _pymab(module: Any, pairs: int) -> Callable[[], object]:
    policy, rng = module.UCBPolicy(n_arms=ARMS), np.random.default_rng(1)
    select, update = policy.select_action, policy.update

    def run() -> None:
        for _ in range(pairs):
            update(action=select(rng=rng), reward=1.0)

    return run


def _river(module: Any, pairs: int) -> Callable[[], object]:
    policy, arms = module.UCB(delta=1.0, seed=1), list(range(ARMS))
    pull, update = policy.pull, policy.update

    def run() -> None:
        for _ in range(pairs):
            update(pull(arms), 1.0)

    return run


def _mabwiser(module: Any, pairs: int) -> Callable[[], object]:
    policy = module.MAB(arms=list(range(ARMS)), learning_policy=module.LearningPolicy.UCB1(alpha=1.0))
    policy.fit(list(range(ARMS)), [1.0] * ARMS)  # it cannot predict before its first fit
    predict, update = policy.predict, policy.partial_fit

    def run() -> None:
        for _ in range(pairs):
            update([predict()], [1.0])

    return run


PEERS = {
    "peer-pymab": Peer("PyMAB", "pymab.policies", _pymab),
    "peer-river": Peer("river", "river.bandit", _river),
    "peer-mabwiser": Peer("MABWiser", "mabwiser.mab", _mabwiser, share=SLOW_SHARE),
}


def installed(pairs: int) -> dict[str, Contender]:
    """Return the peers that can be imported, as contenders."""
    out = {}
    for name, peer in PEERS.items():
        try:
            with warnings.catch_warnings():  # warnings during import are the library's concern
                warnings.simplefilter("ignore")
                module = importlib.import_module(peer.module)
        except ImportError:
            continue
        count = max(1, round(pairs * peer.share))
        # default arguments bind the values of this iteration
        out[name] = Contender(name, count, lambda loop=peer.loop, module=module, count=count: loop(module, count))  # type: ignore[misc]
    return out


def fastest(contenders: dict[str, Contender], tries: int = TIMINGS, clock: Clock = time.perf_counter) -> str | None:
    """Return the name of the contender with the best of `tries` times, taken in turns; None if there is no contender."""
    for contender in contenders.values():
        contender.prepare()()
    best = dict.fromkeys(contenders, math.inf)
    for _ in range(tries):
        for name, contender in contenders.items():
            best[name] = min(best[name], seconds_per_unit(contender, clock))
    return min(best, key=best.__getitem__) if best else None
