"""Your own bandit in one file: softmax exploration. It runs everywhere the built-in bandits do (docs/extending.md).

From the command line: swerve simulate 'Softmax(temperature=0.05)' ucb1 --load own_bandit.py
"""

import math

import swerve
from swerve.bandits.counts import counting
from swerve.core.contract import mean_of, select
from swerve.core.rng import draw
from swerve.core.spec import Positive, Spec
from swerve.core.tables import has


@counting  # adds plays and clicks for each arm, and a random stream
class Softmax(Spec):
    """Play arm a with a probability proportional to exp(average of a / temperature)."""

    temperature: Positive = 0.05


@select.register(Softmax)
def _(spec, row, pool, available, now):
    best, chosen = -math.inf, -1
    for arm in range(row.plays.shape[0]):
        if has(available, arm):
            # the arm with the largest (score + Gumbel noise) has exactly that probability; 2⁻⁵⁴ keeps the logarithm finite
            noise = -math.log(-math.log(draw(row) + 2.0**-54))
            score = mean_of(spec, row, arm) / spec.temperature + noise
            if score > best:
                best, chosen = score, arm
    return chosen


def main() -> None:
    softmax = Softmax()
    fleet = swerve.Fleet(softmax, queries=3, arms=4)
    print("three decisions:", [fleet.select(query).arm for query in range(3)])

    traffic = swerve.Traffic(queries=10, impressions=200_000, shifting_share=0.5, features=2)
    policies = {
        "alone": softmax,
        "under the paper's BWC": swerve.BWC(swerve.Testable(softmax, length=300), swerve.Rectangle(margin=0.1)),
        "told of every shift": swerve.Oracle(softmax),
    }
    for name, policy in policies.items():
        lost = swerve.simulate(policy, traffic, runs=4, seed=0).regret.mean()
        print(f"Softmax {name}: {lost:,.0f} clicks lost of {traffic.impressions:,} impressions")


if __name__ == "__main__":
    main()
