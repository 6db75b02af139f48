"""Regret bounds: the upper bounds of `bwc` (Theorems 1 and 4), and the lower bounds of all algorithms (Theorems 5 and 6)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated

from swerve.core.errors import SpecError
from swerve.core.spec import Count, Gap, Natural, NonNegative, Positive, Probability, Range, coerced

Regret = Callable[[float], float]

LATE = 1 + math.pi**2 / 3  # plays of a bad arm caused by failed confidence bounds of UCB1, for any t
HARD_GAP = math.tanh(1 / 6) / 2  # Theorem 6 (ii): e^(1/3)/(1 + e^(1/3)) − 1/2, the gap of its two-armed instances

Rounds = Annotated[int, Range(2)]


def ucb1_regret(t: float, n: int, gap: float) -> float:
    """Return R0(t), an upper bound on the event-free regret of UCB1 after t rounds; it is concave, and 0 at 0.

    R0(t) = min( t, (n−1)·(8·ln(1+t)/Δ + 1 + π²/3), √((n−1)·t·(8·ln(1+t) + 1 + π²/3)) )

    It holds for n arms with payoffs in [0, 1], every suboptimal arm at least `gap` = Δ below the best, and the index
    μ + √(2 ln t / n). Auer et al. show for each suboptimal arm u that E[n_t(u)] ≤ 8 ln t / Δ(u)² + 1 + π²/3.

    - Second term: times Δ(u), summed over n − 1 arms; 8 ln t / Δ(u) ≤ 8 ln t / Δ because Δ(u) ≥ Δ, and Δ(u) ≤ 1.
    - Third term, without a gap: by Cauchy–Schwarz Σ Δ(u)·E[n(u)] ≤ √(Σ E[n(u)] · Σ Δ(u)²·E[n(u)]), where the first
      sum is at most t and each term of the second at most 8 ln t + 1 + π²/3.
    - First term: one round costs at most 1.
    - ln t ≤ ln(1+t). Each term is concave (the third is a geometric mean of two concave functions), so their minimum is.

    `gap` = 0 means that the gap is unknown: the second term is omitted.

    Source: Auer, Cesa-Bianchi, Fischer 2002, Theorem 1.

    >>> ucb1_regret(0, 5, 0.2), ucb1_regret(10, 5, 0.2), ucb1_regret(30_000, 1, 0.2)
    (0.0, 10.0, 0.0)
    >>> round(ucb1_regret(30_000, 5, 0.2)), round(ucb1_regret(30_000, 5, 0))
    (1667, 3227)
    """
    t = coerced("ucb1_regret", "t", NonNegative, t)
    n = coerced("ucb1_regret", "n", Natural, n)
    gap = coerced("ucb1_regret", "gap", Probability, gap)
    log = 8 * math.log1p(t)
    with_gap = (n - 1) * (log / gap + LATE) if gap > 0 else math.inf
    without = math.sqrt((n - 1) * t * (log + LATE))
    return float(min(t, with_gap, without))


def theorem1(
    horizon: int,
    events: int,
    false_positives: int,
    length: int,
    r0: Regret,
    failure: float = 0.0,
    contaminated: int | None = None,
) -> float:
    """Return the upper bound on the regret of `bwc`, for any bandit with concave event-free regret `r0` and any safe classifier.

    m·R0(T/m) + (k + d_FP + 1)·R0(L) + c·L + T·failure, with m = 2k + d_FP + 1

    The + 1 is phase 1, which starts without a positive prediction and which the printed theorem omits. `failure` is the
    probability that any test of the run fails (at most 2/T when the bandit is (L, ε_S)-testable: at most T tests, each
    failing with probability at most 2/T²). `contaminated` is the footnote's c: the number of tests that begin with a false
    positive and contain an event later, plus phase 1 if it contains an event; the default is k. The bound requires events at least
    2L rounds apart, and one query with its own classifier.

    Paper: Theorem 1

    >>> theorem1(10_000, 0, 0, 100, lambda t: t**0.5)
    110.0
    >>> theorem1(10_000, 1, 1, 100, lambda t: t**0.5), theorem1(10_000, 1, 1, 100, lambda t: t**0.5, contaminated=0)
    (330.0, 230.0)
    """
    horizon, k, d, length = _counts("theorem1", horizon, events, false_positives, length)
    failure = coerced("theorem1", "failure", Probability, failure)
    spoilt = k if contaminated is None else coerced("theorem1", "contaminated", Count, contaminated)
    if spoilt > k:
        raise SpecError("theorem1", "contaminated", contaminated, f"at most the number of events, {k}")
    m = 2 * k + d + 1
    return m * r0(horizon / m) + (k + d + 1) * r0(length) + spoilt * length + horizon * failure


def theorem1_printed(horizon: int, events: int, false_positives: int, length: int, r0: Regret) -> float:
    """Return Theorem 1 as printed, for comparison: without events and false positives it is 0, which no bandit reaches.

    (2k + d_FP)·R0(T/(2k + d_FP)) + (k + d_FP)·R0(L) + k·L

    Paper: Theorem 1

    >>> theorem1_printed(10_000, 0, 0, 100, lambda t: t**0.5)
    0.0
    >>> theorem1_printed(10_000, 1, 2, 100, lambda t: t**0.5)
    330.0
    """
    horizon, k, d, length = _counts("theorem1_printed", horizon, events, false_positives, length)
    m = 2 * k + d
    if m == 0:
        return 0.0
    return m * r0(horizon / m) + (k + d) * r0(length) + k * length


def theorem4(horizon: int, n: int, events: int, shift: float, gap: float, diameter: int, constant: float = 19.0) -> float:
    """Return the regret bound of `bwc` with UCB1 and `SafeCl` in closed form: logarithmic in T, linear in k + d_F.

    C · ( (3k + 2d_F + 2)·n/Δ + k·n/ε_S² ) · ln T, with C = 19

    From Theorem 1 with R0 = `ucb1_regret`, L = ⌈c·n/ε_S²·ln T⌉ for any c ≤ 18, L ≤ T, and T ≥ 2:

    - R0(T/m) and R0(L) are both at most R0(T), and there are 3k + 2d_F + 2 of them;
    - R0(T) ≤ (n−1)/Δ · (8·ln(1+T) + 1 + π²/3) ≤ 18.87·(n−1)/Δ·ln T; the factor is largest at T = 2;
    - L ≤ (c + 0.73)·n/ε_S²·ln T, since 1 ≤ 0.73·n/ε_S²·ln T for n ≥ 2;
    - T·failure ≤ 2 is absorbed by rounding n − 1 up to n.

    For T ≥ 100 the same steps give C = 9 with c ≤ 8. The printed theorem has C = 1 inside an O(·), and no + 2 (phase 1). That
    L = c·n/ε_S²·ln T is long enough is proved only with the constant of `proof_length`, and measured for c = 4.

    Paper: Theorem 4

    >>> round(theorem4(30_000, 5, 1, 0.3, 0.2, 21))
    241029
    """
    horizon = coerced("theorem4", "horizon", Rounds, horizon)
    n = coerced("theorem4", "n", Rounds, n)
    k = coerced("theorem4", "events", Count, events)
    shift = coerced("theorem4", "shift", Gap, shift)
    gap = coerced("theorem4", "gap", Annotated[float, Range(0.0, 1.0, open_low=True)], gap)
    d = coerced("theorem4", "diameter", Count, diameter)
    constant = coerced("theorem4", "constant", Positive, constant)
    return float(constant * ((3 * k + 2 * d + 2) * n / gap + k * n / shift**2) * math.log(horizon))


def theorem5(horizon: int, shift: float) -> float:
    """Return a lower bound on the regret of every context-ignoring algorithm, on some instance with two arms and one event.

    ε·(N − 2)/2 with N = ⌊√T⌋: the paper's Ω(ε√T) with the constant of its proof.

    N phases of N rounds, arm y always 1/2, arm z moves from 1/2 − ε to 1/2 + ε at the start of phase i. Either some phase
    i in 2..N−1 plays z with probability below 1/2, and instance i costs ε·N/2; or none does, and each of them costs ε/2
    in the instance whose event is in phase N. (Phase 1 cannot contain the event: round 1 has no predecessor. The
    paper's I_0 has no event at all; with it, N − 1.) The shift is strict: ε_S is any number below ε.

    Paper: Theorem 5

    >>> round(theorem5(1_000_000, 0.2), 9), theorem5(8, 0.2)
    (99.8, 0.0)
    """
    horizon = coerced("theorem5", "horizon", Natural, horizon)
    shift = coerced("theorem5", "shift", Annotated[float, Range(0.0, 0.5, open_low=True, open_high=True)], shift)
    return float(shift * max(math.isqrt(horizon) - 2, 0) / 2)


def theorem6_events(horizon: int, n: int, events: int, shift: float, constant: float = 1.0) -> float:
    """Return the shape of the regret that k events cost every algorithm, even one that is told of them.

    C · k · n/ε · ln(T/k), for n ≥ 3 and ε in (0, 1/4)

    The paper gives no constant, and none holds at every T. By Lai and Robbins, an algorithm that is consistent on every
    instance pays (n − 2)/ln((1 + 2ε)/(1 − 2ε))·ln(T/k) per phase as T/k grows, that is C between 0.22 and 0.25 for n − 2
    arms instead of n. k events need k + 1 phases; the real gaps of the instances are 2ε.

    Paper: Theorem 6 (i)

    >>> round(theorem6_events(30_000, 5, 3, 0.2, constant=0.25))
    173
    """
    horizon = coerced("theorem6_events", "horizon", Natural, horizon)
    n = coerced("theorem6_events", "n", Annotated[int, Range(3)], n)
    k = coerced("theorem6_events", "events", Natural, events)
    shift = coerced("theorem6_events", "shift", Annotated[float, Range(0.0, 0.25, open_low=True, open_high=True)], shift)
    constant = coerced("theorem6_events", "constant", Positive, constant)
    if k > horizon:
        raise SpecError("theorem6_events", "events", events, f"at most the number of rounds, {horizon}")
    return float(constant * k * n / shift * math.log(horizon / k))


def theorem6_diameter(horizon: int, diameter: int) -> float:
    """Return a lower bound on the regret that a class of this diameter costs every algorithm, on some instance with one event.

    g/2 · max( N − 2, min( (N − 2)·ln T, (⌊T/N⌋ − ln T)/T^(1/3) ) ), with N = min(d_F, ⌊T^(1/3)⌋), g = tanh(1/6)/2 ≈ 0.083

    This is the paper's Ω(min(T^(1/3), d_F·ln T)) with the constants of its proof; g is the gap of both arms. As in `theorem5`, the
    event is in one of the phases 2..N, and each phase begins with a context that no classifier can rule out.
    First argument: z is played at least once in each of the phases 2..N−1 (g/2 each), or a whole phase is lost (more).
    Second: z is played at least ln T times in each of them, or with probability T^(−1/3)/2 a phase is lost except for ln T rounds.

    Paper: Theorem 6 (ii) and the appendix

    >>> round(theorem6_diameter(10**9, 21), 2), round(theorem6_diameter(10**9, 10**6), 2)
    (16.26, 41.28)
    """
    horizon = coerced("theorem6_diameter", "horizon", Rounds, horizon)
    diameter = coerced("theorem6_diameter", "diameter", Natural, diameter)
    phases = min(diameter, cube_root(horizon))
    between = max(phases - 2, 0)
    log = math.log(horizon)
    lost = (horizon // phases - log) / horizon ** (1 / 3)
    return float(HARD_GAP / 2 * max(between, min(between * log, lost)))


def cube_root(number: int) -> int:
    """Return ⌊number^(1/3)⌋ exactly: the float root is off by one at some cubes."""
    root: int = round(number ** (1 / 3))
    while root**3 > number:
        root -= 1
    while (root + 1) ** 3 <= number:
        root += 1
    return root


def _counts(owner: str, horizon: int, events: int, false_positives: int, length: int) -> tuple[int, int, int, int]:
    return (
        coerced(owner, "horizon", Natural, horizon),
        coerced(owner, "events", Count, events),
        coerced(owner, "false_positives", Count, false_positives),
        coerced(owner, "length", Natural, length),
    )
