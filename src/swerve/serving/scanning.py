"""Reads a JSON list of rank requests into columns, in one compiled call.

An entry is *plain* if it has a query, candidates and, if at all, slots, numbers and a session, each at most once, in any order,
without escapes; its session is ASCII, and its numbers have at most 15 digits. Plain entries are not decoded: the query, the
candidates and the session become hashes. For anything else the scan says only where it begins and ends, and the decoder reads it.
What the scan takes for plain means the same to the decoder. Whether the query is UTF-8 and the candidates are JSON is not checked:
their hashes lead to a row only if the decoder has read the same texts before, and it reads the entry otherwise.

Tests: tests/serving/test_scanning.py.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from swerve.core.engine import Entry
from swerve.core.siphash import siphash
from swerve.core.verbs import kernel

#: The columns of an entry.
(
    BEGIN,  # where it begins in the body,
    END,  # and the offset behind it
    OTHER,  # 0: it is plain; the columns below are set for plain entries only
    QUERY,  # the hash of its query, two words
    QUERY_2,
    RAW,  # the hash of its candidates as they were sent, two words
    RAW_2,
    RAW_AT,  # where they begin in the body
    PERSON,  # the hash of its session, 0 for none
    WANTED,  # the slots to fill, 0 if it does not say
    SHELF,  # the number of the table in which its query lies, −1 for none; set by `swerve.serving.columns`
    ROW,  # its row there,
    OWNED,  # and the key of the query, two words
    OWNED_2,
    ENTRY,
) = range(15)

#: What `scan` returns if the body is not a list, or if it has more entries than there is room for.
NO_LIST, TOO_MANY = -1, -2
#: Digits that a number may have, and its power of ten: then one operation gives the nearest floating-point number.
DIGITS, MOST_POWER = 15, 22
POWERS = np.array([10.0**power for power in range(MOST_POWER + 1)])
MOST_EXPONENT = 999  # the search for digits of an exponent ends here

QUOTE, BACKSLASH, COMMA, COLON, MINUS, DOT = (ord(sign) for sign in '"\\,:-.')
OPEN_LIST, CLOSE_LIST, OPEN, CLOSE = (ord(sign) for sign in "[]{}")
ZERO, NINE, LOWER_E, UPPER_E, PLUS, FIRST_PRINTED, LAST_ASCII = ord("0"), ord("9"), ord("e"), ord("E"), ord("+"), 32, 127


def letters(text: str) -> NDArray[np.uint8]:
    """Return a text as bytes for compiled code."""
    return np.frombuffer(text.encode(), np.uint8)


NULL = letters("null")
FIELDS = letters("querycandidatessignalssessionslots")
#: The fields of a plain entry: bits, and where their names are in `FIELDS`.
IS_QUERY, IS_CANDIDATES, IS_SIGNALS, IS_SESSION, IS_SLOTS = 1, 2, 4, 8, 16
FIELD_ENDS = np.array([0, 5, 15, 22, 29, 34], np.int64)
NEEDED = IS_QUERY | IS_CANDIDATES


def names_of(numbers: Sequence[str]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the names of the numbers as bytes, and where each begins and the last one ends."""
    packed = [name.encode() for name in numbers]
    return np.frombuffer(b"".join(packed), np.uint8), np.cumsum([0, *map(len, packed)])


@kernel
def after_white(body, at):
    """Return the offset of the next byte that is not white space."""
    while at < len(body) and (body[at] == 32 or body[at] == 10 or body[at] == 13 or body[at] == 9):
        at += 1
    return at


@kernel
def string_end(body, at, last):
    """Return the offset of the quote that ends the string which begins at `at`; −1 if it has escapes, controls, or bytes above
    `last`."""
    at += 1
    while at < len(body):
        byte = body[at]
        if byte == QUOTE:
            return at
        if byte == BACKSLASH or byte < FIRST_PRINTED or byte > last:
            return -1
        at += 1
    return -1


@kernel
def same(body, start, stop, names, begin, end):
    """Return whether a part of the body is one of the names."""
    if stop - start != end - begin:
        return False
    for i in range(end - begin):
        if body[start + i] != names[begin + i]:
            return False
    return True


