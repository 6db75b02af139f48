"""Logarithms, powers and sines of our own: their error against exact decimals, their bits, and their edges."""

from __future__ import annotations

import hashlib
import math
import random
from decimal import Decimal, localcontext

import numpy as np
import pytest

from swerve.core import elementary
from swerve.core.engine import Entry

DIGITS = 60
PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803482534211706798214808651")


@Entry
def tabulate(which, xs, ys, out):
    """Compute a function at many points."""
    for i in range(len(xs)):
        if which == 0:
            out[i] = elementary.log(xs[i])
        elif which == 1:
            out[i] = elementary.exp(xs[i])
        elif which == 2:
            out[i] = elementary.log1p(xs[i])
        elif which == 3:
            out[i] = elementary.power(xs[i], ys[i])
        else:
            out[i] = elementary.sine(xs[i])


def exact_sine(x):
    angle = Decimal(x) % (2 * PI)
    total = term = angle
    number = 1
    while abs(term) > Decimal(10) ** -DIGITS:
        term = -term * angle * angle / ((number + 1) * (number + 2))
        number += 2
        total += term
    return total


def points(name, count):
    """Return arguments over the whole domain and, more densely, where the function is hard or often needed."""
    dice = random.Random(name)
    if name == "log":
        xs = [dice.uniform(0.0, 1.0) for _ in range(count)] + [dice.uniform(0.6, 1.6) for _ in range(count)]
        xs += [math.ldexp(dice.random(), dice.randrange(-1073, 1025)) or 1.0 for _ in range(count)]
        xs += [1.0 + dice.uniform(-1e-4, 1e-4) for _ in range(count)] + [float(n) for n in range(1, count)]
    elif name == "exp":
        xs = [dice.uniform(-745.0, 709.7) for _ in range(count)] + [dice.uniform(-1.0, 1.0) for _ in range(count)]
        xs += [dice.choice((-1, 1)) * 10.0 ** dice.uniform(-20, 0) for _ in range(count)]
    elif name == "log1p":
        xs = [dice.uniform(-0.9999, 5.0) for _ in range(count)] + [10.0 ** dice.uniform(0, 300) for _ in range(count)]
        xs += [dice.choice((-1, 1)) * 10.0 ** dice.uniform(-20, 0) for _ in range(count)]
    elif name == "power":
        xs = [dice.random() for _ in range(count)] + [1.0 - 10.0 ** dice.uniform(-7, -1) for _ in range(count)]
        xs += [10.0 ** dice.uniform(-9, 9) for _ in range(count)]
    else:
        xs = [dice.uniform(-7.0, 7.0) for _ in range(count)] + [dice.uniform(-1e5, 1e5) for _ in range(count)]
        xs += [n * math.pi / 2 for n in range(1, count)]
    ys = [float(dice.randrange(1, 600)) if dice.random() < 0.5 else dice.uniform(-33.0, 33.0) for _ in xs]
    return np.array(xs), np.array(ys)


EXACT = {
    "log": lambda x, y: Decimal(x).ln(),
    "exp": lambda x, y: Decimal(x).exp(),
    "log1p": lambda x, y: (1 + Decimal(x)).ln(),
    "power": lambda x, y: (Decimal(y) * Decimal(x).ln()).exp(),
    "sine": lambda x, y: exact_sine(x),
}
NAMES = list(EXACT)


def computed(name, xs, ys):
    out = np.zeros(len(xs))
    tabulate.bind()(NAMES.index(name), xs, ys, out)
    return out


@pytest.mark.parametrize("name", NAMES)
def test_it_is_off_by_less_than_a_unit_in_the_last_place(name):
    xs, ys = points(name, 700)
    found = computed(name, xs, ys)
    worst = Decimal(0)
    with localcontext() as context:
        context.prec = DIGITS
        for x, y, ours in zip(xs.tolist(), ys.tolist(), found.tolist(), strict=True):
            true = EXACT[name](x, y)
            if true != 0 and abs(true) < Decimal(2) ** 1023:
                worst = max(worst, abs(Decimal(ours) - true) / Decimal(math.ulp(float(true))))
    assert 0 < worst < 1


@pytest.mark.parametrize("name", NAMES)
def test_compiled_and_interpreted_have_the_same_bits(name):
    xs, ys = points(name, 100)
    out = np.zeros(len(xs))
    tabulate.plain(NAMES.index(name), xs, ys, out)
    assert out.tobytes() == computed(name, xs, ys).tobytes()


#: Digests of the bits, computed once: whatever computes others, a processor or a compiler, would give other results.
BITS = {
    "log": "957bea9a4698d7f7",
    "exp": "5845db9531d8142c",
    "log1p": "c9cb4786e488937a",
    "power": "231f462f48c47709",
    "sine": "c91c3a0a3e894aee",
}


@pytest.mark.parametrize("name", NAMES)
def test_the_bits_are_those_of_every_other_machine(name):
    """The arguments are built from whole numbers, because those of `points` come from the platform's own functions."""
    steps = np.arange(1, 4001, dtype=np.float64)
    xs = {
        "log": np.concatenate([steps / 1024, steps * 2.0**900, steps * 2.0**-1060]),
        "exp": np.concatenate([(steps - 2000) / 3, (steps - 2000) / 4096]),
        "log1p": np.concatenate([steps / 1000 - 0.999, steps * 2.0**-60]),
        "power": np.concatenate([steps / 4001, 1 - steps / 2.0**20]),
        "sine": np.concatenate([steps / 600, steps * 20]),
    }[name]
    found = computed(name, xs, np.resize(np.arange(1, 100, dtype=np.float64) / 8, len(xs)))
    assert hashlib.sha256(found.tobytes()).hexdigest()[:16] == BITS[name]


@pytest.mark.parametrize(
    ("name", "x", "y", "expected"),
    [
        ("log", 1.0, 0.0, 0.0), ("log", 0.0, 0.0, -math.inf), ("log", -1.0, 0.0, math.nan), ("log", math.inf, 0.0, math.inf),
        ("log", math.nan, 0.0, math.nan), ("exp", 0.0, 0.0, 1.0), ("exp", 1000.0, 0.0, math.inf), ("exp", -1000.0, 0.0, 0.0),
        ("exp", math.nan, 0.0, math.nan), ("exp", -math.inf, 0.0, 0.0), ("exp", math.inf, 0.0, math.inf), ("log1p", 0.0, 0.0, 0.0),
        ("log1p", -1.0, 0.0, -math.inf), ("log1p", -2.0, 0.0, math.nan), ("log1p", math.inf, 0.0, math.inf),
        ("power", 0.5, 2.0, 0.25), ("power", 0.0, 0.0, 1.0), ("power", 0.0, 2.0, 0.0), ("power", 0.0, -1.0, math.inf),
        ("power", 1.0, 1e300, 1.0), ("power", -1.0, 2.0, math.nan), ("power", 7.0, 0.0, 1.0), ("sine", 0.0, 0.0, 0.0),
        ("sine", 1e6, 0.0, math.nan), ("sine", math.nan, 0.0, math.nan),
    ],
)  # fmt: skip
def test_edges(name, x, y, expected):
    found = computed(name, np.array([x]), np.array([y]))[0]
    assert found == expected or (math.isnan(found) and math.isnan(expected))
