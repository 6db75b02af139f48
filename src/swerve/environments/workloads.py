"""Workloads by name, as in `swerve compare --workload mixed-noisy`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

from swerve.core.errors import SwerveError, nearest
from swerve.core.loading import REGISTRIES
from swerve.core.parse import parse
from swerve.core.spec import Spec, field_types
from swerve.environments.browsing import browse
from swerve.environments.hurricane import Hurricane
from swerve.environments.pages import Pages
from swerve.environments.shifts import Shifts
from swerve.environments.worlds import world

NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]*")

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
    "clear-missing": {"missing_share": 0.2},
    "mixed-missing": {**CLICKS["mixed"], "missing_share": 0.2},
    "clear-extreme": {"extreme_share": 0.01},
    "mixed-extreme": {**CLICKS["mixed"], "extreme_share": 0.01},
}

#: Workloads made from records, and their settings on top of `Hurricane`. They need data, and their shifts are the recorded ones.
RECORDED: dict[str, dict[str, Any]] = {
    "hurricane": {},
    "hurricane-10k": {"impressions": 10_000},
    "hurricane-100k": {"impressions": 100_000},
    "hurricane-1m": {"impressions": 1_000_000},
}

#: Workloads with result pages, and their settings on top of `Pages`. Every query shifts, except in `quiet` and `tail`.
PAGE_KINDS: dict[str, dict[str, Any]] = {
    "page-clear": {},
    "page-mixed": {"moves": "one"},
    "page-intents": {"moves": "intents", "slots": 5, "value": "click"},
    "page-quiet": {"events_low": 0, "events_high": 0},
}
#: Most queries are rare: at Zipf's exponent 1, a million impressions leave 95 % of 100,000 queries below 20 each.
TAIL: dict[str, Any] = {
    "queries": 100_000,
    "impressions": 1_000_000,
    "order": "zipf",
    "events_low": 0,
    "events_high": 0,
    "results": 10,
    "right_share": 0.8,
}
PAGES: dict[str, dict[str, Any]] = {
    **PAGE_KINDS,
    **{f"{name}-noisy": {**settings, **NOISE} for name, settings in PAGE_KINDS.items()},
    "tail": TAIL,
}

WORKLOADS: dict[str, dict[str, Any]] = {**SYNTHETIC, **PAGES, **RECORDED}
#: The classes of workloads that `add_workload` has added.
ADDED: dict[str, type[Spec]] = {}
REGISTRIES.extend((ADDED, WORKLOADS))
#: The name of `results` in the texts of workloads with pages, where a page shows only some of them.
CANDIDATES = "candidates"


def base_name(text: str) -> str:
    """Return the name of a workload without its parameters.

    >>> base_name("page-clear(clicks=pbm)")
    'page-clear'
    """
    return text.partition("(")[0].strip()


def takes_fraction(text: str) -> bool:
    """Return whether a workload has a fraction of shifting queries. Those made from records and those with pages have none."""
    cls = environment_of(base_name(text))
    return (
        "shifting_share" in field_types(cls) and browse.lookup(cls) is None and "shifting_share" not in WORKLOADS[base_name(text)]
    )


def environment_of(name: str) -> type[Spec]:
    """Return the class of the environment of a workload."""
    if name not in WORKLOADS:
        raise SwerveError(f"unknown workload {name!r}{nearest(name, WORKLOADS)} (known: {', '.join(WORKLOADS)})")
    return ADDED.get(name) or (Hurricane if name in RECORDED else Pages if name in PAGES else Shifts)


def add_workload(name: str, cls: type[Spec], **settings: Any) -> None:
    """Give an environment with these settings a name, under which `swerve compare -w` plays it.

    An environment with a field `shifting_share` is played at every fraction, unless the settings have that field, or it has pages.
    """
    if NAME.fullmatch(name) is None:
        raise SwerveError(f"workload = {name!r} is not allowed; a name has letters, digits and hyphens, and begins with a letter")
    if name in WORKLOADS:
        raise SwerveError(f"workload = {name!r} is not allowed; there is one of that name already")
    if not any(base in world.implementations for base in cls.__mro__):
        raise SwerveError(f"workload = {name!r} is not allowed; {cls.__name__} is no environment: it does not implement `world`")
    cls(**settings)  # an unknown field or a value out of its range raises
    ADDED[name], WORKLOADS[name] = cls, settings


def maker(name: str, fraction: float | None, changes: dict[str, Any]) -> Callable[..., Spec]:
    """Return the function that makes a workload from its parameters; `changes` win over them."""
    cls = environment_of(name)
    base = {"shifting_share": fraction} if takes_fraction(name) else {}
    words = {CANDIDATES: "results"} if cls is Pages else {}

    def make(**settings: Any) -> Spec:
        named = {words.get(field, field): value for field, value in {**settings, **changes}.items()}
        return cls(**{**base, **WORKLOADS[name], **named})

    fields = [CANDIDATES if field == "results" and words else field for field in field_types(cls)]
    parameters = [inspect.Parameter(field, inspect.Parameter.KEYWORD_ONLY) for field in fields]
    setattr(make, "__signature__", inspect.Signature(parameters))  # noqa: B010 - read by the parser
    return make


def workload(text: str, fraction: float | None = 0.1, **changes: Any) -> Spec:
    """Return a workload from text: a name, with parameters in brackets; `changes` win over them.

    The fraction is that of the queries that shift. Workloads made from records and those with pages ignore it.

    >>> workload("clear-noisy", 0.5, impressions=30_000)
    Shifts(impressions=30000, shifting_share=0.5, silent_share=0.05, spurious_share=0.001)
    >>> workload("hurricane-10k", None)
    Hurricane(impressions=10000)
    >>> workload("page-mixed(clicks=pbm, candidates=64)")
    Pages(results=64, moves='one', clicks='pbm')
    """
    name = base_name(text)
    return parse(text, {name: maker(name, fraction, changes)}, "workload")
