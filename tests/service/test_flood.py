"""More queries than memory holds: memory stays within its limit, and queries beyond it get the given order."""

from __future__ import annotations

import threading
import time

import pytest
from service.running import Running, running, until

MEGABYTE = 1 << 20
#: Memory beside the cache: SQLite's own caches (24 MB), unwritten rows, requests and answers under way.
MARGIN = 64 * MEGABYTE


class Watch(threading.Thread):
    """Measures the largest size of a process."""

    def __init__(self, service: Running) -> None:
        super().__init__(daemon=True)
        self.service, self.over = service, threading.Event()
        self.before = self.most = service.memory()

    def run(self) -> None:
        while not self.over.wait(0.05):
            self.most = max(self.most, self.service.memory())

    def end(self) -> int:
        """Stop measuring; return the largest growth."""
        self.over.set()
        self.join()
        return self.most - self.before


def flood(service: Running, first: int, count: int, candidates: list[str], at_once: int = 500) -> dict[str, int]:
    """Ask distinct queries in batches; count those decided and those that got the given order."""
    client = service.client()
    seen = {"decided": 0, "given": 0}
    for start in range(first, first + count, at_once):
        asked = [{"query": f"flood {n}", "candidates": candidates} for n in range(start, start + at_once)]
        answer = client.call("POST", "/v1/rank/batch", asked)
        assert answer.status == 200
        for line in answer.json:
            seen["given" if line["degraded"] else "decided"] += 1
            assert not line["degraded"] or line["ranking"] == candidates
    client.close()
    return seen


def reasons(service: Running) -> dict[str, float]:
    """Return the number of degraded answers by reason."""
    text = service.client().call("GET", "/metrics").body.decode()
    lines = [line for line in text.splitlines() if line.startswith("swerve_degraded_total{")]
    return {line.split('"')[1]: float(line.split()[-1]) for line in lines}


def test_beyond_the_limit_of_new_queries_the_given_order_is_given(tmp_path):
    limit = 300
    changes = {"limits": {"new_queries_per_minute": limit}, "store": {"cache_mb": 4}}
    with running(tmp_path, changes) as service:
        started = time.perf_counter()
        seen = flood(service, 0, 2000, ["a", "b", "c"])
        flowed = limit * (time.perf_counter() - started) / 60.0
        assert limit // 2 <= seen["decided"] <= limit // 2 + flowed + 1  # the other half is for queries of several sessions
        assert reasons(service) == {"limit": float(seen["given"])}
        # known queries are served as before
        client = service.client()
        assert not client.rank("flood 0", ["a", "b", "c"]).json["degraded"]
        assert client.rank("flood 1999", ["a", "b", "c"]).json["degraded"]
        assert client.query("flood 1999").status == 404


@pytest.mark.parametrize("session", [None, "robot"])
def test_a_flood_of_new_queries_from_one_session_takes_nothing_from_those_that_several_ask(tmp_path, session):
    """The flood comes without and with a session; meanwhile queries that two people ask get their rows."""
    changes = {"limits": {"new_queries_per_minute": 300}, "store": {"cache_mb": 4}}
    candidates = ["a", "b", "c"]
    with running(tmp_path, changes) as service:
        client = service.client()

        def robot(first: int) -> int:
            asked = [{"query": f"robot {n}", "candidates": candidates, "session": session} for n in range(first, first + 100)]
            return sum(not line["degraded"] for line in client.call("POST", "/v1/rank/batch", asked).json)

        started = time.perf_counter()
        taken = sum(robot(first) for first in range(0, 1000, 100))
        assert 150 <= taken <= 151 + 300 * (time.perf_counter() - started) / 60.0
        decided = 0
        for number in range(100):
            for person in ("anna", "bert"):
                answer = client.rank(f"honest {number}", candidates, session=f"{person} {number}").json
            decided += not answer["degraded"]
            if number % 10 == 0:
                robot(10_000 + 100 * number)
        assert decided == 100
        answers = client.call(
            "POST", "/v1/rank/batch", [{"query": "together", "candidates": candidates, "session": person} for person in "ab"]
        ).json
        assert [line["degraded"] for line in answers] == [False, False]


def test_memory_stays_within_its_bounds_when_rows_do_not_fit(tmp_path):
    """A cache of 2 MB, and queries for many times that size: all are written, and found again."""
    changes = {"store": {"cache_mb": 2, "flush_seconds": 0.1}}
    with running(tmp_path, changes) as service:
        flood(service, 10**6, 500, ["a", "b"])
        watch = Watch(service)
        watch.start()
        seen = {"decided": 0, "given": 0}
        for start in range(0, 6000, 500):
            for name, count in flood(service, start, 500, [f"candidate {n}" for n in range(6)]).items():
                seen[name] += count
        grown = watch.end()
        assert grown < 2 * MEGABYTE + MARGIN
        assert set(reasons(service)) <= {"memory"}  # while more rows are unwritten than fit
        assert seen["decided"] > 1000  # many more than memory holds
        client = service.client()
        until(lambda: not client.rank("another one", ["a", "b"]).json["degraded"])
        found = sum(client.query(f"flood {n}").status == 200 for n in range(0, 6000, 60))
        assert abs(found - 100 * seen["decided"] / 6000) < 25


