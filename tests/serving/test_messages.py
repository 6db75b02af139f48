"""Messages: equivalent texts are one query, and answers encode as documented."""

from __future__ import annotations

import json
import sys
import unicodedata

import msgspec
import pytest
from hypothesis import given, strategies as st

from swerve.serving import messages
from swerve.serving.messages import Asked, Parts, RankRequest, encode, key_text, normalise, parts_of


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("  Hurricane   SEASON\n", "hurricane season"),
        ("Straße", "strasse"),
        ("ﬁne ＡＢＣ", "fine abc"),
        ("Cafe\u0301", "caf\u00e9"),
        ("a\u00a0\u2003b", "a b"),
        ("ΣΊΣΥΦΟΣ", "σίσυφοσ"),
    ],
)
def test_texts_that_mean_the_same_are_one_query(text, query):
    assert normalise(text) == query


@given(st.text())
def test_normalising_twice_changes_nothing(text):
    once = normalise(text)
    assert normalise(once) == once


@given(st.text(st.characters(max_codepoint=127)))
def test_the_quick_way_gives_the_same(text):
    assert normalise(text) == " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def test_every_character_is_stable_and_only_white_space_vanishes():
    for point in range(sys.maxunicode + 1):
        if not 0xD800 <= point < 0xE000:
            character = chr(point)
            query = normalise(character)
            assert normalise(query) == query
            assert (query == "") == character.isspace()  # check_query relies on this


part = st.none() | st.text(st.characters(exclude_characters="\0", codec="utf-8"), min_size=1)


@given(st.text(st.characters(exclude_characters="\0", codec="utf-8")), part, part, part)
def test_a_key_names_the_query_and_its_parts(query, locale, filter_, segment):
    """Also when a part looks like another one: no two queries share a text."""
    text = key_text(query, locale, filter_, segment)
    folded = None if locale is None else locale.casefold().replace("_", "-")
    assert parts_of(text) == (normalise(query), Parts(folded, filter_, segment))


def test_spellings_of_a_locale_are_one_and_other_parts_are_exact():
    assert key_text("q", "en_US") == key_text("Q ", "EN-us") != key_text("q")
    assert len({key_text("q", filter="Red"), key_text("q", filter="red"), key_text("q", segment="red"), key_text("q", "red")}) == 4


def test_answers_as_json():
    degraded = messages.RankResponse(None, ["a"], None, None, None, True)
    expected = {"decision": None, "ranking": ["a"], "propensities": None, "explored": None, "phase": None, "degraded": True}
    assert json.loads(encode(degraded)) == expected
    trouble = messages.Problem(messages.Error("empty", "query is empty", "query", "r-1"))
    assert json.loads(encode([degraded, trouble]))[1] == {
        "error": {"code": "empty", "message": "query is empty", "field": "query", "request_id": "r-1"}
    }
    assert json.loads(encode(messages.Error("gone", "m"))) == {"code": "gone", "message": "m"}


def test_an_explained_query_reads_back():
    arm = messages.ArmState("a", 10, 3, 4, 1, 1e9, 1.1e9, 0.25)
    alarm = messages.Alarm(1.05e9, "volume", 0.9, "true", 2)
    state = messages.QueryState(
        "storm", messages.Parts("en-us"), 3, 4, 10, 1e9, 1.1e9, False, {"volume": 0.1, "age": None}, [arm], [alarm]
    )
    assert msgspec.json.decode(encode(state), type=messages.QueryState) == state


def test_what_is_decoded_has_the_fields_of_the_schema():
    """`RankRequest` is the schema that people read, `Asked` what the service decodes."""
    published, decoded = ({field.name: field.required for field in msgspec.structs.fields(kind)} for kind in (RankRequest, Asked))
    assert published == decoded
