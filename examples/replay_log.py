"""What would it have gained? A click log, replayed.

A log says what was shown and what was clicked, never what would have been clicked. So it can only answer for a policy where the
policy would have shown the same. If the top result of some traffic was drawn at random, those impressions are a fair sample of
what the policy would have met (Li et al., WSDM 2011): where it would have shown something else, the impression is left out, as if
it had not happened. This script writes such a log, and reads it again as yours would be read.
"""

import json
import random
import tempfile
from pathlib import Path

import swerve

RESULTS = ("encyclopedia", "cocktail", "team", "storm-track")  # in the search engine's own order
CALM, STORM = (0.35, 0.15, 0.20, 0.04), (0.08, 0.02, 0.05, 0.50)
HOURS, FIRST, LAST = 1_000, 600, 800  # a storm from one hour to the other


def write_log(path: Path) -> None:
    """One line for each impression of the share of traffic whose top result is drawn at random."""
    dice = random.Random(0)
    with path.open("w", encoding="utf-8") as file:
        for hour in range(HOURS):
            storm = FIRST <= hour < LAST
            stories = dice.gammavariate(2.0, 1.0) + (20.0 if storm else 0.0)
            for _ in range(dice.randint(30, 50)):
                shown = dice.randrange(len(RESULTS))
                clicked = dice.random() < (STORM if storm else CALM)[shown]
                line = {"at": hour * 3600.0, "query": "hurricane", "shown": RESULTS[shown], "clicked": clicked, "news": stories}
                file.write(json.dumps(line) + "\n")


def replay(policy: swerve.Spec, log: list[dict]) -> tuple[int, int]:
    """Impressions that the policy would have had, and their clicks. The paper's BWC wants signals in [−1, 1]."""
    fleet = swerve.Fleet(policy, queries=1, arms=len(RESULTS), features=1)
    matched = clicks = 0
    for line in log:
        before = fleet.table.copy(), fleet.pools.copy()
        decision = fleet.select(0, x=[line["news"] / 50.0], now=line["at"])
        if RESULTS[decision.arm] != line["shown"]:
            fleet.table[:], fleet.pools[:] = before  # nobody knows what would have come of it
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
        print(f"{name:<7} CTR {rate:.1%} on the {matched:,} it would have shown so: {rate / base - 1.0:+.0%}")


if __name__ == "__main__":
    main()
