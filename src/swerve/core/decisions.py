"""A decision packed into one number: the arm, its generation and the start of the policy.

Kernels return this number and tokens carry it. Only this module knows its bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from swerve.core.contract import starts
from swerve.core.verbs import kernel

ARM_BITS, GENERATION_BITS, START_BITS = 6, 8, 25
#: Bits of a code. Callers with a 64-bit word may use the bits above.
CODE_BITS = ARM_BITS + GENERATION_BITS + START_BITS

_ARMS, _GENERATIONS, STARTS = (1 << ARM_BITS) - 1, (1 << GENERATION_BITS) - 1, (1 << START_BITS) - 1
_AFTER_ARM, _AFTER_GENERATION = ARM_BITS, ARM_BITS + GENERATION_BITS


@kernel
def encode(arm, generation, start):
    """Return the code of a decision.

    >>> encode(arm=3, generation=2, start=1) == 3 | 2 << 6 | 1 << 14
    True
    """
    return arm | generation << _AFTER_ARM | (start & STARTS) << _AFTER_GENERATION


@kernel
def decode(code: Any) -> tuple[Any, Any, Any]:
    """Return arm, generation and start of a code, or of an array of codes.

    >>> decode(encode(63, 255, 7))
    (63, 255, 7)
    """
    return code & _ARMS, code >> _AFTER_ARM & _GENERATIONS, code >> _AFTER_GENERATION & STARTS


@kernel
def next_generation(generation):
    """Return the generation of an arm after it was reassigned."""
    return (np.int64(generation) + 1) & _GENERATIONS


@kernel
def disown(row):
    """Advance the generation of every arm after a restart from outside, because not every policy counts its starts."""
    for arm in range(row.generation.shape[0]):
        row.generation[arm] = next_generation(row.generation[arm])


@kernel
def code_of(spec, row, arm):
    """Return the code of a decision made now."""
    return encode(np.int64(arm), np.int64(row.generation[arm]), np.int64(starts(spec, row)))


@kernel
def still_ours(spec, row, arm, generation, start):
    """Return whether a decision still applies to this row: its arm was not reassigned and the policy did not start over."""
    return row.generation[arm] == generation and (np.int64(starts(spec, row)) & STARTS) == start
