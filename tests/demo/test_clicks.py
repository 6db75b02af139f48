"""The click model does what it states."""

from __future__ import annotations

import math

import numpy as np
import pytest

from swerve.demo import clicks
from swerve.demo.clicks import User, chance, clicked, likes, user
from swerve.demo.corpus import Document

SHARES = {"animal": 0.5, "car": 0.3, "jet": 0.0, "team": 0.2}


def document(meaning: str, quality: float = 0.8, query: str = "jaguar") -> Document:
    return Document(f"{query}-{meaning}", query, meaning, "", meaning, quality, None)


PAGE = [document("car"), document("animal"), document("team", 0.5), document("animal", 0.4)]


def many(count: int, seed: int = 0) -> list[User]:
    draws = np.random.default_rng(seed).random((count, clicks.TRAITS + len(PAGE))).tolist()
    return [user("jaguar", SHARES, one) for one in draws]


def near(hits: int, count: int, expected: float) -> bool:
    """Return whether a share is within four standard deviations of its expectation."""
    return abs(hits / count - expected) <= 4.0 * math.sqrt(expected * (1.0 - expected) / count)


def test_users_want_what_the_shares_say() -> None:
    users = many(20_000)
    for meaning in ("animal", "car", "team"):
        assert near(sum(one.meaning == meaning for one in users), len(users), SHARES[meaning])
    assert not any(one.meaning == "jet" for one in users)
    assert near(sum(one.again for one in users), len(users), clicks.AGAIN)
    # users look at the k-th result with probability 0.7^(k−1)
    for k in range(2, 7):
        assert near(sum(one.looks >= k for one in users), len(users), 0.7 ** (k - 1))
    assert min(one.looks for one in users) == 1


def test_the_ends_of_the_draws() -> None:
    first, last = user("jaguar", SHARES, [0.0, 0.0, 0.0, 0.5]), user("jaguar", SHARES, [1.0 - 1e-16, 1.0 - 1e-16, 1.0 - 1e-16, 0.5])
    assert (first.meaning, first.looks, first.again) == ("animal", 1, True)
    assert (last.meaning, last.again) == ("team", False)
    assert last.looks > 50
    # with shares that sum to slightly less than 1, every user still has a meaning, and one with a positive share
    assert user("jaguar", {"animal": 0.5, "car": 0.4999, "jet": 0.0}, [0.99995, 0.0, 0.0]).meaning == "car"


def expected_at(index: int) -> float:
    """Return the probability of a click at an index, by hand: over all meanings, of reaching it without a click, and clicking."""
    total = 0.0
    for meaning, share in SHARES.items():
        arrives = 1.0
        for before in PAGE[:index]:
            arrives *= (1.0 - (0.65 * before.quality if before.meaning == meaning else 0.03)) * 0.7
        here = PAGE[index]
        total += share * arrives * (0.65 * here.quality if here.meaning == meaning else 0.03)
    return total


def test_clicks_are_as_often_as_the_model_says() -> None:
    indices = [clicked(one, PAGE) for one in many(40_000, seed=1)]
    for index in range(len(PAGE)):
        assert near(indices.count(index), len(indices), expected_at(index)), index
    assert set(indices) == {-1, 0, 1, 2, 3}
    assert expected_at(0) == pytest.approx(chance(PAGE[0], "jaguar", SHARES))


def test_chance_of_the_top() -> None:
    for one in PAGE:
        by_hand = sum(share * likes(User("jaguar", meaning, 1, [], False), one) for meaning, share in SHARES.items())
        assert chance(one, "jaguar", SHARES) == pytest.approx(by_hand)
    assert chance(document("nothing"), "jaguar", SHARES) == pytest.approx(clicks.CLICK_WRONG)


def test_a_meaning_of_another_query_is_another_meaning() -> None:
    other = document("car", 1.0, query="mercury")
    assert chance(other, "jaguar", SHARES) == pytest.approx(clicks.CLICK_WRONG)
    assert likes(User("jaguar", "car", 1, [], False), other) == clicks.CLICK_WRONG
    assert likes(User("mercury", "car", 1, [], False), other) == clicks.CLICK_RIGHT


def test_nobody_clicks_what_they_do_not_look_at() -> None:
    eager = [0.0] * len(PAGE)
    assert clicked(User("jaguar", "team", 4, [0.9, 0.9, 0.0, 0.9], False), PAGE) == 2
    assert clicked(User("jaguar", "team", 2, [0.9, 0.9, 0.0, 0.9], False), PAGE) == -1
    assert clicked(User("jaguar", "car", 4, eager, False), PAGE) == 0
    assert clicked(User("jaguar", "car", 4, eager, False), []) == -1
