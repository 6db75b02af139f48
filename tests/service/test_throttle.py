"""Rates of callers: 429 with `Retry-After`, batches by their entries, on a driven clock and over HTTP."""

from __future__ import annotations

import json
import math
import time

import pytest
from service.running import running
from service.test_ranking import service_at

from swerve.client import Client
from swerve.service.config.callers import ApiKey, Limits
from swerve.service.config.load import resolve
from swerve.service.config.toml import ConfigError, Document
from swerve.service.http.app import App
from swerve.service.secrets import new_key
from swerve.service.throttle import Bucket, Throttle, TooMany

SHOP, FREE = new_key("shop", ("rank", "feedback", "read")), new_key("free")


def test_a_bucket_holds_its_rate_over_any_traffic():
    """In t seconds at most `burst` + rate × t requests are taken; after `wait` seconds one more is."""
    bucket, now, taken = Bucket(3.0, 5, 100.0), 100.0, 0
    for step in range(2000):
        now += (step * 7 % 11) / 40.0
        count = 1 + step % 3
        wait = bucket.wait(count, now)
        if wait == 0:
            bucket.take(count, now)
            taken += count
        else:
            missing = min(count, 5) - bucket.left
            assert wait == math.ceil(missing / 3.0) >= 1
        assert taken <= 5 + 3.0 * (now - 100.0) + 2  # a batch may exceed what is left by less than its entries
    assert taken >= 3.0 * (now - 100.0) * 0.5


def test_retry_after_is_the_least_whole_number_of_seconds():
    bucket = Bucket(0.3, 2, 0.0)
    bucket.take(2, 0.0)
    wait = bucket.wait(1, 0.0)
    assert wait == 4  # 1 / 0.3 = 3.3
    assert bucket.wait(1, wait - 1) > 0 and bucket.wait(1, wait) == 0


def test_a_batch_beyond_the_burst_is_taken_from_a_full_bucket_and_paid_for_afterwards():
    bucket = Bucket(10.0, 5, 0.0)
    assert bucket.wait(50, 0.0) == 0
    bucket.take(50, 0.0)
    assert bucket.wait(1, 0.0) == 5  # 45 of debt and one
    assert bucket.wait(50, 0.0) == 5  # a full bucket again
    assert bucket.wait(1, 4.7) == 0


def test_a_clock_that_goes_back_changes_nothing():
    bucket = Bucket(1.0, 1, 50.0)
    bucket.take(1, 50.0)
    assert bucket.wait(1, 10.0) == 1
    assert bucket.wait(1, 10.5) == 1 and bucket.wait(1, 11.0) == 0


def test_a_key_without_a_rate_has_that_of_the_limits():
    now = [0.0]
    keys = (ApiKey("own", "", rate=1.0, burst=1), ApiKey("plain", ""))
    throttle = Throttle(keys, Limits(rate=2.0, burst=3), lambda: now[0])
    for caller, burst in (("own", 1), ("plain", 3)):
        for _ in range(burst):
            throttle.check(caller)
            throttle.take(caller)
        with pytest.raises(TooMany) as refused:
            throttle.check(caller)
        assert refused.value.status == 429 and refused.value.retry == 1
    assert Throttle(keys, Limits(), lambda: now[0]).allows("plain", 10**6)
    alone = Throttle((), Limits(rate=1.0, burst=1), lambda: now[0])
    alone.take("")
    assert not alone.allows("")


CONFIG = {
    "security": {
        "api_keys": [
            {"name": "shop", "hash": SHOP.entry.hash, "scopes": ["rank", "feedback", "read"], "rate": 2.0, "burst": 6},
            {"name": "free", "hash": FREE.entry.hash},
        ]
    }
}  # fmt: skip