@kernel
def skip(body, at):
    """Return the offset behind the value that begins at `at`, −1 if there is none. Values that are not JSON are skipped too."""
    depth, quoted, begin = 0, False, at
    while at < len(body):
        byte = body[at]
        if quoted:
            if byte == BACKSLASH:
                at += 1
            elif byte == QUOTE:
                quoted = False
                if depth == 0:
                    return at + 1
        elif byte == QUOTE:
            quoted = True
        elif byte == OPEN_LIST or byte == OPEN:
            depth += 1
        elif byte == CLOSE_LIST or byte == CLOSE or byte == COMMA:
            if depth == 0:
                return at if at > begin else -1
            if byte != COMMA:
                depth -= 1
                if depth == 0:
                    return at + 1
        at += 1
    return -1


@kernel
def list_end(body, at):
    """Return the offset behind a list without escapes and lists inside; −1 otherwise."""
    at += 1
    while at < len(body):
        byte = body[at]
        if byte == QUOTE:
            at = string_end(body, at, 255)
            if at < 0:
                return -1
        elif byte == CLOSE_LIST:
            return at + 1
        elif byte == OPEN_LIST:
            return -1
        at += 1
    return -1


@kernel
def number_at(body, at):
    """Return the number that begins at `at` and the offset behind it, −1 if it is none or is not certain to be exact."""
    negative = at < len(body) and body[at] == MINUS
    if negative:
        at += 1
    digits, mantissa, power, begin = 0, 0, 0, at
    while at < len(body) and ZERO <= body[at] <= NINE:
        mantissa = 10 * mantissa + body[at] - ZERO
        digits += 1 if mantissa > 0 else 0
        at += 1
        if digits > DIGITS:
            return 0.0, -1
    if at == begin or (at - begin > 1 and body[begin] == ZERO):
        return 0.0, -1
    if at < len(body) and body[at] == DOT:
        at += 1
        begin = at
        while at < len(body) and ZERO <= body[at] <= NINE:
            mantissa = 10 * mantissa + body[at] - ZERO
            digits += 1 if mantissa > 0 else 0
            at += 1
            if digits > DIGITS or at - begin > MOST_EXPONENT:
                return 0.0, -1
        if at == begin:
            return 0.0, -1
        power = begin - at
    if at < len(body) and (body[at] == LOWER_E or body[at] == UPPER_E):
        at += 1
        sign = 1
        if at < len(body) and (body[at] == MINUS or body[at] == PLUS):
            sign = -1 if body[at] == MINUS else 1
            at += 1
        begin, exponent = at, 0
        while at < len(body) and ZERO <= body[at] <= NINE and exponent < MOST_EXPONENT:
            exponent = 10 * exponent + body[at] - ZERO
            at += 1
        if at == begin or exponent >= MOST_EXPONENT:
            return 0.0, -1
        power += sign * exponent
    if abs(power) > MOST_POWER or (negative and mantissa == 0):  # whether −0 keeps its sign is the decoder's matter
        return 0.0, -1
    value = mantissa * POWERS[power] if power >= 0 else mantissa / POWERS[-power]
    return -value if negative else value, at


@kernel
def is_null(body, at):
    """Return whether `null` is at an offset."""
    return at + len(NULL) <= len(body) and same(body, at, at + len(NULL), NULL, 0, len(NULL))


@kernel
def scan_numbers(body, at, names, ends, numbers):
    """Read an object of numbers by their names; return the offset behind it, −1 if it is not plain."""
    at = after_white(body, at + 1)
    if at < len(body) and body[at] == CLOSE:
        return at + 1
    found, guess, count = np.int64(0), 0, len(ends) - 1
    while at < len(body) and body[at] == QUOTE:
        stop = string_end(body, at, 255)
        if stop < 0:
            return -1
        index = -1
        for step in range(count):  # mostly they come in the order of the configuration
            tried = guess + step if guess + step < count else guess + step - count
            if same(body, at + 1, stop, names, ends[tried], ends[tried + 1]):
                index = tried
                break
        if index < 0 or index > 62 or found >> index & 1:
            return -1
        found |= np.int64(1) << index
        guess = index + 1
        at = after_white(body, stop + 1)
        if at >= len(body) or body[at] != COLON:
            return -1
        at = after_white(body, at + 1)
        if is_null(body, at):
            at += len(NULL)
        else:
            numbers[index], at = number_at(body, at)
            if at < 0:
                return -1
        at = after_white(body, at)
        if at >= len(body):
            return -1
        if body[at] == CLOSE:
            return at + 1
        if body[at] != COMMA:
            return -1
        at = after_white(body, at + 1)
    return -1


