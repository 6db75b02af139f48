"""`log`, `log1p`, `exp`, `power` and `sine` from + − × ÷ alone: the same bits on every processor, and on a GPU.

The functions of `math` come from the platform's library, and libraries differ in the last place. These are off by less than one
unit in the last place of the exact value. Outside the domain they return NaN or an infinity, where those of `math` raise.

The approximations of `log`, `exp` and `sine` are those of FDLIBM (Sun Microsystems, 1993): polynomials, or a quotient of them, on a
short interval, which is reached by taking off powers of two, or multiples of ln 2 or π/2 in two or three parts.
"""

from __future__ import annotations

import math
import struct

import numpy as np

from swerve.core.verbs import compiled_as, inlined, kernel

_FLOAT, _WHOLE = struct.Struct("<d"), struct.Struct("<q")

LN2_HIGH, LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10  # the first has 21 zero bits at its end: k · it is exact
LOG2_E = 1.44269504088896338700
L1, L2, L3, L4, L5, L6, L7 = (
    6.666666666666735130e-01,
    3.999999999940941908e-01,
    2.857142874366239149e-01,
    2.222219843214978396e-01,
    1.818357216161805012e-01,
    1.531383769920937332e-01,
    1.479819860511658591e-01,
)
P1, P2, P3, P4, P5 = (
    1.66666666666666019037e-01,
    -2.77777777770155933842e-03,
    6.61375632143793436117e-05,
    -1.65339022054652515390e-06,
    4.13813679705723846039e-08,
)
S1, S2, S3, S4, S5, S6 = (
    -1.66666666666666324348e-01,
    8.33333333332248946124e-03,
    -1.98412698298579493134e-04,
    2.75573137070700676789e-06,
    -2.50507602534068634195e-08,
    1.58969099521155010221e-10,
)
C1, C2, C3, C4, C5, C6 = (
    4.16666666666666019037e-02,
    -1.38888888888741095749e-03,
    2.48015872894767294178e-05,
    -2.75573143513906633035e-07,
    2.08757232129817482790e-09,
    -1.13596475577881948265e-11,
)
#: π/2 in three parts; the first two have 20 zero bits at their end.
HALF_PI_1, HALF_PI_2, HALF_PI_3 = 1.57079632673412561417e00, 6.07710050630396597660e-11, 2.02226624879595063154e-21
TWO_OVER_PI = 6.36619772367581382433e-01
FARTHEST = 1e5  # beyond this `sine` returns NaN: its reduction would lose places

MANTISSA = 52
ONE_BITS = 0x3FF0_0000_0000_0000
ROOT_HALF_BITS = 0x3FE6_A09E_667F_3BCD  # √½: mantissas are taken from √½ to √2
SMALLEST_NORMAL, LARGEST = 2.0**-1022, 1.7976931348623157e308
UP, UP_POWER = 2.0**54, 54  # makes a subnormal number normal
HIGHEST, LOWEST = 709.782712893384, -745.1332191019412  # `exp` overflows above the first, and is 0 below the second
MOST_POWER = 1023
SPLITTER = 2.0**27 + 1.0  # halves the digits of a float
TWO_THIRDS, TWO_THIRDS_LOW = 2.0 / 3.0, 3.700743415417188e-17  # 2/3 in two parts
TWO_FIFTHS, TWO_FIFTHS_LOW = 2.0 / 5.0, -2.2204460492503132e-17


def _bits_of(x):
    return int(np.float64(x).view(np.int64))


def _float_of(bits):
    return float(np.int64(bits).view(np.float64))


@compiled_as(_bits_of, inline=True)
def bits_of(x):
    """Return the bits of a float as a whole number."""
    return _WHOLE.unpack(_FLOAT.pack(x))[0]


@compiled_as(_float_of, inline=True)
def float_of(bits):
    """Return the float of these bits."""
    return _FLOAT.unpack(_WHOLE.pack(bits))[0]


@inlined
def two_to(power):
    """Return 2^power, for powers of normal numbers."""
    return float_of((power << MANTISSA) + ONE_BITS)


@inlined
def log_near(f, k, rest):
    """Return log(1 + f) + k · ln 2 + rest, for 1 + f between √½ and √2, and a tiny rest."""
    s = f / (2.0 + f)
    z = s * s
    w = z * z
    odd = w * (L2 + w * (L4 + w * L6))
    even = z * (L1 + w * (L3 + w * (L5 + w * L7)))
    half = 0.5 * f * f
    return s * (half + (odd + even)) + (k * LN2_LOW + rest) - half + f + k * LN2_HIGH


@inlined
def log(x):
    """Return the natural logarithm."""
    if not SMALLEST_NORMAL <= x <= LARGEST:
        return log_apart(x)
    bits = bits_of(x)
    power = (bits - ROOT_HALF_BITS) >> MANTISSA
    return log_near(float_of(bits - (power << MANTISSA)) - 1.0, float(power), 0.0)


@kernel
def log_apart(x):
    """Return the logarithm of a number that is not normal: subnormal, zero, negative, infinite, or none."""
    if x == 0.0:
        return -math.inf
    if not x > 0.0:
        return math.nan
    if x > LARGEST:
        return math.inf
    bits = bits_of(x * UP)
    power = (bits - ROOT_HALF_BITS) >> MANTISSA
    return log_near(float_of(bits - (power << MANTISSA)) - 1.0, float(power - UP_POWER), 0.0)


