"""Errors about user input, each in one line."""

from __future__ import annotations

import difflib
import operator
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: The most characters of a value in an error message; of a longer value the head and the tail are shown.
LONGEST, HEAD, TAIL = 200, 160, 20


class SwerveError(ValueError):
    """Base of the errors that Swerve raises about its input."""


class SpecError(SwerveError):
    """A field has a value that is not allowed."""

    def __init__(self, owner: str, field: str, value: Any, allowed: str) -> None:
        super().__init__(f"{owner}: {field} = {shown(value)} is not allowed; {field} must be {allowed}")
        self.owner, self.field, self.value, self.allowed = owner, field, value, allowed


class FieldError(SpecError):
    """A spec was made with an unknown field, too many values, or a missing field."""

    def __init__(self, owner: str, field: str, trouble: str, known: Iterable[str]) -> None:
        takes = ", ".join(known) or "no parameters"
        SwerveError.__init__(self, f"{owner}: {trouble} ({owner} takes {takes})")
        self.owner, self.field, self.value, self.allowed = owner, field, None, takes


def shown(value: Any) -> str:
    """Return a value as one line of text for an error message, shortened if it is long.

    >>> shown(np.eye(2))
    'array([[1., 0.], [0., 1.]])'
    """
    try:
        text = repr(value)
    except ValueError:  # Python refuses to print whole numbers of more than 4300 digits
        text = f"a number of {value.bit_length()} bits" if isinstance(value, int) else f"a {type(value).__name__}"
    if "\n" in text:
        text = " ".join(text.split())
    return text if len(text) <= LONGEST else f"{text[:HEAD]} … {text[-TAIL:]}"


def nearest(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean …?` when a known word is close, else an empty text."""
    close = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def table_of(name: str, values: Any) -> NDArray[Any]:
    """Return `values` as an array of numbers."""
    try:
        table = np.asarray(values)
    except (TypeError, ValueError, OverflowError):  # for example rows of different lengths
        table = np.asarray(None)
    if table.dtype.kind not in "biuf":
        raise SwerveError(f"{name} = {shown(values)} is not allowed; {name} must be numbers, in rows of equal length")
    return table


def whole(name: str, value: Any, low: int | None = None, high: int | None = None) -> int:
    """Return `value` as a plain whole number from `low` to `high`. Any integer type passes; floats and booleans do not.

    >>> whole("arms", np.int8(5), 1)
    5
    >>> whole("arms", 2.5, 1)
    Traceback (most recent call last):
    swerve.core.errors.SwerveError: arms = 2.5 is not allowed; arms must be a whole number ≥ 1
    """
    if high is not None:
        allowed = f"in [{low}, {high}]"
    else:
        allowed = "" if low is None else f"≥ {low}"
    try:
        if isinstance(value, bool | np.bool_):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        raise SwerveError(f"{name} = {shown(value)} is not allowed; {name} must be a whole number {allowed}".rstrip()) from None
    if (low is not None and number < low) or (high is not None and number > high):
        raise SwerveError(f"{name} = {number} is not allowed; {name} must be {allowed}")
    return number
