"""Specs: coerced and checked at construction, packed into records, refused in one line."""

from __future__ import annotations

import dataclasses
import inspect
import math
from typing import Annotated

import numpy as np
import pytest
from hypothesis import given, strategies as st

from swerve import (
    BWC,
    EXP3S,
    UCB1,
    Fleet,
    Matrix,
    Oracle,
    Rectangle,
    SpecError,
    SwerveError,
    Testable,
    Traffic,
    environment,
    policy,
    simulate,
)
from swerve.classifiers import Finite, Learner
from swerve.core.spec import Choice, Count, Gap, Natural, NonNegative, Positive, Probability, Range, Spec, pack, record_dtype, walk


class Sample(Spec):
    rate: Positive = 0.5
    count: Count = 3
    share: Annotated[float, Range(0.0, 1.0, open_low=True)] = 1.0
    word: Annotated[str, Choice(("low", "high"))] = "low"
    flag: bool = False
    table: tuple[tuple[int, ...], ...] = ((1, 2), (3, 4))


class Holder(Spec):
    inner: Sample
    other: Spec
    scale: float = 1.0


def test_fields_are_coerced():
    made = Sample(2, np.int64(4), np.float32(0.5))
    assert (type(made.rate), type(made.count), type(made.share)) == (float, int, float)
    assert made == Sample(2.0, 4.0, 0.5)
    assert hash(made) == hash(Sample(2.0, 4, 0.5))


def test_specs_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Sample().rate = 2.0


def test_repr_shows_what_differs_from_the_default_and_reads_back():
    spec = BWC(Testable(UCB1(alpha=2), length=50), Rectangle(margin=0.25))
    text = repr(spec)
    assert text == "BWC(bandit=Testable(bandit=UCB1(alpha=2.0), length=50), classifier=Rectangle(margin=0.25))"
    assert eval(text) == spec


def test_pack_holds_every_number_under_its_name():
    record = pack(Holder(Sample(2, word="high", flag=True), Sample(7), 3))[0]
    assert (record.inner.rate, record.inner.count, record.inner.word, record.inner.flag) == (2.0, 3, 1, 1)
    assert (record.other.rate, record.scale) == (7.0, 3.0)
    assert record.inner.table.tolist() == [[1, 2], [3, 4]]


@given(st.floats(1e-6, 1e6), st.integers(0, 2**40))
def test_pack_keeps_values_exactly(rate, count):
    record = pack(Sample(rate, count))[0]
    assert (float(record.rate), int(record.count)) == (rate, count)


def test_one_record_type_per_class_whatever_the_values():
    assert pack(UCB1(2)).dtype == pack(UCB1(2.5, 7)).dtype
    assert pack(UCB1()).dtype != pack(EXP3S()).dtype


def test_walk_meets_every_part_outermost_first():
    bandit, box = UCB1(), Rectangle()
    inner = Testable(bandit)
    whole = BWC(inner, box)
    assert list(walk(whole)) == [whole, inner, bandit, box]


def test_names_that_numpy_uses_are_refused():
    with pytest.raises(TypeError, match="'mean'"):
        record_dtype([("mean", "f8")])


@pytest.mark.parametrize("kind", [Positive, NonNegative, Probability, Gap, Count, Natural])
def test_ranges_say_what_they_allow(kind):
    allowed = kind.__metadata__[0]
    assert allowed.low not in allowed if allowed.open_low else allowed.low in allowed
    assert -1 not in allowed
    assert str(allowed.low.__format__("g")) in str(allowed)


