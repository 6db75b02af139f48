"""The whole configuration, and its tables about the server, the store, the policy and the log."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from swerve.service.config.callers import Limits, Namespace, Security
from swerve.service.config.fields import Section, about, within
from swerve.service.config.forms import CREW, CREWED, DAY, NAMED, ORIGIN, ORIGINATED, SPACE_NAME, UPSTREAM, Hosts
from swerve.service.config.learning import Evaluation, Experiment, Feedback, Signals, Ubi
from swerve.service.config.proxying import Proxy


class Server(Section, frozen=True):
    """Where the service listens, and its deadlines."""

    host: Annotated[str, about("Address to listen on. Anything but the loopback needs an API key.", shortest=1)] = "127.0.0.1"
    port: Annotated[int, within(0, 65535, "Port to listen on; 0 takes any free one.")] = 8350
    hosts: Hosts = ()
    origins: Annotated[
        tuple[Annotated[str, about("", pattern=ORIGIN, allowed=ORIGINATED)], ...],
        about(
            "Origins whose pages may call it from a browser (CORS), besides its own.",
            allowed=f"a list in which each entry is {ORIGINATED}",
        ),
    ] = ()
    deadline_ms: Annotated[
        float, within(0, 10_000, "Milliseconds after which `rank` answers in the given order, degraded.", open_low=True)
    ] = 20.0
    drain_seconds: Annotated[float, within(0, 600, "Seconds that open requests have to finish when the service stops.")] = 10.0
    docs: Annotated[bool, about("Serve /openapi.json and the page /docs.")] = True
    workers: Annotated[
        int,
        within(
            1,
            64,
            "Processes that serve the port, each with a share of the store ([several workers](service.md#several-workers)). A "
            "start with another number divides a store in files anew. Of several machines: the weight of this one.",
        ),
    ] = 1
    worker_ports: Annotated[
        int,
        within(
            0,
            65535,
            "With several workers: worker i listens on this port plus i too, for load balancers that send a request to the worker "
            "of its query. 0: on none.",
        ),
    ] = 0
    crew_address: Annotated[
        str,
        about(
            "HOST:PORT at which other machines reach this one's workers: that of share i listens on this port plus i "
            "([several machines](service.md#several-machines)). Empty: this machine serves alone.",
            pattern=CREW,
            allowed=CREWED,
        ),
    ] = ""


class Store(Section, frozen=True):
    """Where the state is stored, and how much of it is in memory."""

    url: Annotated[
        str,
        about(
            "The store: sqlite:///relative/path, sqlite:////absolute/path, postgresql://user@host:port/database?schema=NAME, which "
            "takes libpq's other parameters too, or valkey://user:password@host:port/number?prefix=NAME (valkeys:// with TLS).",
            shortest=1,
        ),
    ] = "sqlite:///swerve.db"
    shares: Annotated[
        int,
        within(
            0,
            64,
            "Shares of a store on a server, one for each worker ([several machines](service.md#several-machines)); for good, from "
            "its begin on. 0: those that it has; where it is begun, as many as server.workers.",
        ),
    ] = 0
    standby: Annotated[bool, about("Wait at the start while another process owns the store, and take over when it is gone.")] = (
        False
    )
    may_lose_clicks: Annotated[
        bool, about("Accept a server that may lose clicks which were acknowledged: by its settings, or in a failover.")
    ] = False
    flush_seconds: Annotated[
        float, within(0, 60, "Seconds after which changes by `rank` are written. Feedback is written at once.", open_low=True)
    ] = 10.0
    cache_mb: Annotated[int, within(1, 1_048_576, "Megabytes for queries in memory; the least recently used leave it first.")] = 576
    max_mb: Annotated[
        int,
        within(
            16,
            16_777_216,
            "Megabytes of the database and its log. At the bound the least valuable queries are removed: a query's value is the "
            "day of its last request plus 8 days for each doubling of its requests.",
        ),
    ] = 10_240
    idle_days: Annotated[float, within(0, 36_500, "Days without a request after which a query is removed.", open_low=True)] = 90.0
    journal_days: Annotated[
        float,
        within(
            0,
            36_500,
            "Days for which the log of the store is kept, with query texts, for `swerve evaluate`, `replay` and `learn`. 0: what a "
            "start needs, without texts.",
        ),
    ] = 0.0
    store_queries: Annotated[bool, about("Store the text of queries. Otherwise only a keyed hash is stored.")] = False


class Policy(Section, frozen=True):
    """The policy, and how many candidates of a query it remembers."""

    spec: Annotated[
        str, about("A name of the catalogue (`swerve list`) or an expression such as `bwc(epsilon=0.2)`.", shortest=1)
    ] = "swerve"
    load: Annotated[
        tuple[Annotated[str, about("", shortest=1, allowed="the name of a Python file")], ...],
        about(
            "Python files with your own classes, which `spec` and `experiment.control` may name ([extending](extending.md)). They "
            "run with the rights of the service, when the configuration is read.",
            allowed="a list of Python files",
        ),
    ] = ()
    mode: Annotated[
        Literal["serve", "shadow"],
        about(
            "`shadow` answers in the given order, decides beside it, learns from the clicks, and reports what it would have done."
        ),
    ] = "serve"
    test_length: Annotated[
        int, within(0, 1_000_000, "L, the plays of a test, for policies over a testable bandit; 0 keeps the policy's own.")
    ] = 0
    grace_seconds: Annotated[
        float,
        within(
            0,
            DAY,
            "Seconds that Swerve and BWC wait for late clicks before they judge. Nearly all clicks should have come by then.",
        ),
    ] = 10.0
    arms: Annotated[int, within(2, 64, "Candidates that are remembered for each query.")] = 64
    forget_days: Annotated[
        float, within(0, 36_500, "Days without an offer after which a candidate gives its arm to a new one.", open_low=True)
    ] = 7.0
    seed: Annotated[
        Annotated[int, within(0, 2**63 - 1)] | None,
        about("Seed of the random streams, for reproducible runs; without it the query key is the seed."),
    ] = None
    slots: Annotated[
        int,
        within(
            1,
            10,
            "Positions of a ranking that the policy fills, unless a request names another number; the rest is as given. With 1 the "
            "policy is the one for a single slot.",
        ),
    ] = 10
    propensity_draws: Annotated[
        int,
        within(
            0,
            1000,
            "Further draws of each page from which `propensities` are estimated, for policies that draw at random; the standard "
            "error is at most 0.5 / sqrt(draws). 0: no estimate.",
        ),
    ] = 8


class Log(Section, frozen=True):
    """Log lines on standard error."""

    format: Annotated[Literal["json", "text"], about("One JSON object per line, or plain text.")] = "json"
    level: Annotated[Literal["debug", "info", "warning", "error"], about("The lowest level that is written.")] = "info"
    access: Annotated[Literal["errors", "all", "none"], about("Requests that are logged, never with the query's text.")] = "errors"


class Tracing(Section, frozen=True):
    """Spans for OpenTelemetry, of the service and of the proxy; they need the extra `swerve[otel]`. `traceparent` of a request is
    taken over without them."""

    endpoint: Annotated[
        str,
        about(
            "A collector that takes OTLP over HTTP, without its path /v1/traces. Empty: no spans. The variables of OpenTelemetry "
            "(`OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`) hold too.",
            pattern=UPSTREAM,
            allowed="empty, or an address such as 'http://127.0.0.1:4318', without a user",
        ),
    ] = ""
    sample: Annotated[
        float,
        within(0, 1, "Share of traces that are recorded. A request with a `traceparent` is recorded if its caller's trace is."),
    ] = 1.0


class Config(Section, frozen=True):
    """The whole configuration."""

    server: Server = Server()
    store: Store = Store()
    policy: Policy = Policy()
    signals: Signals = Signals()
    feedback: Feedback = Feedback()
    ubi: Ubi = Ubi()
    experiment: Experiment = Experiment()
    evaluation: Evaluation = Evaluation()
    limits: Limits = Limits()
    security: Security = Security()
    log: Log = Log()
    tracing: Tracing = Tracing()
    proxy: Proxy = Proxy()
    namespaces: Annotated[
        dict[Annotated[str, about("", pattern=SPACE_NAME, allowed=f"{NAMED}, or '*'")], Namespace],
        about("The namespaces by name.", allowed="a table [namespaces.NAME] for each namespace"),
    ] = msgspec.field(default_factory=dict)


def sections() -> dict[str, type[Section]]:
    """Return the class of each table by its name, without the tables of namespaces."""
    return {field.name: type(field.default) for field in msgspec.structs.fields(Config) if field.default is not msgspec.NODEFAULT}
