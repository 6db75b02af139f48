"""Policies compared on the paper's traffic, with the same users, clicks, contexts and shifts for each."""

import swerve

RUNS = 2

POLICIES = {
    "oracle-ts": "Thompson sampling, told of every shift",
    "swerve": "Swerve's own policy",
    "bwc": "the paper's policy: UCB1 with a safe classifier",
    "glr-ts": "Thompson sampling that tests its clicks for changes",
    "ucb1": "never restarts",
}


def main() -> None:
    traffic = swerve.Traffic(queries=20, impressions=400_000, shifting_share=0.25, order="uniform")
    print(f"{traffic.queries} queries, {traffic.impressions:,} impressions, a quarter of them shifting; means of {RUNS} runs\n")
    print(f"{'policy':<12}{'clicks lost':>12}{'alarms: true':>14}{'false':>7}  description")
    for name, words in POLICIES.items():
        results = swerve.simulate(swerve.policy(name), traffic, runs=RUNS, seed=0)
        true, false = results.count("true_alarms").mean(), results.count("false_alarms").mean()
        print(f"{name:<12}{results.regret.mean():>12,.0f}{true:>14,.0f}{false:>7,.0f}  {words}")
    print(f"\n{results.count('events').mean():.0f} shifts a run; glr-ts and ucb1 read no signals, so they have no alarms")


if __name__ == "__main__":
    main()
