"""Rates of requests: a bucket of tokens for each API key, each namespace that has a limit, and each address without a key."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable

from swerve.service.config.callers import ApiKey, Limits
from swerve.serving.messages import Refused

#: Seconds at `rate` that a bucket holds where `burst` is 0.
BURST_SECONDS = 2.0
#: Addresses whose bucket is remembered: about 3 MB.
MOST_ADDRESSES = 10_000


class TooMany(Refused):
    """A request above the rate of its caller. `retry` is the number of seconds after which it would be taken."""

    def __init__(self, message: str, retry: int) -> None:
        super().__init__(429, "rate", message)
        self.retry = retry


class Bucket:
    """Tokens that flow in at `rate` a second, up to `burst`; each request takes one, and a batch one for each entry.

    A batch of more entries than `burst` is taken from a full bucket, which is then in debt: the average holds.

    >>> bucket = Bucket(rate=2.0, burst=4, now=0.0)
    >>> [bucket.wait(1, 0.0) or bucket.take(1, 0.0) for _ in range(5)]
    [None, None, None, None, 1]
    >>> bucket.wait(1, 0.5), bucket.wait(4, 0.5)
    (0, 2)
    """

    __slots__ = ("burst", "left", "rate", "since", "taken")

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self.rate, self.burst = rate, float(burst or max(math.ceil(BURST_SECONDS * rate), 1))
        self.left, self.since = self.burst, now
        self.taken = 0  # by this worker so far

    def _fill(self, now: float) -> None:
        if now > self.since:  # a clock that goes back adds and removes nothing
            self.left = min(self.burst, self.left + (now - self.since) * self.rate)
        self.since = now

    def wait(self, count: int, now: float) -> int:
        """Return the whole seconds until `count` requests would be taken; 0: now."""
        self._fill(now)
        missing = min(count, self.burst) - self.left
        return 0 if missing <= 0.0 else max(math.ceil(missing / self.rate), 1)

    def take(self, count: int, now: float) -> None:
        """Take the tokens of `count` requests."""
        self.taken += count
        self.share(count, now)

    def share(self, count: int, now: float) -> None:
        """Take the tokens of requests that another worker has answered."""
        self._fill(now)
        self.left -= count


class Addresses:
    """A bucket for each address, for the last `most` of them.

    Where all places are taken by addresses that have sent more than they may keep up, the further ones share a bucket: who has many
    addresses gains no fresh ones, and memory is bounded.

    >>> callers = Addresses(rate=1.0, burst=2, clock=lambda: 0.0, most=1)
    >>> [callers.retry("10.0.0.1", 1) or callers.take("10.0.0.1", 1) for _ in range(3)]
    [None, None, 1]
    >>> [callers.retry(f"10.0.0.{last}", 1) or callers.take(f"10.0.0.{last}", 1) for last in (2, 3, 4)]
    [None, None, 1]
    """

    def __init__(self, rate: float, burst: float, clock: Callable[[], float], most: int = MOST_ADDRESSES) -> None:
        self.rate, self.burst, self.clock, self.most = rate, burst, clock, most
        self._each: OrderedDict[str, Bucket] = OrderedDict()  # the address that called longest ago comes first
        self._others = Bucket(rate, burst, clock())

    def _of(self, address: str, now: float) -> Bucket:
        bucket = self._each.get(address)
        if bucket is not None:
            self._each.move_to_end(address)
            return bucket
        if len(self._each) >= self.most:
            oldest = next(iter(self._each.values()))
            if oldest.wait(math.floor(oldest.burst), now):
                return self._others
            self._each.popitem(last=False)  # it is full again: a new one is the same
        bucket = self._each[address] = Bucket(self.rate, self.burst, now)
        return bucket

    def retry(self, address: str, count: int) -> int:
        """Return the seconds after which so many entries of an address would be taken; 0: now."""
        now = self.clock()
        return self._of(address, now).wait(count, now)

    def take(self, address: str, count: int) -> None:
        """Count entries of an address."""
        now = self.clock()
        self._of(address, now).take(count, now)

    def check(self, address: str, count: int = 1) -> None:
        """Count entries of an address; raises `TooMany`, and counts nothing, if they are too many now."""
        if retry := self.retry(address, count):
            raise TooMany(f"too many requests from this address; try again after {retry} s", retry)
        self.take(address, count)


class Throttle:
    """The rates of callers, by the name of their API key; "" for callers without one."""

    def __init__(self, keys: tuple[ApiKey, ...], limits: Limits, clock: Callable[[], float]) -> None:
        self.clock = clock
        now = clock()
        rates = {key.name: (key.rate, key.burst) if key.rate else (limits.rate, key.burst or limits.burst) for key in keys}
        if not keys:
            rates[""] = limits.rate, limits.burst
        self.buckets = {name: Bucket(rate, burst, now) for name, (rate, burst) in rates.items() if rate}

    def allows(self, caller: str, count: int = 1) -> bool:
        """Return whether so many requests of a caller would be taken now."""
        bucket = self.buckets.get(caller)
        return bucket is None or not bucket.wait(count, self.clock())

    def take(self, caller: str, count: int = 1) -> None:
        """Count requests of a caller, whether they are allowed or not."""
        bucket = self.buckets.get(caller)
        if bucket is not None:
            bucket.take(count, self.clock())

    def check(self, caller: str, count: int = 1) -> None:
        """Raise `TooMany` if so many requests of a caller are too many now; takes nothing."""
        bucket = self.buckets.get(caller)
        if bucket is not None and (retry := bucket.wait(count, self.clock())):
            whose = f"the API key {caller!r}" if caller else "callers of this service together"
            raise TooMany(
                f"too many requests: {whose} may send {bucket.rate:g} a second and {bucket.burst:g} at once; "
                f"try again after {retry} s",
                retry,
            )
