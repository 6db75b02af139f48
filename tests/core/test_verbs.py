"""Verbs dispatch on the class of the spec: at call time in Python, at compile time in compiled code."""

from __future__ import annotations

import cProfile
import inspect
import pstats
import traceback

import numpy as np
import pytest
from numba import njit
from numba.core.errors import TypingError

from swerve.core.spec import Spec, pack
from swerve.core.verbs import MARKERS, VERBS, class_of, verb


class Shape(Spec):
    side: float = 2.0


class Square(Shape):
    pass


class Circle(Shape):
    pass


class Pair(Spec):
    left: Spec
    right: Spec


@verb
def area(spec):
    """The area."""


@verb(default=lambda spec: 0)
def corners(spec):
    """The number of corners."""


@verb
def scaled(spec, factor, power):
    """The side times a factor to some power."""


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
        assert area(pack(spec)[0]) == expected  # a packed record gives the object's answer
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
    assert repr(area) == "<verb area(spec)>"
    assert str(inspect.signature(scaled)) == "(spec, factor, power)"
    assert area.__doc__ == "The area."


def test_a_class_defined_again_brings_its_own_code():
    """As in a notebook cell run twice: the same module and name, another rule. The old code must not run."""

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


@pytest.mark.parametrize(
    "wrong",
    [
        lambda spec, factor: 0,
        lambda spec, factor, power, more: 0,
        lambda spec, power, factor: 0,
        lambda factor, spec, power: 0,
        lambda spec, factor, power, *, needed: 0,
        njit(lambda spec, factor: 0),
    ],
    ids=["too few", "too many", "in another order", "spec not first", "a name that nobody gives", "compiled by hand"],
)
def test_an_implementation_that_cannot_be_called_is_refused(wrong):
    with pytest.raises(TypeError, match=r"Shape.scaled takes \(.*\); it is called as scaled\(spec, factor, power\)"):
        scaled.register(Shape)(wrong)
    assert Shape not in scaled.implementations
    with pytest.raises(TypeError, match=r"default.unfit takes \(spec\); it is called as unfit\(spec, more\)"):

        @verb(default=lambda spec: 0)
        def unfit(spec, more):
            """A verb whose default does not fit."""


@pytest.mark.parametrize("right", [lambda spec, _factor, power: 0, lambda spec, *args: 0, lambda spec, factor, power, more=1: 0])
def test_other_names_and_more_room_are_no_trouble(right):
    class Own(Spec):
        pass

    scaled.register(Own)(right)
    assert scaled(Own(), 1, 2) == 0


def test_code_is_named_by_class_and_verb():
    """Tracebacks, profiles and argument errors show this name; the function itself keeps its own."""

    @scaled.register(Square)
    def mine(spec, factor, power):
        return (factor * spec.side) ** (power / factor)

    assert mine.__name__ == "mine"
    with pytest.raises(ZeroDivisionError) as caught:
        scaled(Square(), 0, 2)
    assert traceback.extract_tb(caught.value.__traceback__)[-1].name == "Square.scaled"
    with pytest.raises(TypeError, match=r"Square.scaled\(\) missing 1 required positional argument: 'power'"):
        scaled(Square(), 1)
    profile = cProfile.Profile()
    profile.runcall(scaled, Square(), 1, 2)
    profile.runcall(corners, Circle())
    names = {name for _, _, name in pstats.Stats(profile).stats}
    assert {"Square.scaled", "default.corners"} <= names


def test_a_function_may_serve_several_classes():
    def shared(spec):
        return 3

    class Left(Shape):
        pass

    class Right(Shape):
        pass

    for cls in (Left, Right):
        corners.register(cls)(shared)
        assert corners.lookup(cls).__code__.co_name.endswith(f"{cls.__name__}.corners")
    assert corners(Left()) == corners(Right()) == compiled_corners(pack(Left())) == compiled_corners(pack(Right())) == 3


def test_compiled_code_names_the_class_without_a_verb():
    with pytest.raises(TypingError, match="area: Shape has no such verb"):
        compiled_area(pack(Shape()))
