"""Contexts of `Shifts` from their documented keys, and a query's rounds from its lines: plain Python, round by round."""

from __future__ import annotations

import math
from typing import Any

from twins.splitmix import GAMMA, MASK, as_unit, finish, named, word


def edge(spec: Any, scene: Any, t: int, j: int) -> float:
    """Return the end of the box of quiet contexts in a query's t-th round."""
    swing = spec.edge_drift * math.sin(2 * math.pi * (t / spec.season_rounds + float(scene["phase"][j])))
    return float(scene["edge"][j]) + swing


def context(spec: Any, seed: int, query: int, t: int, told: int, signal: int, scene: Any) -> list[float]:
    """Return a context: quiet, with a signal, with a false signal, or adversarial."""
    key = word(named(seed, "contexts", query), t)
    d = spec.features
    units = [as_unit(finish((key + (j + 1) * GAMMA) & MASK)) for j in range(d + 2)]
    common = as_unit(finish((2 * key) & MASK))
    mixed = [spec.feature_correlation * common + (1 - spec.feature_correlation) * u for u in units[:d]]
    x = [m * edge(spec, scene, t, j) for j, m in enumerate(mixed)]
    plain = list(x)
    luck, far = units[d], units[d + 1]
    if signal or (not told and luck < spec.spurious_share):
        which = int(as_unit(key) * (spec.signal_features or d))
        outside = edge(spec, scene, t, which) + spec.margin
        x[which] = min(1.0, outside + far * (1 - outside))
    elif not told and luck >= 1 - spec.poison_share:
        plain[int(as_unit(key) * spec.poisoned_features)] = x[int(as_unit(key) * spec.poisoned_features)] = 1.0
    apart = key ^ 0x4D49_5353_494E_4721
    for j in range(d):
        luck = as_unit(finish((apart + (j + 1) * GAMMA) & MASK))
        if luck < spec.missing_share:
            x[j] = {"nan": math.nan, "zero": 0.0, "quiet": plain[j]}[spec.missing_as]
        elif luck >= 1 - spec.extreme_share:
            x[j] = {"edge": 1.0, "tenfold": min(1.0, 10 * x[j]), "quiet": plain[j]}[spec.extreme_as]
    return x
