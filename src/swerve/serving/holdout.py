"""Arms of an experiment: which units are treated, by a keyed hash.

A unit has a point in [0, 1) that nobody can compute without the secret of the store, and is treated where the point is below the
share of treated traffic. So a unit that is treated at 5 % is treated at 50 %, too, on every start and every copy of the service.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Literal, NamedTuple

from msgspec import Meta

#: Fields of requests and answers.
UnitName = Annotated[str | None, Meta(description="What an experiment assigns to an arm, such as a user. Default: the session.")]

#: Codes of the arms; a request outside an experiment has none.
NONE, CONTROL, TREATED = 0, 1, 2
Arm = Literal["control", "treated"]
#: The names of the codes.
ARMS: tuple[Arm | None, ...] = (None, "control", "treated")

#: Bits of a point: all fractions with so many are exact, and below 1.
POINT_BITS = 53


class Unit(NamedTuple):
    """The point of a unit in [0, 1), and its name, which says nothing about the point."""

    point: float
    name: int


class Holdout:
    """Gives units their points; another `salt` gives others.

    >>> holdout = Holdout(b"k" * 32, "spring")
    >>> holdout.unit("session", "s-81") == holdout.unit("session", "s-81") != holdout.unit("unit", "s-81")
    True
    >>> [code(holdout.unit("session", "s-81"), treated) for treated in (0.0, 1.0)] == [CONTROL, TREATED]
    True
    """

    def __init__(self, secret: bytes, salt: str) -> None:
        self._state = hashlib.blake2b(salt.encode() + b"\0", key=secret, digest_size=16, person=b"swerve holdout")

    def unit(self, kind: Literal["unit", "session", "query"], name: str) -> Unit:
        """Return a unit by its kind and name."""
        state = self._state.copy()
        state.update(f"{kind}\0{name}".encode())
        digest = state.digest()
        point = (int.from_bytes(digest[:8], "little") >> 64 - POINT_BITS) / (1 << POINT_BITS)
        return Unit(point, int.from_bytes(digest[8:], "little") or 1)


def code(unit: Unit, treated: float) -> int:
    """Return the arm of a unit where this share is treated."""
    return TREATED if unit.point < treated else CONTROL
