"""Checks by kind of class, and their outcomes."""

from __future__ import annotations

import dataclasses
import random
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from swerve.core.parse import parse
from swerve.core.spec import Spec

Contexts = Callable[[random.Random], list[float]]

#: Arms and features of the tables that checks play on.
ARMS, FEATURES = 4, 2
#: Characters of the reason of an error that is not ours: those of compilers are long.
LONGEST = 400


class Failed(Exception):  # noqa: N818 - the outcome of a check, not an error of the program
    """A class does not do what holds for every one of its kind."""


def need(holds: Any, reason: str) -> None:
    """Fail the check with a reason unless something holds."""
    if not holds:
        raise Failed(reason)


def box(dice: random.Random) -> list[float]:
    """Return a random context of two features in [0, 0.7]², which lies in both unit balls."""
    return [0.7 * dice.random(), 0.7 * dice.random()]


@dataclasses.dataclass(frozen=True)
class Subject:
    """A spec to be checked, and contexts of two features that it accepts."""

    spec: Spec
    draw: Contexts = box

    def contexts(self, count: int, seed: int = 0) -> list[list[float]]:
        """Return random contexts."""
        dice = random.Random(seed)
        return [self.draw(dice) for _ in range(count)]


def anything(subject: Subject) -> bool:
    """Every subject of the kind."""
    return True


@dataclasses.dataclass(frozen=True)
class Check:
    """Something that holds for every class of a kind, or for those that `concerns` selects. `run` raises `Failed`."""

    kind: str
    name: str
    about: str
    run: Callable[[Subject], None]
    concerns: Callable[[Subject], bool]


#: Every check, by kind, in the order of their definition.
CHECKS: dict[str, list[Check]] = {"policy": [], "classifier": [], "detector": [], "environment": []}


def check(
    kind: str, concerns: Callable[[Subject], bool] = anything
) -> Callable[[Callable[[Subject], None]], Callable[[Subject], None]]:
    """Register a function as a check; the first line of its docstring says what holds."""

    def keep(run: Callable[[Subject], None]) -> Callable[[Subject], None]:
        about = (run.__doc__ or "").partition("\n")[0].rstrip(".")
        CHECKS[kind].append(Check(kind, run.__name__, about, run, concerns))
        return run

    return keep


def reads_back(spec: Spec, kind: str) -> None:
    """Fail unless the text of a spec names the same spec."""
    need(parse(repr(spec), {}, kind) == spec, f"{spec!r} is read as another {kind}")


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The outcome of a check: it holds, or the reason why not."""

    name: str
    kind: str
    check: str
    holds: bool
    reason: str


def outcomes(kind: str, subject: Subject) -> Iterator[Outcome]:
    """Run the checks of a kind that concern a subject, one after the other."""
    for one in CHECKS[kind]:
        reason = ""
        try:
            if not one.concerns(subject):
                continue
            one.run(subject)
        except Failed as failure:
            reason = str(failure)
        except Exception as error:
            reason = told(error)
        yield Outcome(type(subject.spec).__name__, kind, one.about, not reason, reason)


def told(error: Exception) -> str:
    """Return an error of the checked class in one line: its kind, its message, and the last place outside of this package."""
    words = " ".join(str(error).split())
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if "swerve_loaded" in frame.name or _foreign(frame.filename)
    ]
    place = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {words[:LONGEST]}{'…' if len(words) > LONGEST else ''}{place}"


def _foreign(name: str) -> bool:
    """Return whether a file is neither of Swerve nor of an installed package."""
    return "site-packages" not in name and "/swerve/" not in name and name.endswith(".py") and "/lib/python" not in name
