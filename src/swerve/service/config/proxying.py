"""The tables [proxy] and [[proxy.rules]]: where the proxy listens, which engine it stands before, and what it re-ranks."""

from __future__ import annotations

from typing import Annotated, Literal

from swerve.service.config.fields import Section, about, within
from swerve.service.config.forms import NAME, NAMED, OPEN_NAME, OPEN_NAMED, Hosts

#: Forms of addresses, names of headers and sources, and the words that errors and docs use for them.
LISTEN = r"^(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9_.-]{1,253}):[0-9]{1,5}\Z"
MAYBE_LISTEN = rf"^({LISTEN[1:-2]})?\Z"
LISTENED = "an address and a port such as '127.0.0.1:9280'"
ADDRESS = r"^(https?://([A-Za-z0-9_.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(:[0-9]{1,5})?/?)?\Z"
ADDRESSED = "empty, or an address such as 'http://127.0.0.1:9200', without credentials and without a path"
SERVICE = ADDRESS.replace(")?\\Z", ")\\Z")
SERVED = ADDRESSED.removeprefix("empty, or ")
HOST_VALUE = r"^((\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9_.-]{1,253})(:[0-9]{1,5})?)?\Z"
SOURCE = r"^((header|cookie|param):[A-Za-z0-9_.!#$%&'*+^`|~-]{1,128}|[^:\s.]+(\.[^:\s.]+){0,31})\Z"
SOURCED = "a path in the body such as 'query.match.title.query', or 'header:NAME', 'cookie:NAME' or 'param:NAME'"
PATH = r"^[^\s.]+(\.[^\s.]+){0,31}\Z"
PATHED = "a path such as 'ext.ubi'"
INDEX = r"^\S{1,255}\Z"
INDEXED = "a name of an index, in which '*' stands for any characters"

Source = Annotated[str, about("", pattern=SOURCE, allowed=SOURCED)]
Path = Annotated[str, about("", pattern=PATH, allowed=PATHED)]
Kind = Literal["search", "msearch", "template"]
#: Where the text of a query is looked for by default: the common full-text queries with one field.
QUERY: tuple[str, ...] = (
    "ext.ubi.user_query",
    "query.match.*.query",
    "query.match.*",
    "query.multi_match.query",
    "query.query_string.query",
    "query.simple_query_string.query",
    "query.bool.must.*.match.*.query",
    "query.bool.must.*.match.*",
    "query.bool.must.*.multi_match.query",
    "query.bool.must.match.*.query",
    "query.bool.must.match.*",
    "query.bool.must.multi_match.query",
    "query.pinned.organic.match.*.query",
    "query.pinned.organic.match.*",
    "query.pinned.organic.multi_match.query",
    "param:q",
)
SESSION: tuple[str, ...] = ("header:x-swerve-session", "ext.ubi.client_id")
FIRST = "The first of these that a request has"


def sources(meaning: str) -> object:
    """Return the annotation of a list of sources."""
    return about(meaning, allowed=f"a list in which each entry is {SOURCED}")