def test_both_ways_count_together(tmp_path):
    """The short way of the protocol and the long way take from one bucket, and a refused request takes nothing."""
    now = [1.7e9]
    service = service_at(tmp_path / "s", now, security=CONFIG["security"])
    app = App(service)
    app.gate.knows(b"localhost")
    headers = [(b"host", b"localhost"), (b"content-type", b"application/json"), (b"authorization", b"Bearer " + SHOP.text.encode())]
    service.availability.compiled = True
    key = service.ranker.key_of("storm")
    service.ranker.fresh(key, "storm", 2, now[0])
    body = json.dumps({"query": "storm", "candidates": ["a", "b"]}).encode()

    def at_once(path: bytes = b"/v1/rank", content: bytes = body) -> bool:
        return app.at_once(path, headers, content, lambda _: None) is not None

    assert at_once() and at_once()
    many = b"[" + b",".join([body] * 3) + b"]"
    assert at_once(b"/v1/rank/batch", many)  # 5 of 6
    assert not at_once(b"/v1/rank/batch", many)
    assert at_once() and not at_once()
    now[0] += 0.5
    assert at_once() and not at_once()
    service.throttle.take("shop")  # as the long way does
    now[0] += 0.5
    assert not at_once()


def test_over_http(tmp_path):
    with running(tmp_path, CONFIG) as service:
        shop, free = service.client(SHOP.text), service.client(FREE.text)
        started = time.monotonic()
        answers = [shop.rank("storm", ["a", "b"]) for _ in range(20)]
        taken = sum(answer.status == 200 for answer in answers)
        assert 6 <= taken <= 6 + 2.0 * (time.monotonic() - started) + 1
        refused = next(answer for answer in answers if answer.status == 429)
        assert refused.headers["retry-after"] == "1" and refused.json["error"]["code"] == "rate"
        assert "2 a second and 6 at once" in refused.json["error"]["message"]
        assert free.rank("storm", ["a", "b"]).status == 200  # other keys are not affected
        batch = [{"query": "storm", "candidates": ["a", "b"]}] * 6
        refused = shop.call("POST", "/v1/rank/batch", batch)
        assert refused.status == 429 and int(refused.headers["retry-after"]) in (2, 3)
        time.sleep(int(refused.headers["retry-after"]))
        assert shop.call("POST", "/v1/rank/batch", batch).status == 200  # the header said enough
        assert shop.call("GET", "/metrics").status == 429  # every route with a key counts
        assert service.client().call("GET", "/readyz").status == 200  # probes have none
        page = free.call("GET", "/metrics").body.decode()
        assert 'swerve_throttled_total{key="shop"}' in page

        with Client(f"http://127.0.0.1:{service.port}", SHOP.text, timeout=2.5, breaker_failures=1) as client:
            patient = client.rank("storm", ["a", "b"])  # waits for the second that the service asks for
            assert not patient.degraded and patient.decision
            client.feedback(patient.decision, 1)
        with Client(f"http://127.0.0.1:{service.port}", SHOP.text, timeout=0.5, breaker_failures=1, breaker_seconds=60) as client:
            while not (hasty := client.rank("storm", ["a", "b"])).degraded:
                pass
            assert hasty.ranking == ["a", "b"] and "429" in str(hasty.reason)
            time.sleep(1.0)
            assert not client.rank("storm", ["a", "b"]).degraded  # a rate limit does not open the breaker


def test_wrong_rates_are_named():
    for wrong in ({"rate": -1.0}, {"burst": 1.5}, {"rate": "fast"}):
        with pytest.raises(ConfigError, match=f"limits.{next(iter(wrong))}"):
            resolve(Document("t", {"limits": wrong}, {}))


@pytest.mark.parametrize(
    ("tables", "where"),
    [
        ({"limits": {"burst": 5}}, "limits.burst"),
        ({"namespaces": {"toys": {"burst": 5}}}, "namespaces.toys.burst"),
        ({"security": {"api_keys": [{"name": "a", "hash": "sha256:" + "0" * 64, "burst": 5}]}}, "security.api_keys[0].burst"),
    ],
)
def test_a_burst_without_a_rate_is_refused(tables, where):
    """It would bound nothing, and look as if it did."""
    with pytest.raises(ConfigError) as caught:
        resolve(Document("t", tables, {}))
    (line,) = caught.value.lines()
    assert f"{where} = 5 is not allowed" in line and "without a rate" in line
    assert "rate" in line
    tables = {**tables, "limits": {**tables.get("limits", {}), "rate": 2.0}}
    if "namespaces" not in tables:  # keys without a rate have that of the limits
        resolve(Document("t", tables, {}))
