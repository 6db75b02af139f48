"""Entries of a journal: everything that changes records and what queries share, in the order in which it happens.

An entry is a line of words of eight bytes. It names its query by the key and has the arguments of one compiled call, so that
`swerve.serving.playing` ends in the same bytes; a decision also has its page and propensities, for evaluation. What sessions have
done is no state: the columns that follow from it are in the entry.

Tests: tests/serving/test_playing.py.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from swerve.core.errors import SwerveError
from swerve.core.examination import SLOTS
from swerve.store.blocks import Block

#: Kinds. Those up to `CLICKED` are played by compiled code.
(
    RANKED,  # a decision, or a request that had none because its context cannot be used
    RESPONDED,  # feedback, or what a rule has put in place of a page
    GONE_ON,  # a session went on to another query
    CLICKED,  # a click that only the ledger counts
    BEGUN,  # a new query
    LOADED,  # a query that was taken up from the store
    GROWN,  # a query whose record has more room
    NAMED,  # an arm was given to a candidate
    VACATED,  # an arm was freed
    SHIFTED,  # an operator's shift
    TOLD,  # the text of a query
    DELETED,  # a query was deleted
    RULED,  # the results of a page after an operator's rules
    REPORTED,  # feedback as its caller has sent it, where that is more than clicks on slots
    STARTED,  # a start of the service: its configuration, its life, and what queries share
    KEPT,  # records that operators have set, and that queries share
    TAKEN_UP,  # what was new of what another worker has learnt
) = range(17)
COMPILED = CLICKED

#: The words with which every entry begins: kind, flags times 2^8, bytes that fill the last word times 2^16, and size in words times
#: 2^32; the key; the time.
HEAD, OWNER, SECOND, NOW, BODY = range(5)
FLAGS_AT, FILL_UP_AT, SIZE_AT, MASK = 8, 16, 32, 255

#: The words of a decision: its number, the arms on offer, the session, sizes, what came out. Then, by its flags: key and time of
#: the query that its session came from; the evidence that the session has used, and its phase; when the newest candidate was
#: published.
#: Then the caller's numbers, and in bytes, each up to a whole word: the arms in the given order, their grades, the codes of the
#: page (two bytes each), and its propensities (four bytes each, in units of 1 / `FINE_STEPS`).
R_NUMBER, R_OFFER, R_PERSON, R_SIZES, R_DONE, R_BODY = range(BODY, BODY + 6)
HAS_LEFT, HAS_SPENT, HAS_NEWEST = 1, 2, 4
#: Bits of `R_SIZES`: candidates, how many have grades, slots to fill, `AS_GIVEN`, `KEEP`, numbers.
GRADED_AT, FILL_AT, GIVEN_AT, KEEP_AT, NUMBERS_AT = 8, 16, 24, 32, 56
KEEPS = (1 << 24) - 1
#: Bits of `R_DONE`: the slots that were filled plus `NO_SLOTS`, so that it is not negative; evidence, swap, slots seen.
NO_SLOTS, EVIDENCE_AT, SWAPPED_AT, SEEN_AT = 16, 8, 16, 32
MOST_RANKED = R_BODY + 6 + 2 * 8 + 3 + 5  # words, besides the numbers

#: The words of feedback: the decision's number, when it was shown, start and phase (times 2^32), sizes; then the codes of the page
#: so far (two bytes each) and, unless they are the same, from now on; then the outcome.
F_NUMBER, F_SHOWN, F_STARTED, F_SIZES, F_BODY = range(BODY, BODY + 5)
SAME_PAGE, IN_PLACE = 1, 2
PHASE_AT = 32
#: Bits of `F_SIZES`: slots so far, slots now, evidence, first click; the masks seen, clicked before and after; how many clicks are
#: new.
NOW_AT, F_EVIDENCE_AT, FIRST_AT, F_SEEN_AT, BEFORE_AT, AFTER_AT, FRESH_AT = 4, 8, 9, 16, 28, 40, 52
SLOT_MASK, SLOT_COUNT, NO_CODE = (1 << SLOTS) - 1, 15, 0xFFFF

BYTE, HALVES, QUARTERS = 8, 2, 4  # in a word: bytes, numbers of four bytes, of two bytes


class Started(msgspec.Struct):
    """A start: the configuration, the life, what queries share, the key of an empty text, which tells the secrets apart, the names
    of the caller's numbers, the draws for propensities, and the layout of records by capacity (see `table_name`)."""

    config: dict[str, Any]
    life: tuple[int, int, int]
    issued: int
    shared: dict[str, bytes]
    secrets: bytes
    numbers: tuple[str, ...]
    draws: int
    layouts: dict[str, str] = {}


def table_name(arms: int, rival: bool) -> str:
    """Return the name of a table of records: its capacity, and whether it is the control arm's.

    >>> table_name(8, False), table_name(16, True)
    ('8', '16 control')
    """
    return f"{arms} control" if rival else str(arms)


def begins(block: Block) -> bool:
    """Return whether a generation begins with a block."""
    return len(block.content) >= BYTE and int(words_in(block)[0]) & MASK == STARTED


def words_in(block: Block) -> NDArray[np.int64]:
    """Return the words of a block; raises `SwerveError` if it has no entries of a ranker."""
    if len(block.content) % BYTE:
        raise foreign(block)
    return np.frombuffer(block.content, np.int64)


def foreign(block: Block) -> SwerveError:
    """Return the error of a block whose entries cannot be read: its checksum is right, so they were written otherwise."""
    return SwerveError(f"entries {block.first} to {block.end} are no entries of the service, or of a newer version of it")
