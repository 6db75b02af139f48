"""A click goes into the record of its own query, even if rows leave memory while requests wait for them."""

from __future__ import annotations

import asyncio

from service.running import Http, running, said_of
from serving.scripted import ranker

from swerve.service.loader import Loader, Wish
from swerve.service.metrics import Metrics


def candidates(query: str) -> list[str]:
    """Return candidates whose ids contain their query."""
    return [f"{query}/{number}" for number in range(3)]


def shown(client: Http, queries: list[str]) -> dict[str, tuple[str, str]]:
    """Return a decision and the top candidate for each query."""
    out = {}
    for start in range(0, len(queries), 50):
        some = queries[start : start + 50]
        body = [{"query": query, "candidates": candidates(query)} for query in some]
        for query, answer in zip(some, client.call("POST", "/v1/rank/batch", body).json, strict=True):
            if not answer["degraded"]:
                out[query] = (answer["decision"], answer["ranking"][0])
    return out


def clicked(client: Http, decisions: dict[str, tuple[str, str]]) -> dict[str, str]:
    """Click the top of each decision, in batches of 500, until all are acknowledged; return the statuses."""
    left, said = dict(decisions), {}
    for _ in range(200):
        some = dict(list(left.items())[:500])
        body = [said_of(token, top) for token, top in some.values()]
        answer = client.call("POST", "/v1/feedback/batch", body)
        if answer.status == 200:
            for query, entry in zip(some, answer.json, strict=True):
                if "status" in entry:
                    said[query] = entry["status"]
                    del left[query]
        if not left:
            return said
    raise AssertionError(f"{len(left)} of {len(decisions)} were never taken")


def check_clicks(client: Http, decisions: dict[str, tuple[str, str]], times: int) -> None:
    wrong = {query: found for query, (_, top) in decisions.items() if (found := client.clicks(query)) != {top: times}}
    assert not wrong, f"{len(wrong)} of {len(decisions)} records are wrong: {list(wrong.items())[:3]}"


def test_a_batch_of_clicks_for_rows_that_are_not_in_memory_finds_each_its_record(tmp_path):
    """Memory holds about five hundred queries: loading a batch of others evicts the rows loaded before."""
    queries = [f"query {number}" for number in range(2000)]
    with running(tmp_path, {"store": {"cache_mb": 1, "flush_seconds": 0.1}, "limits": {"batch": 1000}}) as service:
        client = service.client()
        decisions = shown(client, queries)
        while len(decisions) < len(queries):  # memory was full of unwritten rows
            decisions |= shown(client, [query for query in queries if query not in decisions])
        said = clicked(client, decisions)
        assert set(said.values()) == {"learned"}
        check_clicks(client, decisions, 1)
        service.kill()  # the clicks must be durable
        client = service.start().client()
        check_clicks(client, decisions, 1)
        # a batch that finds memory full of unwritten rows is refused, and sent again
        defects = [line for line in service.stderr().splitlines() if '"level":"error"' in line and '"status":503' not in line]
        assert not defects, defects[-5:]


def test_shifts_and_explanations_are_about_the_query_that_was_named(tmp_path):
    """Many concurrent requests for rows that are not in memory."""
    queries = [f"query {number}" for number in range(1200)]
    with running(tmp_path, {"store": {"cache_mb": 1, "flush_seconds": 0.1}}) as service:
        client = service.client()
        decisions = shown(client, queries)
        while len(decisions) < len(queries):
            decisions |= shown(client, [query for query in queries if query not in decisions])

        async def shift(query: str) -> tuple[str, int, int]:
            reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
            path = query.replace(" ", "%20")
            head = f"Host: localhost:{service.port}\r\nContent-Type: application/json\r\nConnection: close\r\n"
            writer.write(f"POST /v1/queries/{path}/shift HTTP/1.1\r\n{head}Content-Length: 0\r\n\r\n".encode())
            answer = await reader.read()
            writer.close()
            status = int(answer.split()[1])
            return query, status, int(answer.rpartition(b":")[2].strip(b"}\r\n")) if status == 200 else 0

        async def shift_all() -> list[tuple[str, int, int]]:
            return await asyncio.gather(*(shift(query) for query in queries[:300]))

        answers = asyncio.run(shift_all())
        done = {query for query, status, phase in answers if status == 200 and phase == 2}
        assert {status for _, status, _ in answers} <= {200, 503}
        assert len(done) >= 100
        for query in queries:
            state = client.query(query).json
            assert {arm["id"] for arm in state["arms"]} == set(candidates(query))
            told = [alarm["signal"] for alarm in state["alarms"]]
            if query in done:
                assert told == ["operator"], query
            elif query in queries[300:]:
                assert told == [], query


def test_who_waits_holds_its_row_until_it_has_had_its_turn():
    """Rows are loaded many at a time; a row that a request waits for must not be evicted for the next one."""
    made = ranker(budget=40_000)

    class Empty:
        def load(self, keys):
            return [None] * len(keys)

    def adopt(wish, row):
        return made.rows.get(wish.key) or made.fresh(wish.key, None, 2, 0.0) or "memory"

    async def play() -> tuple[int, int]:
        loader = Loader(Empty(), Metrics(), adopt, lambda error: None)
        keys = [number.to_bytes(16, "little") for number in range(60)]
        kept = refused = 0

        async def one(key: bytes) -> None:
            nonlocal kept, refused
            async with loader.held([Wish(key, begin=True)], 5.0) as (found,):
                if isinstance(found, str):
                    refused += 1
                    return
                kept += 1
                assert found.key == key and not found.gone
                assert found.shelf.numbers[found.index, found.shelf.at["owner"]] == found.owner

        await asyncio.gather(*(one(key) for key in keys))
        assert all(place.pinned == 0 for place in made.rows)
        loader.stop()
        return kept, refused

    kept, refused = asyncio.run(play())
    assert kept + refused == 60
    assert 5 <= kept < 60, "memory must be full for this test to be meaningful"


def test_who_gives_up_waiting_leaves_no_row_held():
    made = ranker()

    class Slow:
        def load(self, keys):
            import time

            time.sleep(0.1)
            return [None] * len(keys)

    async def play() -> None:
        loader = Loader(Slow(), Metrics(), lambda wish, row: made.fresh(wish.key, None, 2, 0.0), lambda error: None)
        async with loader.held([Wish(b"k" * 16, begin=True)], 0.01) as (found,):
            assert found == "deadline"
        async with loader.held([Wish(b"k" * 16, begin=True)], 5.0) as (found,):
            assert found.pinned == 1
        assert found.pinned == 0
        loader.stop()

    asyncio.run(play())
