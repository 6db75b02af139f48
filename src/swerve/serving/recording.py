"""What a journal of everything that a ranker does says, line by line: pages, feedback, shifts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from swerve.core.decisions import ARM_BITS
from swerve.serving import kernels
from swerve.serving.entries import (
    BEGUN,
    BODY,
    BYTE,
    DELETED,
    F_BODY,
    F_NUMBER,
    F_SIZES,
    FILL_AT,
    FILL_UP_AT,
    FLAGS_AT,
    GIVEN_AT,
    GRADED_AT,
    HALVES,
    HAS_LEFT,
    HAS_NEWEST,
    HAS_SPENT,
    IN_PLACE,
    KEEP_AT,
    KEEPS,
    LOADED,
    MASK,
    NAMED,
    NO_SLOTS,
    NOW,
    NOW_AT,
    NUMBERS_AT,
    OWNER,
    QUARTERS,
    R_BODY,
    R_DONE,
    R_NUMBER,
    R_SIZES,
    RANKED,
    REPORTED,
    RESPONDED,
    RULED,
    SAME_PAGE,
    SHIFTED,
    SIZE_AT,
    SLOT_COUNT,
    STARTED,
    SWAPPED_AT,
    TOLD,
    VACATED,
    Started,
    foreign,
    words_in,
)
from swerve.serving.holdout import ARMS, Arm
from swerve.serving.messages import Event
from swerve.serving.outcomes import decode, slots_of
from swerve.serving.place import UNPACK
from swerve.store.blocks import Block
from swerve.store.journal import tail


class Ranked(msgspec.Struct, omit_defaults=True):
    """A decided request: its time, the decision's number, the results in its slots, and what it was decided from."""

    now: float
    number: int
    page: list[str]
    query: str  # see `messages.key_text`
    candidates: list[str]  # in the given order
    signals: dict[str, float]  # the numbers that the caller sent
    slots: int
    as_given: bool = False
    propensities: list[float] | None = None  # of the slots; None where the page is not the policy's choice
    swapped: list[int] | None = None  # two positions, from 1, whose results have changed places
    arm: Arm | None = None  # of an experiment
    control: bool = False  # whether an experiment, or its guard, has shown the given order


class Answered(msgspec.Struct, omit_defaults=True):
    """Feedback for a decision that was no repeat."""

    now: float
    number: int
    events: list[Event]
    shown: list[str] | None = None


class Ruled(msgspec.Struct):
    """The page of a decision after an operator's rules."""

    number: int
    page: list[str]
    propensities: list[float]


class Shifted(msgspec.Struct):
    """An operator's shift of a query."""

    now: float
    query: str


Line = Started | Ranked | Ruled | Answered | Shifted


def lines_of(folder: Path, progress: Callable[[int], None] = lambda read: None) -> Iterator[tuple[int, Line]]:
    """Yield what a recording says, with the numbers of its entries; `progress` is called with the number of bytes read."""
    reading, done = Reading(), 0
    for block in tail(folder):
        yield from reading.lines(block)
        done += len(block.content)
        progress(done)


