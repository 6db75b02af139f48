"""The tables that say who may call and how much: limits, namespaces, API keys."""

from __future__ import annotations

from typing import Annotated, Literal

from swerve.service.config.fields import Section, about, within
from swerve.service.config.forms import BURST, NAME, NAMED, OPEN_NAME, RATE

Scope = Literal["rank", "feedback", "read", "operate", "signals"]
SCOPES: tuple[Scope, ...] = ("rank", "feedback", "read", "operate", "signals")


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
