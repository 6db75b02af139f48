"""A signal of your own: the service is told how many news stories there are, and blames them for an alarm.

A count is compared with its own past for that query. That takes a day, and a signal that has spoken is not heard for half a day:
here both are cut to a second, or this script would take as long.
"""

import random
import time

from serve_and_click import service

import swerve

CONFIG = """
[policy]
arms = 8
grace_seconds = 0.05   # clicks come at once here; a real one needs seconds

[signals]
warmup_hours = 0.0003  # hours of baseline before anything can be a surprise (24)
latch_hours = 0.0003   # hours without a crossing before the next one is heard (12)

[signals.numbers]
news = "count"         # `raw` would take the number as it is, cut to [0, 1]
"""
QUERIES = ("hurricane", "jaguar", "oasis", "mercury", "tomato", "corona")
USUAL = {"encyclopedia": 0.5, "shop": 0.2, "storm-track": 0.05}  # id → clicks when it is on top
STORM = {"encyclopedia": 0.1, "shop": 0.02, "storm-track": 0.6}


def ask(client: swerve.Client, users: random.Random, storm: bool, rounds: int) -> dict[str, int]:
    """Some users ask all queries, with the news of the hour; who was on top for the first one."""
    tops = dict.fromkeys(USUAL, 0)
    for _ in range(rounds):
        stories = {query: users.randint(0, 2) + (15 if storm and query == "hurricane" else 0) for query in QUERIES}
        asked = [query for query in QUERIES for _ in range(10)]
        requests = [{"query": query, "candidates": list(USUAL), "signals": {"news": stories[query]}} for query in asked]
        answers = client.rank_many(requests)
        said = []
        for query, answer in zip(asked, answers, strict=True):
            top = answer.ranking[0]
            liked = STORM if storm and query == "hurricane" else USUAL
            said.append((answer.decision, top if users.random() < liked[top] else None))
            tops[top] += query == "hurricane"
        client.feedback_many(said)
        time.sleep(0.02)
    return tops


def main() -> None:
    users = random.Random(0)
    with service(CONFIG) as address, swerve.Client(address, timeout=5.0) as client:
        print("on any day, “hurricane” has on top:", ask(client, users, storm=False, rounds=80))
        print("with a storm in the news:         ", ask(client, users, storm=True, rounds=40))
        for alarm in reversed(client.state("hurricane").alarms):
            value = "" if alarm.value is None else f" at {alarm.value:.2f}"
            print(f"alarm: {alarm.signal}{value}, verdict {alarm.verdict}, phase {alarm.phase}")


if __name__ == "__main__":
    main()
