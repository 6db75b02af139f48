"""Numbers that are pushed ahead of the requests: for one query, for a namespace, or for all queries.

A request that does not carry a number itself gets the latest that was pushed for it, as long as that is fresh. A feed that is
missing or stale gives nothing: silence is not zero. Pushed numbers are kept in memory only, and a recording has those that each
ranking used.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Annotated, NamedTuple

from msgspec import Meta, Struct

from swerve.serving.checks import Limits, check_signals, check_subject
from swerve.serving.messages import Filter, Instant, Locale, Refused, Seconds, Segment
from swerve_client.answers import SignalResponse as SignalResponse, SignalStatus

#: Seconds by which the clock of a feed may be ahead.
AHEAD = 60.0
#: The longest time to live: a month.
LONGEST_TTL = 30 * 86_400

Ttl = Annotated[float, Meta(gt=0, le=LONGEST_TTL)]
Given = dict[str, float | None]
#: What a number is for: a query by its key, a namespace by its name; None: all queries.
Owner = bytes | str | None


class SignalRequest(Struct, forbid_unknown_fields=True, gc=False):
    """A number for a query, for the queries of a namespace, or for all."""

    name: Annotated[str, Meta(description="The name of the number, in `[signals.numbers]` of the configuration.")]
    value: Annotated[float | None, Meta(description="The number. Null takes back the one before.")]
    query: Annotated[str | None, Meta(description="The text of the query. Null: the number is for all queries.")] = None
    locale: Locale = None
    filter: Filter = None
    segment: Segment = None
    namespace: Annotated[
        str | None, Meta(description="The namespace of the query; without `query`, the number is for all queries of the namespace.")
    ] = None
    at: Annotated[Seconds | Instant | None, Meta(description="When it was measured. Default: now.")] = None
    ttl_seconds: Annotated[
        Ttl | None, Meta(description="Seconds after `at` in which it holds. Default: `signals.feed_ttl_seconds`.")
    ] = None


class Pushed(NamedTuple):
    """A number, when it was measured, and until when it holds. None was taken back."""

    value: float | None
    at: float
    until: float


def check_signal(request: SignalRequest, limits: Limits, known: Collection[str], now: float) -> float:
    """Refuse an unknown name, wrong parts and a time in the future; return the time at which the number was measured."""
    if request.name not in known:
        try:
            check_signals((request.name,), known)
        except Refused as refused:
            raise Refused(422, refused.code, refused.message.replace("signals has", "name is", 1), "name") from None
    check_subject(request, limits, "number")
    at = request.at.timestamp() if isinstance(request.at, datetime) else now if request.at is None else request.at
    if at > now + AHEAD:
        raise Refused(422, "in_the_future", f"at is {at - now:.0f} seconds ahead of this service's clock", "at")
    return at


class Feeds:
    """The pushed numbers: those for all queries, and those of the `most` queries and namespaces that were pushed for last.

    >>> feeds = Feeds(("news", "stock"))
    >>> feeds.push("news", None, Pushed(3.0, at=0.0, until=10.0), now=0.0)
    'taken'
    >>> feeds.fill(b"jaguar", None, None, now=5.0), feeds.fill(b"jaguar", None, {"news": 7.0}, now=5.0)
    ({'news': 3.0}, {'news': 7.0})
    >>> feeds.fill(b"jaguar", None, None, now=10.0) is None
    True
    """

    def __init__(self, numbers: Sequence[str], most: int = 50_000) -> None:
        self.numbers, self.most, self.dropped = numbers, most, 0
        self.everywhere: dict[str, Pushed] = {}
        self.some: OrderedDict[bytes | str, dict[str, Pushed]] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self.everywhere or self.some)

    def push(self, name: str, owner: Owner, pushed: Pushed, now: float) -> SignalStatus:
        """Keep a number, unless a later one is kept or its time is over."""
        if pushed.until <= now:
            return "stale"
        if owner is None:
            of_owner = self.everywhere
        else:
            of_owner = self.some.setdefault(owner, {})
            self.some.move_to_end(owner)
            if len(self.some) > self.most:
                self.some.popitem(last=False)
                self.dropped += 1
        kept = of_owner.get(name)
        if kept is not None and kept.at > pushed.at and kept.until > now:
            return "older"
        of_owner[name] = pushed
        return "taken"

    def fill(
        self, key: bytes, namespace: str | None, given: Given | None, now: float, allowed: Collection[str] | None = None
    ) -> Given | None:
        """Return the numbers of a request, with the fresh pushed ones where it has none: of its query, else of its namespace, else
        of all. `allowed` are the numbers that its namespace may have; None: all."""
        owners = [of_owner for owner in (key, namespace) if owner is not None and (of_owner := self.some.get(owner))]
        owners.append(self.everywhere)
        more: Given = {}
        for name in self.numbers:
            if (given and given.get(name) is not None) or (allowed is not None and name not in allowed):
                continue
            for of_owner in owners:
                pushed = of_owner.get(name)
                if pushed is not None and now < pushed.until and pushed.value is not None:
                    more[name] = pushed.value
                    break
        return {**(given or {}), **more} if more else given

    def forget(self, keys: Collection[bytes]) -> None:
        """Forget the numbers of queries."""
        for key in keys:
            self.some.pop(key, None)
