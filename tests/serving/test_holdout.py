"""Arms of units: stable, monotone in the share, fair, and unknown without the secret."""

from __future__ import annotations

import itertools
import math

import pytest

from swerve.serving.holdout import CONTROL, TREATED, Holdout, code

UNITS = 20_000
SHARES = (0.0, 0.01, 0.05, 0.25, 0.5, 0.9, 0.99, 1.0)


def arms(holdout: Holdout, treated: float) -> list[int]:
    return [code(holdout.unit("session", f"s{number}"), treated) for number in range(UNITS)]


def test_a_unit_that_is_treated_stays_so_when_the_share_rises():
    found = [arms(Holdout(b"k" * 32, "x"), share) for share in SHARES]
    for lower, higher in itertools.pairwise(found):
        assert all(after == TREATED for before, after in zip(lower, higher, strict=True) if before == TREATED)
    assert set(found[0]) == {CONTROL} and set(found[-1]) == {TREATED}


@pytest.mark.parametrize("salt", ["x", "y", "a-longer-name"])
def test_the_share_is_within_binomial_limits(salt):
    for share in SHARES:
        treated = arms(Holdout(b"k" * 32, salt), share).count(TREATED)
        assert abs(treated - share * UNITS) <= 4.5 * math.sqrt(share * (1 - share) * UNITS)


def test_other_salts_and_secrets_assign_independently():
    """Of those treated under one, half are treated under the other."""
    one = arms(Holdout(b"k" * 32, "x"), 0.5)
    for other in (Holdout(b"k" * 32, "y"), Holdout(b"l" * 32, "x")):
        both = sum(a == b for a, b in zip(one, arms(other, 0.5), strict=True))
        assert abs(both - UNITS / 2) <= 4.5 * math.sqrt(UNITS) / 2
    assert arms(Holdout(b"k" * 32, "x"), 0.5) == one


def test_kinds_of_units_do_not_share_names():
    holdout = Holdout(b"k" * 32, "x")
    assert len({holdout.unit(kind, "42") for kind in ("unit", "session", "query")}) == 3


def test_the_name_of_a_unit_says_nothing_about_its_arm():
    """Names go into a table that may take one unit for another: that must not favour an arm."""
    holdout = Holdout(b"k" * 32, "x")
    units = [holdout.unit("session", f"s{number}") for number in range(UNITS)]
    low = [unit for unit in units if unit.name < 1 << 63]
    assert abs(sum(unit.point < 0.5 for unit in low) - len(low) / 2) <= 4.5 * math.sqrt(len(low)) / 2
