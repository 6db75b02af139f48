"""The tables of a configuration file: every field with its default, its range and its meaning."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from swerve.service.config.fields import Section, about, within
from swerve.serving.ubi import CLICKS

DAY = 86_400  # seconds
#: Forms of names, hosts and origins, and the words that errors and docs use for them.
NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}\Z"
OPEN_NAME = r"^([A-Za-z0-9][A-Za-z0-9_.-]{0,63})?\Z"
SPACE_NAME = r"^(\*|[A-Za-z0-9][A-Za-z0-9_.-]{0,63})\Z"
NAMED = "a name of up to 64 letters, digits, '_', '.' or '-'"
OPTIONAL = r"^([A-Za-z0-9][A-Za-z0-9_.-]{0,63})?\Z"
OPTED = "empty, or a name of up to 64 letters, digits, '_', '.' or '-'"
HOST = r"^(\*|[A-Za-z0-9_]([A-Za-z0-9_.-]{0,252})|\[?[0-9A-Fa-f:.]{2,45}\]?)\Z"
HOSTED = "a name or an address without a port, or '*' for any"
ORIGIN = r"^https?://([A-Za-z0-9_.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(:[0-9]{1,5})?\Z"
UPSTREAM = r"^(https?://([A-Za-z0-9_.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(:[0-9]{1,5})?(/[A-Za-z0-9_./-]*)?)?\Z"
ORIGINATED = "an origin such as 'https://search.example.com', without a path"
Kind = Literal["volume", "abandonment", "reformulation", "age", "new"]
Scope = Literal["rank", "feedback", "read", "operate", "signals"]
#: The signals that are computed from the traffic, in the order of their kinds in `swerve.signals`.
KINDS: tuple[Kind, ...] = ("volume", "abandonment", "reformulation", "age", "new")
#: The signals that the policy sees by default; docs/signals.md says why not all.
USED: tuple[Kind, ...] = ("volume", "abandonment", "reformulation")
SCOPES: tuple[Scope, ...] = ("rank", "feedback", "read", "operate", "signals")


RATE = "Requests a second on average, each entry of a batch counted; more are refused with 429 and `Retry-After`."
BURST = "Requests that may come at once after a pause; 0: those of two seconds at `rate`."


class Server(Section, frozen=True):
    """Where the service listens, and its deadlines."""

    host: Annotated[str, about("Address to listen on. Anything but the loopback needs an API key.", shortest=1)] = "127.0.0.1"
    port: Annotated[int, within(0, 65535, "Port to listen on; 0 takes any free one.")] = 8350
    hosts: Annotated[
        tuple[Annotated[str, about("", pattern=HOST, allowed=HOSTED)], ...],
        about(
            "Names that requests may have in `Host`, besides those of the loopback and the address it listens on; `*`: any name.",
            allowed=f"a list in which each entry is {HOSTED}",
        ),
    ] = ()
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


class Store(Section, frozen=True):
    """Where the state is stored, and how much of it is in memory."""

    url: Annotated[str, about("The store: sqlite:///relative/path or sqlite:////absolute/path.", shortest=1)] = (
        "sqlite:///swerve.db"
    )
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
    store_queries: Annotated[bool, about("Store the text of queries. Otherwise only a keyed hash is stored.")] = False


class Policy(Section, frozen=True):
    """The policy, and how many candidates of a query it remembers."""

    spec: Annotated[
        str, about("A name of the catalogue (`swerve list`) or an expression such as `bwc(epsilon=0.2)`.", shortest=1)
    ] = "swerve"
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


class Signals(Section, frozen=True):
    """The signals of the context, and how they are computed. The features of `use` come first, then those of `numbers`."""

    use: Annotated[tuple[Kind, ...], about("Signals computed from the traffic, in the order of the context.")] = USED
    numbers: Annotated[
        dict[Annotated[str, about("", pattern=NAME, allowed=NAMED)], Literal["count", "raw"]],
        about(
            "Numbers that callers may send, by name. `count`: compared with its own past; `raw`: used as it is, clipped to [0, 1].",
            allowed="a table [signals.numbers] in which each value is one of count, raw",
        ),
    ] = msgspec.field(default_factory=dict)
    feed_ttl_seconds: Annotated[
        float,
        within(
            0, 30 * DAY, "Seconds in which a number that was pushed to /v1/signals holds, unless it says so itself.", open_low=True
        ),
    ] = 3600.0
    tuning: dict[str, float] = msgspec.field(
        default_factory=dict
    )  # hyper-parameters of `Senses`; the file has them as fields of [signals]


class EventKind(Section, frozen=True):
    """One table for each kind of user events besides `click`, or for `click` itself: what an event of the kind is worth."""

    weight: Annotated[
        float,
        within(0, 1, "What an event is worth, as a share of a click: the events on a result add up, at most to 1.", open_low=True),
    ] = 1.0
    window_seconds: Annotated[
        Annotated[float, within(0, 7 * DAY, open_low=True)] | None,
        about("Seconds after its ranking in which an event of the kind counts; without it `feedback.window_seconds`."),
    ] = None


class Feedback(Section, frozen=True):
    """Which clicks and other user events the policy learns from."""

    window_seconds: Annotated[float, within(0, 7 * DAY, "Seconds after its ranking in which a click counts.", open_low=True)] = (
        1800.0
    )
    events: Annotated[
        dict[Annotated[str, about("", pattern=NAME, allowed=NAMED)], EventKind],
        about(
            "Kinds of user events besides `click`, each with its weight and its window.",
            allowed="tables [feedback.events.KIND] with weight and window_seconds",
        ),
    ] = msgspec.field(default_factory=dict)
    evidence_per_session: Annotated[
        int,
        within(
            0,
            1000,
            "Pages with one result on top from which the policy learns, for each session and phase of a query; 0: all pages.",
        ),
    ] = 1
    anonymous_share: Annotated[
        float,
        within(
            0,
            1,
            "Bound on requests without a session, for queries that sessions ask too. In each phase the policy learns from at most "
            "20 of their shows, plus this share of the shows it learnt from sessions.",
        ),
    ] = 0.1
    steady_seconds: Annotated[
        float,
        within(
            0,
            DAY,
            "Seconds in which a session that repeats a query with the same candidates is shown the same order, as the same "
            "decision; 0: each request is a new decision.",
        ),
    ] = 120.0
    beacon: Annotated[
        bool,
        about(
            "Take feedback at /v1/beacon, as `navigator.sendBeacon` sends it: the signed decision is the permission, and no API "
            "key is needed. Pages need their origin in `server.origins`."
        ),
    ] = False
    reformulation_seconds: Annotated[
        float, within(0, DAY, "Seconds in which another query of the same session is a reformulation.", open_low=True)
    ] = 60.0


class Experiment(Section, frozen=True):
    """An experiment: a share of the traffic gets the policy's order, the rest the given one. `PUT /v1/experiments` and `swerve
    experiment ramp` change it without a restart; a later change of `name`, `treated` or `salt` in the file goes before that."""

    name: Annotated[
        str, about("The name of the experiment; empty: none runs. Another name begins a new one.", pattern=OPTIONAL, allowed=OPTED)
    ] = ""
    treated: Annotated[
        float, within(0, 1, "Share of units that get the policy's order. A unit that is treated stays so when the share rises.")
    ] = 1.0
    salt: Annotated[
        str, about("Goes into the hash that assigns units; empty: the name. The same salt assigns as an earlier experiment did.")
    ] = ""
    visit_seconds: Annotated[
        float,
        within(
            0,
            7 * DAY,
            "Seconds of a visit: what a unit searches from its first search on. It is judged as many seconds later.",
            open_low=True,
        ),
    ] = 600.0
    guard: Annotated[
        float,
        within(
            0,
            0.5,
            "Probability that a query whose order by the policy is not worse ever goes back to its given order by mistake; 0: no "
            "query goes back by itself.",
        ),
    ] = 0.01
    guard_hours: Annotated[
        float, within(0, 8760, "Hours after which a query that went back tries the policy's order again.", open_low=True)
    ] = 24.0


class Ubi(Section, frozen=True):
    """User Behavior Insights: what its collectors send to /ubi_events and /ubi_queries."""

    enabled: Annotated[
        bool,
        about(
            "Take events and queries as the collectors of User Behavior Insights send them. A `query_id` that a request to `rank` "
            "has named, or a decision, is the permission, and no API key is needed."
        ),
    ] = False
    clicks: Annotated[
        tuple[Annotated[str, about("", shortest=1)], ...],
        about(
            f"Values of `action_name` that are clicks, in any case. Empty: {', '.join(CLICKS)}. An action named like a kind of "
            "user events is one of that kind."
        ),
    ] = ()
    first_position: Annotated[
        int, within(0, 1, "The position of the top result in events that name no object: the schema does not say where it begins.")
    ] = 1
    forward: Annotated[
        str,
        about(
            "Address of a search engine whose indexes `ubi_events` and `ubi_queries` get everything that is sent, in bulk; empty: "
            "nothing is forwarded. SWERVE_UBI_AUTHORIZATION is the value of its `Authorization` header.",
            pattern=UPSTREAM,
            allowed="empty, or an address such as 'http://127.0.0.1:9200', without a user",
        ),
    ] = ""
    query_ids: Annotated[int, within(1, 10_000_000, "Query ids whose decision is remembered, the latest; about 0.5 kB each.")] = (
        50_000
    )


class Evaluation(Section, frozen=True):
    """What makes logs of the service fit for estimates of other rankings."""

    swaps: Annotated[
        float,
        within(
            0,
            1,
            "Share of pages on which two slots, drawn at random, change places: every result of a page then has a propensity in "
            "every slot.",
        ),
    ] = 0.0


class Limits(Section, frozen=True):
    """Bounds on the size of a request, the time it takes to arrive, and the number of connections and new queries."""

    body_bytes: Annotated[
        int,
        within(
            1024,
            2**30,
            "Bytes of a body. A body that is not a batch may also have at most 65,536 + 12 × (query_chars + session_chars + "
            "candidates × id_chars) bytes, 271 kB by default: the most that the other limits let it need.",
        ),
    ] = 1_048_576
    candidates: Annotated[
        int, within(1, 64, "Candidates of one `rank`: at most policy.arms, which is also the default when it is below 64.")
    ] = 64
    query_chars: Annotated[int, within(1, 65_536, "Characters of a query.")] = 512
    id_chars: Annotated[int, within(1, 65_536, "Characters of a candidate's id.")] = 256
    session_chars: Annotated[int, within(1, 65_536, "Characters of a session's id, and of a unit's.")] = 256
    batch: Annotated[int, within(1, 100_000, "Entries of one batch.")] = 1000
    head_seconds: Annotated[
        float, within(0, 3600, "Seconds in which the line and the headers of a request must arrive.", open_low=True)
    ] = 10.0
    body_seconds: Annotated[float, within(0, 3600, "Seconds in which the body must arrive after the headers.", open_low=True)] = (
        30.0
    )
    unread_seconds: Annotated[
        float, within(0, 3600, "Seconds after which a caller that reads nothing of its answer is disconnected.", open_low=True)
    ] = 60.0
    connections: Annotated[int, within(1, 1_000_000, "Connections in total; fewer where the system allows fewer open files.")] = (
        10_000
    )
    connections_per_address: Annotated[
        int, within(1, 1_000_000, "Connections from one address. A proxy in front of the service is one address.")
    ] = 1000
    new_queries_per_minute: Annotated[
        int,
        within(
            1,
            1_000_000_000,
            "New queries that get a row in a minute. Beyond half of them only queries that several sessions ask get one, beyond "
            "all of them none.",
        ),
    ] = 60_000
    rate: Annotated[
        float,
        within(0, 1_000_000, f"{RATE} For each API key without a rate of its own, and for all callers without a key. 0: no limit."),
    ] = 0.0
    burst: Annotated[int, within(0, 1_000_000_000, BURST)] = 0
    fed_queries: Annotated[
        int,
        within(1, 10_000_000, "Queries and namespaces for which pushed numbers are kept: those that were pushed for last."),
    ] = 50_000
    beacon_bytes: Annotated[
        int, within(256, 65_536, "Bytes of a body that needs no API key; browsers send at most 65,536 in a beacon.")
    ] = 65_536
    beacon_rate: Annotated[
        float,
        within(
            0,
            1_000_000,
            "Entries a second on average, from one address, at the routes that need no API key; more are refused with 429. A proxy "
            "in front of the service is one address.",
            open_low=True,
        ),
    ] = 20.0
    beacon_burst: Annotated[
        int, within(0, 1_000_000_000, "Entries that may come from one address at once; 0: those of two seconds at `beacon_rate`.")
    ] = 200


class Namespace(Section, frozen=True):
    """One index, locale or tenant, by its name in requests; `"*"` stands for every name that has no table of its own."""

    rate: Annotated[float, within(0, 1_000_000, f"{RATE} Feedback is not limited here. 0: no limit.")] = 0.0
    burst: Annotated[int, within(0, 1_000_000_000, BURST)] = 0
    new_queries_per_minute: Annotated[
        int,
        within(0, 1_000_000_000, "New queries that get a row in a minute, besides the bound of [limits]; 0: that bound alone."),
    ] = 0
    candidates: Annotated[int, within(0, 64, "Candidates of one `rank`; 0: as many as limits.candidates.")] = 0
    numbers: Annotated[
        tuple[Annotated[str, about("", pattern=NAME, allowed=NAMED)], ...] | None,
        about("Numbers of [signals.numbers] that its requests may send. Default: all of them."),
    ] = None


class ApiKey(Section, frozen=True):
    """One key that callers may present; `swerve keys new` makes it."""

    name: Annotated[str, about("The caller it is for; appears in logs.", pattern=NAME, allowed=NAMED)]
    hash: Annotated[
        str,
        about(
            "The SHA-256 of the key, as `swerve keys new` prints it.",
            pattern=r"^sha256:[0-9a-f]{64}\Z",
            allowed="'sha256:' and 64 hexadecimal digits, as `swerve keys new` prints it",
        ),
    ]
    scopes: Annotated[tuple[Scope, ...], about("The routes that the key opens.")] = SCOPES
    namespaces: Annotated[
        tuple[Annotated[str, about("", pattern=OPEN_NAME, allowed=f"{NAMED}, or empty")], ...],
        about(
            'The namespaces that the key is bound to: it reaches nothing outside them. `""` stands for requests without a '
            "namespace. Default: it is not bound.",
        ),
    ] = ()
    rate: Annotated[float, within(0, 1_000_000, f"{RATE} 0: limits.rate.")] = 0.0
    burst: Annotated[int, within(0, 1_000_000_000, BURST)] = 0


class Security(Section, frozen=True):
    """API keys, and the file of the secrets."""

    api_keys: Annotated[tuple[ApiKey, ...], about("The accepted keys; without any, callers need no key.")] = ()
    secrets: Annotated[str, about("File of the token keys and the query key (mode 0600); empty: beside the database.")] = ""


class Log(Section, frozen=True):
    """Log lines on standard error, and the recording of requests."""

    format: Annotated[Literal["json", "text"], about("One JSON object per line, or plain text.")] = "json"
    level: Annotated[Literal["debug", "info", "warning", "error"], about("The lowest level that is written.")] = "info"
    access: Annotated[Literal["errors", "all", "none"], about("Requests that are logged, never with the query's text.")] = "errors"
    record: Annotated[
        str, about("File to which requests are recorded for `swerve replay`, with query texts. Empty: no recording.")
    ] = ""


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
    namespaces: Annotated[
        dict[Annotated[str, about("", pattern=SPACE_NAME, allowed=f"{NAMED}, or '*'")], Namespace],
        about("The namespaces by name.", allowed="a table [namespaces.NAME] for each namespace"),
    ] = msgspec.field(default_factory=dict)


def sections() -> dict[str, type[Section]]:
    """Return the class of each table by its name, without the tables of namespaces."""
    return {field.name: type(field.default) for field in msgspec.structs.fields(Config) if field.default is not msgspec.NODEFAULT}


#: Meanings of the fields of `Senses` in [signals]; docs/signals.md has the formulas.
SENSES = {
    "baseline_hours": "Hours that the baseline of volume and counts reaches back.",
    "warmup_hours": "Hours of baseline before a level can be a surprise.",
    "window_hours_low": "Least length of the fast window, in hours.",
    "window_hours_high": "Greatest length of the fast window, in hours.",
    "window_requests": "Requests that the fast window holds on average.",
    "overdispersion": "Overdispersion of real counts: their variance is mean × (1 + overdispersion × mean).",
    "full_surprise_deviance": "The deviance that is a surprise of 1.",
    "burst_cap": "Greatest rate with which a burst enters the baseline, as a multiple of the known rate.",
    "odds_factor": "Factor of the odds for which the rates (abandonment, reformulation) are watched.",
    "evidence_ceiling": "Upper bound of the summed evidence for risen odds; half of it is a crossing.",
    "recent_rate_retention": "Share of the recent rate that remains after each request.",
    "baseline_rate_retention": "Share of the baseline rate that remains after each request.",
    "rate_warmup_requests": "Requests before a rate can be a surprise.",
    "min_contrary_outcomes": "Requests of the other outcome before a rate can be a surprise.",
    "close_after_seconds": "Least number of seconds before a request without a click counts as abandoned.",
    "latch_hours": "Hours without a crossing before the next one is heard.",
    "latch_requests": "Requests without a crossing before the next one of a rate, of age or of new candidates is heard.",
    "crossing_level": "Level from which on a surprise is a crossing.",
    "noise_ceiling": "Upper bound of the noise that a signal shows in all requests in which it is not heard.",
    "freshness_hours": "Hours in which the freshness of a candidate falls by a factor of e.",
    "season_half_trust_requests": "Requests after which the factor of an hour of the week has half its weight.",
    "season_weeks": "Weeks over which the season is averaged.",
    "season_max_share": "Greatest share of all traffic with which one query enters the season.",
}
