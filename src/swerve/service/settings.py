"""What a ranker must know, and how it follows from the configuration."""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

import numpy as np

from swerve.core.spec import Spec, walk
from swerve.service.config import Config, plan_of, policy_of, senses_of
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
    per_session: int = 1  # units of evidence, see `swerve.service.evidence`
    anonymous_share: float = 0.1


def settings_of(config: Config) -> Settings:
    """What the ranker must know of a configuration."""
    return Settings(
        policy=policy_of(config),
        senses=senses_of(config),
        plan=plan_of(config),
        numbers=tuple(config.signals.numbers),
        arms=config.policy.arms,
        forget=config.policy.forget_days * 86_400.0,
        reformulation=config.feedback.reformulation_seconds,
        draws=config.policy.probability_draws,
        budget=config.store.cache_mb << 20,
        seed=config.policy.seed,
        keep_text=config.store.store_queries,
        per_session=config.feedback.evidence_per_session,
        anonymous_share=config.feedback.anonymous_share,
    )


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
