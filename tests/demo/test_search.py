"""The demo's search: it offers every meaning, understands explicit queries, and accepts any text."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given, strategies as st

from swerve import SwerveError
from swerve.demo.corpus import Document, documents, meanings, queries
from swerve.demo.search import Search

SEARCH = Search()


def keys(query: str) -> list[str]:
    """Return the `published` keys of `query`, in the order of the file."""
    found = [document.published for document in documents() if document.query == query]
    return [key for key in dict.fromkeys(found) if key is not None]


def states() -> list[tuple[str, frozenset[str]]]:
    """Return each query with nothing published, and after each of its keys."""
    return [(query, frozenset(keys(query)[:count])) for query in queries() for count in range(len(keys(query)) + 1)]


def names(found: list[Document]) -> list[str]:
    return [document.id for document in found]


@pytest.mark.parametrize(("query", "known"), states())
def test_an_ambiguous_query_offers_every_meaning(query: str, known: frozenset[str]):
    """Ten candidates, all of this query, with the best document of every meaning that exists by then."""
    found = SEARCH.find(query, known=known)
    assert len(found) == 10
    assert {document.query for document in found} == {query}
    there = [document for document in documents() if document.query == query and (document.published or "") in {"", *known}]
    assert len({document.meaning for document in there}) >= 3
    for meaning in {document.meaning for document in there}:
        best = max((document for document in there if document.meaning == meaning), key=lambda document: document.quality)
        assert best in found, (query, best.id)


@pytest.mark.parametrize(("query", "meaning"), [(query, meaning) for query in queries() for meaning in meanings(query)])
def test_query_and_meaning_together_find_that_meaning_first(query: str, meaning: str):
    """Users without a click ask again in this form."""
    first = SEARCH.find(f"{query} {meaning}")[0]
    assert (first.query, first.meaning) == (query, meaning), first.id


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("hurricane irma", "hurricane-irma"),
        ("HURRICANE   Irma!", "hurricane-irma"),
        ("oasis band", "oasis-band"),
        ("what is a hurricane", "hurricane-what-is"),
        ("tomato soup recipes", "tomato-recipe-soup"),  # plural and singular match
        ("bunol", "tomato-festival"),  # accents are optional
        ("freddie mercury", "mercury-singer"),
        ("apollo 13", "apollo-film"),
        ("eclipse glasses", "eclipse-solar-glasses"),
    ],
)
def test_explicit_queries(text: str, first: str):
    assert SEARCH.find(text)[0].id == first


def test_a_document_is_unknown_until_its_key_is_published():
    assert SEARCH.find("irma", known=()) == []
    assert "harvey" not in {document.meaning for document in SEARCH.find("hurricane harvey", known=())}
    assert {document.meaning for document in SEARCH.find("irma", known={"irma"})} == {"irma"}
    assert SEARCH.find("hurricane irma", known={"irma"})[0].id == "hurricane-irma"
    assert SEARCH.find("hurricane", known=set(keys("hurricane"))) == SEARCH.find("hurricane", known=None)
    # publishing adds documents and keeps the order of the others
    before, after = (SEARCH.find("hurricane", limit=100, known=known) for known in ((), ("harvey",)))
    assert [document for document in after if document.published is None] == before
    assert len(after) > len(before)


def test_limit():
    every = SEARCH.find("hurricane", limit=100)
    assert len(every) == sum(document.query == "hurricane" for document in documents())
    assert SEARCH.find("hurricane", limit=3) == every[:3]
    assert len(SEARCH.find("hurricane")) == 10
    with pytest.raises(SwerveError, match="limit must be at least 1, got 0"):
        SEARCH.find("hurricane", limit=0)


def test_two_engines_agree():
    other = Search()
    for query in queries():
        assert names(other.find(query, limit=100)) == names(SEARCH.find(query, limit=100))


def document(name: str, title: str, text: str) -> Document:
    return Document(name, "q", title, text, "m", 0.5, None)


def test_a_word_in_the_title_weighs_more():
    inside = document("inside", "About water", "The lake is deep and cold.")
    above = document("above", "About a lake", "The water is deep and cold.")
    assert names(Search([inside, above]).find("lake")) == ["above", "inside"]


def test_every_word_comes_before_some_words():
    some = document("some", "Lake lake lake", "A lake, a lake.")
    whole = document("whole", "A long title about nothing much", "Here a lake is mentioned, and there a boat.")
    assert names(Search([some, whole]).find("lake boat")) == ["whole", "some"]


def test_equally_good_documents_keep_the_order_of_the_corpus():
    twins = [document(f"twin-{place}", "A lake", "Deep water.") for place in range(30)]
    assert names(Search(twins).find("lake", limit=30)) == [twin.id for twin in twins]


def test_an_empty_corpus_finds_nothing():
    assert Search([]).find("hurricane") == []


ODD = [
    "",
    " \t\n",
    '"',
    '"tomato',
    "title:",
    "title:tomato",
    "place:3",
    "nowhere:x",
    "[a TO",
    "{a TO b}",
    "(((",
    ")",
    "*",
    "tom*",
    "?",
    "/a(/",
]
ODD += [
    "AND",
    "NOT tomato",
    "a AND OR b",
    "+",
    "-tomato",
    "\\",
    "tomato^9e99",
    "tomato~99",
    "IN [",
    "the of and",
    "🍅",
    "🍅🌀" * 600,
    "\0",
    "\ud800",
]
ODD += ["tomato " * 1_500, "x" * 10_000, "(" * 10_000, "é́" * 5_000, " ".join(f"word{number}" for number in range(1_200))]


@pytest.mark.parametrize("text", ODD, ids=lambda text: ascii(text)[:20])
def test_odd_text_does_not_raise(text: str):
    found = SEARCH.find(text)
    assert len(found) <= 10
    assert all(isinstance(document, Document) for document in found)


@given(st.text(st.characters(exclude_categories=()), max_size=300))
def test_no_text_raises(text: str):
    SEARCH.find(text, known=())


def test_signs_of_a_query_language_are_no_language():
    plain = SEARCH.find("tomato")
    for text in ('"tomato', "tomato:", "(tomato", "-tomato", "tomato^", "[tomato TO", "NOT tomato", '+"tomato"*', "tomato~ OR AND"):
        assert SEARCH.find(text) == plain, text


def test_without_tantivy_the_extra_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "tantivy", None)
    with pytest.raises(SwerveError, match=r"needs the package tantivy.*pip install swerve\[demo\]"):
        Search()
