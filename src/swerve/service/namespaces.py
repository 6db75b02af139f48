"""Namespaces: which names requests may have, which of them a key may use, and the limits of each."""

from __future__ import annotations

import re
from collections.abc import Callable

from swerve.core.errors import nearest, shown
from swerve.service.admission import NewQueries
from swerve.service.config.callers import Namespace
from swerve.service.config.forms import NAME
from swerve.service.config.sections import Config
from swerve.service.throttle import Bucket, TooMany
from swerve.serving.checks import check_signals
from swerve.serving.messages import Asked, Candidates, Refused
from swerve.serving.settings import ANY

#: The namespaces that a caller may use, "" for requests without one; None: all.
Within = frozenset[str] | None


class Namespaces:
    """The configured namespaces."""

    def __init__(self, config: Config, clock: Callable[[], float]) -> None:
        self.spaces, self.clock = config.namespaces, clock
        now = clock()
        self.buckets = {name: Bucket(space.rate, space.burst, now) for name, space in self.spaces.items() if space.rate}
        self._fresh = {
            name: NewQueries(space.new_queries_per_minute, now)
            for name, space in self.spaces.items()
            if space.new_queries_per_minute
        }

    def label(self, namespace: str) -> str:
        """Return the name of the table that a namespace is configured by."""
        return namespace if namespace in self.spaces else ANY

    def known(self, namespace: str | None) -> Namespace | None:
        """Return the limits of a namespace, None for requests without one; raises `Refused` for a name that is not configured."""
        if namespace is None:
            return None
        space = self.spaces.get(namespace) if namespace != ANY else None
        if space is None and re.match(NAME, namespace):
            space = self.spaces.get(ANY)
        if space is None:
            names = [name for name in self.spaces if name != ANY]
            listed = f"the configured ones are {', '.join(names)}" if names else "the configuration has none"
            raise Refused(
                422,
                "unknown_namespace",
                f"namespace {shown(namespace)} is not known; {listed}{nearest(namespace, names)}: add a table [namespaces.NAME] "
                'for it, or [namespaces."*"] for any name',
                "namespace",
            )
        return space

    def check(self, namespace: str | None, candidates: Candidates | None, numbers: dict[str, float | None] | None) -> None:
        """Refuse more candidates, and other numbers, than the namespace allows."""
        space = self.known(namespace)
        if space is None:
            return
        if space.candidates and candidates is not None and len(candidates) > space.candidates:
            message = (
                f"candidates has {len(candidates)} entries; at most {space.candidates} are allowed in the namespace {namespace}"
            )
            raise Refused(422, "too_many", message, "candidates", space.candidates)
        if space.numbers is not None and numbers:
            check_signals(numbers, frozenset(space.numbers))

    def numbers(self, namespace: str | None) -> tuple[str, ...] | None:
        """Return the numbers that requests of a namespace may have; None: all."""
        space = self.known(namespace)
        return None if space is None else space.numbers

    # ------------------------------------------------------------------ limits
    @property
    def limited(self) -> bool:
        """Whether a namespace has a limit on its rate."""
        return bool(self.buckets)

    def take(self, namespace: str | None) -> None:
        """Count a request; raises `TooMany` above the rate of its namespace."""
        if namespace is None or not self.buckets:
            return
        bucket = self.buckets.get(self.label(namespace))
        if bucket is None:
            return
        now = self.clock()
        if retry := bucket.wait(1, now):
            said = f"the namespace {namespace} may have {bucket.rate:g} a second and {bucket.burst:g} at once"
            raise TooMany(f"too many requests: {said}; try again after {retry} s", retry)
        bucket.take(1, now)

    def allow(self, namespace: str | None, key: bytes, session: int, now: float, *, several: bool) -> bool:
        """Take the namespace's permit for a new query; return whether there was one."""
        fresh = None if namespace is None else self._fresh.get(self.label(namespace))
        return fresh is None or fresh.allow(key, session, now, several=several)


def may(within: Within, namespace: str | None) -> bool:
    """Return whether a caller may use a namespace."""
    return within is None or (namespace or "") in within


def require(within: Within, namespace: str | None) -> None:
    """Refuse a caller outside the namespaces that its key is bound to."""
    if not may(within, namespace):
        raise outside(within, namespace)


def require_all(within: Within, what: str) -> None:
    """Refuse a caller whose key is bound to namespaces what concerns them all."""
    if within is not None:
        raise Refused(
            403, "namespace", f"the API key is bound to {bound_to(within)}; {what} concerns all namespaces: use another key"
        )


def bound_to(within: Within) -> str:
    """Return the namespaces that a key is bound to, in words."""
    return ", ".join(sorted(name or "requests without a namespace" for name in within or ()))


def outside(within: Within, namespace: str | None) -> Refused:
    """Return the refusal of a caller outside its namespaces."""
    bound = bound_to(within)
    asked = f"the namespace {shown(namespace)}" if namespace else "requests without a namespace"
    return Refused(403, "namespace", f"the API key is bound to {bound}; it may not use {asked}", "namespace")


def checked(asked: Asked | Refused, within: Within) -> Asked | Refused:
    """Return an entry, or its refusal if it lies outside the caller's namespaces."""
    if within is None or isinstance(asked, Refused) or may(within, asked.namespace):
        return asked
    return outside(within, asked.namespace)
