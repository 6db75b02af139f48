"""The keys of queries, by their names as requests have them. Those of short names are remembered."""

from __future__ import annotations

from collections.abc import Callable, Collection

from swerve.service.config.callers import Limits
from swerve.service.namespaces import Namespaces
from swerve.serving.checks import check_parts, check_query
from swerve.serving.messages import Asked, key_text

MOST_KEYS, LONGEST_KEYS = 50_000, 64  # queries whose key is remembered, and their characters at most

#: A query: its text, or its text, locale, filter, segment and namespace.
Name = str | tuple[str, str | None, str | None, str | None, str | None]


def named(asked: Asked) -> Name:
    """Return the name of a request's query: its text alone if it has no parts.

    >>> from swerve.serving.messages import encode, read_asked
    >>> [named(read_asked(encode({"query": "jaguar", "candidates": ["a"], **parts}))) for parts in ({}, {"locale": "en"})]
    ['jaguar', ('jaguar', 'en', None, None, None)]
    """
    if asked.locale is None and asked.filter is None and asked.segment is None and asked.namespace is None:
        return asked.query
    return asked.query, asked.locale, asked.filter, asked.segment, asked.namespace


class QueryKeys(dict[Name, tuple[bytes, str]]):
    """By name: the key of the query, and its text with all parts. What is not remembered is checked: that raises `Refused`."""

    def __init__(self, key_of: Callable[[str], bytes], limits: Limits, namespaces: Namespaces) -> None:
        super().__init__()
        self._key_of, self._limits, self._namespaces = key_of, limits, namespaces

    def __missing__(self, name: Name) -> tuple[bytes, str]:
        query, locale, filter_, segment, namespace = (name, None, None, None, None) if isinstance(name, str) else name
        check_query(query, self._limits)
        check_parts(self._limits, locale=locale, filter=filter_, segment=segment)
        self._namespaces.known(namespace)
        text = key_text(query, locale, filter_, segment, namespace)
        found = self._key_of(text), text
        if len(text) <= LONGEST_KEYS:  # longer texts are rare, and would take the memory of many
            if len(self) >= MOST_KEYS:
                self.clear()
            self[name] = found
        return found

    def forget(self, keys: Collection[bytes]) -> None:
        """Forget the names of these queries."""
        for name in [name for name, (key, _) in self.items() if key in keys]:
            del self[name]
