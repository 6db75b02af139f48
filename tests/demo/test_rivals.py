"""Rivals: each runs its policy on its own clicks and signals."""

from __future__ import annotations

import numpy as np
import pytest

from swerve.core.errors import SwerveError
from swerve.demo.rivals import PLAN, RIVAL_ARMS, Arms, Ask, Fixed, Hearing, Told, rivals
from swerve.policies import policy
from swerve.signals import COUNT

HOUR = 3600.0
pytestmark = pytest.mark.usefixtures("uncompiled")


def ask(query: int = 0, arms: tuple[int, ...] = (4, 1, 7), now: float = 0.0, news: float = 1.0, told: bool = False) -> Ask:
    return Ask(query, arms, sum(1 << arm for arm in arms), now, news, told)


def test_their_names_and_policies() -> None:
    made = rivals(3, 0, 0.0)
    assert list(made) == ["bwc", "ucb1", "oracle", "fixed"]
    bwc, ucb1, oracle, fixed = made.values()
    assert isinstance(bwc, Hearing) and bwc.fleet.policy == policy("bwc")
    assert isinstance(ucb1, Told) and ucb1.fleet.policy == policy("ucb1")
    assert isinstance(oracle, Told) and oracle.fleet.policy == policy("oracle-ts")
    assert isinstance(fixed, Fixed)


def test_only_what_is_on_offer_is_shown() -> None:
    for name, rival in rivals(2, 0, 0.0).items():
        shown = set()
        for t in range(40):
            one = ask(t % 2, (4, 1, 7) if t % 4 < 2 else (30, 4), now=60.0 * t)
            arm = rival.choose(one)
            assert arm in one.arms
            shown.add(arm)
            rival.learn(one, arm == 4, arm == 4, False)
        assert shown == ({4, 30} if name == "fixed" else {1, 4, 7, 30}), name


def test_they_find_the_result_that_is_clicked() -> None:
    luck = np.random.default_rng(3)
    for name, rival in rivals(1, 0, 0.0).items():
        late = 0
        for t in range(200):
            one = ask(now=60.0 * t)
            arm = rival.choose(one)
            click = bool(luck.random() < (0.7 if arm == 7 else 0.05))
            rival.learn(one, click, click, False)
            late += t >= 100 and arm == 7
        assert late == 0 if name == "fixed" else late >= 60, (name, late)


def test_the_oracle_starts_over_when_it_is_told_and_only_then() -> None:
    oracle, ucb1 = Told("oracle-ts", 2, 1), Told("ucb1", 2, 1)
    for rival in (oracle, ucb1):
        for t in range(10):
            rival.choose(ask(now=float(t)))
            rival.learn(ask(now=float(t)), True, True, False)
        rival.choose(ask(now=10.0, told=True))
    assert int(oracle.fleet.table[0].starts) == 2
    assert int(oracle.fleet.table[0].bandit.plays.sum()) == 1
    assert int(ucb1.fleet.table[0].plays.sum()) == 11


def test_bwc_hears_the_news() -> None:
    bwc = Hearing("bwc", 2, 0, 0.0)
    heard = []
    for t in range(2 * 48):
        bwc.choose(ask(now=t * HOUR / 2, news=1.0))
        heard.append(float(bwc.x[PLAN.index(COUNT)]))
    assert max(heard) < 0.3
    bwc.choose(ask(now=48 * HOUR, news=20.0))
    assert bwc.x[PLAN.index(COUNT)] >= 0.5
    bwc.choose(ask(now=49 * HOUR, news=20.0))
    assert bwc.x[PLAN.index(COUNT)] < 0.3  # one jump is loud once


def test_bwc_hears_what_came_of_its_own_rankings() -> None:
    """Abandonment and reformulation rise from a quarter to nearly all requests: both are loud; with steady clicks neither is."""
    falling, steady = Hearing("bwc", 1, 0, 0.0), Hearing("bwc", 1, 0, 0.0)
    heard = {id(falling): [0.0] * len(PLAN), id(steady): [0.0] * len(PLAN)}
    luck = np.random.default_rng(5)
    for t in range(900):
        for rival in (falling, steady):
            lost = bool(luck.random() < (0.95 if rival is falling and t >= 700 else 0.25))
            one = ask(now=t * 300.0)
            rival.choose(one)
            heard[id(rival)] = [max(pair) for pair in zip(heard[id(rival)], rival.x.tolist(), strict=True)]
            rival.learn(one, not lost, not lost, lost)
    loud = {name: [level >= 0.5 for level in heard[id(rival)]] for name, rival in (("falling", falling), ("steady", steady))}
    assert loud == {"falling": [False, True, True, False], "steady": [False, False, False, False]}


def test_the_same_seed_gives_the_same_choices() -> None:
    def choices(seed: int) -> list[int]:
        out = []
        for rival in rivals(1, seed, 0.0).values():
            for t in range(60):
                one = ask(now=60.0 * t)
                out.append(rival.choose(one))
                rival.learn(one, t % 3 == 0, t % 2 == 0, False)
        return out

    assert choices(1) == choices(1)
    assert choices(1) != choices(2)


def test_a_document_keeps_its_arm() -> None:
    arms = Arms()
    assert [arms.arm("a", name) for name in ("x", "y", "x", "z")] == [0, 1, 0, 2]
    assert arms.arm("b", "z") == 0
    for k in range(RIVAL_ARMS):
        arms.arm("c", f"document-{k}")
    with pytest.raises(
        SwerveError, match=f"^'c' has found more than {RIVAL_ARMS} documents; the rivals have no arm for 'one-more'$"
    ):
        arms.arm("c", "one-more")
