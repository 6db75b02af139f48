"""Recording requests, so that what a service did can be done again: `swerve replay` gives the same rankings and the same bytes.

A recording is a file of JSON lines. It holds query texts, so it is made with mode 0600. The first line is the configuration.
"""

from __future__ import annotations

import os
from typing import Any

import msgspec

from swerve.serving.messages import RankRequest
from swerve.serving.ranker import Ranker
from swerve.serving.requests import Decided


class Head(msgspec.Struct, tag="swerve"):
    """What the requests were served with."""

    config: dict[str, Any]
    life: int
    issued: int
    shared: dict[str, bytes]
    format: int = 2


class Ranked(msgspec.Struct, tag="rank"):
    """A request that was decided: when, and under which number."""

    now: float
    number: int
    top: str
    request: RankRequest


class Answered(msgspec.Struct, tag="feedback"):
    """Feedback for a decision, the first one."""

    now: float
    number: int
    clicked: str | None


class Shifted(msgspec.Struct, tag="shift"):
    """An operator's word about a query."""

    now: float
    query: str


Line = Head | Ranked | Answered | Shifted


class Recorder:
    """Appends to a recording."""

    def __init__(self, path: str, config: dict[str, Any], ranker: Ranker) -> None:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._file = open(handle, "ab", buffering=1 << 16)  # noqa: SIM115 - closed by `close`
        self._encode = msgspec.json.Encoder().encode
        self._write(Head(config, ranker.life.id, ranker.issued, ranker.shared(0.0)))

    def _write(self, line: Line) -> None:
        self._file.write(self._encode(line) + b"\n")

    def ranked(self, request: RankRequest, decided: Decided, now: float) -> None:
        """A request was decided."""
        self._write(Ranked(now, decided.signed.number, decided.ranking[0], request))

    def answered(self, number: int, clicked: str | None, now: float) -> None:
        """Feedback was taken."""
        self._write(Answered(now, number, clicked))

    def shifted(self, query: str, now: float) -> None:
        """An operator spoke."""
        self._write(Shifted(now, query))

    def close(self) -> None:
        """Finish the file."""
        self._file.close()