@kernel
def scan_entry(key, body, at, names, ends, longest, entry, numbers):
    """Read one entry; return the offset behind it, −1 if it is not plain."""
    found = np.int64(0)
    at = after_white(body, at + 1)
    while at < len(body) and body[at] == QUOTE:
        stop = string_end(body, at, LAST_ASCII)
        field = np.int64(0)
        for i in range(len(FIELD_ENDS) - 1):
            if stop > 0 and same(body, at + 1, stop, FIELDS, FIELD_ENDS[i], FIELD_ENDS[i + 1]):
                field = np.int64(1) << i
        if field == 0 or found & field:
            return -1
        found |= field
        at = after_white(body, stop + 1)
        if at >= len(body) or body[at] != COLON:
            return -1
        at = after_white(body, at + 1)
        if at >= len(body):
            return -1
        if field & NEEDED == 0 and is_null(body, at):
            at += len(NULL)
        elif field == IS_QUERY:
            stop = string_end(body, at, 255) if body[at] == QUOTE else -1
            if stop < 0:
                return -1
            low, high = siphash(key, body, at + 1, stop)
            entry[QUERY], entry[QUERY_2], at = np.int64(low), np.int64(high), stop + 1
        elif field == IS_CANDIDATES:
            stop = list_end(body, at) if body[at] == OPEN_LIST else -1
            if stop < 0:
                return -1
            low, high = siphash(key, body, at, stop)
            entry[RAW], entry[RAW_2], entry[RAW_AT], at = np.int64(low), np.int64(high), at, stop
        elif field == IS_SIGNALS:
            at = scan_numbers(body, at, names, ends, numbers) if body[at] == OPEN else -1
            if at < 0:
                return -1
        elif field == IS_SESSION:
            stop = string_end(body, at, LAST_ASCII) if body[at] == QUOTE else -1
            if stop < 0 or not 0 < stop - at - 1 <= longest:
                return -1
            low, _ = siphash(key, body, at + 1, stop)
            entry[PERSON], at = np.int64(low) if low != 0 else np.int64(1), stop + 1
        else:
            value, stop = number_at(body, at)
            if stop < 0 or stop - at > 2 or not 1.0 <= value <= 10.0 or value != np.floor(value):
                return -1
            entry[WANTED], at = np.int64(value), stop
        at = after_white(body, at)
        if at >= len(body):
            return -1
        if body[at] == CLOSE:
            return at + 1 if found & NEEDED == NEEDED else -1
        if body[at] != COMMA:
            return -1
        at = after_white(body, at + 1)
    return -1


@Entry
def scan(key, body, names, ends, longest, entries, numbers):
    """Read the list in `body` into `entries`, with the columns above, and its numbers into `numbers`; return how many there are.

    `key` is that of the hashes, `names` and `ends` see `names_of`, `longest` is the number of characters of a session at most.
    """
    at = after_white(body, 0)
    if at >= len(body) or body[at] != OPEN_LIST:
        return NO_LIST
    at = after_white(body, at + 1)
    count = 0
    if at < len(body) and body[at] == CLOSE_LIST:
        return count if after_white(body, at + 1) == len(body) else NO_LIST
    while True:
        if count >= len(entries):
            return TOO_MANY
        entry = entries[count]
        for i in range(ENTRY):
            entry[i] = 0
        for i in range(numbers.shape[1]):
            numbers[count, i] = np.nan
        stop = scan_entry(key, body, at, names, ends, longest, entry, numbers[count]) if at < len(body) and body[at] == OPEN else -1
        if stop < 0:
            entry[OTHER] = 1
            stop = skip(body, at)
            if stop < 0:
                return NO_LIST
        entry[BEGIN], entry[END], entry[SHELF] = at, stop, -1
        count += 1
        at = after_white(body, stop)
        if at >= len(body):
            return NO_LIST
        if body[at] == CLOSE_LIST:
            return count if after_white(body, at + 1) == len(body) else NO_LIST
        if body[at] != COMMA:
            return NO_LIST
        at = after_white(body, at + 1)
