"""The documents of the demo: number, form, and refusals that name the file and the document."""

from __future__ import annotations

import re

import pytest

from swerve import SwerveError
from swerve.demo.corpus import documents, meanings, queries, read

STORMS = ("harvey", "irma", "jose", "maria")

GOOD = """
query = "bank"
[[document]]
id = "bank-river"
title = "The bank of the river"
meaning = "river"
quality = 1
text = "Wet feet."
[[document]]
id = "bank-news"
title = "The bank is shut"
meaning = "news"
quality = 0.5
published = "run"
text = "Come back on Monday."
"""


def test_the_promised_breadth():
    assert len(queries()) >= 13
    assert len(documents()) >= 165
    for name in ("hurricane", "independence day", "tomato", "oasis", "jaguar", "corona", "mercury"):
        assert name in queries()
    for query in queries():
        about = [document for document in documents() if document.query == query]
        assert 10 <= len(about) <= (26 if query == "hurricane" else 17), query
        assert len(meanings(query)) >= 4, query
        for meaning in meanings(query):
            assert sum(document.meaning == meaning for document in about) >= 2, (query, meaning)


def test_ids_titles_and_texts_are_unique():
    for field in ("id", "title", "text"):
        values = [getattr(document, field) for document in documents()]
        assert len(set(values)) == len(values), field


def test_documents_are_short_and_whole():
    for document in documents():
        assert document.id.startswith(document.query.replace(" ", "-") + "-"), document.id
        assert re.fullmatch(r"[a-z]+", document.meaning), document.id  # a word that a user may add to the query
        assert 10 <= len(document.title) <= 70, document.id
        assert 60 <= len(document.text) <= 260, (document.id, len(document.text))
        assert document.text.endswith("."), document.id
        assert len(re.findall(r"[.?!](?= |$)", document.text)) in (2, 3), document.id


def test_a_storm_is_unknown_until_it_is_named():
    assert meanings("hurricane") == ("general", "cocktail", "team", *STORMS)
    for document in documents():
        if document.query == "hurricane":
            assert document.published == (document.meaning if document.meaning in STORMS else None), document.id


def test_a_published_key_is_a_meaning_of_one_query():
    owner: dict[str, str] = {}
    for document in documents():
        if document.published is not None:
            assert document.published == document.meaning, document.id
            assert owner.setdefault(document.published, document.query) == document.query, document.id
    assert {"sequel", "recall", "virus", *STORMS} <= set(owner)
    # a meaning that is news has no document before its publication
    for document in documents():
        if (document.query, document.meaning) in {(query, key) for key, query in owner.items()}:
            assert document.published == document.meaning, document.id


def test_every_meaning_has_one_best_document():
    """Each meaning has exactly one best document: the demo's events are changes of that document."""
    for query in queries():
        for meaning in meanings(query):
            ranked = sorted(document.quality for document in documents() if (document.query, document.meaning) == (query, meaning))
            assert ranked[-1] >= 0.85, (query, meaning)
            assert ranked[-1] > ranked[-2], (query, meaning)


def test_an_unknown_query_is_named():
    with pytest.raises(SwerveError, match=r"no documents about 'hurricanes'; it has amazon, apollo"):
        meanings("hurricanes")


def test_read():
    river, news = read(GOOD)
    assert (river.id, river.query, river.meaning, river.quality, river.published) == ("bank-river", "bank", "river", 1.0, None)
    assert isinstance(river.quality, float)
    assert (news.title, news.text, news.published) == ("The bank is shut", "Come back on Monday.", "run")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('query = "bank"', "", r"bank\.toml: needs query"),
        ('query = "bank"', "query = 3", r"bank\.toml: needs query"),
        ('query = "bank"', 'query = "bank', r"bank\.toml: not valid TOML"),
        ("quality = 0.5", "", r"bank\.toml: document 2: quality must be a number in \(0, 1\], got None"),
        ("quality = 0.5", "quality = 0", r"document 2: quality .* got 0"),
        ("quality = 0.5", "quality = 1.5", r"document 2: quality .* got 1\.5"),
        ("quality = 0.5", "quality = nan", r"document 2: quality .* got nan"),
        ("quality = 0.5", "quality = true", r"document 2: quality .* got True"),
        ('id = "bank-news"', 'id = "Bank news"', r"document 2: id must be small letters.* got 'Bank news'"),
        ('id = "bank-news"', "", r"document 2: id must be a text that is not empty, got None"),
        ('title = "The bank is shut"', 'title = ""', r"document 2: title must be a text that is not empty, got ''"),
        ('published = "run"', "published = 1", r"document 2: published must be a text"),
        ('published = "run"', 'publish = "run"', r"document 2: unknown key 'publish'; known are id, title"),
    ],
)
def test_a_wrong_file_is_refused_and_the_place_named(old: str, new: str, said: str):
    assert GOOD.count(old) == 1
    with pytest.raises(SwerveError, match=said):
        read(GOOD.replace(old, new), "bank.toml")


def test_a_file_without_documents_is_refused():
    with pytest.raises(SwerveError, match=r"needs at least one \[\[document\]\]"):
        read('query = "bank"')
