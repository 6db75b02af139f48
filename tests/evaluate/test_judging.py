"""Targets on logs with known truth: the whole way from a log to an estimate."""

from __future__ import annotations

import itertools

import msgspec
import numpy as np
import pytest

from swerve.core.errors import SwerveError
from swerve.evaluate.history import examination
from swerve.evaluate.judging import Least, judge
from swerve.evaluate.lists import Shown
from swerve.evaluate.rates import PRIOR, Rates
from swerve.evaluate.targets import Asked, Clicks, Given, Policy, Uniform, target_of

ATTRACTIVE = {"a": 0.1, "b": 0.3, "c": 0.6}
SEEN = [examination(k) for k in (1, 2, 3)]
ORDERS = list(itertools.permutations("abc"))


def value(order):
    return sum(ATTRACTIVE[result] * seen for result, seen in zip(order, SEEN, strict=True))


def random_log(rng, lists, best=0.0):
    """Lists in random order, with a share `best` of c, b, a; propensities are exact. The given order is a, b, c."""
    at = {(k, r): (1 - best) / 3 + best * ("cba"[k] == r) for k in range(3) for r in "abc"}
    for number in range(lists):
        order = "cba" if rng.random() < best else ORDERS[rng.integers(6)]
        clicks = [k + 1 for k, result in enumerate(order) if rng.random() < ATTRACTIVE[result] * SEEN[k]]
        yield Shown(
            float(number),
            "q",
            list(order),
            clicks,
            [at[k, r] for k, r in enumerate(order)],
            None,
            1,
            list("abc"),
            None,
            list("abc"),
        )


def judged(entries, *targets):
    entries, least = list(entries), Least()
    for entry in entries:
        least.add(entry)
    return {found.target: found for found in judge(entries, targets, least.by_slot)}, least


def test_targets_on_a_random_log_have_their_true_values():
    found, least = judged(random_log(np.random.default_rng(1), 4000, 0.3), Clicks(), Given(), Uniform())
    assert least.usual() == ["swerve", "clicks", "given", "uniform"]
    truths = {"clicks": value("cba"), "given": value("abc"), "uniform": np.mean([value(order) for order in ORDERS])}
    for name, truth in truths.items():
        assert found[name].refused is None
        for kind, each in found[name].estimates.items():
            half = (each.high - each.low) / 2
            assert each.value == pytest.approx(truth, abs=2 * half), (name, kind)
            assert half < 0.1 * truth
        assert found[name].inside == pytest.approx(1.0, abs=0.1)
        # the model knows how results differ, so that it explains a part of the weights' noise
        assert found[name].estimates["dr"].high - found[name].estimates["dr"].low < (
            found[name].estimates["ips"].high - found[name].estimates["ips"].low
        )
    assert found["clicks"].estimates["snips"].lift_low > 0.0 > found["given"].estimates["snips"].lift_high


@pytest.mark.parametrize("share", [0.0, 0.05])
def test_an_ordinary_log_refuses_another_order(share):
    """A log that shows a, b, c nearly always, and says so, supports no other order."""

    def log():
        rng = np.random.default_rng(2)
        for number in range(3000):
            clicks = [k + 1 for k, result in enumerate("abc") if rng.random() < ATTRACTIVE[result] * SEEN[k]]
            yield Shown(float(number), "q", list("abc"), clicks, [1.0 - share] * 3)

    found, _ = judged(log(), Clicks())
    assert found["clicks"].estimates == {}
    assert "outside, nothing is known" in found["clicks"].refused


def test_swerves_own_policy_learns_from_the_log_and_finds_the_best_order(uncompiled):
    policy = Policy(rows=2, arms=4)
    entries = list(random_log(np.random.default_rng(3), 700))
    found, _ = judged(entries, policy)
    assert found["swerve"].refused is None
    assert found["swerve"].inside == pytest.approx(1.0, abs=0.25)
    best, given = value("cba"), value("abc")
    assert given < found["swerve"].estimates["dr"].value < best + 0.2
    orders = policy.orders([Asked(msgspec.structs.replace(entries[-1], clicks=[]), list("abc"), {})] * 10)
    assert sum(order[0] == "c" for order in orders) >= 7
    assert policy.arms_of(policy.row_of("q"), list("abcde")) is None
    assert policy.orders([Asked(entries[0], list("abcde"), {})]) == [list("abcde")]


