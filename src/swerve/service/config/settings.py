"""What serving must know of a configuration."""

from __future__ import annotations

from typing import Any

from swerve.service.config.load import plan_of, policy_of, resolve, senses_of
from swerve.service.config.sections import Config
from swerve.service.config.toml import Document
from swerve.serving.settings import Settings


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


def settings_in(name: str, tables: dict[str, Any]) -> Settings:
    """What serving must know of a configuration as it stands in a file called `name`."""
    return settings_of(resolve(Document(name, tables, {})))
