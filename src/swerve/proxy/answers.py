"""Answers of the engine: the hits of a window read, put into an order, and the page cut; every other byte stays as it was."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from swerve.proxy.paths import TABLE, encode, look, path_of
from swerve.proxy.rules import Target

#: Bytes that a list of numbers in JSON does not have: those of null, of texts, of objects.
NO_NUMBER = frozenset(b'nu"{t')
LIST = msgspec.json.Decoder(list[msgspec.Raw])


class Rubbish(Exception):  # noqa: N818 - names what came
    """An answer that is no list of hits; the engine is asked again, with the request as it came."""


NULL = msgspec.Raw(b"null")


class Hit(msgspec.Struct, gc=False):
    """What is read of a hit."""

    id: str = msgspec.field(name="_id")
    score: msgspec.Raw = msgspec.field(name="_score", default=NULL)


HITS = msgspec.json.Decoder(list[Hit])


class Candidate(msgspec.Struct, gc=False):
    """A hit as the service takes it."""

    id: str
    score: msgspec.Raw


class Results:
    """One list of results in an answer."""

    def __init__(self, text: bytes, target: Target) -> None:
        """Read the answer to one search. Raises `Rubbish`."""
        self.target, self.text = target, text
        try:
            self.top = TABLE.decode(text)
            self.about = TABLE.decode(self.top["hits"])
            self.raw = LIST.decode(self.about["hits"])
            self.ids, self.scores = self._identified()
        except (KeyError, ValueError, msgspec.DecodeError, RecursionError) as error:
            raise Rubbish("the answer has no hits in the form of a search") from error
        if "error" in self.top or len(self.raw) > target.fetch or len(set(self.ids)) < len(self.ids):
            raise Rubbish("the answer is not that of the search")
        if (target.first, target.size) != (0, target.fetch) and len(self.raw) < min(target.fetch, self._total()):
            raise Rubbish("the answer is not that of the window")  # a page that was cut from it would be another one
        # what a `pinned` query put on top stays there
        self.held = 0
        while self.held < len(self.ids) and self.ids[self.held] in target.pinned:
            self.held += 1

    def _identified(self) -> tuple[list[str], list[msgspec.Raw]]:
        path = self.target.rule.id
        hits = HITS.decode(self.about["hits"])
        scores = [hit.score for hit in hits]
        if path == "_id":
            return [hit.id for hit in hits], scores
        parts = path_of(path)
        found = [look(msgspec.json.decode(raw), parts) for raw in self.raw]
        if not all(isinstance(one, str | int) and not isinstance(one, bool) for one in found):
            raise ValueError("a hit has no id")
        return [str(one) for one in found], scores

    def _total(self) -> int:
        """Return how many hits there are at least; 0 where the answer does not say."""
        try:
            found = msgspec.json.decode(self.about["total"])
        except (KeyError, msgspec.DecodeError):
            return 0
        value = found.get("value") if isinstance(found, dict) else found
        return value if isinstance(value, int) else 0

    @property
    def offered(self) -> list[str]:
        """The ids that are re-ranked: those of the window, below what is pinned."""
        return self.ids[self.held : self.target.window]

    def candidates(self) -> bytes:
        """Return the hits of the window as the service takes them, in JSON."""
        scores = self.scores[self.held : self.target.window]
        if self.target.rule.scores and NO_NUMBER.isdisjoint(encode(scores)):
            return encode([Candidate(one, score) for one, score in zip(self.offered, scores, strict=True)])
        return encode(self.offered)

    def page(self, order: Sequence[str] | None, decision: str | None, hidden: Collection[str] = ()) -> bytes:
        """Return the answer with the page that was asked for: in the engine's order, or in an order of the offered ids.

        Ids that an order leaves out are not shown: an operator has blocked them. `hidden` ones are not shown behind the window
        either: the index may have changed since the order was made.
        """
        target, places = self.target, list(range(len(self.ids)))
        if order is not None:
            where = {one: at for at, one in enumerate(self.ids)}
            rest = [place for place in places[target.window :] if self.ids[place] not in hidden]
            places = [*places[: self.held], *(where[one] for one in order if one in where), *rest]
        start = target.first
        shown = places[start : start + target.size]
        whole = shown == list(range(len(self.raw)))
        if whole and order is None:
            return self.text
        top = self.top
        if not whole:
            hits = [self._scored(place, start + at) for at, place in enumerate(shown)]
            top = {**top, "hits": msgspec.Raw(encode({**self.about, "hits": hits}))}
        if order is not None:
            said: dict[str, Any] = {"decision": decision, "rule": target.rule.name}
            if target.query_id is not None:
                said["query_id"] = target.query_id
            try:
                outer = TABLE.decode(top["ext"]) if "ext" in top else {}
            except msgspec.DecodeError as error:
                raise Rubbish("`ext` of the answer is no object") from error
            top = {**top, "ext": msgspec.Raw(encode({**outer, "swerve": said}))}
        return encode(top)

    def _scored(self, place: int, position: int) -> msgspec.Raw:
        """Return a hit with the score of the position that it is shown in: scores fall from the top, as the engine's did."""
        raw = self.raw[place]
        if place == position or self.target.own_scores or position >= len(self.raw):
            return raw
        hit = TABLE.decode(raw)
        if "_score" not in hit or self.scores[position] is NULL:
            return raw
        hit["_score"] = self.scores[position]
        return msgspec.Raw(encode(hit))


class Listed:
    """The answer to a plan: of one search, or of an `_msearch` in which some entries are re-ranked."""

    def __init__(self, text: bytes, targets: Sequence[Target], several: bool) -> None:
        """Read an answer. Raises `Rubbish`."""
        self.several = several
        if not several:
            self.results = [Results(text, targets[0])]
            return
        try:
            self.top = TABLE.decode(text)
            self.entries = LIST.decode(self.top["responses"])
            self.results = [Results(bytes(self.entries[target.entry]), target) for target in targets]
        except (KeyError, IndexError, ValueError, msgspec.DecodeError) as error:
            raise Rubbish("the answer has no responses in the form of an _msearch") from error

    def text(self, pages: Sequence[bytes]) -> bytes:
        """Return the answer with a page for each of the results."""
        if not self.several:
            return pages[0]
        entries = list(self.entries)
        for result, page in zip(self.results, pages, strict=True):
            entries[result.target.entry] = msgspec.Raw(page)
        return encode({**self.top, "responses": entries})
