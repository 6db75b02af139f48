"""The settings of a ranker, from a configuration."""

from __future__ import annotations

from typing import Any

from swerve.core.errors import SwerveError
from swerve.service.config.forms import DAY
from swerve.service.config.load import plan_of, policy_of, resolve, rival_of, senses_of
from swerve.service.config.sections import Config
from swerve.service.config.toml import Document
from swerve.serving.checks import PLAIN
from swerve.serving.settings import Settings


def settings_of(config: Config) -> Settings:
    """Return the settings of the ranker that a configuration describes."""
    return Settings(
        policy=policy_of(config),
        senses=senses_of(config),
        plan=plan_of(config),
        numbers=tuple(config.signals.numbers),
        arms=config.policy.arms,
        forget=config.policy.forget_days * DAY,
        reformulation=config.feedback.reformulation_seconds,
        slots=config.policy.slots,
        draws=config.policy.propensity_draws,
        steady=config.feedback.steady_seconds,
        budget=config.store.cache_mb << 20,
        seed=config.policy.seed,
        keep_text=config.store.store_queries,
        per_session=config.feedback.evidence_per_session,
        anonymous_share=config.feedback.anonymous_share,
        weights=tuple(weights_of(config).items()),
        swaps=config.evaluation.swaps,
        namespaces=tuple(config.namespaces),
        shadow=config.policy.mode == "shadow",
        rival=rival_of(config),
    )


def weights_of(config: Config) -> dict[str, float]:
    """Return the weight of each kind of events; `click` is always among them."""
    return {**PLAIN, **{kind: one.weight for kind, one in config.feedback.events.items()}}


def windows_of(config: Config) -> dict[str, float]:
    """Return the window of each kind of events, in seconds."""
    plain, events = config.feedback.window_seconds, config.feedback.events
    return {kind: (events[kind].window_seconds if kind in events else None) or plain for kind in weights_of(config)}


def settings_in(name: str, tables: dict[str, Any]) -> Settings:
    """Return the settings for the tables of a recording; `name` is the name of its file in errors. It names no code to run."""
    if tables.get("policy", {}).get("load"):
        raise SwerveError(f"{name}: policy.load is not taken from a recording; name the files with --load")
    return settings_of(resolve(Document(name, tables, {})))
