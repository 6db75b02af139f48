"""A decision as one number: which arm, which of its place's owners, and since which start of the policy.

The number is what kernels return and what tokens carry, so that its bits are known here and nowhere else.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from swerve.core.contract import starts
from swerve.core.verbs import kernel

ARM_BITS, GENERATION_BITS, START_BITS = 6, 8, 25
#: Bits of a code; whoever has a word of 64 may put something of its own above them.
CODE_BITS = ARM_BITS + GENERATION_BITS + START_BITS

_ARMS, _GENERATIONS, _STARTS = (1 << ARM_BITS) - 1, (1 << GENERATION_BITS) - 1, (1 << START_BITS) - 1
_AFTER_ARM, _AFTER_GENERATION = ARM_BITS, ARM_BITS + GENERATION_BITS


@kernel
def encode(arm, generation, start):
    """The code of a decision.

    >>> encode(arm=3, generation=2, start=1) == 3 | 2 << 6 | 1 << 14
    True
    """
    return arm | generation << _AFTER_ARM | (start & _STARTS) << _AFTER_GENERATION


@kernel
def decode(code: Any) -> tuple[Any, Any, Any]:
    """Arm, generation and start of a code, or of an array of codes.

    >>> decode(encode(63, 255, 7))
    (63, 255, 7)
    """
    return code & _ARMS, code >> _AFTER_ARM & _GENERATIONS, code >> _AFTER_GENERATION & _STARTS


@kernel
def next_generation(generation):
    """The generation of a place that changes hands."""
    return (np.int64(generation) + 1) & _GENERATIONS


@kernel
def disown(row):
    """Somebody starts the policy over from outside: all places change hands, because not every policy counts its starts."""
    for arm in range(row.generation.shape[0]):
        row.generation[arm] = next_generation(row.generation[arm])


@kernel
def code_of(spec, row, arm):
    """The code of a decision that is made now."""
    return encode(np.int64(arm), np.int64(row.generation[arm]), np.int64(starts(spec, row)))


@kernel
def still_ours(spec, row, arm, generation, start):
    """Whether a decision is about this row as it is: its arm's place has not changed hands, and the policy not begun anew."""
    return row.generation[arm] == generation and (np.int64(starts(spec, row)) & _STARTS) == start
