"""Draw docs/images/beyond.png: the beliefs of one of Swerve's tests, by round, at a false alarm, a fall and a rise."""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib
import numpy as np

from swerve import Fleet, Swerve, Told
from swerve.policies.swerve.posterior import event_odds, suspicion

matplotlib.use("Agg")
import matplotlib.pyplot as plt

BEFORE = (0.75, 0.35, 0.25, 0.10)
STORIES = {
    "a false alarm": (0.75, 0.35, 0.25, 0.10),
    "the leader falls": (0.15, 0.80, 0.25, 0.10),
    "another result rises": (0.75, 0.35, 0.95, 0.10),
}
ROUNDS, LEARNING, RUNS = 150, 2000, 60  # rounds shown, rounds before the alarm, runs averaged
ARMS = len(BEFORE)
#: What earlier alarms have taught: of 100 trials each, 30 falls and 30 rises, so three alarms in five are true.
TRUST = {"falls": 30.0, "fall_trials": 100.0, "rises": 30.0, "rise_trials": 100.0}


def story(after: tuple[float, ...], seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return P(event), P(arm has changed) per arm, and the played arm, for each round after one alarm."""
    fleet = Fleet(Swerve(classifier=Told()), queries=1, arms=ARMS, features=1, seed=seed)
    trust = fleet.pools["trust"][0]
    for field, value in TRUST.items():
        trust[field] = value
    dice = np.random.default_rng(seed)
    event, changed, played = np.zeros(ROUNDS), np.zeros((ROUNDS, ARMS)), np.zeros(ROUNDS, np.int64)
    for t in range(LEARNING + ROUNDS):
        decision = fleet.select(0, x=[0.0], told=t == LEARNING, now=float(t))
        if dice.random() < (BEFORE if t < LEARNING else after)[decision.arm]:
            fleet.reward(0, decision, now=float(t))
        if t >= LEARNING:
            test = fleet.table[0]["test"]
            odds, _ = event_odds(test) if fleet.table[0]["open"] else (0.0, 0.0)
            event[t - LEARNING] = odds / (1.0 + odds)
            for arm in range(ARMS):
                sure = bool(int(test["moved"]) >> arm & 1)
                changed[t - LEARNING, arm] = 1.0 if sure else suspicion(test, arm, odds)
            played[t - LEARNING] = decision.arm
    return event, changed, played


def main(target: Path) -> None:
    """Draw all stories."""
    figure, axes = plt.subplots(2, 3, figsize=(12, 5.6), sharex=True)
    colours = plt.get_cmap("tab10").colors
    for column, (name, after) in enumerate(STORIES.items()):
        runs = [story(after, seed) for seed in range(RUNS)]
        event = np.mean([one[0] for one in runs], axis=0)
        changed = np.mean([one[1] for one in runs], axis=0)
        rounds = np.arange(ROUNDS)
        top, bottom = axes[0][column], axes[1][column]
        top.plot(rounds, event, color="black", label="P(event)")
        for arm in range(ARMS):
            top.plot(rounds, changed[:, arm], color=colours[arm], label=f"P(result {arm + 1} changed)")
        top.set_title(name)
        top.set_ylim(-0.02, 1.02)
        shares = np.array([np.mean([one[2] == arm for one in runs], axis=0) for arm in range(ARMS)])
        bottom.stackplot(
            rounds,
            shares,
            colors=colours[:ARMS],
            alpha=0.8,
            labels=[f"{a:.2f} → {b:.2f}" for a, b in zip(BEFORE, after, strict=True)],
        )
        bottom.set_xlabel("rounds since the alarm")
        bottom.set_ylim(0, 1)
        bottom.set_xlim(0, ROUNDS - 1)
        bottom.legend(loc="lower right", fontsize=8, title="click probability", title_fontsize=8)
    axes[0][0].set_ylabel("belief")
    axes[1][0].set_ylabel("share of plays")
    axes[0][0].legend(loc="upper right", fontsize=8)
    figure.tight_layout()
    figure.savefig(target, dpi=110)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/images/beyond.png"))
