"""Which searches are re-ranked: reads a request against the rules, and says what to ask the engine instead."""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote

import msgspec

from swerve.proxy.heads import RequestHead
from swerve.proxy.paths import TABLE, encode, having, look, path_of, without
from swerve.service.config.proxying import Rule

log = logging.getLogger("swerve.proxy")

#: Hits that an engine answers without `from` and `size` being set, and at most.
DEFAULT_SIZE, MOST_HITS = 10, 10_000
#: Keys of a search that ask for an order, or for a place in one, that the engine alone can keep.
UNTOUCHED = frozenset(("sort", "collapse", "search_after", "pit", "rescore", "slice", "scroll"))
#: The same among the parameters of a URL, and those that change the form of the answer or the place of the search.
UNTOUCHED_PARAMS = frozenset(
    ("sort", "scroll", "search_after", "filter_path", "format", "source", "source_content_type", "scroll_id")
)
#: Types of searches whose hits come in the order of their scores; some clients always name one.
BY_SCORE = (None, "query_then_fetch", "dfs_query_then_fetch")
MOST_PARAMS = 64
#: Bytes of a search that are read: reading more would hold the event loop, and no search box sends them.
MOST_SEARCH = 131_072
KINDS = {"_search": "search", "_msearch": "msearch"}
ENDING = re.compile(rb"^/(?:([^/?]+)/)?(_search(?:/template)?|_msearch)(?:\?(.*))?$")
Search = dict[str, Any]
SORTED = msgspec.json.Encoder(order="deterministic")


class Target(NamedTuple):
    """One list of results to re-rank."""

    rule: Rule
    entry: int  # of an `_msearch`, from 0; −1 for a single search
    query: str
    session: str | None
    parts: dict[str, Any]  # locale, filter, segment, unit, namespace: those that it has
    first: int  # the page that the client asked for
    size: int
    window: int  # results that are re-ranked
    fetch: int  # hits that the engine is asked for, from the first on
    own_scores: bool  # hits keep their own scores
    pinned: frozenset[str]
    query_id: str | None
    key: bytes  # of the search and its session, without the page; empty without a session


class Plan(NamedTuple):
    """What to ask the engine in place of a request. Without targets it is only stripped, and its answer streams."""

    targets: list[Target]
    target: bytes  # of the request line
    body: bytes | None  # None: as it came
    plain: bytes | None  # the body that asks for what the client asked: stripped; None: as it came
    several: bool  # the answer is that of an `_msearch`


class Asked(NamedTuple):
    """A search as the rules see it: one request, or an entry of an `_msearch`."""

    head: RequestHead
    named: str  # the indexes
    kind: str
    params: dict[str, str]
    search: Search
    text: bytes


def pattern_of(indices: Iterable[str]) -> re.Pattern[str]:
    """Return the expression for names of indexes; a `*` at the beginning does not stand for a dot.

    >>> bool(pattern_of(["shop-*"]).fullmatch("shop-1")), bool(pattern_of(["*"]).fullmatch(".kibana"))
    (True, False)
    """
    made = []
    for name in indices:
        text = ".*".join(map(re.escape, name.split("*")))
        made.append(rf"(?!\.){text}" if name.startswith("*") else text)
    return re.compile("|".join(f"(?:{one})" for one in made))


class Reader:
    """A source: where a text of a search is."""

    def __init__(self, source: str) -> None:
        self.kind, _, self.name = source.partition(":") if ":" in source else ("body", "", source)
        self.path, self.header = path_of(self.name), self.name.lower().encode()

    def value(self, asked: Asked) -> str | None:
        """Return the text; None where there is none or it is empty."""
        found: Any = None
        if self.kind == "body":
            found = look(asked.search, self.path)
        elif self.kind == "param":
            found = asked.params.get(self.name)
        elif self.kind == "header":
            raw = asked.head.one(self.header)
            found = None if raw is None else text_of(raw)
        else:
            for line in asked.head.all(b"cookie"):
                for part in line.split(b";"):
                    name, _, value = part.strip().partition(b"=")
                    if name == self.name.encode():
                        found = text_of(value.strip(b'"'))
        if isinstance(found, bool) or not isinstance(found, str | int | float):
            return None
        return str(found).strip() or None

    def shape(self, asked: Asked) -> str | None:
        """Return the text, or the JSON of an object or a list in the body."""
        found = look(asked.search, self.path) if self.kind == "body" else None
        return SORTED.encode(found).decode() if isinstance(found, dict | list) else self.value(asked)


