"""Whether the service can serve. No other module keeps this state."""

from __future__ import annotations


class Unavailable(Exception):  # noqa: N818 - the name says what happened
    """The store cannot be read or written at present. The answer is 503; the caller repeats the request."""


class Availability:
    """The reasons for which the service cannot serve at present, if there are any.

    >>> state = Availability()
    >>> state.trouble(), state.degraded()
    ('starting', 'starting')
    >>> state.compiled, state.away = True, "full"
    >>> state.trouble(), state.degraded()
    ('store full', 'store')
    """

    __slots__ = ("away", "compiled", "stopping")

    def __init__(self) -> None:
        self.compiled = False  # whether the first capacity is compiled, so that rankings can be decided
        self.away: str | None = None  # the kind of store error while the store cannot be used
        self.stopping = False

    def trouble(self) -> str | None:
        """Return why rankings are degraded at present, as `/readyz` says it; None when they are not."""
        if not self.compiled:
            return "starting"
        return f"store {self.away}" if self.away else None

    def degraded(self) -> str | None:
        """Return the reason label of `swerve_degraded_total` at present; None when rankings are not degraded."""
        if self.compiled and self.away is None:
            return None
        return "store" if self.compiled else "starting"

    def require(self) -> None:
        """Raise `Unavailable` when feedback cannot be accepted at present."""
        if self.away is not None or self.stopping or not self.compiled:
            raise Unavailable
