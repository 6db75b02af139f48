"""What serving must know: the policy, the signals, bounds. Where a service is configured, `service/config` makes it."""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

import numpy as np

from swerve.core.spec import Spec, walk
from swerve.signals import Senses
from swerve.store.layouts import describe


class Settings(NamedTuple):
    """What a ranker must know."""

    policy: Spec
    senses: Senses
    plan: tuple[int, ...]  # signals by code, see `swerve.signals`
    numbers: tuple[str, ...]  # names of what the caller may send
    arms: int = 64
    forget: float = 7 * 86_400.0
    reformulation: float = 60.0
    draws: int = 2
    budget: int = 576 << 20
    seed: int | None = None
    keep_text: bool = False
    per_session: int = 1  # units of evidence, see `swerve.serving.evidence`
    anonymous_share: float = 0.1


def kind_of(policy: Spec) -> str:
    """The classes that a policy is made of.

    >>> from swerve import BWC, UCB1, Rectangle, Testable
    >>> kind_of(BWC(Testable(UCB1(), length=50), Rectangle()))
    'BWC Testable UCB1 Rectangle'
    """
    return " ".join(type(part).__name__ for part in walk(policy))


def shared_name(settings: Settings, record: np.dtype[Any]) -> str:
    """What the pooled record is kept under: one of another policy, or about other signals, means something else."""
    meaning = f"{kind_of(settings.policy)} {settings.plan} {settings.numbers} {describe(record)}"
    return "policy " + hashlib.blake2b(meaning.encode(), digest_size=8).hexdigest()
