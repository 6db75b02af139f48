"""Estimating a policy's gain by replaying a click log.

A log records the shown result and its click, never the clicks on other results. It can therefore judge a policy only where the
policy would have shown the same. If the top result of some traffic was drawn at random, those impressions are an unbiased sample
of the policy's own (Li et al., WSDM 2011): an impression on which the policy would have shown another result is skipped. This
script writes such a log, and reads it as it would read yours.
"""

import json
import random
import tempfile
from pathlib import Path

import swerve

RESULTS = ("encyclopedia", "cocktail", "team", "storm-track")  # in the search engine's own order
CALM, STORM = (0.35, 0.15, 0.20, 0.04), (0.08, 0.02, 0.05, 0.50)
HOURS, FIRST, LAST = 1_000, 600, 800  # the storm lasts from hour 600 to hour 800
USUAL_NEWS, STORM_NEWS = 2.0, 20.0  # mean stories per hour, and additional ones during the storm
FEWEST, MOST = 30, 50  # impressions per hour
LARGEST_NEWS = 50.0  # divides the stories: the paper's BWC needs signals in [−1, 1]


def write_log(path: Path) -> None:
    """Write one line for each impression of the traffic whose top result is drawn at random."""
    dice = random.Random(0)
    with path.open("w", encoding="utf-8") as file:
        for hour in range(HOURS):
            storm = FIRST <= hour < LAST
            stories = dice.gammavariate(USUAL_NEWS, 1.0) + (STORM_NEWS if storm else 0.0)
            for _ in range(dice.randint(FEWEST, MOST)):
                shown = dice.randrange(len(RESULTS))
                clicked = dice.random() < (STORM if storm else CALM)[shown]
                line = {"at": hour * 3600.0, "query": "hurricane", "shown": RESULTS[shown], "clicked": clicked, "news": stories}
                file.write(json.dumps(line) + "\n")


def replay(policy: swerve.Spec, log: list[dict]) -> tuple[int, int]:
    """Return the impressions that the policy would have shown, and their clicks."""
    fleet = swerve.Fleet(policy, queries=1, arms=len(RESULTS), features=1)
    matched = clicks = 0
    for line in log:
        before = fleet.table.copy(), fleet.pools.copy()
        decision = fleet.select(0, x=[line["news"] / LARGEST_NEWS], now=line["at"])
        if RESULTS[decision.arm] != line["shown"]:
            fleet.table[:], fleet.pools[:] = before  # undo the decision: the log does not know its outcome
            continue
        matched += 1
        if line["clicked"]:
            clicks += 1
            fleet.reward(0, decision, now=line["at"])
    return matched, clicks


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "clicks.jsonl")
        write_log(path)
        log = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    own = [line["clicked"] for line in log if line["shown"] == RESULTS[0]]
    base = sum(own) / len(own)
    print(f"{len(log):,} impressions; the search engine's own order: CTR {base:.1%}")
    for name in ("swerve", "bwc", "ts"):
        matched, clicks = replay(swerve.policy(name), log)
        rate = clicks / matched
        print(f"{name:<7} CTR {rate:.1%} on the {matched:,} impressions that it would have shown: {rate / base - 1.0:+.0%}")


if __name__ == "__main__":
    main()
