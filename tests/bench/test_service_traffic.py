"""The benchmark's requests are as docs/bench.md says: Zipf, ten candidates, four numbers, returning sessions."""

import itertools
import json
from collections import Counter

import pytest

from swerve.bench.service_traffic import BATCH_ENTRIES, SIGNALS, Traffic

schemas = pytest.importorskip("swerve.service.http.schemas", reason="the service's packages are not installed")
messages = pytest.importorskip("swerve.serving.messages")


def bodies(traffic, count):
    for request in itertools.islice(traffic.requests(), count):
        head, _, body = request.partition(b"\r\n\r\n")
        assert int(head.split(b"Content-Length: ")[1].split(b"\r\n")[0]) == len(body)
        yield body


def test_requests_are_good_ones():
    for body in bodies(Traffic(50), 200):
        request = schemas.read_rank(body)
        assert len(set(messages.ids_of(request.read()))) == 10
        assert set(request.signals) == set(SIGNALS)


def test_queries_follow_zipf():
    counts = Counter(json.loads(body)["query"] for body in bodies(Traffic(1000), 50_000))
    first, second, tenth = counts["what is 000000"], counts["what is 000001"], counts["what is 000009"]
    assert first == pytest.approx(50_000 / 7.485, rel=0.06)  # the sum of 1/k up to 1000
    assert second == pytest.approx(first / 2, rel=0.1)
    assert tenth == pytest.approx(first / 10, rel=0.15)


def test_a_query_always_has_the_same_candidates():
    seen = {}
    for body in bodies(Traffic(20), 500):
        request = json.loads(body)
        assert seen.setdefault(request["query"], request["candidates"]) == request["candidates"]


def test_one_request_in_four_is_of_a_session_that_asked_before():
    sessions = [json.loads(body)["session"] for body in bodies(Traffic(20), 20_000)]
    assert 1 - len(set(sessions)) / len(sessions) == pytest.approx(0.25 * (1 - 1001 / 20_000), abs=0.001)
    assert max(Counter(sessions).values()) == 2


def test_batches_hold_the_next_requests():
    one, other = Traffic(30), Traffic(30)
    batch = next(one.batches()).partition(b"\r\n\r\n")[2]
    assert json.loads(batch) == [json.loads(body) for body in bodies(other, BATCH_ENTRIES)]