def text_of(raw: bytes) -> str | None:
    """Return the text of a header; None where it is not UTF-8."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return None


class Matcher:
    """One rule, prepared."""

    def __init__(self, rule: Rule, candidates: int) -> None:
        self.rule, self.window = rule, min(rule.window, candidates)
        self.indices = pattern_of(rule.indices)
        self.where = [(path_of(path), text) for path, text in rule.where.items()]
        self.query, self.session = [Reader(one) for one in rule.query], [Reader(one) for one in rule.session]
        self.filter = [Reader(one) for one in rule.filter]
        self.parts = {
            name: [Reader(one) for one in sources]
            for name, sources in (("locale", rule.locale), ("segment", rule.segment), ("unit", rule.unit))
            if sources
        }
        self.strip = [path_of(path) for path in rule.strip]
        self.pages = (path_of(rule.from_path), path_of(rule.size_path))

    def fits(self, asked: Asked, entry: int) -> bool:
        """Return whether the rule holds for a search."""
        rule = self.rule
        if asked.kind not in rule.requests or (entry >= 0 and rule.entry and entry != rule.entry - 1):
            return False
        if not all(self.indices.fullmatch(name) for name in asked.named.split(",")):
            return False
        for path, wanted in self.where:
            found = look(asked.search, path)
            if found is None or (wanted != "*" and said(found) != wanted):
                return False
        return True

    def target(self, asked: Asked, entry: int, several: bool) -> Target | None:
        """Return what to re-rank; None if the search is to be left alone."""
        search, params = asked.search, asked.params
        if not UNTOUCHED.isdisjoint(search) or not UNTOUCHED_PARAMS.isdisjoint(params):
            return None
        if params.get("search_type") not in BY_SCORE:
            return None
        query = first(self.query, asked)
        page = self._page(asked)
        if query is None or page is None:
            return None
        start, size = page
        session = first(self.session, asked)
        window = self.window if session is not None else min(self.window, size)
        if start >= window or (session is None and start > 0) or window < 2 or start + size > MOST_HITS:
            return None
        parts: dict[str, Any] = {name: text for name, readers in self.parts.items() if (text := first(readers, asked)) is not None}
        if filters := [text for reader in self.filter if (text := reader.shape(asked)) is not None]:
            parts["filter"] = "\x1f".join(filters) if len(filters) > 1 else filters[0]
        if self.rule.namespace:
            parts["namespace"] = self.rule.namespace
        own_scores = bool(search.get("track_scores") or search.get("explain") or params.get("track_scores") or "explain" in params)
        identity = look(search, ("ext", "ubi", "query_id"))
        return Target(
            self.rule, entry if several else -1, query, session, parts, start, size, window,
            fetch=size if session is None else max(window, start + size),
            own_scores=own_scores, pinned=pinned_of(search), query_id=identity if isinstance(identity, str) else None,
            key=b"" if session is None else self._key(asked, session),
        )  # fmt: skip

    def _page(self, asked: Asked) -> tuple[int, int] | None:
        start: Any
        size: Any
        if asked.kind == "template":
            start, size = look(asked.search, self.pages[0]), look(asked.search, self.pages[1])
        else:
            start, size = asked.search.get("from"), asked.search.get("size")
            if asked.kind == "search":  # the parameters of the URL go before the body
                start, size = asked.params.get("from", start), asked.params.get("size", size)
        numbers = []
        for number, default in ((start, 0), (size, DEFAULT_SIZE)):
            text = str(default if number is None else number)
            if not (text.isascii() and text.isdigit() and len(text) <= 6):
                return None
            numbers.append(int(text))
        return (numbers[0], numbers[1]) if numbers[1] else None

    def _key(self, asked: Asked, session: str) -> bytes:
        """Return the key of a search and its session, whichever page is asked for."""
        text = asked.text
        if asked.kind == "template":
            for path in self.pages:
                text = without(text, path)
        table = TABLE.decode(text)
        for name in ("from", "size", "ext"):
            table.pop(name, None)
        params = sorted(f"{name}={value}" for name, value in asked.params.items() if name not in ("from", "size"))
        parts = [self.rule.name, asked.named, asked.kind, session, *params]
        return hashlib.blake2b("\0".join(parts).encode(errors="replace") + b"\0" + encode(table), digest_size=16).digest()

    def stripped(self, text: bytes) -> bytes:
        """Return the body without what the engine must not see."""
        for path in self.strip:
            text = without(text, path)
        return text

    def rewritten(self, asked: Asked, target: Target) -> bytes:
        """Return the body that fetches the window, for a search whose page is in its body."""
        text = self.stripped(asked.text)
        paths: Sequence[Sequence[str]] = self.pages if asked.kind == "template" else (("from",), ("size",))
        if (target.first, target.size) == (0, target.fetch):
            return text
        return having(having(text, paths[0], 0), paths[1], target.fetch)


def first(readers: Sequence[Reader], asked: Asked) -> str | None:
    """Return the first text that a search has."""
    for reader in readers:
        if (found := reader.value(asked)) is not None:
            return found
    return None


def said(value: Any) -> str:
    """Return a value of a body as a rule writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def pinned_of(search: Search) -> frozenset[str]:
    """Return the ids that a `pinned` query puts on top."""
    pinned = look(search, ("query", "pinned"))
    if not isinstance(pinned, dict):
        return frozenset()
    docs = pinned.get("docs") if isinstance(pinned.get("docs"), list) else []
    ids = pinned.get("ids") if isinstance(pinned.get("ids"), list) else []
    return frozenset([*map(str, ids or ()), *(str(doc.get("_id")) for doc in docs or () if isinstance(doc, dict))])


