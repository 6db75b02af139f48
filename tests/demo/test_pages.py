"""The value of a page is what the click model says, and no page is better than the best one."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from swerve.demo.clicks import TRAITS, clicked, user
from swerve.demo.corpus import Document
from swerve.demo.pages import REMEMBERED, Pages

SHARES = {"animal": 0.45, "car": 0.35, "jet": 0.0, "team": 0.2}


def document(name: str, meaning: str, quality: float, query: str = "jaguar") -> Document:
    return Document(name, query, name, "", meaning, quality, None)


OFFER = (
    document("a", "animal", 0.5), document("b", "car", 0.9), document("c", "animal", 0.9), document("d", "team", 0.8),
    document("e", "car", 1.0, query="mercury"), document("f", "jet", 1.0),
)  # fmt: skip


def test_a_page_is_clicked_as_often_as_its_value_says() -> None:
    pages, count = Pages("jaguar", SHARES, OFFER), 40_000
    draws = np.random.default_rng(0).random((count, TRAITS + len(OFFER))).tolist()
    users = [user("jaguar", SHARES, one) for one in draws]
    for order in (OFFER, OFFER[::-1]):
        chance = pages.chance([one.id for one in order])
        hits = sum(clicked(one, order) >= 0 for one in users)
        assert abs(hits / count - chance) <= 4.0 * math.sqrt(chance * (1.0 - chance) / count)


@pytest.mark.parametrize("shares", [SHARES, {"animal": 0.98, "car": 0.01, "team": 0.01}, {"animal": 0.4, "car": 0.4, "team": 0.2}])
def test_the_best_page_is_the_best_of_all_orders(shares: dict[str, float]) -> None:
    pages = Pages("jaguar", shares, OFFER)
    every = [pages.chance(order) for order in itertools.permutations([one.id for one in OFFER])]
    assert pages.best == pytest.approx(max(every), abs=1e-12)
    assert min(every) < max(every) - 0.05


def test_what_is_remembered_is_bounded() -> None:
    offer = [document(str(number), "animal", 0.1 * (number + 1)) for number in range(8)]
    pages = Pages("jaguar", {"animal": 1.0}, offer)
    for order in itertools.islice(itertools.permutations([one.id for one in offer]), REMEMBERED + 10):
        pages.chance(order)
    assert len(pages._known) <= REMEMBERED


def test_an_offer_of_one_has_one_page() -> None:
    pages = Pages("jaguar", SHARES, OFFER[:1])
    assert pages.best == pytest.approx(pages.chance(["a"])) == pytest.approx(0.45 * 0.65 * 0.5 + 0.55 * 0.03)
