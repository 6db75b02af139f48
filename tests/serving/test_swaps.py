"""Swaps of two slots: how often, which ones, with which propensities, and what the policy learns from them."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from serving.scripted import Recorder, Script, ranker

from swerve.policies.patient import Patient
from swerve.policies.swerve.listed import Listed
from swerve.serving.kernels import swap_of, with_swaps
from swerve.serving.recording import Ranked, lines_of
from swerve.serving.replay import Replay
from swerve.serving.ruling import Ruling

pytestmark = pytest.mark.compiled  # thousands of calls each

OFFER = ["a", "b", "c", "d"]
PAIRS = list(itertools.combinations(range(4), 2))
SIGNALS: dict[str, Any] = {"plan": (0, 1, 2, 5), "numbers": ("news",)}


def test_a_share_of_decisions_has_a_swap_and_each_pair_is_as_likely():
    numbers, share = 12_000, 0.3
    found = Counter(tuple(map(int, swap_of(7 << 40 | number, 4, share))) for number in range(numbers))
    assert set(found) == {(-1, -1), *PAIRS}
    for pair in PAIRS:
        p = share / len(PAIRS)
        assert abs(found[pair] / numbers - p) < 4.5 * math.sqrt(p * (1 - p) / numbers), pair
    assert {tuple(map(int, swap_of(number, 2, 1.0))) for number in range(9)} == {(0, 1)}
    assert {tuple(map(int, swap_of(number, 1, 1.0))) for number in range(9)} == {(-1, -1)}


def test_propensities_of_a_policy_that_does_not_draw_are_exact():
    """For all swaps of a fixed page, by enumeration."""
    share, n = 0.2, 4
    script = Script(ranker("ucb1", slots=n, swaps=share))
    swapped = 0
    for _ in range(300):
        decided = script.rank("q", OFFER)
        kept, moved = 1 - share * 2 / n, share / len(PAIRS)
        expected = [kept] * n
        for position in decided.swapped or ():
            expected[position - 1] = moved
        assert decided.chances == pytest.approx(expected, abs=1e-9)
        swapped += decided.swapped is not None
    assert abs(swapped / 300 - share) < 4.5 * math.sqrt(share * (1 - share) / 300)


def test_the_mixture_is_that_of_all_pages_and_all_swaps():
    pages = {("a", "b", "c"): 0.5, ("b", "a", "d"): 0.3, ("d", "c", "a"): 0.2}
    share, pairs = 0.4, list(itertools.combinations(range(3), 2))
    truth: Counter[tuple[int, str]] = Counter()
    for page, p in pages.items():
        for pair in [None, *pairs]:
            shown = list(page)
            if pair is not None:
                shown[pair[0]], shown[pair[1]] = shown[pair[1]], shown[pair[0]]
            for slot, name in enumerate(shown):
                truth[slot, name] += p * (1 - share if pair is None else share / len(pairs))
    for (slot, name), chance in truth.items():
        there = sum(p for page, p in pages.items() if page[slot] == name)
        anywhere = sum(p for page, p in pages.items() if name in page)
        assert with_swaps(there, anywhere, 3, share) == pytest.approx(chance)


def test_propensities_of_a_policy_that_draws_are_the_shares_of_what_is_shown():
    """One slot of the page is drawn: over rows in the same state, results are in slots as often as their propensities say."""
    draws, queries, share = 400, 1500, 0.5
    script = Script(ranker("ts", slots=3, swaps=share, draws=draws, seed=1, per_session=0))
    shown: Counter[tuple[int, str]] = Counter()
    told: dict[tuple[int, str], list[float]] = {}
    for number in range(queries):
        decided = script.rank(f"q{number}", OFFER[:3])
        for slot, (name, chance) in enumerate(zip(decided.ranking, decided.chances, strict=True)):
            shown[slot, name] += 1
            told.setdefault((slot, name), []).append(chance)
    assert len(shown) == 9
    for pair, count in shown.items():
        mean = sum(told[pair]) / count
        assert abs(count / queries - mean) < 4.5 * math.sqrt(mean * (1 - mean) / queries) + 2 / draws, pair


def test_the_policy_learns_the_page_as_it_was_shown():
    """The record is that of the policy's own page, reported as shown with two slots changed."""
    made = Patient(Listed(), click_wait=5.0)
    swapping, plain = (Script(ranker(made, slots=4, seed=4, swaps=share, **SIGNALS)) for share in (1.0, 0.0))
    for number in range(40):
        one, other = (script.rank("q", OFFER, session=f"s{number}") for script in (swapping, plain))
        assert one.swapped is not None
        assert other.swapped is None
        first, second = (position - 1 for position in one.swapped)
        turned = list(other.ranking)
        turned[first], turned[second] = turned[second], turned[first]
        assert one.ranking == turned
        clicked = [1 + number % 4]
        swapping.click(one, clicked)
        plain.click(other, clicked, shown=turned)
        assert swapping.place("q").record.policy.tobytes() == plain.place("q").record.policy.tobytes(), number


def test_what_is_not_the_policys_own_page_has_no_swap():
    script = Script(ranker("ts", slots=3, swaps=1.0))
    assert script.rank("q", OFFER).swapped is not None
    assert script.rank("q", OFFER, as_given=True).swapped is None
    ruled = script.rank("q", OFFER[1:], ruling=Ruling(slots=3, pins=(("a", 1, 1),)))
    assert (ruled.swapped, ruled.ranking[0]) == (None, "a")
    assert script.rank("one", ["a"]).swapped is None
    assert script.rank("q", OFFER, slots=1).swapped is None
    shadow = Script(ranker("ts", slots=3, swaps=1.0, shadow=True)).rank("q", OFFER)
    assert (shadow.swapped, shadow.ranking) == (None, OFFER)


def test_a_batch_and_a_replay_have_the_same_swaps(tmp_path: Path):
    path = tmp_path / "requests"
    script = Script(ranker("ts", slots=3, swaps=0.5))
    recorder = Recorder(path, {}, script.ranker, script.now)
    swapped = 0
    for number in range(60):
        script.now += 1.0
        pairs = [script.asking(f"q{number % 3}-{part}", OFFER) for part in range(1 + number % 3)]
        for decided in script.ranker.rank(pairs, script.now):
            assert decided is not None
            script.click(decided, 2)
            swapped += decided.swapped is not None
    recorder.close(script.now)
    assert 30 < swapped < 90
    assert sum(line.swapped is not None for _, line in lines_of(path) if isinstance(line, Ranked)) == swapped
    replay = Replay(path, lambda tables: script.ranker.settings)
    counts = replay.run()
    assert counts.same == counts.requests == 120
    assert {place.key: place.record.tobytes() for place in replay.ranker.rows} == {
        place.key: place.record.tobytes() for place in script.ranker.rows
    }
