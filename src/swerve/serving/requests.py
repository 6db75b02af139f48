"""The forms that a ranking takes on its way: checked, ready for the compiled call, decided."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from swerve.core.examination import SLOTS, grades_of
from swerve.serving.holdout import Unit
from swerve.serving.messages import Candidate, Candidates, ids_of, read_candidates
from swerve.serving.place import Place
from swerve.serving.ruling import Ruling
from swerve.serving.tokens import Signed


class Misplaced(RuntimeError):  # noqa: N818 - it names what was found
    """A record belongs to another query than the one it was used for. Nothing was written; this is a defect."""

    def __init__(self, place: Place) -> None:
        super().__init__(f"the row of query {place.key.hex()} is not where it should be")


class Prepared(msgspec.Struct, gc=False):
    """A request that has been read and checked.

    `candidates` is None when the row still remembers `raw` from the request before, so that nothing has to be read.
    """

    key: bytes
    text: str  # identifies the query, see `messages.key_text`
    candidates: Candidates | None
    raw: msgspec.Raw | None = None
    signals: dict[str, float | None] | None = None
    session: str | None = None
    slots: int = SLOTS
    as_given: bool = False  # whether the given order is shown as it is
    ruling: Ruling | None = None  # the operator's rules for this request; pinned and blocked results are not among the candidates
    control: bool = False  # whether an experiment, or its guard, shows the given order
    arm: int = 0  # of the experiment, see `swerve.serving.holdout`
    unit: Unit | None = None  # of the experiment; None: the arm is that of the query
    stage: int = 0  # of the experiment: each ramp begins one
    namespace: str | None = None
    query_id: str | None = None  # of User Behavior Insights
    plain: bytes | None = None  # the query's own key, where `key` and `text` are those of its record for the control arm's policy

    def read(self) -> Candidates:
        """Return the candidates, decoding them if needed: a row that has left memory no longer remembers them."""
        if self.candidates is not None:
            return self.candidates
        assert self.raw is not None, "a request carries its candidates either decoded or as they were sent"
        return read_candidates(self.raw)

    def ids(self) -> list[str]:
        """Return the candidates' ids, in the given order."""
        return ids_of(self.read())

    def results(self) -> list[str]:
        """Return the ids of all results that are shown, those that a rule pins included."""
        pins = () if self.ruling is None else self.ruling.pins
        return [*self.ids(), *[result for result, _, _ in pins]]


class Watcher(Protocol):
    """Is told of what happens to one query."""

    def __call__(self, ranking: list[str], explored: int, prepared: Prepared) -> None:
        """A ranking was answered: its order, the slot of its explored result (−1: none), and the request."""

    def clicked(self, slot: int) -> None:
        """A click on a slot was counted."""


class Decided(msgspec.Struct, gc=False):
    """A ranking: the order to show, and everything that its feedback needs."""

    ranking: list[Any]
    signed: Signed
    chances: list[float]  # of each slot, see `kernels.CHANCES`
    explored: int  # the slot of the explored result, −1 for none
    phase: int
    report: int  # report bits of the policy, see `swerve.core.contract`
    signal: int  # the signal that raised an alarm
    at: float  # when it was made
    again: bool = False  # whether the session had been shown it before, so that nothing was decided now
    ruling: Ruling | None = None  # the operator's rules that were applied to it
    control: bool = False  # whether an experiment, or its guard, has shown the given order
    swapped: list[int] | None = None  # two positions, from 1, whose results have changed places
    choice: list[Any] | None = None  # in shadow mode: the results that the policy would have put into the slots


#: A request whose candidates have arms: row, session (0 for none), publication time of the newest candidate, the caller's numbers,
#: the slots to fill, what is shown, and what is remembered, see `kernels.AS_GIVEN` and `kernels.KEEP`.
Asking = tuple[Place, int, float, Sequence[float], int, int, int]


def grades_in(candidates: Sequence[str | Candidate]) -> bytes:
    """Return what the candidates' scores say, see `grades_of`; nothing unless every candidate has one."""
    if any(type(candidate) is str for candidate in candidates):
        return b""
    return grades_of([candidate.score for candidate in candidates])  # type: ignore[union-attr]
