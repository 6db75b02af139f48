"""Sections as structs: descriptions of allowed values, and a reader that collects every mistake."""

from __future__ import annotations

from typing import Annotated, Literal

import pytest

from swerve.service.config.fields import Reader, Section, about, allowed, described, fits, within


class Inner(Section, frozen=True):
    name: Annotated[str, about("Its name.", shortest=1)]
    size: Annotated[int, within(1, 9, "Its size.")] = 1


class Outer(Section, frozen=True):
    rate: Annotated[float, within(0, 1, "How often.", open_low=True)] = 0.5
    seed: Annotated[Annotated[int, within(0, 5)] | None, about("Where it starts.")] = None
    parts: Annotated[tuple[Inner, ...], about("What it has.")] = ()
    kinds: Annotated[dict[str, Literal["a", "b"]], about("Which.")] = {}  # noqa: RUF012 - msgspec copies it


@pytest.mark.parametrize(
    ("annotation", "words"),
    [
        (bool, "true or false"),
        (str, "a text"),
        (int, "a whole number"),
        (Annotated[float, within(0.5, 2)], "a number in [0.5, 2]"),
        (Annotated[float, within(0, 2, open_low=True)], "a number in (0, 2]"),
        (Annotated[int, within(0, 5)] | None, "a whole number in [0, 5]"),
        (tuple[Literal["a", "b"], ...], "a list in which each entry is one of a, b"),
        (dict[str, Literal["a", "b"]], "a table in which each value is one of a, b"),
        (tuple[Inner, ...], "a list of tables"),
        (Inner, "a table"),
        (Annotated[str, about("m", allowed="so", pattern="x")], "so"),
    ],
)
def test_what_is_allowed_in_words(annotation, words):
    assert allowed(annotation) == words


def test_fields_are_described_with_default_range_and_meaning():
    assert [tuple(field) for field in described("s", Outer)] == [
        ("s", "rate", 0.5, "a number in (0, 1]", "How often."),
        ("s", "seed", None, "a whole number in [0, 5]", "Where it starts."),
        ("s", "parts", (), "a list of tables", "What it has."),
        ("s", "kinds", {}, "a table in which each value is one of a, b", "Which."),
    ]
    assert next(described("s", Inner)).default is None


def test_a_table_becomes_a_section():
    reader = Reader()
    table = {"rate": 1, "parts": [{"name": "x"}, {"name": "y", "size": 3}], "kinds": {"k": "a"}}
    read = reader.section(Outer, table, ("o",))
    assert reader.wrong == []
    assert read == Outer(rate=1.0, parts=(Inner("x"), Inner("y", 3)), kinds={"k": "a"})
    assert isinstance(read.rate, float)


def test_every_mistake_is_collected_with_its_place():
    reader = Reader()
    table = {"rate": 0, "seed": 6, "parts": [{"name": ""}, {"size": 0}, 3], "kinds": {"k": "c", "l": 1}, "rates": 1}
    assert reader.section(Outer, table, ("o",)) == Outer()
    assert [where for where, _ in reader.wrong] == [
        ("o", "rates"), ("o", "rate"), ("o", "seed"), ("o", "parts", 0, "name"), ("o", "parts", 1, "size"), ("o", "parts", 1),
        ("o", "parts", 2), ("o", "kinds", "k"), ("o", "kinds", "l"),
    ]  # fmt: skip
    assert reader.wrong[5][1] == "o.parts[1]: name is missing; it must be a text that is not empty"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "1", True, None, [1]])
def test_what_is_no_finite_number_does_not_fit(value):
    assert not fits(Annotated[float, within(0, 10)], value)