@kernel
def log1p(x):
    """Return log(1 + x), exact for small x too."""
    if -0.2928932188134524 < x < 0.41421356237309515:
        return x if abs(x) < 2.0**-54 else log_near(x, 0.0, 0.0)
    if not -1.0 < x <= LARGEST:
        return log_apart(x + 1.0)
    sum_ = 1.0 + x
    lost = x - (sum_ - 1.0) if x < 1.0 else 1.0 - (sum_ - x)  # what rounding took from the sum
    bits = bits_of(sum_)
    power = (bits - ROOT_HALF_BITS) >> MANTISSA
    return log_near(float_of(bits - (power << MANTISSA)) - 1.0, float(power), lost / sum_)


@inlined
def exp(x):
    """Return e^x."""
    return exp_of(x, 0.0)


@inlined
def exp_of(x, tail):
    """Return e^(x + tail), for a tail below the last place of x."""
    if not LOWEST < x < HIGHEST:
        return exp_apart(x)
    power = int(LOG2_E * x + (0.5 if x >= 0.0 else -0.5))
    high = x - power * LN2_HIGH
    low = power * LN2_LOW - tail
    r = high - low
    z = r * r
    c = r - z * (P1 + z * (P2 + z * (P3 + z * (P4 + z * P5))))
    y = 1.0 + (r * c / (2.0 - c) - low + high)
    if -MOST_POWER < power <= MOST_POWER:
        return y * two_to(power)
    return y * 2.0 * two_to(power - 1) if power > 0 else y * two_to(power + UP_POWER) / UP


@kernel
def exp_apart(x):
    """Return e^x where it is too large, too small, or x is no number."""
    if x >= HIGHEST:
        return math.inf if x > HIGHEST else LARGEST
    return 0.0 if x <= LOWEST else math.nan


@inlined
def product(a, b):
    """Return a · b and what rounding took from it (Dekker, 1971)."""
    high_a, high_b = SPLITTER * a, SPLITTER * b
    high_a, high_b = high_a - (high_a - a), high_b - (high_b - b)
    low_a, low_b = a - high_a, b - high_b
    whole = a * b
    return whole, ((high_a * high_b - whole) + high_a * low_b + low_a * high_b) + low_a * low_b


@inlined
def log_parts(x):
    """Return log(x) in two parts, to about 65 bits, for a normal x > 0: 2 · (s + s³/3 + s⁵/5 + …), where s = f / (2 + f)."""
    bits = bits_of(x)
    power = (bits - ROOT_HALF_BITS) >> MANTISSA
    f = float_of(bits - (power << MANTISSA)) - 1.0
    below = 2.0 + f
    s = f / below
    back, lost = product(s, below)
    s_low = ((f - back) - lost - s * (f - (below - 2.0))) / below
    z, z_low = product(s, s)
    z_low += 2.0 * s * s_low
    cube, cube_low = product(z, s)
    cube_low += z_low * s + z * s_low
    third, third_low = product(cube, TWO_THIRDS)
    third_low += cube_low * TWO_THIRDS + cube * TWO_THIRDS_LOW
    fifth, fifth_low = product(cube, z)
    fifth_low += cube_low * z + cube * z_low
    rest = 2.0 / 25.0
    for below_it in (23.0, 21.0, 19.0, 17.0, 15.0, 13.0, 11.0, 9.0, 7.0):
        rest = 2.0 / below_it + z * rest
    rest *= fifth * z
    fifth, more = product(fifth, TWO_FIFTHS)
    fifth_low = fifth_low * TWO_FIFTHS + fifth / TWO_FIFTHS * TWO_FIFTHS_LOW + more
    series = third + fifth
    high = 2.0 * s + series
    low = (2.0 * s - high) + series + (2.0 * s_low + third_low + ((third - series) + fifth) + fifth_low + rest)
    k = float(power)
    if power == 0:
        return high, low
    top = k * LN2_HIGH
    whole = top + high
    return whole, (top - whole) + high + (low + k * LN2_LOW)


@kernel
def power(x, y):
    """Return x^y, for x ≥ 0."""
    if not SMALLEST_NORMAL <= x <= LARGEST:
        if y == 0.0:
            return 1.0
        return exp(y * log(x)) if x > 0.0 else math.nan if x != 0.0 or y != y else 0.0 if y > 0.0 else math.inf
    high, low = log_parts(x)
    whole, rest = product(y, high)
    return exp_of(whole, rest + y * low)


@kernel
def sine(x):
    """Return the sine of an angle of up to 10⁵."""
    if not abs(x) <= FARTHEST:
        return math.nan
    quarters = int(x * TWO_OVER_PI + (0.5 if x >= 0.0 else -0.5))
    most = x - quarters * HALF_PI_1
    r = most - quarters * HALF_PI_2
    less = quarters * HALF_PI_3 - ((most - r) - quarters * HALF_PI_2)
    angle = r - less
    tail = (r - angle) - less
    z = angle * angle
    w = z * z
    if quarters & 1 == 0:
        v = z * angle
        out = angle - ((z * (0.5 * tail - v * (S2 + z * (S3 + z * S4) + z * w * (S5 + z * S6))) - tail) - v * S1)
    else:
        half = 0.5 * z
        near = 1.0 - half
        out = near + (
            ((1.0 - near) - half) + (z * (z * (C1 + z * (C2 + z * C3)) + w * w * (C4 + z * (C5 + z * C6))) - angle * tail)
        )
    return out if quarters & 2 == 0 else -out
