"""Whether the service can serve: the one place where that is known, and asked."""

from __future__ import annotations


class Unavailable(Exception):  # noqa: N818 - what happened, not what went wrong
    """It cannot be made durable, or read, at present: 503, to be sent again."""


class Availability:
    """What keeps the service from serving, if anything does.

    >>> state = Availability()
    >>> state.trouble(), state.degraded()
    ('starting', 'starting')
    >>> state.compiled, state.away = True, "full"
    >>> state.trouble(), state.degraded()
    ('store full', 'store')
    """

    __slots__ = ("away", "compiled", "stopping")

    def __init__(self) -> None:
        self.compiled = False  # whether anything can be decided yet
        self.away: str | None = None  # the kind of the store's trouble, while there is some
        self.stopping = False

    def trouble(self) -> str | None:
        """Why rankings are the given order at present, in words; None when they are not."""
        if not self.compiled:
            return "starting"
        return f"store {self.away}" if self.away else None

    def degraded(self) -> str | None:
        """The same, as the reason that `swerve_degraded_total` counts."""
        if self.compiled and self.away is None:
            return None
        return "store" if self.compiled else "starting"

    def require(self) -> None:
        """Raise `Unavailable` when nothing can be learnt at present."""
        if self.away is not None or self.stopping or not self.compiled:
            raise Unavailable