#: Mistakes of users, and the words that the error must contain: the field, the value, the allowed values.
BAD = {
    "margin zero": (lambda: Rectangle(margin=0), ["Rectangle", "margin", "0.0", "> 0"]),
    "margin negative": (lambda: Rectangle(margin=-0.1), ["margin", "-0.1", "> 0"]),
    "margin nan": (lambda: Rectangle(margin=math.nan), ["margin", "nan", "> 0"]),
    "margin word": (lambda: Rectangle(margin="wide"), ["margin", "'wide'", "> 0"]),
    "alpha bool": (lambda: UCB1(alpha=True), ["alpha", "True", "> 0"]),
    "gamma high": (lambda: EXP3S(gamma=1.5), ["gamma", "1.5", "(0, 1]"]),
    "epsilon one": (lambda: Testable(UCB1(), epsilon=1.0), ["epsilon", "1.0", "(0, 1)"]),
    "length half": (lambda: Testable(UCB1(), length=2.5), ["length", "2.5", "whole number", "≥ 1"]),
    "length zero": (lambda: Testable(UCB1(), length=0), ["length", "0", "≥ 1"]),
    "length inf": (lambda: Testable(UCB1(), length=math.inf), ["length", "inf", "whole number"]),
    "length nan": (lambda: Testable(UCB1(), length=math.nan), ["length", "nan", "whole number"]),
    "margin inf": (lambda: Rectangle(margin=math.inf), ["margin", "inf", "finite number > 0"]),
    "margin beyond floats": (lambda: Rectangle(margin=10**400), ["margin", "finite number > 0"]),
    "length beyond 64 bits": (lambda: Testable(UCB1(), length=2**63), ["length", "9223372036854775808", "≥ 1", "2^63 − 1"]),
    "length beyond all printing": (lambda: Testable(UCB1(), length=10**5000), ["length", "16610 bits", "2^63 − 1"]),
    "a table for a number": (lambda: Rectangle(margin=np.eye(3)), ["margin", "array([[1., 0., 0.],", "> 0"]),
    "misspelt field": (lambda: UCB1(alhpa=1), ["UCB1", "'alhpa'", "did you mean 'alpha'?", "alpha, t0, plays_offset"]),
    "unknown field": (lambda: UCB1(zzz=1), ["UCB1", "unknown parameter 'zzz' (UCB1 takes alpha, t0, plays_offset)"]),
    "too many values": (lambda: UCB1(1, 2, 3, 4), ["UCB1", "4 values", "alpha, t0, plays_offset"]),
    "a field twice": (lambda: UCB1(1, alpha=2), ["UCB1", "alpha is given twice"]),
    "a field missing": (lambda: BWC(Testable(UCB1())), ["BWC", "classifier is missing"]),
    "exp3s for no arms": (lambda: EXP3S.tuned(0, 100), ["EXP3S.tuned", "n = 0", "≥ 1"]),
    "relevant below the others": (
        lambda: Traffic(best_low=0.1, best_high=0.2, other_low=0.2, other_high=0.9),
        ["Traffic", "best_high = 0.2", "> other_low = 0.2"],
    ),
    "not testable": (lambda: BWC(UCB1(), Rectangle()), ["BWC", "bandit", "UCB1()", "testable"]),
    "no classifier": (lambda: BWC(Testable(UCB1()), UCB1()), ["BWC", "classifier", "UCB1()", "classifier, such as"]),
    "no averages": (lambda: Testable(EXP3S()), ["Testable", "bandit", "EXP3S()", "sample average"]),
    "no bandit": (lambda: Oracle(Rectangle()), ["Oracle", "bandit", "Rectangle()", "such as UCB1()"]),
    "no spec": (lambda: Oracle("ucb1"), ["Oracle", "bandit", "'ucb1'"]),
    "no family": (lambda: Finite(UCB1()), ["Finite", "family", "UCB1()", "concept class"]),
    "ragged matrix": (lambda: Matrix(((1,), (1, -1))), ["Matrix", "table", "rectangular"]),
    "matrix of twos": (lambda: Matrix(((2, 1),)), ["Matrix", "table", "+1"]),
    "unknown order": (lambda: Traffic(order="random"), ["Traffic", "order", "'random'", "sequential, uniform, zipf"]),
    "results over capacity": (lambda: Traffic(results=65), ["results", "65", "[2, 64]"]),
    "features over capacity": (lambda: Traffic(features=65), ["features", "65", "[0, 64]"]),
    "crossed range": (lambda: Traffic(best_low=0.9), ["best_low", "0.9", "best_high"]),
    "no room for events": (lambda: Traffic(edge_low=0.95, edge_high=0.95), ["edge_high", "0.95", "margin"]),
    "too few impressions": (lambda: Traffic(queries=10, impressions=5), ["impressions", "5", "queries = 10"]),
    "infinite queries": (lambda: Traffic(queries=math.inf), ["queries", "inf", "whole number"]),
    "arms over capacity": (lambda: Fleet(UCB1(), queries=1, arms=65), ["arms", "65", "64"]),
    "d over capacity": (lambda: Fleet(UCB1(), queries=1, arms=5, features=65), ["features", "65", "64"]),
    "no arms": (lambda: Fleet(UCB1(), queries=1, arms=0), ["arms", "0", "≥ 1"]),
    "no queries": (lambda: Fleet(UCB1(), queries=0, arms=1), ["queries", "0", "≥ 1"]),
    "fleet of no policy": (lambda: Fleet(Rectangle(), queries=1, arms=2), ["policy", "Rectangle()", "select"]),
    "fleet of a word": (lambda: Fleet("ucb1", queries=1, arms=2), ["policy", "'ucb1'", "select"]),
    "pooling word": (lambda: Fleet(UCB1(), queries=1, arms=2, pooling="some"), ["pooling", "'some'", "'shared'"]),
    "pooling zero": (lambda: Fleet(UCB1(), queries=1, arms=2, pooling=0), ["pooling", "0", "≥ 1"]),
    "learner of a bandit": (lambda: Learner(UCB1(), d=1), ["classifier", "UCB1()", "predict"]),
    "learner over capacity": (lambda: Learner(Rectangle(), d=65), ["features", "65", "64"]),
    "horizon below L": (
        lambda: simulate(BWC(Testable(UCB1(), length=200), Rectangle()), Traffic(queries=2, impressions=300)),
        ["L = 200", "150"],
    ),
    "no environment": (lambda: simulate(UCB1(), UCB1()), ["environment", "UCB1()", "Traffic()"]),
    "simulate a word": (lambda: simulate("ucb1", Traffic()), ["policy", "'ucb1'", "select"]),
    "no runs": (lambda: simulate(UCB1(), Traffic(), runs=0), ["runs", "0", "≥ 1"]),
    "simulate pooling": (
        lambda: simulate(UCB1(), Traffic(queries=2, impressions=9), runs=1, pooling="x"),
        ["pooling", "'x'", "'shared'"],
    ),
    "unknown policy": (lambda: policy("ucb2"), ["policy", "'ucb2'", "ucb1"]),
    "unknown parameter": (lambda: policy("UCB1(beta=2)"), ["UCB1", "'beta'", "alpha, t0, plays_offset"]),
    "unknown parameter of a recipe": (lambda: policy("bwc(lenght=2)"), ["bwc", "'lenght'", "'length'"]),
    "unknown environment": (lambda: environment("trafic"), ["environment", "'trafic'", "traffic"]),
    "bad value in text": (lambda: policy("bwc(margin=-1)"), ["margin", "-1", "> 0"]),
    "no policy in text": (lambda: policy("Rectangle()"), ["policy", "Rectangle"]),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_in_one_line(case):
    make, words = BAD[case]
    with pytest.raises(SwerveError) as caught:
        make()
    text = str(caught.value)
    assert "\n" not in text
    missing = [word for word in words if word not in text]
    assert not missing, f"{text!r} does not say {missing}"


def test_a_field_that_is_not_there_is_a_spec_error():
    with pytest.raises(SpecError) as caught:
        UCB1(alhpa=1)
    assert (caught.value.owner, caught.value.field) == ("UCB1", "alhpa")


def test_the_largest_whole_number_is_packed_exactly():
    assert int(pack(Sample(count=2**63 - 1))[0].count) == 2**63 - 1


def test_a_class_that_makes_itself_answers_for_itself():
    class Own(Spec):
        rate: float = 1.0

        def __init__(self, twice: float) -> None:
            object.__setattr__(self, "rate", 2 * twice)

    assert Own(twice=2.0).rate == 4.0
    assert list(inspect.signature(UCB1).parameters) == ["alpha", "t0", "plays_offset"]  # the check does not hide the fields


def test_spec_error_has_its_parts():
    with pytest.raises(SpecError) as caught:
        Rectangle(margin=-1)
    assert (caught.value.owner, caught.value.field, caught.value.value, caught.value.allowed) == (
        "Rectangle",
        "margin",
        -1.0,
        "> 0",
    )


def test_a_records_fields_are_attributes_at_any_depth_and_nothing_else_is():
    inner = record_dtype([("plays", "i8", 2)])
    table = np.zeros(2, record_dtype([("t", "i8"), ("bandit", inner)]))
    row = table[1]
    row.t += 3
    row.bandit.plays[1] = 7
    assert (table["t"].tolist(), table["bandit"]["plays"].tolist()) == ([0, 3], [[0, 0], [0, 7]])
    assert not hasattr(row, "rounds")
    with pytest.raises(AttributeError, match="no field 'rounds'"):
        row.rounds = 1
