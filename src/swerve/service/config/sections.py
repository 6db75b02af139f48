"""The tables of a configuration file: every field with its default, its range and its meaning."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from swerve.service.config.fields import Section, about, within

DAY = 86_400
NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}\Z"
NAMED = "a name of up to 64 letters, digits, '_', '.' or '-'"
HOST = r"^(\*|[A-Za-z0-9_]([A-Za-z0-9_.-]{0,252})|\[?[0-9A-Fa-f:.]{2,45}\]?)\Z"
HOSTED = "a name or an address without a port, or '*' for any"
ORIGIN = r"^https?://([A-Za-z0-9_.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(:[0-9]{1,5})?\Z"
ORIGINATED = "an origin such as 'https://search.example.com', without a path"
Kind = Literal["volume", "abandonment", "reformulation", "age", "new"]
Scope = Literal["rank", "feedback", "read"]
#: The signals that are computed from the traffic, in the order of their kinds in `swerve.signals`.
KINDS: tuple[Kind, ...] = ("volume", "abandonment", "reformulation", "age", "new")
#: What the policy sees unless told otherwise; docs/signals.md says why not all.
USED: tuple[Kind, ...] = ("volume", "abandonment", "reformulation")
SCOPES: tuple[Scope, ...] = ("rank", "feedback", "read")


class Server(Section, frozen=True):
    """Where the service listens, and how long it takes at most."""

    host: Annotated[str, about("Address to listen on. Anything but the loopback needs an API key.", shortest=1)] = "127.0.0.1"
    port: Annotated[int, within(0, 65535, "Port to listen on; 0 takes any free one.")] = 8350
    hosts: Annotated[
        tuple[Annotated[str, about("", pattern=HOST, allowed=HOSTED)], ...],
        about(
            "Names that callers may know it by (`Host`), beside those of the loopback and the address it listens on; `*`: any.",
            allowed=f"a list, each of them {HOSTED}",
        ),
    ] = ()
    origins: Annotated[
        tuple[Annotated[str, about("", pattern=ORIGIN, allowed=ORIGINATED)], ...],
        about(
            "Origins whose pages may call it from a browser (CORS), beside its own.", allowed=f"a list, each of them {ORIGINATED}"
        ),
    ] = ()
    deadline_ms: Annotated[
        float, within(0, 10_000, "A `rank` that would take longer answers the given order, degraded.", open_low=True)
    ] = 20.0
    drain_seconds: Annotated[float, within(0, 600, "Time that open requests have to finish when the service stops.")] = 10.0
    docs: Annotated[bool, about("Serve /openapi.json and the page /docs.")] = True


class Store(Section, frozen=True):
    """Where the state lies, and how much of it is kept in memory."""

    url: Annotated[str, about("The store: sqlite:///relative/path or sqlite:////absolute/path.", shortest=1)] = (
        "sqlite:///swerve.db"
    )
    flush_seconds: Annotated[
        float, within(0, 60, "What `rank` changes is written behind, at most so much later; feedback at once.", open_low=True)
    ] = 10.0
    cache_mb: Annotated[int, within(1, 1_048_576, "Megabytes for queries in memory; the least recently used make room.")] = 576
    max_mb: Annotated[
        int, within(16, 16_777_216, "Megabytes of the database and its log; at the bound, queries that are worth least make room.")
    ] = 10_240
    idle_days: Annotated[float, within(0, 36_500, "A query that nobody has asked for so long is forgotten.", open_low=True)] = 90.0
    store_queries: Annotated[bool, about("Keep the text of queries; without it only a keyed hash is kept.")] = False


class Policy(Section, frozen=True):
    """Which policy decides, and how many candidates it knows."""

    spec: Annotated[
        str, about("A name of the catalog (`swerve list`) or an expression such as `bwc(epsilon=0.2)`.", shortest=1)
    ] = "swerve"
    test_length: Annotated[
        int, within(0, 1_000_000, "L, the plays of a test, for policies over a testable bandit; 0 leaves the policy's own.")
    ] = 0
    grace_seconds: Annotated[
        float, within(0, DAY, "How long Swerve and BWC wait for late clicks before they judge: most clicks have come by then.")
    ] = 10.0
    arms: Annotated[int, within(2, 64, "Candidates that are remembered for each query.")] = 64
    forget_days: Annotated[
        float, within(0, 36_500, "A candidate that was not offered for so long gives its place to a new one.", open_low=True)
    ] = 7.0
    seed: Annotated[
        Annotated[int, within(0, 2**63 - 1)] | None,
        about("Seed of the random streams, for reproducible runs; without it they come from the query key."),
    ] = None
    probability_draws: Annotated[
        int, within(0, 1000, "Draws from which `probability` is estimated, where the policy draws at random; 0 leaves it out.")
    ] = 2


class Signals(Section, frozen=True):
    """Which signals make the context, and how they are computed. The context has `use` first, then `numbers`."""

    use: Annotated[tuple[Kind, ...], about("Signals computed from the traffic that the policy sees, in this order.")] = USED
    numbers: Annotated[
        dict[Annotated[str, about("", pattern=NAME, allowed=NAMED)], Literal["count", "raw"]],
        about(
            "Numbers that the caller may send, by name: `count` is watched for surprises, `raw` is taken as it is, cut to [0, 1].",
            allowed="a table [signals.numbers], each value one of count, raw",
        ),
    ] = msgspec.field(default_factory=dict)
    tuning: dict[str, float] = msgspec.field(
        default_factory=dict
    )  # the hyper-parameters of `Senses` that the file sets, there by their own names


class Feedback(Section, frozen=True):
    """Which clicks count."""

    window_seconds: Annotated[float, within(0, 7 * DAY, "A click counts when it comes within this time.", open_low=True)] = 1800.0
    evidence_per_session: Annotated[
        int, within(0, 1000, "How often one session is heard on one result of a query in one phase; 0: always.")
    ] = 1
    anonymous_share: Annotated[
        float,
        within(
            0, 1, "What requests without a session may add to 20 units of evidence, as a share of what sessions add in a phase."
        ),
    ] = 0.1
    reformulation_seconds: Annotated[
        float, within(0, DAY, "Another query of the same session within this time is a reformulation.", open_low=True)
    ] = 60.0


class Limits(Section, frozen=True):
    """What one request may hold, how long it may take to arrive, and how many connections there may be."""

    body_bytes: Annotated[int, within(1024, 2**30, "Bytes of a request's body.")] = 1_048_576
    candidates: Annotated[
        int, within(1, 64, "Candidates of one `rank`; at most policy.arms, which is also the default when that is lower.")
    ] = 64
    query_chars: Annotated[int, within(1, 65_536, "Characters of a query.")] = 512
    id_chars: Annotated[int, within(1, 65_536, "Characters of a candidate's id.")] = 256
    session_chars: Annotated[int, within(1, 65_536, "Characters of a session's id.")] = 256
    batch: Annotated[int, within(1, 100_000, "Entries of one batch.")] = 1000
    head_seconds: Annotated[
        float, within(0, 3600, "Time that the line and the headers of a request have to arrive.", open_low=True)
    ] = 10.0
    body_seconds: Annotated[float, within(0, 3600, "Time that the body of a request has to arrive, after that.", open_low=True)] = (
        30.0
    )
    unread_seconds: Annotated[
        float, within(0, 3600, "Time that a caller may leave an answer unread, without taking any of it.", open_low=True)
    ] = 60.0
    connections: Annotated[int, within(1, 1_000_000, "Connections in all; fewer where the system allows fewer open files.")] = (
        10_000
    )
    connections_per_address: Annotated[
        int, within(1, 1_000_000, "Connections from one address; a proxy before the service is one address.")
    ] = 1000
    new_queries_per_minute: Annotated[
        int,
        within(
            1,
            1_000_000_000,
            "New queries that get a row; beyond half of it only those that several sessions ask, beyond all of it none.",
        ),
    ] = 60_000


class ApiKey(Section, frozen=True):
    """One key that callers may present; `swerve keys new` makes it."""

    name: Annotated[str, about("Who it is for; appears in logs.", pattern=NAME, allowed=NAMED)]
    hash: Annotated[
        str,
        about(
            "What `swerve keys new` prints: the SHA-256 of the key.",
            pattern=r"^sha256:[0-9a-f]{64}\Z",
            allowed="'sha256:' and 64 hexadecimal digits, as `swerve keys new` prints it",
        ),
    ]
    scopes: Annotated[tuple[Scope, ...], about("What the key is good for.")] = SCOPES


class Security(Section, frozen=True):
    """Who may call, and where the secrets lie."""

    api_keys: Annotated[tuple[ApiKey, ...], about("The keys that are accepted; none means that no key is asked for.")] = ()
    secrets: Annotated[str, about("File of the token keys and the query key (mode 0600); empty: beside the database.")] = ""


class Log(Section, frozen=True):
    """What is written to standard error, and what is recorded."""

    format: Annotated[Literal["json", "text"], about("One JSON object per line, or plain text.")] = "json"
    level: Annotated[Literal["debug", "info", "warning", "error"], about("The least important message that is written.")] = "info"
    access: Annotated[Literal["errors", "all", "none"], about("Requests that are logged; never with the query's text.")] = "errors"
    record: Annotated[str, about("File to record requests to, for `swerve replay`; it holds query texts. Empty: none.")] = ""


class Config(Section, frozen=True):
    """The whole configuration."""

    server: Server = Server()
    store: Store = Store()
    policy: Policy = Policy()
    signals: Signals = Signals()
    feedback: Feedback = Feedback()
    limits: Limits = Limits()
    security: Security = Security()
    log: Log = Log()


def sections() -> dict[str, type[Section]]:
    """Name of a table → its class."""
    return {field.name: type(field.default) for field in msgspec.structs.fields(Config)}


#: What the fields of `Senses` mean in [signals]; docs/signals.md has the rules that they stand in.
SENSES = {
    "baseline_hours": "Hours that the baseline of volume and counts reaches back.",
    "warmup_hours": "Hours of baseline before anything can be a surprise.",
    "window_hours_low": "Hours of the fast window at least.",
    "window_hours_high": "Hours of the fast window at most.",
    "window_requests": "The fast window is as long as so many requests take.",
    "overdispersion": "How much more real counts vary than Poisson's.",
    "full_surprise_deviance": "The deviance that is a surprise of 1.",
    "burst_cap": "A burst enters the baseline with at most so many times the known rate.",
    "odds_factor": "The rise of the odds that the rates (abandonment, reformulation) are watched for.",
    "evidence_ceiling": "Where the sum of evidence for risen odds ends; a crossing is at half of it.",
    "recent_rate_retention": "What is left of a recent rate with each request.",
    "baseline_rate_retention": "What is left of a baseline rate with each request.",
    "rate_warmup_requests": "Requests before a rate can be a surprise.",
    "min_contrary_outcomes": "Requests of the other outcome before a rate can be a surprise.",
    "close_after_seconds": "Seconds that a request may still be answered, at least, before it counts as abandoned.",
    "latch_hours": "Hours without a crossing before the next one is heard.",
    "latch_requests": "Requests, too, before the next crossing of a rate, of age or of new candidates is heard.",
    "crossing_level": "The surprise from which on it is a crossing.",
    "noise_ceiling": "What a crossing that is not heard looks like at most.",
    "freshness_hours": "Hours in which the freshness of a candidate falls by the factor e.",
    "season_half_trust_requests": "Requests after which an hour of the week is trusted by half.",
    "season_weeks": "Weeks that the season is averaged over.",
    "season_max_share": "The largest share of all traffic that one query has in the season.",
}
