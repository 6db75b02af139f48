"""Kernels are compiled as parts of their entry point: no machine code of their own, the same results."""

from __future__ import annotations

import numba
import numpy as np
import pytest
from numba.core.codegen import JITCodeLibrary

from swerve.core.cache import OPTIONS
from swerve.core.compiling import Part
from swerve.core.verbs import inlined, kernel


@kernel
def square(x):
    return x * x


@inlined
def shifted(x):
    return square(x) + 1.0


@kernel
def halved(x):
    if x == 0.0:
        raise ValueError("there is nothing to halve")
    return shifted(x) / 2.0


def entry(numbers):
    total = 0.0
    for number in numbers:
        total += halved(number) + square(number)
    return total


def test_only_the_entry_point_becomes_machine_code(monkeypatch):
    made: list[str] = []
    parts: list[str] = []
    finish, link = JITCodeLibrary._finalize_specific, Part.finalize
    monkeypatch.setattr(JITCodeLibrary, "_finalize_specific", lambda self: (made.append(self.name), finish(self))[1])
    monkeypatch.setattr(Part, "finalize", lambda self: (parts.append(self.name), link(self))[1])
    numbers = np.array([1.5, -2.0, 3.25])
    assert numba.njit(**OPTIONS)(entry)(numbers) == entry(numbers)
    assert made in (["entry"], ["nrt", "entry"])  # the first compilation of a process makes Numba's runtime too
    assert set(parts) == {"square", "shifted", "halved"}


def test_an_error_in_a_kernel_reaches_the_caller():
    with pytest.raises(ValueError, match="there is nothing to halve"):
        numba.njit(**OPTIONS)(entry)(np.zeros(1))
