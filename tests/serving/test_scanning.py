"""What the scan takes for plain, the decoder takes too, with the same meaning; the rest is where the scan says it is."""

from __future__ import annotations

import json
import math
import os
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from swerve.core.siphash import hash_text
from swerve.serving import scanning
from swerve.serving.messages import Asked

pytestmark = pytest.mark.compiled

NUMBERS = ("news", "posts", "é")
KEY = np.frombuffer(os.urandom(16), np.uint64)
MOST, LONGEST = 50, 12
ONE = msgspec.json.Decoder(Asked)
ANY = msgspec.json.Decoder(list[msgspec.Raw])


def scanned(body: bytes) -> tuple[Any, Any] | int:
    entries, numbers = np.zeros((MOST, scanning.ENTRY), np.int64), np.zeros((MOST, len(NUMBERS)))
    text = np.frombuffer(body, np.uint8)
    count = scanning.scan.bind()(KEY, text, *scanning.names_of(NUMBERS), LONGEST, entries, numbers)
    return count if count < 0 else (entries[:count], numbers[:count])


def words(text: bytes) -> list[int]:
    return np.array(hash_text.bind()(KEY, text), np.uint64).view(np.int64).tolist()


def agree(body: bytes) -> int:
    """Check a body beside the decoder; return how many of its entries are plain."""
    found = scanned(body)
    try:
        raws: Any = ANY.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        assert isinstance(found, int) or found[0][:, scanning.OTHER].any()  # so that the decoder gets to say so
        return 0
    if isinstance(found, int):
        assert found == (scanning.TOO_MANY if len(raws) > MOST else None)
        return 0
    plain = 0
    for raw, entry, numbers in zip(raws, *found, strict=True):
        text = bytes(raw)
        assert body[entry[scanning.BEGIN] : entry[scanning.END]].strip() == text.strip()
        if entry[scanning.OTHER]:
            continue
        asked = ONE.decode(text)
        plain += 1
        assert entry[[scanning.QUERY, scanning.QUERY_2]].tolist() == words(asked.query.encode())
        candidates = bytes(asked.candidates)
        assert entry[[scanning.RAW, scanning.RAW_2]].tolist() == words(candidates)
        assert body[entry[scanning.RAW_AT] :].startswith(candidates)
        assert entry[scanning.WANTED] == (asked.slots or 0)
        if asked.session is None:
            assert entry[scanning.PERSON] == 0
        else:
            assert 0 < len(asked.session) <= LONGEST
            assert entry[scanning.PERSON] == words(asked.session.encode())[0]
        given = asked.signals or {}
        assert set(given) <= set(NUMBERS)
        for name, number in zip(NUMBERS, numbers.tolist(), strict=True):
            expected = given.get(name)
            assert math.isnan(number) if expected is None else (number, math.copysign(1, number)) == (
                expected, math.copysign(1, expected),
            )  # fmt: skip
        assert (asked.locale, asked.filter, asked.segment, asked.unit, asked.namespace, asked.query_id) == (None,) * 6
    return plain


TEXTS = st.text(alphabet='ab é"\\\u2028\x7f\x1f', max_size=8)
FLOATS = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(10**18), 10**18) | st.sampled_from([0, -0.0, 1e22, 1e-22])
FIELDS = {
    "query": TEXTS,
    "candidates": st.lists(TEXTS | st.fixed_dictionaries({"id": TEXTS}, optional={"score": FLOATS}), max_size=4),
    "slots": st.none() | st.integers(-1, 12),
    "signals": st.none() | st.dictionaries(st.sampled_from([*NUMBERS, "nobody"]), st.none() | FLOATS, max_size=4),
    "session": st.none() | TEXTS | st.text(alphabet="xyz", min_size=1, max_size=14),
    "locale": st.none() | st.just("en"),
}
ENTRIES = st.fixed_dictionaries(
    {"query": FIELDS["query"], "candidates": FIELDS["candidates"]},
    optional={name: FIELDS[name] for name in ("slots", "signals", "session", "locale")},
)


@settings(max_examples=400)
@given(st.lists(ENTRIES, max_size=6), st.booleans(), st.sampled_from([None, 1]), st.randoms())
def test_what_is_plain_means_what_the_decoder_says(entries: list[Any], ascii_only: bool, indent: int | None, rng: Any):
    mixed = [dict(rng.sample(sorted(entry.items()), len(entry))) for entry in entries]
    ordinary = [entry for entry in mixed if "locale" not in entry or entry["locale"] is None]
    assert agree(json.dumps(mixed, ensure_ascii=ascii_only, indent=indent).encode()) <= len(ordinary)


@settings(max_examples=300)
@given(st.data())
def test_a_body_with_changed_bytes_is_not_misread(data: Any):
    body = json.dumps(
        [{"query": "boots", "candidates": ["a", "b"], "signals": {"news": 1.5, "é": 0.25}, "slots": 3, "session": "s-1"}] * 2
    ).encode()
    changed = bytearray(body)
    for _ in range(data.draw(st.integers(0, 4))):
        at = data.draw(st.integers(0, len(changed) - 1))
        what = data.draw(
            st.sampled_from([b"", b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b"0", b"-", b".", b"e", b"\xff", b" "])
        )
        changed[at : at + data.draw(st.integers(0, 2))] = what
    assert agree(bytes(changed)) <= changed.count(b"{")


#: Numbers of at most 15 digits and powers of ten up to 22, which two doubles make exactly.
EXACT = ("0", "5", "-5", "1.5", "0.1", "123456789012345", "1e3", "1E+3", "1.25e-3", "1e22", "null")
#: Numbers that are left to the decoder, and what is no number.
OTHERS = (
    "0.30000000000000004", "1234567890123456", "1e23", "0.000000000000000000000123", "-0", "-0.0", "1e999", "1e1000",
    "00", "01", "1.", ".5", "+1", "1e", "1e+", "--1", "1-", "nul", "NaN",
)  # fmt: skip


@pytest.mark.parametrize("number", [*EXACT, *OTHERS])
def test_numbers_are_read_as_the_decoder_reads_them(number: str):
    body = f'[{{"query":"q","candidates":["a"],"signals":{{"news":{number}}}}}]'.encode()
    assert agree(body) == (1 if number in EXACT else 0)


def test_the_usual_forms_are_plain():
    usual = [
        {"query": "boots", "candidates": ["a", "b"]},
        {"candidates": [{"id": "a", "score": 1.5}, "b"], "query": "Stiefel für den Winter", "session": "s", "slots": 10},
        {"query": "q", "candidates": ["a"], "signals": {"posts": 2, "news": 1e3, "é": None}, "session": None, "slots": None},
    ]
    for indent in (None, 2):
        assert agree(json.dumps(usual, ensure_ascii=False, indent=indent).encode()) == 3
    assert agree(b" [ ] ") == 0 and not isinstance(scanned(b"[]"), int)


@pytest.mark.parametrize("body", [b"", b"{}", b"[", b"[,]", b"[{}", b"[{} {}]", b"[] x", b"[1,]", b'["', b"0"])
def test_what_is_no_list_is_left_to_the_decoder(body: bytes):
    assert scanned(body) == scanning.NO_LIST


def test_more_entries_than_there_is_room_for_are_left_to_the_decoder():
    one = b'{"query":"q","candidates":["a"]}'
    assert not isinstance(scanned(b"[" + b",".join([one] * MOST) + b"]"), int)
    assert scanned(b"[" + b",".join([one] * (MOST + 1)) + b"]") == scanning.TOO_MANY
