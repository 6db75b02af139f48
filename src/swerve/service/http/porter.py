"""Bounds on connections: their number, in total and per address, and the time a request may take to arrive."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import resource
import time
from typing import Protocol

from swerve.service.config.callers import Limits
from swerve.service.metrics import Metrics

log = logging.getLogger("swerve.service")

#: Open files that connections leave free for the store, the logs and everything else.
RESERVED_FILES = 128
#: Seconds between two log lines about the same reason.
LOG_EVERY = 10.0
#: Seconds between two looks at all connections, or less, so that the shortest time limit contains this many looks.
LOOK_EVERY, LOOKS_PER_LIMIT = 1.0, 4
#: Share of all connections that one address may hold, so that some are left for the others.
MOST_OF_ONE = 0.75
#: Bits of an IPv6 address that name a network, which belongs to one caller.
NETWORK_BITS = 64


class Guest(Protocol):
    """A connection."""

    def overdue(self, now: float) -> None:
        """End the connection if its request has taken too long to arrive."""


class Porter:
    """Counts connections, in total and per address, and looks every second for overdue requests.

    A timer per request would cost every request; a look at all connections costs a tenth of a microsecond per connection.
    """

    def __init__(self, limits: Limits, metrics: Metrics) -> None:
        self.limits, self.metrics = limits, metrics
        self.most, self.most_each = limits.connections, limits.connections_per_address
        self.guests: dict[Guest, str] = {}
        self.each: dict[str, int] = {}
        shortest = min(limits.head_seconds, limits.body_seconds, limits.unread_seconds)
        self.every = min(LOOK_EVERY, shortest / LOOKS_PER_LIMIT)
        self._looking: asyncio.TimerHandle | None = None
        self._said: dict[str, tuple[float, int]] = {}  # reason → time of its last log line, and its count since
        metrics.connections.ask = lambda: len(self.guests)

    def fit(self) -> None:
        """Raise the limit on open files to fit the connections; lower the number of connections where that is not possible.

        Otherwise the system would refuse connections of all callers, without an answer that says why.
        """
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = self.most + RESERVED_FILES
        if soft != resource.RLIM_INFINITY and soft < wanted:
            soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            if soft < wanted:
                self.most = max(1, soft - RESERVED_FILES)
                log.warning(
                    "fewer connections than configured: the system allows too few open files", extra={"connections": self.most}
                )
        self.most_each = min(self.most_each, max(1, int(self.most * MOST_OF_ONE)))

    def enter(self, guest: Guest, address: str) -> str | None:
        """Admit a connection and return None, or return the reason why not."""
        if self._looking is None:
            self._looking = asyncio.get_running_loop().call_later(self.every, self._look)
        key = grouped(address)
        here = self.each.get(key, 0)
        if len(self.guests) >= self.most:
            return "connections"
        if here >= self.most_each:
            return "address"
        self.guests[guest], self.each[key] = key, here + 1
        return None

    def leave(self, guest: Guest) -> None:
        """Remove a closed connection."""
        key = self.guests.pop(guest, None)
        if key is not None:
            left = self.each[key] - 1
            if left:
                self.each[key] = left
            else:
                del self.each[key]

    def turned_away(self, reason: str, **about: object) -> None:
        """Count a refused request or connection, and log it at most every ten seconds per reason."""
        self.metrics.turned_away(reason).value += 1
        now = time.monotonic()
        last, since = self._said.get(reason, (-LOG_EVERY, 0))
        if now - last < LOG_EVERY:
            self._said[reason] = last, since + 1
            return
        self._said[reason] = now, 0
        log.warning("turned away", extra={"reason": reason, **about, **({"more": since} if since else {})})

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        for guest in list(self.guests):
            guest.overdue(now)
        self._looking = loop.call_later(self.every, self._look) if self.guests else None


def grouped(address: str) -> str:
    """Return the unit in which connections are counted: an IPv4 address, or the /64 network of an IPv6 address.

    >>> grouped("10.0.0.1"), grouped("::ffff:10.0.0.1"), grouped("2001:db8:1:2:3:4:5:6"), grouped("::1")
    ('10.0.0.1', '10.0.0.1', '2001:db8:1:2::/64', '::/64')
    """
    if ":" not in address:
        return address
    try:
        whole = ipaddress.IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    if whole.ipv4_mapped is not None:
        return str(whole.ipv4_mapped)
    return str(ipaddress.IPv6Network((whole, NETWORK_BITS), strict=False))