class Reading:
    """What must be known of queries to name the results of pages: their texts, and the candidate of each arm."""

    def __init__(self) -> None:
        self.started: Started | None = None
        self.texts: dict[bytes, str] = {}
        self.names: dict[bytes, list[str | None]] = {}
        self._reported: dict[int, tuple[list[Event], list[str] | None]] = {}

    def lines(self, block: Block) -> Iterator[tuple[int, Line]]:
        """Yield what the entries of a block say."""
        words = words_in(block)
        at, number = 0, block.first
        while at < len(words):
            head = int(words[at])
            size = head >> SIZE_AT
            if not BODY <= size <= len(words) - at:
                raise foreign(block)
            try:
                line = self._line(head, words[at : at + size])
            except (ValueError, IndexError, KeyError, OverflowError, TypeError, msgspec.DecodeError):
                raise foreign(block) from None
            if line is not None:
                yield number, line
            at, number = at + size, number + 1

    def _line(self, head: int, words: NDArray[np.int64]) -> Line | None:
        kind, flags, key = head & MASK, head >> FLAGS_AT & MASK, words[OWNER:NOW].tobytes()
        now = float(words[NOW:BODY].view(np.float64)[0])
        if kind == RANKED:
            return self._ranked(key, flags, words, now)
        if kind == RESPONDED:
            return self._answered(key, flags, words, now)
        body = words[BODY:].tobytes()[: (len(words) - BODY) * BYTE - (head >> FILL_UP_AT & MASK)]
        if kind == STARTED:
            self.started = msgspec.msgpack.decode(body, type=Started)
            return self.started
        if kind == SHIFTED:
            return Shifted(now, self.texts.get(key, ""))
        if kind == RULED:
            return Ruled(*msgspec.msgpack.decode(body, type=tuple[int, list[str], list[float]]))
        if kind == REPORTED:
            number, events, shown = msgspec.msgpack.decode(body, type=tuple[int, list[Event], list[str] | None])
            self._reported[number] = events, shown
        else:
            self._named(kind, flags, key, body)
        return None

    def _named(self, kind: int, flags: int, key: bytes, body: bytes) -> None:
        """Follow who is called what."""
        if kind == BEGUN:
            self.names[key] = []
        elif kind == LOADED:
            *_, packed = msgspec.msgpack.decode(body, type=tuple[int, bool, str | None, bytes, bytes])
            names = UNPACK.decode(packed)
            self.names[key] = names.ids
            if names.query is not None:
                self.texts[key] = names.query
        elif kind == NAMED:
            names_of, arm = self.names.setdefault(key, []), int.from_bytes(body[:BYTE], "little")
            if arm >= 1 << ARM_BITS:
                raise IndexError(arm)
            names_of += [None] * (arm + 1 - len(names_of))
            names_of[arm] = body[BYTE:].decode()
        elif kind == TOLD:
            self.texts[key] = body.decode()
        elif kind == DELETED:
            self.names.pop(key, None)
            self.texts.pop(key, None)
        elif kind == VACATED and flags:
            self.names[key][int.from_bytes(body[:BYTE], "little")] = None

    def _ranked(self, key: bytes, flags: int, words: NDArray[np.int64], now: float) -> Ranked | None:
        filled, names, text = (int(words[R_DONE]) & MASK) - NO_SLOTS, self.names.get(key), self.texts.get(key)
        if filled <= 0 or names is None or text is None or self.started is None:
            return None  # it was not decided; or its query is in segments that are no longer there
        sizes, numbers = int(words[R_SIZES]), self.started.numbers
        size, graded, fill = sizes & MASK, sizes >> GRADED_AT & MASK, sizes >> FILL_AT & MASK
        as_given, keep = sizes >> GIVEN_AT & MASK & kernels.GIVEN != 0, sizes >> KEEP_AT & KEEPS
        at = R_BODY + 3 * bool(flags & HAS_LEFT) + 2 * bool(flags & HAS_SPENT) + bool(flags & HAS_NEWEST)
        sent = words[at : at + (sizes >> NUMBERS_AT)].view(np.float64).tolist()
        at += len(sent)
        order = words[at:].view(np.uint8)[:size].tolist()
        at += -(-size // BYTE) + -(-graded // BYTE)
        codes = words[at:].view(np.uint16)[:filled].tolist()
        at += -(-filled // QUARTERS)
        chances = words[at : at + -(-filled // HALVES)].view(np.uint32)[:filled] / kernels.FINE_STEPS
        control, swapped = keep & kernels.KEEP_CONTROL != 0, int(words[R_DONE]) >> SWAPPED_AT & MASK
        chosen = self.started.draws > 0 and not as_given and not control
        return Ranked(
            now, int(words[R_NUMBER]), [_text(names, code & (1 << ARM_BITS) - 1) for code in codes], text,
            [_text(names, arm) for arm in order],
            {name: value for name, value in zip(numbers, sent, strict=True) if not math.isnan(value)}, fill, as_given,
            chances.tolist() if chosen else None, [swapped & 15, swapped >> 4] if swapped else None,
            ARMS[keep // kernels.KEEP_ARM], control,
        )  # fmt: skip

    def _answered(self, key: bytes, flags: int, words: NDArray[np.int64], now: float) -> Answered | None:
        if flags & IN_PLACE or self.started is None:
            return None
        number, sizes = int(words[F_NUMBER]), int(words[F_SIZES])
        events, shown = self._reported.pop(number, (None, None))
        if events is None:
            pages = -(-(sizes & SLOT_COUNT) // QUARTERS)
            pages += 0 if flags & SAME_PAGE else -(-(sizes >> NOW_AT & SLOT_COUNT) // QUARTERS)
            outcome = decode(int.from_bytes(words[F_BODY + pages :].tobytes(), "little"))
            clicked = outcome.clicked & ~slots_of(outcome.marks)
            events = [Event("click", position=slot + 1) for slot in range(clicked.bit_length()) if clicked >> slot & 1]
        return Answered(now, number, events, shown)


def _text(names: list[str | None], arm: int) -> str:
    return names[arm] or ""
