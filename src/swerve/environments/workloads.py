"""Workloads by name, as in `swerve compare --workload mixed-noisy`."""

from __future__ import annotations

from typing import Any

from swerve.core.errors import SwerveError, nearest
from swerve.core.spec import Spec
from swerve.environments.hurricane import Hurricane
from swerve.environments.shifts import Shifts

NOISE: dict[str, Any] = {"silent_share": 0.05, "spurious_share": 0.001}

#: The kinds of clicks.
CLICKS: dict[str, dict[str, Any]] = {
    "clear": {},
    "mixed": {"moves": "one"},
    "low": {"best_low": 0.15, "best_high": 0.30, "other_low": 0.01, "other_high": 0.08},
    "uniform": {"best_low": 0.0, "best_high": 1.0, "other_low": 0.0, "other_high": 1.0, "minimum_gap": 0.05},
}

#: The settings of each synthetic workload, on top of the defaults of `Shifts`.
SYNTHETIC: dict[str, dict[str, Any]] = {
    **CLICKS,
    **{f"{name}-noisy": {**settings, **NOISE} for name, settings in CLICKS.items()},
    "drifting": {"edge_drift": 0.15},
    "correlated": {"feature_correlation": 0.8},
    "wide": {"features": 40, "signal_features": 1},
    "zipf": {"order": "zipf", "results": 10},
    "gradual": {"glide_rounds": 500},
    "leading": {"lead_rounds": 1000},
    "late": {"lag_rounds": 1000},
    "bursts": {"bursting_share": 0.1},
    "recurring": {"moves": "return"},
    "adversarial": {"poison_share": 0.01},
}

#: Workloads made from records, and their settings on top of `Hurricane`. They need data, and their shifts are the recorded ones.
RECORDED: dict[str, dict[str, Any]] = {
    "hurricane": {},
    "hurricane-10k": {"impressions": 10_000},
    "hurricane-100k": {"impressions": 100_000},
    "hurricane-1m": {"impressions": 1_000_000},
}

WORKLOADS: dict[str, dict[str, Any]] = {**SYNTHETIC, **RECORDED}


def workload(name: str, fraction: float | None = 0.1, **changes: Any) -> Spec:
    """Return a workload by its name, with this fraction of the queries shifting. Recorded workloads ignore the fraction.

    >>> workload("clear-noisy", 0.5, impressions=30_000)
    Shifts(impressions=30000, shifting_share=0.5, silent_share=0.05, spurious_share=0.001)
    >>> workload("hurricane-10k", None)
    Hurricane(impressions=10000)
    """
    if name not in WORKLOADS:
        raise SwerveError(f"unknown workload {name!r}{nearest(name, WORKLOADS)} (known: {', '.join(WORKLOADS)})")
    if name in RECORDED:
        return Hurricane(**{**RECORDED[name], **changes})
    return Shifts(**{"shifting_share": fraction, **WORKLOADS[name], **changes})
