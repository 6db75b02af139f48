"""Estimators agree with their definitions, cover the truth as often as stated, and refuse what the log does not support."""

from __future__ import annotations

import numpy as np
import pytest
from twins import off_policy

from swerve.evaluate.estimators import NORMAL, Estimation

RESULTS, SLOTS = 5, 3
ATTRACTIVE = np.array([0.5, 0.35, 0.25, 0.15, 0.1])
SEEN = np.array([1.0, 0.9, 0.71])
#: Marginal chances of each result at each slot, of the log and of the target: slots draw independently of each other.
LOGGED = np.array([[0.4, 0.3, 0.1, 0.1, 0.1], [0.2, 0.2, 0.2, 0.2, 0.2], [0.1, 0.1, 0.2, 0.3, 0.3]])
TARGET = np.array([[0.7, 0.1, 0.1, 0.05, 0.05], [0.1, 0.6, 0.1, 0.1, 0.1], [0.1, 0.1, 0.5, 0.2, 0.1]])


def log_of(rng, lists, slots=SLOTS, ragged=False):
    """Return R, P, W, Q and D of a log with known truth; the reward model is wrong on purpose."""
    shown = np.stack([rng.choice(RESULTS, size=lists, p=LOGGED[k]) for k in range(slots)], axis=1)
    at = np.arange(slots)
    R = (rng.random((lists, slots)) < ATTRACTIVE[shown] * SEEN[at]).astype(float)
    model = 0.7 * ATTRACTIVE + 0.05
    P, W, Q = LOGGED[at, shown], TARGET[at, shown], model[shown] * SEEN[at]
    D = np.broadcast_to((TARGET[:slots] @ model) * SEEN[:slots], (lists, slots)).copy()
    if ragged:
        P = np.where(np.arange(slots) < rng.integers(1, slots + 1, size=(lists, 1)), P, np.nan)
        R = np.where(np.isnan(P), 0.0, R)
    return R, P, W, Q, D


def judged(*parts, least=None, seed=0):
    least = np.nanmin(np.vstack([part[1] for part in parts]), axis=0) if least is None else least
    found = Estimation("t", least, seed)
    for part in parts:
        found.add(*part)
    return found.judge()


@pytest.mark.parametrize(("slots", "ragged"), [(1, False), (3, False), (3, True)])
def test_estimates_are_those_of_the_definitions(slots, ragged):
    rng = np.random.default_rng(1)
    log = log_of(rng, 900, slots, ragged)
    R, P, W, Q, D = log
    there = ~np.isnan(P)
    w = np.where(there, W / P, 0.0)
    found = judged(*(tuple(array[part] for array in log) for part in (slice(0, 400), slice(400, 401), slice(401, None))))

    def agree(name, value, influence):
        ours = found.estimates[name]
        half = NORMAL * influence.std(ddof=1) / np.sqrt(len(R))
        assert (ours.value, ours.low, ours.high) == pytest.approx((value, value - half, value + half), abs=1e-9)
        paired = influence - R.sum(axis=1)
        half = NORMAL * paired.std(ddof=1) / np.sqrt(len(R))
        lift = value - R.sum(axis=1).mean()
        assert (ours.lift, ours.lift_low, ours.lift_high) == pytest.approx((lift, lift - half, lift + half), abs=1e-9)

    for name, each in (("ips", off_policy.ips(R, P, W)), ("dr", off_policy.doubly_robust(R, P, W, Q, D))):
        agree(name, each.mean(), each)
    agree("snips", *off_policy.snips(R, w, there))
    assert found.estimates["ips"].effective == found.effective == pytest.approx(off_policy.effective(w, there), abs=1e-6)
    assert found.inside == pytest.approx(w.sum() / there.sum(), abs=1e-12)
    assert found.logged == pytest.approx(R.sum(axis=1).mean())


def test_replay_keeps_a_slot_with_the_chance_of_its_weight():
    """On a uniform log a deterministic target keeps exactly what it would have shown: the mean of the matches."""
    rng = np.random.default_rng(2)
    shown = rng.integers(0, RESULTS, 3000)
    R = (rng.random((3000, 1)) < ATTRACTIVE[shown][:, None]).astype(float)
    P, W = np.full((3000, 1), 1 / RESULTS), (shown == 2).astype(float)[:, None]
    found = judged((R, P, W, 0 * R, 0 * R)).estimates["replay"]
    kept = R[shown == 2]
    assert found.value == pytest.approx(kept.mean())
    assert found.effective == len(kept)


