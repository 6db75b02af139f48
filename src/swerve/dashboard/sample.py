"""Samples of a service: its metrics as rates of the last second, and lists of its busiest and last shifted queries."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import msgspec

from swerve.service.availability import Unavailable
from swerve.service.metrics import Family, Histogram, Number
from swerve.service.runtime import Service
from swerve.serving.experiment import Report
from swerve.serving.messages import QuerySummary

QUERIES_LISTED = 10  # queries with the most traffic, and as many that shifted last
TIME_DECIMALS = 3  # of times in seconds and durations in milliseconds
LEAST_SECONDS = 1e-3  # seconds between samples: avoids absurd rates
MILLI = 1e3  # milliseconds per second
QUANTILES = {"p50": 0.5, "p99": 0.99}


class Sampler:
    """Takes samples of a service; rates are over the time since the previous sample."""

    def __init__(self, service: Service) -> None:
        self.service, self.inspection = service, service.inspection
        self.top: list[QuerySummary] = []
        self.shifted: list[QuerySummary] = []
        self._at = time.monotonic()
        self._before = self._everywhere()
        if service.together is not None:
            service.together.sample = self.told

    async def look(self) -> None:
        """Read the lists from the store; keep the present ones if it does not answer."""
        try:
            self.top = (await self.inspection.queries("traffic", QUERIES_LISTED)).queries
            self.shifted = (await self.inspection.queries("shifted", QUERIES_LISTED)).queries
        except Unavailable:
            pass

    def take(self) -> dict[str, Any]:
        """Return one sample."""
        service, metrics, at, now = self.service, self.service.metrics, time.monotonic(), self._everywhere()
        seconds, before = max(at - self._at, LEAST_SECONDS), self._before
        self._at, self._before = at, now

        def rate(name: str) -> float:
            return round(max(float(now[name] - before[name]), 0.0) / seconds, 2)  # a worker that died has begun anew

        commits, spent = now["commits"] - before["commits"], now["commit_seconds"] - before["commit_seconds"]
        return {
            "at": round(time.time(), TIME_DECIMALS),
            "now": round(service.clock.now(), TIME_DECIMALS),
            "rank_per_s": round(rate("decisions") + rate("degraded"), 2),
            "feedback_per_s": rate("feedback"),
            "decisions": now["decisions"],
            "degraded_per_s": rate("degraded"),
            "rank_ms": quantiles(metrics.rank_seconds, before["rank"], now["rank"]),
            "feedback_ms": quantiles(metrics.feedback_seconds, before["feedback_s"], now["feedback_s"]),
            "rank_batch_ms": quantiles(metrics.rank_batch_seconds, before["rank_batch"], now["rank_batch"]),
            "feedback_batch_ms": quantiles(metrics.feedback_batch_seconds, before["feedback_batch"], now["feedback_batch"]),
            "alarms": now["alarms"],
            "restarts": now["restarts"],
            "store": {
                "state": self.state(),
                "pending": now["pending"],
                "rows": now["rows"],
                "commits_per_s": rate("commits"),
                "commit_ms": round(spent / commits * MILLI, TIME_DECIMALS) if commits else None,
                "errors": now["errors"],
            },
            "experiment": self._report(),
            "top": self._listed("top", lambda line: -float(line["requests"])),
            "shifted": self._listed("shifted", lambda line: -(line["shifted"] or 0.0)),
        }

    def told(self) -> dict[str, Any]:
        """Return what the pages of other workers show of this one."""
        return {"counts": self._counts(), "top": self.top, "shifted": self.shifted}

    def _others(self) -> list[dict[str, Any]]:
        """Return what the other workers have told."""
        together = self.service.together
        return [] if together is None else list(together.samples.values())

    def _everywhere(self) -> dict[str, Any]:
        """Return the counts over all workers."""
        every = self._counts()
        for other in self._others():
            for name, count in other["counts"].items():
                mine = every[name]
                every[name] = tuple(map(sum, zip(mine, count, strict=True))) if isinstance(mine, tuple) else mine + count
        return every

    def _listed(self, name: str, by: Callable[[dict[str, Any]], float]) -> list[Any]:
        """Return the list of queries over all workers."""
        mine, others = getattr(self, name), self._others()
        if not others:
            return list(mine)
        every = [*msgspec.to_builtins(mine), *(line for other in others for line in other[name])]
        return sorted(every, key=by)[:QUERIES_LISTED]

    def _report(self) -> Report | None:
        service = self.service
        if service.experiments.trial is None:
            return None
        if service.together is not None and service.experiments.away:
            return service.together.report
        return service.experiments.report()

    def state(self) -> str:
        """Return `ok`, `starting`, `stopping`, or the kind of the store's trouble."""
        if self.service.availability.stopping:
            return "stopping"
        trouble = self.service.availability.trouble()
        return "ok" if trouble is None else self.service.availability.away or trouble

    def _counts(self) -> dict[str, Any]:
        metrics = self.service.metrics
        return {
            "decisions": metrics.decisions.value,
            "degraded": total(metrics.degraded),
            "feedback": total(metrics.feedback),
            "alarms": total(metrics.alarms),
            "restarts": metrics.restarts.value,
            "commits": metrics.commits.value,
            "commit_seconds": metrics.commit_seconds.total,
            "errors": total(metrics.store_errors),
            "pending": len(self.service.ranker.unwritten),
            "rows": int(metrics.stored_rows.value),
            "rank": tuple(metrics.rank_seconds.counts),
            "feedback_s": tuple(metrics.feedback_seconds.counts),
            "rank_batch": tuple(metrics.rank_batch_seconds.counts),
            "feedback_batch": tuple(metrics.feedback_batch_seconds.counts),
        }


def total(family: Family[Any]) -> float:
    """Return the sum over all labels."""
    members: list[Number] = list(family.members.values())
    return sum(member.value for member in members)


def quantiles(spread: Histogram, before: tuple[int, ...], now: tuple[int, ...]) -> dict[str, float] | None:
    """Return median and 99th percentile, in milliseconds, between two states of a histogram of seconds; None without values.

    Values are assumed to be uniform inside a bucket; values above the last bound count as that bound.

    >>> quantiles(Histogram((0.001, 0.002)), (5, 0, 0), (5, 4, 0))
    {'p50': 1.5, 'p99': 1.99}
    """
    counts = [max(after - earlier, 0) for after, earlier in zip(now, before, strict=True)]
    every = sum(counts)
    if every <= 0:
        return None
    return {
        name: round(_quantile(spread.bounds, counts, share * every) * MILLI, TIME_DECIMALS) for name, share in QUANTILES.items()
    }


def _quantile(bounds: tuple[float, ...], counts: list[int], rank: float) -> float:
    below = 0.0
    low = 0.0
    for bound, count in zip(bounds, counts, strict=False):
        if count and below + count >= rank:
            return low + (bound - low) * (rank - below) / count
        below, low = below + count, bound
    return bounds[-1]