class Rules:
    """All rules; `candidates` are the most that the service takes."""

    def __init__(self, rules: Sequence[Rule], candidates: int) -> None:
        self.matchers = [Matcher(rule, candidates) for rule in rules or (Rule(),)]
        self.kinds = {kind for matcher in self.matchers for kind in matcher.rule.requests}

    def shrink(self, namespace: str, limit: int) -> None:
        """Re-rank at most so many results in a namespace from now on: the service takes no more."""
        wide = [matcher for matcher in self.matchers if matcher.rule.namespace == namespace and matcher.window > limit]
        if not wide:  # a search that was on its way has told it already
            return
        log.warning(
            "the service takes fewer candidates than the proxy's window has: the window shrinks to that",
            extra={"window": max(matcher.window for matcher in wide), "limit": limit, "rules": [one.rule.name for one in wide]},
        )
        for matcher in wide:
            matcher.window = limit

    def concern(self, head: RequestHead) -> bool:
        """Return whether a request may be one to re-rank, by its head alone."""
        if head.method not in (b"GET", b"POST") or b"/_" not in head.target:
            return False
        found = ENDING.match(head.target)
        if found is None or head.http_1_0 or b"expect" in head.names:
            return False
        kind = "template" if found[2].endswith(b"template") else KINDS[found[2].decode()]
        return kind in self.kinds

    def plan(self, head: RequestHead, body: bytes) -> Plan | None:
        """Return what to ask the engine for a request with its decoded body; None: the request as it is."""
        found = ENDING.match(head.target)
        if found is None or len(body) > MOST_SEARCH:
            return None
        index = unquote((found[1] or b"_all").decode("latin-1"))
        try:
            query = (found[3] or b"").decode("ascii")
            params = dict(parse_qsl(query, keep_blank_values=True, max_num_fields=MOST_PARAMS))
            if found[2] == b"_msearch":
                return self._msearch(head, index, params, body)
            kind = "template" if found[2].endswith(b"template") else "search"
            return self._search(Asked(head, index, kind, params, parsed(body or b"{}"), body or b"{}"), query, bool(body))
        except (ValueError, msgspec.DecodeError, RecursionError):
            return None

    def _fitting(self, asked: Asked, entry: int) -> Matcher | None:
        return next((matcher for matcher in self.matchers if matcher.fits(asked, entry)), None)

    def _search(self, asked: Asked, query: str, has_body: bool) -> Plan | None:
        matcher = self._fitting(asked, -1)
        if matcher is None:
            return None
        stripped = matcher.stripped(asked.text) if has_body else asked.text
        target, line = matcher.target(asked, -1, False), asked.head.target
        if target is None:
            return None if stripped == asked.text else Plan([], line, stripped, stripped, False)
        body = stripped
        if asked.kind == "template":
            body = matcher.rewritten(asked, target)
        elif (target.first, target.size) != (0, target.fetch):
            kept = [part for part in query.split("&") if part and unquote(part.partition("=")[0]) not in ("from", "size")]
            line = line.partition(b"?")[0] + b"?" + "&".join([*kept, "from=0", f"size={target.fetch}"]).encode()
        plain = None if stripped == asked.text else stripped
        return Plan([target], line, None if body == asked.text else body, plain, False)

    def _msearch(self, head: RequestHead, index: str, params: dict[str, str], body: bytes) -> Plan | None:
        lines = body.split(b"\n")
        if lines[-1].strip() == b"":
            lines.pop()
        if len(lines) % 2 or not lines:
            return None
        targets: list[Target] = []
        plain = list(lines)
        for entry in range(len(lines) // 2):
            text = lines[2 * entry + 1]
            header = parsed(lines[2 * entry].strip() or b"{}")
            named = header.get("index", index)
            name = ",".join(map(str, named)) if isinstance(named, list) else str(named)
            asked = Asked(head, name, "msearch", params, parsed(text), text)
            matcher = self._fitting(asked, entry)
            if matcher is None:
                continue
            target = matcher.target(asked, entry, True) if header.get("search_type") in BY_SCORE else None
            plain[2 * entry + 1] = matcher.stripped(text)
            lines[2 * entry + 1] = plain[2 * entry + 1] if target is None else matcher.rewritten(asked, target)
            if target is not None:
                targets.append(target)
        sent, unchanged = b"\n".join([*lines, b""]), body if body.endswith(b"\n") else body + b"\n"
        stripped = b"\n".join([*plain, b""])
        if not targets and sent == unchanged:
            return None
        return Plan(targets, head.target, None if sent == unchanged else sent, None if stripped == unchanged else stripped, True)


def parsed(text: bytes) -> Search:
    """Return an object in JSON. Raises `ValueError` for anything else."""
    found = msgspec.json.decode(text)
    if not isinstance(found, dict):
        raise ValueError("not an object")
    return found
