"""Sizes of records, and masks of arms."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st
from numba import njit

from swerve import BWC, UCB1, Rectangle, SwerveError, Testable
from swerve.core.tables import CAPACITIES, bit, capacity, full_mask, has, lowest, nested, pool_dtype, row_dtype


@njit
def members(mask, n):
    out = 0
    for arm in range(n):
        if has(mask, arm):
            out += 1
    return out


@njit
def listed(mask, arms):
    n = 0
    while mask != 0:
        arms[n] = lowest(mask)
        mask &= mask - 1
        n += 1
    return n


@njit
def mask_of(arms):
    mask = np.int64(0)
    for arm in arms:
        mask |= bit(arm)
    return mask


@given(st.integers(1, 64))
def test_capacity_is_the_smallest_that_fits(wanted):
    size = capacity("arms", wanted)
    assert size in CAPACITIES
    assert size >= wanted
    assert all(other < wanted for other in CAPACITIES if other < size)


@pytest.mark.parametrize("what", ["arms", "features"])
def test_over_capacity_is_refused(what):
    with pytest.raises(SwerveError, match=rf"^{what} = 65 is not allowed; {what} must be at most 64$"):
        capacity(what, 65)


@given(st.sets(st.integers(0, 63)))
def test_masks_hold_all_64_arms_compiled_and_not(arms):
    expected = sum(1 << arm for arm in arms)
    signed = expected - 2**64 if expected >= 2**63 else expected
    plain = np.int64(0)
    for arm in arms:
        plain |= bit(arm)
    assert int(plain) == signed
    if arms:
        assert mask_of(np.array(sorted(arms))) == signed
    assert members(np.int64(signed), 64) == len(arms)
    assert {arm for arm in range(64) if has(np.int64(signed), arm)} == arms
    out = np.zeros(64, np.int64)
    assert out[: listed(np.int64(signed), out)].tolist() == sorted(arms)
    if arms:
        assert lowest(np.int64(signed)) == min(arms)


@pytest.mark.parametrize("arms", [1, 5, 63, 64])
def test_full_mask(arms):
    assert members(np.int64(full_mask(arms)), 64) == arms


def test_records_grow_with_capacity_only():
    policy = BWC(Testable(UCB1()), Rectangle())
    assert row_dtype(policy, 5, 3) == row_dtype(policy, 8, 8)
    assert row_dtype(policy, 9, 3).itemsize > row_dtype(policy, 8, 3).itemsize
    assert pool_dtype(policy, 9).itemsize > pool_dtype(policy, 8).itemsize


def test_a_part_without_fields_still_has_a_record():
    assert nested([]).names == ("unused",)
    assert pool_dtype(UCB1(), 3).itemsize > 0


def test_state_stays_small():
    # the memory of one query in a service
    assert row_dtype(UCB1(), 8, 8).itemsize <= 256
    assert row_dtype(BWC(Testable(UCB1()), Rectangle()), 8, 8).itemsize <= 640
