"""Bandits in your own loop: one query, five results, and an intent that shifts after 4,000 impressions.

The policies are not told of the shift. Both see the clicks; Swerve also sees a number of yours, here the news about the query.
"""

import numpy as np

import swerve

RESULTS = ("encyclopedia", "cocktail", "hockey-team", "storm-track", "storm-damage")
BEFORE = (0.42, 0.22, 0.30, 0.05, 0.02)  # click probability of each result on top
AFTER = (0.08, 0.03, 0.05, 0.55, 0.25)
SHIFT, ROUNDS, BLOCK = 4_000, 6_000, 500
USUAL_NEWS, STORM_NEWS, STORM_ROUNDS = 2.0, 20.0, 50  # mean news, and the additional news right after the shift


def play(policy: swerve.Spec) -> np.ndarray:
    """Return the result on top in each round."""
    dice = np.random.default_rng(1)
    news = dice.gamma(USUAL_NEWS, 1.0, ROUNDS)
    news[SHIFT : SHIFT + STORM_ROUNDS] += STORM_NEWS
    fleet = swerve.Fleet(policy, queries=1, arms=len(RESULTS), features=1, seed=0)
    tops = np.zeros(ROUNDS, int)
    for t in range(ROUNDS):
        decision = fleet.select(0, x=[news[t]], now=float(t))  # the arm counts as shown
        if dice.random() < (BEFORE if t < SHIFT else AFTER)[decision.arm]:
            fleet.reward(0, decision, now=float(t))  # the result was clicked
        tops[t] = decision.arm
    return tops


def main() -> None:
    print(f"on top most often, in blocks of {BLOCK} impressions; the intent shifts after {SHIFT}\n")
    shown = {name: play(swerve.policy(name)) for name in ("swerve", "ts")}
    print(f"{'from':>6}  {'Swerve':<22}{'Thompson sampling':<22}")
    for start in range(0, ROUNDS, BLOCK):
        words = []
        for tops in shown.values():
            counts = np.bincount(tops[start : start + BLOCK], minlength=len(RESULTS))
            words.append(f"{RESULTS[counts.argmax()]:<15}{counts.max() / BLOCK:>4.0%}")
        print(f"{start:>6}  {words[0]:<22}{words[1]:<22}")
    for name, tops in shown.items():
        lost = sum(max(AFTER) - AFTER[arm] for arm in tops[SHIFT:])
        print(f"{name}: {lost:.0f} clicks lost since the shift")


if __name__ == "__main__":
    main()
