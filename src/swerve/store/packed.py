"""The stored form of records: a bitmap of the words that are not zero, then those words, then zeros up to a quarter of the record.

A query's record is mostly zeros: counts that stay small, arms that nobody has used, pages that have been settled. Its stored form
takes a quarter, a half or three quarters of its bytes, and seldom changes its size: a row that grows beyond its database page needs
the pages beside it, which may be damaged. Records that this would not shorten, short ones, and those that are not whole words are
stored as they are. The size of the record is stored beside the packed bytes; it is 0 for a record that is stored as it is.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

#: Bytes of a word. With words of 8 bytes more zeros are stored, with words of 2 packing takes twice as long.
WORD = 4
WORDS = np.dtype("<u4")
#: Words that a byte of the bitmap covers.
PER_BYTE = 8

#: Parts of a record in which its stored form grows.
STEPS = 4
#: Shorter records are not packed: a damaged database page concerns all queries on it, and more of them would fit.
SHORTEST = 1024

#: Bytes as they are stored, and the size of the record; 0: the bytes are the record.
Stored = tuple[bytes, int]


def pack(records: Sequence[bytes]) -> list[Stored]:
    """Return the stored forms of records. Records of equal size are packed together, which takes 3 µs for each.

    >>> [(form[:1], form[32:37], len(form), size) for form, size in pack([b"seven" + bytes(1019), bytes(20)])]
    [(b'\\xc0', b'seven', 256, 1024), (b'\\x00', b'', 20, 0)]
    """
    out: list[Stored] = [(record, 0) for record in records]
    sizes: dict[int, list[int]] = {}
    for at, record in enumerate(records):
        sizes.setdefault(len(record), []).append(at)
    for size, some in sizes.items():
        if size < SHORTEST or size % WORD:
            continue
        words = np.frombuffer(b"".join([records[at] for at in some]), WORDS).reshape(len(some), -1)
        present = words != 0
        maps, kept = np.packbits(present, axis=1).tobytes(), words[present].tobytes()
        head, step, end = -(-size // (WORD * PER_BYTE)), -(-size // STEPS), 0
        for number, at in enumerate(some):
            bitmap = maps[number * head : (number + 1) * head]
            start, end = end, end + WORD * int.from_bytes(bitmap, "little").bit_count()
            room = -(-(head + end - start) // step) * step
            if room < size:
                out[at] = (bitmap + kept[start:end]).ljust(room, b"\0"), size
    return out


def unpack(stored: bytes, size: int) -> bytes:
    """Return the record of a stored form; raises `ValueError` for bytes that `pack` does not make.

    >>> ((form, size),) = pack([b"seven" + bytes(1019)])
    >>> unpack(form, size) == b"seven" + bytes(1019)
    True
    >>> unpack(form[:-1], size)
    Traceback (most recent call last):
    ValueError: a packed record of 255 bytes does not fit its bitmap
    """
    if size == 0:
        return stored
    count, rest = divmod(size, WORD)
    head, step = -(-count // PER_BYTE), -(-size // STEPS)
    if rest or count <= 0 or len(stored) < head:
        raise ValueError(f"a packed record of {len(stored)} bytes cannot become one of {size}")
    bitmap = np.frombuffer(stored, np.uint8, head)
    present = np.unpackbits(bitmap, count=count).view(np.bool_)
    kept = int(np.count_nonzero(present))
    end = head + kept * WORD
    fits = len(stored) == -(-end // step) * step and not stored[end:].strip(b"\0") and np.packbits(present)[-1] == bitmap[-1]
    body = np.frombuffer(stored, WORDS, kept, head) if fits else None
    if body is None or not body.all():
        raise ValueError(f"a packed record of {len(stored)} bytes does not fit its bitmap")
    words = np.zeros(count, WORDS)
    words[present] = body
    return words.tobytes()
