"""Settings of a ranker: policy, signals, bounds. `service/config/settings.py` makes them from a configuration."""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

import numpy as np

from swerve.core.spec import Spec, walk
from swerve.signals import Senses
from swerve.store.layouts import describe
from swerve.store.protocol import DAY

#: Bytes of the hash in the name of the pooled record.
NAME = 8
#: In place of a name: any namespace that is not configured by its name.
ANY = "*"


class Settings(NamedTuple):
    """Settings of a ranker."""

    policy: Spec
    senses: Senses
    plan: tuple[int, ...]  # codes of the signals, see `swerve.signals`
    numbers: tuple[str, ...]  # names of the numbers that callers may send
    arms: int = 64
    forget: float = 7 * DAY  # seconds without an offer after which a candidate gives its arm to a new one
    reformulation: float = 60.0  # seconds in which another query of the same session is a reformulation
    slots: int = 10  # positions that a request fills unless it names another number
    draws: int = 8  # draws of each page from which `propensities` are estimated
    steady: float = 120.0  # seconds in which a session is shown the same order for the same query and candidates
    budget: int = 576 << 20  # bytes of memory for queries
    seed: int | None = None  # of the random streams; None: from the query key
    keep_text: bool = False  # whether the text of queries is kept
    per_session: int = 1  # units of evidence, see `swerve.serving.people`
    anonymous_share: float = 0.1  # units of requests without a session, as a share of the sessions' units
    weights: tuple[tuple[str, float], ...] = (
        ("click", 1.0),
    )  # the kinds of events and their weights, see `swerve.serving.rewards`
    swaps: float = 0.0  # the share of pages on which two slots change places
    namespaces: tuple[str, ...] = ()  # whose queries share nothing with those of others; `ANY` stands for all other names
    shadow: bool = False  # whether the given order is shown, and the policy's page only noted
    rival: Spec | None = None  # the policy of an experiment's control arm; None: that arm is shown the given order

    def knows(self, namespace: str | None) -> bool:
        """Return whether requests may have a namespace; None: they may have none."""
        return namespace is None or namespace in self.namespaces or ANY in self.namespaces


def kind_of(policy: Spec) -> str:
    """Return the names of the classes that a policy is made of.

    >>> from swerve import BWC, UCB1, Rectangle, Testable
    >>> kind_of(BWC(Testable(UCB1(), length=50), Rectangle()))
    'BWC Testable UCB1 Rectangle'
    """
    return " ".join(type(part).__name__ for part in walk(policy))


def shared_name(settings: Settings, policy: Spec, record: np.dtype[Any]) -> str:
    """Return the name under which the pooled record is stored. It differs for other policies and other signals."""
    meaning = f"{kind_of(policy)} {settings.plan} {settings.numbers} {describe(record)}"
    return "policy " + hashlib.blake2b(meaning.encode(), digest_size=NAME).hexdigest()
