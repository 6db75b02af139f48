"""The demo's search engine: tantivy over the demo's documents, in memory.

Its order is the "fixed ranking" of the demo: it knows the words of a document, but not the intent of the hour.

>>> search = Search()
>>> [document.meaning for document in search.find("hurricane cocktail", limit=2)]
['cocktail', 'cocktail']
>>> search.find("irma", known=())  # the storm has no name yet
[]
"""

from __future__ import annotations

import functools
from collections.abc import Container, Iterable
from typing import TYPE_CHECKING

from swerve.core.errors import SwerveError
from swerve.demo import corpus
from swerve.demo.corpus import Document

if TYPE_CHECKING:
    import tantivy

TITLE_WEIGHT = 3.0  # a word in the title says more about a document than one in its text
COMPLETE_SCORE = 1_000.0  # far above any BM25 score: documents with every word come first ("independence day" is not any other day)
MOST_CHARACTERS = 1_000  # characters of a query that are read
MOST_WORDS = 32  # different words of a query that are used: more cost time and improve nothing
MOST_REMEMBERED = 1_024  # texts whose ranking is cached: the same few queries recur
WRITER_BYTES = 15_000_000  # bytes for the writer: the minimum that tantivy accepts
LONGEST_WORD = 40  # characters: longer tokens are not words
DEFAULT_RESULTS = 10  # results by default
ANALYZER = "demo_english"


class Search:
    """Finds documents by words: those with every word before those with some, then by BM25 with a higher weight for the title.

    The user's text is split into words and never parsed as a query language, so no text is a syntax error.
    """

    def __init__(self, documents: Iterable[Document] | None = None) -> None:
        try:
            import tantivy
        except ImportError:
            raise SwerveError(
                "the demo's search needs the package tantivy; install Swerve with its extra: pip install swerve[demo]"
            ) from None
        self._tantivy = tantivy
        self._documents = corpus.documents() if documents is None else tuple(documents)
        self._analyzer = _analyzer()
        builder = tantivy.SchemaBuilder()
        builder.add_text_field("title", tokenizer_name=ANALYZER)
        builder.add_text_field("text", tokenizer_name=ANALYZER)
        builder.add_unsigned_field("number", fast=True)
        self._schema = builder.build()
        index = tantivy.Index(self._schema)
        index.register_tokenizer(ANALYZER, self._analyzer)
        writer = index.writer(heap_size=WRITER_BYTES, num_threads=1)
        for number, document in enumerate(self._documents):
            entry = tantivy.Document()
            entry.add_text("title", document.title)
            entry.add_text("text", document.text)
            entry.add_unsigned("number", number)
            writer.add_document(entry)
        writer.commit()
        writer.wait_merging_threads()
        index.reload()
        self._searcher = index.searcher()
        self._ranked = functools.lru_cache(maxsize=MOST_REMEMBERED)(self._rank)

    def find(self, text: str, limit: int = DEFAULT_RESULTS, known: Container[str] | None = None) -> list[Document]:
        """Return the `limit` best documents for `text`, without those whose `published` key is not in `known` (None: all)."""
        if limit < 1:
            raise SwerveError(f"limit must be at least 1, got {limit}")
        found: list[Document] = []
        for document in self._ranked(text[:MOST_CHARACTERS]):
            if known is None or document.published is None or document.published in known:
                found.append(document)
                if len(found) == limit:
                    break
        return found

    def _rank(self, text: str) -> tuple[Document, ...]:
        """Return all documents with a word of `text`, best first; ties in the order of the corpus."""
        # a broken client may send half a surrogate pair, which UTF-8 cannot encode
        words = self._analyzer.analyze(text.encode("utf-8", "replace").decode("utf-8"))
        terms = list(dict.fromkeys(words))[:MOST_WORDS]
        if not terms or not self._documents:
            return ()
        query, occur, schema = self._tantivy.Query, self._tantivy.Occur, self._schema
        anywhere = [
            query.boolean_query(
                [
                    (occur.Should, query.boost_query(query.term_query(schema, "title", term), TITLE_WEIGHT)),
                    (occur.Should, query.term_query(schema, "text", term)),
                ]
            )
            for term in terms
        ]
        complete = query.const_score_query(query.boolean_query([(occur.Must, part) for part in anywhere]), COMPLETE_SCORE)
        wanted = query.boolean_query([(occur.Should, part) for part in [*anywhere, complete]])
        hits = self._searcher.search(wanted, limit=len(self._documents), count=False).hits
        numbers = self._searcher.fast_field_values("number", [address for _, address in hits])
        order = sorted((-score, int(number or 0)) for (score, _), number in zip(hits, numbers, strict=True))
        return tuple(self._documents[number] for _, number in order)


def _analyzer() -> tantivy.TextAnalyzer:
    """Return the analyzer: lower case without accents, without stop words, plural reduced to singular."""
    from tantivy import Filter, TextAnalyzerBuilder, Tokenizer

    builder = TextAnalyzerBuilder(Tokenizer.simple())
    for step in (
        Filter.remove_long(LONGEST_WORD),
        Filter.lowercase(),
        Filter.ascii_fold(),
        Filter.stopword("english"),
        Filter.stemmer("english"),
    ):
        builder = builder.filter(step)
    return builder.build()
