"""Calls of the client played on given answers, without a network."""

from __future__ import annotations

import json

from swerve_client import ServiceAway, SwerveClientError, exchange
from swerve_client.exchange import Failure, Reply, Send
from swerve_client.operating import AllCalls

AWAY = Failure("away")
LEARNED = Reply(200, b'{"status":"learned"}', None)


def make(**changes) -> AllCalls:
    options = {
        "base_url": exchange.ADDRESS, "api_key": None, "timeout": 0.1, "feedback_timeout": 2.0,
        "retries": 3, "breaker_failures": 5, "breaker_seconds": 1.0,
    }  # fmt: skip
    return AllCalls(**{**options, **changes})


def play(steps, *answers):
    """Run a call on these answers; return its requests, its waits, and its result or error."""
    sent, waits, left, answer = [], [], list(answers), None
    try:
        while True:
            step = steps.send(answer)
            if isinstance(step, Send):
                sent.append(step)
                answer = left.pop(0)
            else:
                waits.append(step)
                answer = None
    except StopIteration as done:
        return sent, waits, done.value
    except (SwerveClientError, ServiceAway) as trouble:
        return sent, waits, trouble


def answered(**changes) -> Reply:
    said = {"decision": "d", "ranking": ["b", "a"], "propensities": [0.5, 0.25], "explored": 2, "phase": 2, "degraded": False}
    body = {**said, **changes}
    return Reply(200, json.dumps(body).encode(), None)


ASKED = {"query": "storm", "candidates": ["a", "b"]}


def limited(after: str) -> Reply:
    return Reply(429, b'{"error": {"code": "rate", "message": "too many requests"}}', after)
