"""The documents that the demo searches: short texts of our own, with several meanings for each ambiguous query.

Each query has one TOML file in `documents/`. A document with the key `published` exists only after a scenario has published that
key: the track of a storm cannot be found before the storm has a name.

>>> [document.id for document in documents() if document.meaning == "jose"]
['hurricane-jose', 'hurricane-jose-beaches']
>>> meanings("hurricane")
('general', 'cocktail', 'team', 'harvey', 'irma', 'jose', 'maria')
"""

from __future__ import annotations

import functools
import importlib.resources
import re
import tomllib
from typing import Any, NamedTuple

from swerve.core.errors import SwerveError

IDENTIFIER = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
REQUIRED = ("id", "title", "meaning", "text")


class Document(NamedTuple):
    """One document of the demo's corpus."""

    id: str
    query: str  # the ambiguous query of its file
    title: str
    text: str
    meaning: str  # the meaning that it serves; two queries may share a name ("film", "team")
    quality: float  # in (0, 1]: how well it serves a user who wants that meaning
    published: str | None  # the key that must be published before the document exists; None: it always exists


def read(source: str, name: str = "<text>") -> tuple[Document, ...]:
    """Parse and check the documents of one TOML file; `name` is the file's name in errors."""
    try:
        table = tomllib.loads(source)
    except tomllib.TOMLDecodeError as error:
        raise SwerveError(f"{name}: not valid TOML: {error}") from None
    query = table.get("query")
    if not isinstance(query, str) or not query:
        raise SwerveError(f'{name}: needs query = "the ambiguous query that the file is about"')
    entries = table.get("document")
    if not isinstance(entries, list) or not entries:
        raise SwerveError(f"{name}: needs at least one [[document]]")
    return tuple(_document(entry, query, f"{name}: document {number}") for number, entry in enumerate(entries, 1))


def _document(entry: dict[str, Any], query: str, where: str) -> Document:
    if unknown := sorted(set(entry) - {*REQUIRED, "quality", "published"}):
        raise SwerveError(f"{where}: unknown key {unknown[0]!r}; known are {', '.join(REQUIRED)}, quality and published")
    for key in REQUIRED:
        if not isinstance(entry.get(key), str) or not entry[key]:
            raise SwerveError(f"{where}: {key} must be a text that is not empty, got {entry.get(key)!r}")
    if not IDENTIFIER.fullmatch(entry["id"]):
        raise SwerveError(f"{where}: id must be small letters, digits and single hyphens, got {entry['id']!r}")
    quality = entry.get("quality")
    if isinstance(quality, bool) or not isinstance(quality, int | float) or not 0.0 < quality <= 1.0:
        raise SwerveError(f"{where}: quality must be a number in (0, 1], got {quality!r}")
    published = entry.get("published")
    if published is not None and (not isinstance(published, str) or not published):
        raise SwerveError(f"{where}: published must be a text that is not empty, or absent; got {published!r}")
    return Document(entry["id"], query, entry["title"], entry["text"], entry["meaning"], float(quality), published)


@functools.cache
def documents() -> tuple[Document, ...]:
    """Return all documents, in the order of the files' names."""
    folder = importlib.resources.files("swerve.demo").joinpath("documents")
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".toml")), key=lambda file: file.name)
    found = tuple(document for file in files for document in read(file.read_text(encoding="utf-8"), file.name))
    seen: set[str] = set()
    for document in found:
        if document.id in seen:  # the service knows a document by its id: two would share their clicks
            raise SwerveError(f"the id {document.id!r} is used by two documents")
        seen.add(document.id)
    return found


def queries() -> tuple[str, ...]:
    """Return the ambiguous queries of the documents."""
    return tuple(dict.fromkeys(document.query for document in documents()))


def meanings(query: str) -> tuple[str, ...]:
    """Return the possible meanings of `query`, in the order of its file."""
    found = tuple(dict.fromkeys(document.meaning for document in documents() if document.query == query))
    if not found:
        raise SwerveError(f"the demo has no documents about {query!r}; it has {', '.join(queries())}")
    return found
