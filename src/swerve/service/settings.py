"""What a ranker must know, and how it follows from the configuration."""

from __future__ import annotations

from typing import NamedTuple

from swerve.core.spec import Spec
from swerve.service.config import Config, plan_of, policy_of, senses_of
from swerve.signals import Senses


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
    )
