"""Recordings of requests, from which `swerve replay` reproduces every ranking and every record.

A recording is a file of JSON lines. It has mode 0600, because it contains query texts. The first line is the configuration.
"""

from __future__ import annotations

import os
from typing import Any

import msgspec

from swerve.serving.holdout import ARMS, Arm
from swerve.serving.messages import Candidates, Event
from swerve.serving.ranker import Ranker
from swerve.serving.requests import Decided, Prepared
from swerve.serving.ruling import Ruling

#: Bytes that are written to the file at a time.
BUFFER = 1 << 16


class Head(msgspec.Struct, tag="swerve"):
    """The configuration, the life and the shared records that the requests were served with."""

    config: dict[str, Any]
    life: int
    issued: int
    shared: dict[str, bytes]
    format: int = 3


class Ranked(msgspec.Struct, tag="rank", omit_defaults=True):
    """A decided request: its time, the decision's number, the slots that were filled, and what the request had."""

    now: float
    number: int
    page: list[str]
    query: str  # see `messages.key_text`
    candidates: Candidates
    signals: dict[str, float | None] | None
    session: str | None
    slots: int
    as_given: bool = False
    ruling: Ruling | None = None
    propensities: list[float] | None = None  # of the slots, for evaluation; null where the page is not the policy's choice
    swapped: list[int] | None = None  # two positions, from 1, whose results have changed places
    arm: Arm | None = None  # of an experiment
    control: bool = False  # whether an experiment, or its guard, has shown the given order


class Answered(msgspec.Struct, tag="feedback", omit_defaults=True):
    """Feedback for a decision that was no repeat."""

    now: float
    number: int
    events: list[Event]
    shown: list[str] | None = None


class Shifted(msgspec.Struct, tag="shift"):
    """An operator's shift of a query."""

    now: float
    query: str


class Erased(msgspec.Struct, tag="delete", omit_defaults=True):
    """A deletion by an operator: the key of the query, the hash of the result, the namespace."""

    now: float
    query: str | None = None
    result: int | None = None
    namespace: str | None = None


Line = Head | Ranked | Answered | Shifted | Erased


class Recorder:
    """Appends requests to a recording."""

    def __init__(self, path: str, config: dict[str, Any], ranker: Ranker) -> None:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._file = open(handle, "ab", buffering=BUFFER)  # noqa: SIM115 - closed by `close`
        self._encode = msgspec.json.Encoder().encode
        self._estimated = ranker.settings.draws > 0
        self._write(Head(config, ranker.life.id, ranker.issued, ranker.shared(0.0)))

    def _write(self, line: Line) -> None:
        self._file.write(self._encode(line) + b"\n")

    def ranked(self, request: Prepared, decided: Decided, now: float) -> None:
        """Record a decided request."""
        page = decided.ranking[: len(decided.chances)]
        chosen = self._estimated and not (request.as_given or request.control)
        self._write(
            Ranked(
                now, decided.signed.number, page, request.text, request.read(), request.signals, request.session, request.slots,
                request.as_given, request.ruling, decided.chances if chosen else None, decided.swapped,
                ARMS[request.arm], request.control,
            )
        )  # fmt: skip

    def answered(self, number: int, events: list[Event], shown: list[str] | None, now: float) -> None:
        """Record feedback."""
        self._write(Answered(now, number, events, shown))

    def shifted(self, query: str, now: float) -> None:
        """Record an operator's shift."""
        self._write(Shifted(now, query))

    def erased(self, query: bytes | None, result: int | None, namespace: str | None, now: float) -> None:
        """Record a deletion."""
        self._write(Erased(now, None if query is None else query.hex(), result, namespace))

    def close(self) -> None:
        """Write the rest and close the file."""
        self._file.close()