@pytest.mark.parametrize("known", ["shown", "choices"])
def test_a_target_does_not_learn_from_the_order_of_the_list_what_was_chosen(known, uncompiled):
    """The mean weight is 1 although the candidates come in the order that was shown: no target may use that order."""
    rng = np.random.default_rng(4)
    entries = []
    for number in range(600):
        order = [str(result) for result in rng.permutation(["a", "b", "c"])]
        shown = order if known == "shown" else order[:1]
        clicks = [1] if rng.random() < 0.3 else []
        entries.append(
            Shown(
                float(number),
                f"q{number % 100}",
                shown,
                clicks,
                [1 / 3] * len(shown),
                choices=order if known == "choices" else None,
            )
        )
    found, _ = judged(entries, Clicks(), Policy(rows=100, arms=4))
    for each in found.values():
        assert each.inside == pytest.approx(1.0, abs=4 * each.inside_error), each.target


def test_one_result_a_line_without_choices_is_judged_among_those_shown_before():
    rng = np.random.default_rng(6)
    shown = ["abc"[i] for i in rng.integers(0, 3, 3000)]
    entries = [Shown(0.0, "(all)", [r], [1] if rng.random() < ATTRACTIVE[r] else [], [1 / 3]) for r in shown]
    found, least = judged(entries, Clicks())
    assert least.usual() == ["swerve", "clicks"]
    assert found["clicks"].estimates["ips"].value == pytest.approx(ATTRACTIVE["c"], abs=0.08)


def test_rates_are_clicks_per_examination_with_a_prior():
    rates = Rates(most=2)
    mean = rates.clicks / rates.examined
    assert rates.attractive("q", ["a"]) == [mean]
    for _ in range(10):
        rates.learn(Shown(0.0, "q", ["a", "b"], [2]))
    mean = rates.clicks / rates.examined
    assert rates.attractive("q", ["a", "b", "c"]) == pytest.approx(
        [PRIOR * mean / (10 + PRIOR), (10 + PRIOR * mean) / (10 * SEEN[1] + PRIOR), mean]
    )
    rates.learn(Shown(0.0, "r", ["a"], []))
    rates.learn(Shown(0.0, "s", ["a"], []))
    assert set(rates.by_query) == {"q", "s"}


def test_an_unknown_target_is_refused():
    with pytest.raises(SwerveError, match=r"--target swerv is not allowed; .*did you mean 'swerve'"):
        target_of("swerv")


class Watched(Clicks):
    """Remembers the true value of every order."""

    def __init__(self):
        self.values = []

    def orders(self, lists):
        orders = super().orders(lists)
        self.values += [value(order) for order in orders]
        return orders


def covered(logs, lists):
    """The share of logs in which the interval of each estimator has the true value of a target that learns from the log."""
    hits: dict[str, int] = {}
    refused = 0
    for seed in range(logs):
        target = Watched()
        found, _ = judged(random_log(np.random.default_rng(1000 + seed), lists, 0.2), target)
        refused += found["clicks"].refused is not None
        for name, each in found["clicks"].estimates.items():
            hits[name] = hits.get(name, 0) + (each.low <= np.mean(target.values) <= each.high)
    assert refused <= logs / 500  # all of the target lies inside the support
    return {name: count / (logs - refused) for name, count in hits.items()}


def test_intervals_cover_the_value_of_a_target_that_learns():
    """0.95 ± 4 standard errors of 60 logs."""
    shares = covered(60, 600)
    assert set(shares) == {"replay", "ips", "snips", "dr"}
    assert all(share >= 0.83 for share in shares.values()), shares


@pytest.mark.slow
def test_nominal_95_percent_intervals_cover_between_93_and_97_percent_for_a_target_that_learns():
    for name, share in covered(1000, 1000).items():
        assert 0.93 <= share <= 0.97, (name, share)
