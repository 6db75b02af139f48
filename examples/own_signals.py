"""Your own signal: the caller sends the number of news stories with each request, and the service blames it for an alarm.

A count is compared with its own past for that query. By default this takes a day, and a signal that has crossed its threshold is
ignored for half a day. Here both times are cut to a second, to keep the script short.
"""

import random
import time

from serve_and_click import clicked, service

import swerve

CONFIG = """
[policy]
arms = 8
grace_seconds = 0.05   # clicks come at once here; people need seconds

[signals]
warmup_hours = 0.0003  # hours of baseline before a value can be a surprise (default 24)
latch_hours = 0.0003   # hours without a crossing before the next one counts (default 12)

[signals.numbers]
news = "count"         # `raw` uses the number as it is, clipped to [0, 1]
"""
QUERIES = ("hurricane", "jaguar", "oasis", "mercury", "tomato", "corona")
USUAL = {"encyclopedia": 0.5, "shop": 0.2, "storm-track": 0.05}  # id → probability of a click when seen
STORM = {"encyclopedia": 0.1, "shop": 0.02, "storm-track": 0.6}
USUAL_STORIES, STORM_STORIES = 2, 15  # stories at most on any day, and additional ones with a storm
USERS = 10  # per query and round
PAUSE = 0.02  # seconds between rounds, so that time passes for the signals


def ask(client: swerve.Client, users: random.Random, storm: bool, rounds: int) -> dict[str, int]:
    """Let users ask all queries, with the news of the hour; return how often each result was on top for the first query."""
    tops = dict.fromkeys(USUAL, 0)
    for _ in range(rounds):
        stories = {query: users.randint(0, USUAL_STORIES) for query in QUERIES}
        stories["hurricane"] += STORM_STORIES if storm else 0
        asked = [query for query in QUERIES for _ in range(USERS)]
        requests = [{"query": query, "candidates": list(USUAL), "signals": {"news": stories[query]}} for query in asked]
        answers = client.rank_many(requests)
        feedback = []
        for query, answer in zip(asked, answers, strict=True):
            likes = STORM if storm and query == "hurricane" else USUAL
            feedback.append((answer.decision, clicked(users, answer.ranking, likes)))
            tops[answer.ranking[0]] += query == "hurricane"
        client.feedback_many(feedback)
        time.sleep(PAUSE)
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