class Rule(Section, frozen=True):
    """One rule: which searches are re-ranked, and where their parts are. The first rule that fits a search holds; without any rule
    there is one with these defaults."""

    name: Annotated[str, about("Its name, in `ext.swerve` of answers.", pattern=NAME, allowed=NAMED)] = "default"
    indices: Annotated[
        tuple[Annotated[str, about("", pattern=INDEX, allowed=INDEXED)], ...],
        about(
            "Names of indexes; every index that a request names must fit one of them. A request that names none has the name "
            "`_all`. A `*` at the beginning does not stand for a dot.",
            allowed=f"a list in which each entry is {INDEXED}",
        ),
    ] = ("*",)
    requests: Annotated[tuple[Kind, ...], about("`_search`, `_msearch` and `_search/template`.")] = ("search", "msearch")
    entry: Annotated[
        int, within(0, 1000, "The entry of an `_msearch` that is the list of results, from 1; 0: each entry that fits `where`.")
    ] = 0
    where: Annotated[
        dict[Path, str],
        about(
            "Paths that the body must have with this text, number or truth value; `*`: with any.",
            allowed="a table of paths and texts",
        ),
    ] = {}  # noqa: RUF012 - msgspec copies it
    query: Annotated[
        tuple[Source, ...],
        sources(f"{FIRST} is the text of the query. In a path `*` stands for the only entry of an object or a list."),
    ] = QUERY
    session: Annotated[
        tuple[Source, ...],
        sources(f"{FIRST} is the session. A search without one is re-ranked inside its first page alone."),
    ] = SESSION
    locale: Annotated[tuple[Source, ...], sources(f"{FIRST} is the locale of the query.")] = ()
    filter: Annotated[tuple[Source, ...], sources("Those of these that a request has are the filter of the query.")] = ()
    segment: Annotated[tuple[Source, ...], sources(f"{FIRST} is the segment of the query.")] = ()
    unit: Annotated[tuple[Source, ...], sources(f"{FIRST} is the unit of an experiment.")] = ()
    namespace: Annotated[str, about("The namespace of its queries; empty: none.", pattern=OPEN_NAME, allowed=OPEN_NAMED)] = ""
    id: Annotated[
        str, about("The path in a hit that identifies a result: `_id`, or as in `_source.sku`.", pattern=PATH, allowed=PATHED)
    ] = "_id"
    window: Annotated[
        int,
        within(
            2,
            64,
            "Results of the engine that are re-ranked. The service takes at most limits.candidates, which is at most policy.arms, "
            "and perhaps fewer in a namespace: a wider window shrinks to that.",
        ),
    ] = 50
    scores: Annotated[bool, about("Send the engine's scores to the service, where all hits have one.")] = True
    strip: Annotated[
        tuple[Path, ...],
        about(
            "Paths that are taken out of the body of a search that fits the rule, re-ranked or not: `ext.ubi` for an engine "
            "without that plug-in.",
            allowed=f"a list in which each entry is {PATHED}",
        ),
    ] = ()
    from_path: Annotated[str, about("Of a template: the path of its offset in the body.", pattern=PATH, allowed=PATHED)] = (
        "params.from"
    )
    size_path: Annotated[str, about("Of a template: the path of its number of hits.", pattern=PATH, allowed=PATHED)] = "params.size"


class Proxy(Section, frozen=True):
    """The proxy in front of an engine: `swerve proxy`, or inside `swerve serve` where `upstream` is set."""

    listen: Annotated[str, about("Where it listens; port 0 takes any free one.", pattern=LISTEN, allowed=LISTENED)] = (
        "127.0.0.1:9280"
    )
    metrics: Annotated[
        str,
        about(
            "Where `swerve proxy` answers /metrics and /healthz, on a port of its own: every path of `listen` belongs to the "
            "engine. Empty: nowhere. Inside `swerve serve` they are among those of the service.",
            pattern=MAYBE_LISTEN,
            allowed=f"empty, or {LISTENED.replace('9280', '9281')}",
        ),
    ] = ""
    upstream: Annotated[str, about("The engine. Empty: there is no proxy.", pattern=ADDRESS, allowed=ADDRESSED)] = ""
    service: Annotated[
        str,
        about(
            "The service that decides, for `swerve proxy`; inside `swerve serve` the service decides itself.",
            pattern=SERVICE,
            allowed=SERVED,
        ),
    ] = "http://127.0.0.1:8350"
    api_key_file: Annotated[str, about("File with the API key for that service (scope `rank`). Empty: none.")] = ""
    authorization_file: Annotated[
        str,
        about(
            "File with the value of `Authorization` for the engine, in place of the client's own: whoever reaches the proxy then "
            "has its rights. Empty: the client's passes."
        ),
    ] = ""
    ca_file: Annotated[
        str, about("File with the certificates that an engine with `https` is checked against. Empty: the system's.")
    ] = ""
    host_header: Annotated[
        str,
        about(
            "The value of `Host` for the engine. Empty: the client's own.",
            pattern=HOST_VALUE,
            allowed="empty, or a name, and perhaps a port",
        ),
    ] = ""
    hosts: Hosts = ()
    deadline_ms: Annotated[
        float, within(0, 10_000, "Milliseconds for a decision of the service; then the engine's order passes.", open_low=True)
    ] = 20.0
    connect_seconds: Annotated[float, within(0, 3600, "Seconds to connect to the engine; then 502.", open_low=True)] = 5.0
    timeout_seconds: Annotated[
        float, within(0, 86_400, "Seconds without a byte from the engine after which it counts as hanging: 504.", open_low=True)
    ] = 300.0
    buffer_bytes: Annotated[
        int,
        within(1024, 2**30, "Bytes of a search, and of its answer, that are read to re-rank it; a larger one streams untouched."),
    ] = 1_048_576
    paging_seconds: Annotated[
        float, within(0, 86_400, "Seconds for which the order of a session's search is kept for its further pages.")
    ] = 1800.0
    paging_mb: Annotated[int, within(1, 1_048_576, "Megabytes for these orders; the oldest leave first.")] = 64
    rules: Annotated[tuple[Rule, ...], about("Which searches are re-ranked; the first that fits holds.")] = ()
