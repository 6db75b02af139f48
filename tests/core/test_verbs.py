"""Verbs choose by the class of the spec: at call time in Python, at compile time in compiled code."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit

from swerve.core.spec import Spec, pack
from swerve.core.verbs import MARKERS, VERBS, Verb, class_of


class Shape(Spec):
    side: float = 2.0


class Square(Shape):
    pass


class Circle(Shape):
    pass


class Pair(Spec):
    left: Spec
    right: Spec


area = Verb("area", "The area.")
corners = Verb("corners", "How many corners.", lambda spec: 0)


@area.register(Square)
def _(spec):
    return spec.side * spec.side


@area.register(Circle)
def _(spec):
    return 3.0 * spec.side * spec.side


@area.register(Pair)
def _(spec):
    return area(spec.left) + 10.0 * area(spec.right)


@corners.register(Square)
def _(spec):
    return 4


@njit
def compiled_area(params):
    return area(params[0])


@njit
def compiled_corners(params):
    return corners(params[0])


def test_the_class_decides_in_python_and_compiled():
    for spec, expected in (
        (Square(3), 9.0),
        (Circle(3), 27.0),
        (Pair(Square(1), Circle(2)), 121.0),
        (Pair(Circle(2), Square(1)), 22.0),
    ):
        assert area(spec) == expected
        assert area(pack(spec)[0]) == expected  # a packed record answers as the object does
        assert compiled_area(pack(spec)) == expected


def test_a_new_value_compiles_nothing():
    compiled_area(pack(Square(1)))
    before = len(compiled_area.signatures)
    assert compiled_area(pack(Square(5))) == 25.0
    assert compiled_area(pack(Square(5.5))) == 30.25
    assert len(compiled_area.signatures) == before


def test_default_and_inheritance():
    class SmallSquare(Square):
        pass

    assert corners(Circle()) == 0
    assert compiled_corners(pack(Circle())) == 0
    assert corners(SmallSquare()) == 4
    assert compiled_corners(pack(SmallSquare())) == 4
    assert corners.knows(SmallSquare())
    assert not corners.knows(Circle())


def test_an_unknown_class_is_named():
    with pytest.raises(TypeError, match="area: Shape has no such verb"):
        area(Shape())
    with pytest.raises(TypeError, match="not a packed spec"):
        class_of(np.zeros(1, [("a", "i8")])[0])


def test_the_outermost_class_wins_when_records_are_nested():
    assert class_of(pack(Pair(Square(), Circle()))[0]) is Pair
    assert class_of(pack(Pair(Square(), Circle()))[0].left) is Square


def test_every_verb_and_class_is_known():
    assert area in VERBS
    assert MARKERS[Square.marker] is Square
    assert repr(area) == "<verb area>"


def test_a_class_defined_again_brings_its_own_code():
    """A notebook cell run twice: same module, same name, another rule. The old code must not answer."""

    def define(factor):
        class Cell(Spec):
            side: float = 1.0

        @area.register(Cell)
        def _(spec):
            return factor * spec.side

        return Cell

    for factor in (2.0, 3.0):
        cell = define(factor)(5.0)
        assert area(cell) == factor * 5.0
        assert njit(lambda params: area(params[0]))(pack(cell)) == factor * 5.0
