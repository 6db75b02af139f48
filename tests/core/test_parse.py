"""Specs as text."""

from __future__ import annotations

import pytest

from swerve import (
    BWC,
    EXP3S,
    UCB1,
    Finite,
    Matrix,
    Oracle,
    Rectangle,
    SwerveError,
    Testable,
    Thompson,
    Traffic,
    environment,
    policy,
)
from swerve.core.parse import parse
from swerve.policies import POLICIES


@pytest.mark.parametrize("name", list(POLICIES))
def test_the_text_of_a_policy_reads_back_as_the_policy(name):
    spec = policy(name)
    assert policy(repr(spec)) == spec


@pytest.mark.parametrize(
    "spec",
    [
        BWC(Testable(Thompson(2, 3), length=17, epsilon=0.125), Finite(Matrix(((1, -1, 0), (-1, 1, 1))))),
        Oracle(EXP3S(gamma=1e-3, alpha=2.5e-7)),
        BWC(Testable(UCB1(alpha=6, t0=1e6, plays_offset=1)), Rectangle(margin=1 / 3)),
    ],
)
def test_compositions_read_back(spec):
    assert policy(repr(spec)) == spec


def test_environments_read_back():
    spec = Traffic(queries=7, impressions=1000, order="zipf", zipf_exponent=0.7, oracle="hyperplane")
    assert environment(repr(spec)) == spec
    assert environment("traffic(queries=7, impressions=1_000, order=zipf, zipf_exponent=.7, oracle='hyperplane')") == spec


def test_tunings_follow_the_problem():
    assert policy("exp3s", arms=3, horizon=1000) == EXP3S.tuned(3, 1000)
    assert policy("exp3s(shifts=4)", arms=3, horizon=1000) == EXP3S.tuned(3, 1000, 4)
    assert policy("exp3s(gamma=0.5)", arms=3, horizon=1000).gamma == 0.5
    assert policy("ucb1-proof", horizon=1000) == UCB1.of_the_proof(1000)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "cannot be read at character 1"),
        ("ucb1)", "cannot be read"),
        ("ucb1 ucb1", "expected nothing more"),
        ("BWC(UCB1(), Rectangle())", "BWC: bandit = UCB1() is not allowed; bandit must be testable"),
        ("BWC(Testable(UCB1()), UCB1())", "classifier must be a classifier"),
        ("UCB1(alpha=1, 2)", "those without a name come first"),
        ("UCB1(1, 2, 3, 4)", "UCB1: 4 values without a name are too many (UCB1 takes alpha, t0, plays_offset)"),
        ("__import__('os')", "cannot be read"),
        ("Testable()", "Testable: bandit is missing (Testable takes bandit, length, epsilon)"),
        ("UCB1(1, alpha=2)", "UCB1: alpha is given twice"),
        ("UCB1(alpha=1e999)", "UCB1: alpha = inf is not allowed; alpha must be a finite number > 0"),
        (f"Testable(UCB1(), length={'9' * 5000})", "expected a number that fits 64 bits"),
        ("(" * 100_000, "nested too deeply"),
        ("ucb1(alpha='x')", "UCB1: alpha = 'x' is not allowed; alpha must be a number > 0"),
        ("17", "must be the name of a policy"),
        ("Softish", "unknown policy 'Softish' (known: swerve, "),  # not likened to Shifts, which is an environment
        ("Softish", "; a class of your own needs its file loaded: docs/extending.md)"),
        ("Orakle(UCB1())", "unknown policy 'Orakle'; did you mean 'Oracle'? (known: swerve, "),
        ("Oracle(UBC1())", "unknown name 'UBC1'; did you mean 'UCB1'? (known: swerve, "),
    ],
)
def test_unreadable_text_says_where_and_what(text, message):
    with pytest.raises(SwerveError, match=r"^[^\n]*$") as error:
        policy(text)
    assert message in str(error.value)


def test_numbers_and_tables():
    assert parse("Matrix([[1, -1], [0, 1]])", {}) == Matrix(((1, -1), (0, 1)))
    assert parse("UCB1(alpha=1e-3)", {}) == UCB1(alpha=0.001)