def coverage(logs, lists, slots):
    rng = np.random.default_rng(11)
    truth = float((TARGET * ATTRACTIVE * SEEN[:, None])[:slots].sum())
    own = float((LOGGED * ATTRACTIVE * SEEN[:, None])[:slots].sum())
    hits: dict[str, int] = {}
    for seed in range(logs):
        for name, found in judged(log_of(rng, lists, slots), seed=seed).estimates.items():
            hits[name] = hits.get(name, 0) + (found.low <= truth <= found.high)
            hits[f"{name} lift"] = hits.get(f"{name} lift", 0) + (found.lift_low <= truth - own <= found.lift_high)
    assert set(hits) == {f"{name}{kind}" for name in ("replay", "ips", "snips", "dr") for kind in ("", " lift")}
    return {name: count / logs for name, count in hits.items()}


def test_intervals_cover_the_truth_in_a_few_logs():
    """0.95 ± 4 standard errors of 150 logs."""
    for name, share in coverage(150, 1500, SLOTS).items():
        assert 0.88 <= share <= 1.0, (name, share)


@pytest.mark.slow
@pytest.mark.parametrize("slots", [1, 3])
def test_nominal_95_percent_intervals_cover_between_93_and_97_percent(slots):
    for name, share in coverage(1000, 3000, slots).items():
        assert 0.93 <= share <= 0.97, (name, share)


def test_a_target_outside_the_support_is_refused():
    """A log that always shows the same order supports none of another one, however many lists it has."""
    rng = np.random.default_rng(3)
    R = (rng.random((50_000, 1)) < 0.3).astype(float)
    one, zero = np.ones_like(R), np.zeros_like(R)
    partly = (rng.random(R.shape) < 0.2).astype(float)
    for W, share in ((zero, "0 %"), (partly, "20")):
        found = judged((R, one, W, zero, zero))
        assert found.estimates == {}
        assert "outside, nothing is known" in found.refused and share in found.refused
    assert judged((R, one, one, zero, zero)).estimates["ips"].value == pytest.approx(R.mean())


def test_few_effective_lists_are_refused():
    """20 matches of 120,000, each of which stands for 6,000 lists, are no evidence."""
    rng = np.random.default_rng(4)
    R, P, W = np.zeros((120_000, 1)), np.full((120_000, 1), 20 / 120_000), np.zeros((120_000, 1))
    W[rng.choice(len(W), 20, replace=False)] = 1.0
    found = judged((R, P, W, R, R))
    assert found.inside == pytest.approx(1.0)
    assert found.estimates == {}
    assert "count like 20" in found.refused


def test_replay_that_kept_no_click_is_left_out():
    """The sample of a uniform log by 34 items: some 300 rounds are kept. Without a click among them the interval has no width."""
    rng = np.random.default_rng(8)
    P, W = np.full((10_000, 1), 1 / 34), np.full((10_000, 1), 1 / 34)
    kept = np.random.default_rng(0).random(P.shape) < 1 / 34  # the draws of `Estimation` with seed 0
    R = ((rng.random(P.shape) < 0.005) & ~kept).astype(float)
    found = judged((R, P, W, 0 * R, 0 * R))
    assert found.refused is None
    assert set(found.estimates) == {"ips", "snips", "dr"}
    R[np.flatnonzero(kept)[:1]] = 1.0
    again = judged((R, P, W, 0 * R, 0 * R)).estimates["replay"]
    assert again.value == pytest.approx(1 / kept.sum())
    assert again.low < again.value < again.high


def test_a_target_whose_results_got_no_click_is_refused():
    """All clicks are on results that the target never shows: 0 clicks, with an interval of no width, would be no estimate."""
    rng = np.random.default_rng(9)
    shown = rng.integers(0, RESULTS, (3000, 1))
    R, P, W = (shown == 0).astype(float), np.full((3000, 1), 1 / RESULTS), (shown == 1).astype(float)
    found = judged((R, P, W, 0 * R, 0 * R))
    assert found.estimates == {}
    assert "no click" in found.refused
    R[np.flatnonzero(W)[:1]] = 1.0
    assert judged((R, P, W, 0 * R, 0 * R)).estimates["ips"].value > 0.0


def test_propensities_that_do_not_fit_are_warned_of():
    R, P, W, Q, D = log_of(np.random.default_rng(5), 2000)
    assert judged((R, P, W, Q, D)).warning is None
    assert "the propensities do not fit" in judged((R, P / 1.5, W, Q, D)).warning


def test_nothing_is_refused_without_a_crash():
    found = Estimation("t", np.full(3, np.nan)).judge()
    assert found.refused == "no list has propensities"