def asked(name: str, candidates: int) -> dict[str, object]:
    return {"query": name, "candidates": [f"{name} / {n}" for n in range(candidates)]}


def test_rows_that_grow_while_others_make_room_are_not_mixed_up(tmp_path):
    """In one batch some records outgrow their table and evict others: each keeps its own candidates and counts."""
    changes = {"policy": {"arms": 16}, "store": {"cache_mb": 1, "flush_seconds": 0.1}}
    with running(tmp_path, changes) as service:
        client = service.client()

        def batch(names: list[str], candidates: int) -> list[bool]:
            """Rank each query and return those that were decided, after their rows are written and can leave memory."""
            answer = client.call("POST", "/v1/rank/batch", [asked(name, candidates) for name in names])
            until(lambda: "swerve_pending_rows 0\n" in client.call("GET", "/metrics").body.decode())
            return [not line["degraded"] for line in answer.json]

        narrow, wide = [f"narrow {n}" for n in range(600)], [f"wide {n}" for n in range(60)]
        requests, shows = dict.fromkeys((*narrow, *wide), 0), dict.fromkeys((*narrow, *wide), 0)
        for names, candidates in (
            (wide, 12),
            *((narrow[start : start + 100], 8) for start in range(0, 600, 100)),  # more than fit
            (wide, 12),  # in memory already
            (narrow[500:550] + wide, 12),  # the first grow before the others are ranked
            (wide + narrow[:50], 12),
        ):
            for name, done in zip(names, batch(names, candidates), strict=True):
                requests[name] += done
                shows[name] += done * min(candidates, 10)  # a page has ten slots
        for name, count in requests.items():
            state = client.query(name)
            assert state.status == (200 if count else 404), name
            if count:
                assert state.json["requests"] == count, name
                assert sum(arm["plays"] for arm in state.json["arms"]) == shows[name], name
                assert all(arm["id"].startswith(f"{name} / ") for arm in state.json["arms"]), name
        assert sum(requests.values()) > 700


@pytest.mark.slow
def test_a_hundred_thousand_distinct_queries_in_a_minute_do_not_exhaust_memory(tmp_path):
    """With the default limit: queries above it get the given order; those below are decided as far as the disk keeps up."""
    with running(tmp_path, {"store": {"cache_mb": 16}}) as service:
        flood(service, 10**6, 1000, ["a", "b"])
        watch = Watch(service)
        watch.start()
        started = time.perf_counter()
        seen = flood(service, 0, 100_000, [f"candidate {n}" for n in range(8)])
        took = time.perf_counter() - started
        grown = watch.end()
        print(f"100,000 queries in {took:.1f} s: {seen}, {reasons(service)}, grown by {grown / MEGABYTE:.0f} MB")
        assert took < 60.0
        assert grown < 16 * MEGABYTE + MARGIN
        client = service.client()
        until(lambda: not client.rank("flood 0", ["a", "b"]).json["degraded"], 60.0)
        assert client.call("GET", "/readyz").status == 200


@pytest.mark.slow
def test_long_ids_and_every_capacity_stay_within_bounds(tmp_path):
    """64 ids of 256 characters need more memory than their record, and each capacity has its own table."""
    changes = {"policy": {"arms": 64}, "store": {"cache_mb": 16, "flush_seconds": 0.1}, "limits": {"new_queries_per_minute": 10**7}}
    with running(tmp_path, changes) as service:
        flood(service, 10**7, 500, ["a", "b"])
        watch = Watch(service)
        watch.start()
        shares = {}
        for turn, arms in enumerate((8, 16, 32, 64, 8)):
            ids = [f"{n:03d}" + "x" * 253 for n in range(arms)]
            seen = {"decided": 0, "given": 0}
            for start in range(0, 20_000 if arms < 64 else 6000, 50):
                some = flood(service, turn * 10**6 + start, 50, [f"{start}{name}"[:256] for name in ids], at_once=50)
                seen = {name: seen[name] + some[name] for name in seen}
            shares[turn] = seen["decided"] / sum(seen.values())
        grown = watch.end()
        print(f"grown by {grown / MEGABYTE:.0f} MB; decided {shares}; {reasons(service)}")
        # measured: 99 MB, and 92 MB after twice as many turns; the rest is SQLite's, and gaps left by freed ids
        assert grown < 16 * MEGABYTE + 2 * MARGIN
        # undecided queries wait for the disk; a capacity that others keep out would be near 0.05
        assert min(shares.values()) > 0.2
