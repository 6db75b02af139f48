"""A store at its size limit: the least valuable rows make room, and the service recovers from a log that another program holds."""

from __future__ import annotations

import contextlib
import sqlite3

from service.paging import metric
from service.running import Http, Running, running, until

MEGABYTE = 1 << 20
MOST = 16
CONFIG = {
    "store": {"max_mb": MOST, "cache_mb": 4, "flush_seconds": 0.1},
    "limits": {"new_queries_per_minute": 10**7},
}
LONG = [f"{n} " + "x" * 250 for n in range(8)]


def asked(client: Http, names: list[str], session: str | None = None) -> list[dict[str, object]]:
    answer = client.call("POST", "/v1/rank/batch", [{"query": name, "candidates": LONG, "session": session} for name in names])
    assert answer.status == 200
    return answer.json


def on_disk(service: Running) -> int:
    return sum(path.stat().st_size for path in service.state.glob("swerve.db*") if path.suffix in (".db", ".db-wal"))


def test_a_flood_of_new_queries_stays_within_the_bound_and_takes_nothing_that_many_ask(tmp_path):
    with running(tmp_path, CONFIG) as service:
        client = service.client()
        often = [f"often {n}" for n in range(100)]
        for person in range(8):
            assert not any(line["degraded"] for line in asked(client, often, f"s{person}"))
        largest = 0
        flooded = 0
        while metric(client, "swerve_removed_rows_total") < 1500:
            asked(client, [f"flood {n}" for n in range(flooded, flooded + 200)])
            largest = max(largest, on_disk(service))
            flooded += 200
            assert flooded < 40_000
        until(lambda: metric(client, "swerve_pending_rows") == 0)
        largest = max(largest, on_disk(service))
        assert largest < MOST * MEGABYTE
        assert metric(client, "swerve_store_bytes") > 0.6 * MOST * MEGABYTE  # and the room is used
        assert metric(client, "swerve_cache_rows") < 4000
        for name in often:
            assert client.query(name).json["requests"] == 8, name
        said = [line for line in service.stderr().splitlines() if "the store is full (store.max_mb)" in line]
        assert len(said) == 1  # logged once a minute
        assert '"level":"error"' not in service.stderr()
        # a removed query starts fresh, and stays
        gone = next(f"flood {n}" for n in range(flooded) if client.query(f"flood {n}").status == 404)
        answer = client.rank(gone, LONG).json
        assert client.feedback(answer["decision"], answer["ranking"][0]).json == {"status": "learned"}
        assert client.query(gone).json["requests"] == 1
        assert service.stop() == 0


def test_a_reader_that_hangs_in_another_program_is_said_and_the_service_recovers_when_it_goes(tmp_path):
    with running(tmp_path, CONFIG) as service:
        client = service.client()
        names = [f"query {n}" for n in range(200)]
        first = asked(client, names)
        with contextlib.closing(sqlite3.connect(service.database, isolation_level=None)) as other:
            other.execute("BEGIN")
            other.execute("SELECT count(*) FROM rows").fetchall()
            for _ in range(60):
                asked(client, names)
                until(lambda: metric(client, "swerve_pending_rows") == 0 or "rows cannot be written (full)" in service.stderr())
                if "rows cannot be written (full)" in service.stderr():
                    break
            assert "rows cannot be written (full)" in service.stderr()
            assert on_disk(service) < (MOST + 2) * MEGABYTE
            assert metric(client, "swerve_log_bytes") > MOST * MEGABYTE // 2
            # the log takes the click all the same
            assert client.feedback(first[0]["decision"], first[0]["ranking"][0]).json == {"status": "learned"}
            assert not client.rank("query 1", LONG).json["degraded"]
            assert "because another program holds a read transaction" in service.stderr()
        until(lambda: metric(client, "swerve_pending_rows") == 0)
        assert client.feedback(first[0]["decision"], first[0]["ranking"][0]).json == {"status": "learned"}
        assert on_disk(service) < MOST * MEGABYTE
        assert service.stop() == 0
