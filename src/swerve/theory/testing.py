"""The required length of a test, and the precision of its estimates of the gaps (Theorems 2 and 3)."""

from __future__ import annotations

import math
from typing import Annotated

from swerve.core.errors import SpecError
from swerve.core.spec import Count, Gap, Natural, NonNegative, Positive, Range, coerced

PROOF = 74.0  # the constant in the O(·) of δ(t), derived in `resolution`
EARLIEST = 32  # Theorem 2 holds for t + t0 of at least this

Rounds = Annotated[int, Range(2)]
Estimate = Annotated[float, Range(-1.0, 1.0)]


def test_length(n: int, shift: float, horizon: int, c: float = 4.0) -> int:
    """Return L, the length of a testing phase in practice.

    L = ⌈c·n/ε_S²·ln T⌉

    The default is c = 4: measured at n = 5, ε = 0.3, the guess was wrong in 2 % of tests at c = 1, in 10⁻⁴ at c = 2, and never in
    10⁴ tests at c = 4. `proof_length` has the constant that the proofs imply.

    Paper: Theorem 4, remark after Theorem 1

    >>> test_length(5, 0.3, 30_000)
    2291
    """
    n = coerced("test_length", "n", Natural, n)
    shift = coerced("test_length", "shift", Gap, shift)
    horizon = coerced("test_length", "horizon", Rounds, horizon)
    c = coerced("test_length", "c", Positive, c)
    return math.ceil(c * n / shift**2 * math.log(horizon))


test_length.__test__ = False  # type: ignore[attr-defined]  # pytest would otherwise collect this function as a test


def proof_length(n: int, shift: float, horizon: int) -> int:
    """Return L with the constants of the proofs, which are far too large for practice.

    L = ⌈16·74²·n/ε_S²·ln(2T)⌉ = ⌈87616·n/ε_S²·ln(2T)⌉

    Theorem 3 requires δ(L) ≤ ε/4 with t0 = T, that is 74·√(n/L·ln(L + T)) ≤ ε/4; a test lies inside the horizon, L ≤ T, so
    ln(L + T) ≤ ln(2T). A result above T means that the theorem promises nothing on this horizon.

    Paper: Theorems 2 and 3

    >>> f"{proof_length(5, 0.3, 30_000):.1e}"
    '5.4e+07'
    """
    n = coerced("proof_length", "n", Natural, n)
    shift = coerced("proof_length", "shift", Gap, shift)
    horizon = coerced("proof_length", "horizon", Rounds, horizon)
    return math.ceil(16 * PROOF**2 * n / shift**2 * math.log(2 * horizon))


def resolution(t: int, n: int, t0: int, constant: float = PROOF) -> float:
    """Return δ(t), the largest error of the estimate Δ_t(u) of UCB1(6, t0), beyond a quarter of Δ(u) itself.

    δ(t) = 74·√(n/t·ln(t + t0)); |Δ(u) − Δ_t(u)| < Δ(u)/4 + δ(t) for all arms with probability 1 − (t0 + t)⁻²

    Derivation of 74, with d0 = √(n/t·ln(t + t0)) and r_t(u) = √(8·ln(t0 + t)/n_t(u)):

    - v*, played most in the last t/2 rounds, has n_t(v*) ≥ t/(2n), so r_t(v*) ≤ 4·d0;
    - s, its last round, has r_s(v*) ≤ 2·r_t(v*) ≤ 8·d0;
    - p(v*) + 7·r_s(v*) ≥ p(u) + 5·r_s(u) for every u; with the best arm as u, Δ(v*) ≤ 7·8·d0 = 56·d0;
    - the same inequality gives 5·r_s(u) ≤ Δ(u) + 56·d0, and r_t(u) ≤ 5/4·r_s(u) ≤ Δ(u)/4 + 14·d0, which uses t + t0 ≥ 32;
    - |Δ(u) − Δ_t(u)| ≤ Δ(v*) + r_t(v*) + r_t(u) ≤ Δ(u)/4 + (56 + 4 + 14)·d0.

    Paper: Theorem 2

    >>> round(resolution(10**8, 5, 10**8), 4), round(resolution(2_000, 5, 30_000, constant=1.0), 4)
    (0.0723, 0.161)
    """
    t = coerced("resolution", "t", Natural, t)
    n = coerced("resolution", "n", Natural, n)
    t0 = coerced("resolution", "t0", Count, t0)
    constant = coerced("resolution", "constant", Positive, constant)
    if t + t0 < EARLIEST:
        raise SpecError("resolution", "t", t, f"at least {EARLIEST - t0}: Theorem 2 needs t + t0 ≥ {EARLIEST}")
    return float(constant * math.sqrt(n / t * math.log(t + t0)))


def gap_interval(estimate: float, resolution: float) -> tuple[float, float]:
    """Return the interval that contains Δ(u), given Δ_t(u) and δ(t).

    |Δ − Δ_t| < Δ/4 + δ means (Δ_t − δ)·4/5 < Δ < (Δ_t + δ)·4/3; a gap lies in [0, 1], so both ends are clipped to that range.

    Paper: Theorem 2

    >>> gap_interval(0.5, 0.25)
    (0.2, 1.0)
    >>> gap_interval(-0.1, 0.25)[0]
    0.0
    """
    estimate, resolution = _pair("gap_interval", estimate, resolution)
    return _clip((estimate - resolution) * 4 / 5), _clip((estimate + resolution) * 4 / 3)


def rough_interval(estimate: float, resolution: float) -> tuple[float, float]:
    """Return the interval of `gap_interval` in the paper's round numbers: Δ(u) is known up to a constant factor, or small.

    If δ < Δ_t/2 then Δ ≤ 2Δ_t ≤ 5Δ, so Δ is in [2/5·Δ_t, 2·Δ_t]; else Δ ≤ 4δ. It is never narrower than `gap_interval`.

    Paper: the remark after Theorem 2

    >>> rough_interval(0.25, 0.0625), rough_interval(0.25, 0.125)
    ((0.1, 0.5), (0.0, 0.5))
    """
    estimate, resolution = _pair("rough_interval", estimate, resolution)
    if resolution < estimate / 2:
        return _clip(estimate * 2 / 5), _clip(2 * estimate)
    return 0.0, _clip(4 * resolution)


def _pair(owner: str, estimate: float, resolution: float) -> tuple[float, float]:
    return coerced(owner, "estimate", Estimate, estimate), coerced(owner, "resolution", NonNegative, resolution)


def _clip(gap: float) -> float:
    return min(max(gap, 0.0), 1.0)
