"""Metrics in the text format of Prometheus, kept as plain numbers: counting costs one addition.

Each number is written by one thread, or only added to under the interpreter's lock. A scrape may see a histogram whose sum is one
observation ahead of its count; the next scrape is consistent.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

from swerve.core.examination import SLOTS

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
#: Upper bounds of the latency buckets, in seconds: fine around the deadline of 20 ms.
LATENCIES = (0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.1, 0.25, 1.0, 5.0)
#: Upper bounds of the buckets for the rows of one commit.
SIZES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0)


class Number:
    """A counter or a gauge: `metric.value += 1`."""

    __slots__ = ("value",)
    kind = "gauge"

    def __init__(self) -> None:
        self.value: float = 0

    def samples(self, name: str, labels: str) -> Iterator[str]:
        """Yield the lines of the exposition."""
        yield f"{name}{braced(labels)} {written(self.value)}"


class Counter(Number):
    """A number that only grows."""

    __slots__ = ()
    kind = "counter"


class Gauge(Number):
    """A number that rises and falls: set when it changes, or computed by `ask` at each scrape."""

    __slots__ = ("ask",)

    def __init__(self) -> None:
        super().__init__()
        self.ask: Callable[[], float] | None = None

    def samples(self, name: str, labels: str) -> Iterator[str]:
        if self.ask is not None:
            self.value = self.ask()
        yield from super().samples(name, labels)


class Histogram:
    """Counts of values up to each bound."""

    __slots__ = ("bounds", "counts", "total")
    kind = "histogram"

    def __init__(self, bounds: tuple[float, ...] = LATENCIES) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def samples(self, name: str, labels: str) -> Iterator[str]:
        """Yield the cumulative buckets, the sum and the count."""
        below = 0
        before = f"{labels}," if labels else ""
        for bound, count in zip((*map(written, self.bounds), "+Inf"), self.counts, strict=True):
            below += count
            yield f'{name}_bucket{{{before}le="{bound}"}} {below}'
        yield f"{name}_sum{braced(labels)} {written(self.total)}"
        yield f"{name}_count{braced(labels)} {below}"


M = TypeVar("M", bound=Number | Histogram)


class Family(Generic[M]):
    """Metrics of one name, by the values of their labels: `family("rank", "2xx").value += 1`.

    Label values never come from a caller, so there are only a few.
    """

    def __init__(self, make: Callable[[], M], *labels: str) -> None:
        self.make, self.labels = make, labels
        self.members: dict[tuple[str, ...], M] = {}

    def __call__(self, *values: str) -> M:
        member = self.members.get(values)
        if member is None:
            if len(values) != len(self.labels):
                raise TypeError(f"this metric has the labels {', '.join(self.labels)}, not {len(values)} of them")
            member = self.members[values] = self.make()
        return member


class Registry:
    """Metrics by their names."""

    def __init__(self) -> None:
        self.families: dict[str, tuple[str, str, Family[Any]]] = {}

    def _counter(self, name: str, about: str, *labels: str) -> Family[Counter]:
        family = Family(Counter, *labels)
        self.families[f"swerve_{name}"] = ("counter", about, family)
        return family

    def _gauge(self, name: str, about: str, *labels: str) -> Family[Gauge]:
        family = Family(Gauge, *labels)
        self.families[f"swerve_{name}"] = ("gauge", about, family)
        return family

    def _histogram(self, name: str, about: str, bounds: tuple[float, ...]) -> Histogram:
        family = Family(lambda: Histogram(bounds))
        self.families[f"swerve_{name}"] = ("histogram", about, family)
        return family()

    def render(self) -> bytes:
        """Return all metrics in the text format."""
        out: list[str] = []
        for name, (kind, about, family) in self.families.items():
            out.append(f"# HELP {name} {about}\n# TYPE {name} {kind}")
            for values, member in list(family.members.items()):
                labels = ",".join(f'{label}="{escaped(value)}"' for label, value in zip(family.labels, values, strict=True))
                out += member.samples(name, labels)
        return ("\n".join(out) + "\n").encode()


class ProxyMetrics(Registry):
    """The metrics of the proxy: alone in a process of its own, and among those of a service with the proxy inside."""

    def __init__(self) -> None:
        super().__init__()
        self.started = self._gauge("start_time_seconds", "When the process started, in unix seconds.")()
        self.proxied = self._counter(
            "proxy_requests_total", "Requests that passed the proxy in this process, by outcome.", "outcome"
        )
        self.proxy_connections = self._gauge("proxy_connections", "Connections that clients have to the proxy in this process.")()


class Metrics(ProxyMetrics):
    """All metrics of the service."""

    def __init__(self) -> None:
        super().__init__()
        count, level, spread = self._counter, self._gauge, self._histogram

        self.info = level("build_info", "Always 1; the labels say what is running.", "version", "policy", "store")
        self.ready = level("ready", "1 while the service decides rankings, 0 while it starts, drains or cannot use its store.")()

        self.requests = count("requests_total", "Requests answered.", "route", "status")
        self.turned_away = count("turned_away_total", "Requests and connections refused before a route was called.", "reason")
        self.connections = level("connections", "Open connections.")()
        self.rank_seconds = spread("rank_seconds", "Time from the start of a rank request to its answer.", LATENCIES)
        self.feedback_seconds = spread("feedback_seconds", "Time from the start of a feedback request to its answer.", LATENCIES)
        self.rank_batch_seconds = spread(
            "rank_batch_seconds", "Time from the start of a batch of rank requests to its answer.", LATENCIES
        )
        self.observe_seconds = spread("observe_seconds", "Time from the start of an observe request to its answer.", LATENCIES)
        self.feedback_batch_seconds = spread(
            "feedback_batch_seconds", "Time from the start of a batch of feedback to its answer.", LATENCIES
        )

        self.decisions = count("decisions_total", "Rankings decided, without degraded ones.")()
        self.explored = count("explored_total", "Rankings with a result in a slot that the policy mostly gives to another.")()
        self.shown_again = count("shown_again_total", "Rankings that a session was shown again, without a new decision.")()
        clicks = count("clicks_total", "Clicks on results that the policy had put into a slot, by position.", "position")
        self.clicks = [clicks(str(slot + 1)) for slot in range(SLOTS)]
        self.degraded = count("degraded_total", "Rankings answered in the given order.", "reason")
        self.passed_on = count(
            "passed_on_total", "Requests that another worker of the service was asked to answer, by what became of that.", "outcome"
        )
        self.feedback = count("feedback_total", "Feedback accepted.", "outcome")
        self.refused = count("feedback_refused_total", "Feedback refused.", "reason")
        self.beacons = count(
            "beacons_total",
            "Entries at the routes that need no API key, by their outcome, or requests, by the reason of their refusal.",
            "route",
            "outcome",
        )
        self.forwarded = count("ubi_forwarded_total", "Documents of UBI for the search engine, by what became of them.", "outcome")
        self.signals = count("signals_total", "Numbers that were pushed.", "name", "outcome")
        self.fed = level("signals_kept", "Queries and namespaces for which pushed numbers are kept, and 1 for all queries.")()
        self.ruled = count("ruled_total", "Rankings that a rule of an operator has changed, by the kind of rule.", "kind")
        self.namespaces = count(
            "namespace_rankings_total",
            "Rankings decided for requests with a namespace, by the table that configures it.",
            "namespace",
        )
        self.throttled = count("throttled_total", "Requests refused because of the rate of their caller.", "key")
        self.shadow = count(
            "shadow_total", "Rankings in shadow mode: what the policy would have done to the given order.", "outcome"
        )
        self.arm_searches = count("experiment_searches_total", "Searches of the experiment, by arm.", "arm")
        self.arm_clicked = count("experiment_clicked_total", "Searches of the experiment with a click, by arm.", "arm")
        self.arm_clicks = count(
            "experiment_clicks_total", "Clicks of the experiment, by arm and position; `below`: not in a slot.", "arm", "position"
        )
        self.arm_reward = count("experiment_reward_total", "Reward of the experiment's searches, by arm.", "arm")
        self.treated = level("experiment_treated", "Share of units that get the policy's order; 1 without an experiment.")()
        self.guarded = level("guarded", "Queries that the guard of the experiment shows in their given order.")()
        self.guards = count("guards_total", "Times that a query went back to its given order.")()
        self.rules = level("rules", "Rules of operators in force.")()
        self.alarms = count("alarms_total", "Alarms that began a new phase.", "signal")
        self.restarts = count("restarts_total", "Times that a policy started over, or dropped records that no longer hold.")()
        self.new_queries = count("new_queries_total", "Queries seen for the first time.")()
        self.evicted = count("evicted_arms_total", "Candidates that gave their arm to a new candidate.")()

        self.cache_hits = count("cache_hits_total", "Queries found in memory.")()
        self.cache_misses = count("cache_misses_total", "Queries that were not in memory and were looked up in the store.")()
        self.cache_rows = level("cache_rows", "Queries in memory.")()
        self.pending_rows = level("pending_rows", "Queries whose changes are not written yet.")()
        self.stored_rows = level("stored_rows", "Queries in the store, approximately.")()

        self.commits = count("commits_total", "Groups appended to the log.")()
        self.commit_seconds = spread("commit_seconds", "Time of one append to the log.", LATENCIES)
        self.checkpoints = count("checkpoints_total", "Checkpoints written.")()
        self.committed_rows = count("committed_rows_total", "Rows written with checkpoints.")()
        self.commit_rows = spread("commit_rows", "Rows of one checkpoint.", SIZES)
        self.checkpoint_seconds = spread("checkpoint_seconds", "Time of one checkpoint.", LATENCIES)
        self.behind = level("log_behind_entries", "Entries of the log that a start would play.")()
        self.store_errors = count("store_errors_total", "Operations that the store could not do.", "kind")
        self.expired_rows = count("expired_rows_total", "Idle queries that were removed.")()
        self.removed_rows = count("removed_rows_total", "Least valuable queries, removed because the store was full.")()
        self.store_bytes = level("store_bytes", "Bytes of the database that are in use.")()
        self.log_bytes = level("log_bytes", "Bytes of the log beside the database.")()

    def seconds(self, route: str) -> Histogram | None:
        """Return the latency histogram of a route, or None."""
        kept = {"rank": self.rank_seconds, "feedback": self.feedback_seconds, "observe": self.observe_seconds}
        return (kept | {"rank_batch": self.rank_batch_seconds, "feedback_batch": self.feedback_batch_seconds}).get(route)

    def request(self, route: str, status: int) -> None:
        """Count one answer of a route, by the class of its status."""
        self.requests(route, CLASSES[status // 100]).value += 1


#: Status // 100 → label of its class. A table, because every request needs one.
CLASSES = tuple(f"{hundred}xx" for hundred in range(6))


def escaped(value: str) -> str:
    """Escape the value of a label."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def braced(labels: str) -> str:
    return f"{{{labels}}}" if labels else ""


def written(value: float) -> str:
    """Format a number so that it reads back exactly."""
    return str(value) if isinstance(value, int) else repr(float(value))
