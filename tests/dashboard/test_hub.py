"""The hub without a network: the messages of each reader, their order, and the kept history."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time

import pytest
from hypothesis import given, strategies as st

from swerve.dashboard import hub as module
from swerve.dashboard.hub import MOST_WAITING, MOST_WATCHED, Hub
from swerve.dashboard.rings import KEPT_BRIEF, KEPT_WHOLE
from swerve.service.config.load import Config, Policy, Store
from swerve.service.http.server import open_service
from swerve.serving.holdout import CONTROL, TREATED
from swerve.serving.messages import Refused
from swerve.serving.requests import Prepared


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    folder = tmp_path_factory.mktemp("store")
    made = open_service(Config(policy=Policy(spec="ts", arms=8), store=Store(url=f"sqlite:///{folder}/swerve.db", cache_mb=16)))
    yield made
    made.loader.stop()
    made.store.close()


@pytest.fixture
def hub(service):
    return Hub(service)


def parsed(data: bytes) -> list[tuple[str, str, dict]]:
    """Parse the bytes for a reader into messages: id, name, data."""
    out = []
    for block in data.decode().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.split("\n") if ": " in line)
        if "data" in fields:
            out.append((fields.get("id", ""), fields["event"], json.loads(fields["data"])))
    return out


def names(data: bytes) -> list[str]:
    return [name for _, name, _ in parsed(data)]


def test_a_new_reader_gets_hello_the_past_and_then_what_comes(hub):
    for value in range(3):
        hub.publish("demo", {"value": value, "events": ["many"]})
    hub.demo = {"titles": {}}
    reader = hub.join()
    (hello, history) = parsed(reader.take())
    assert hello[0] == "" and hello[2]["demo"] == {"titles": {}} and hello[2]["resumed"] is False
    assert hello[2]["policy"] == "ts" and hello[2]["signals"] == list(hub.service.names)
    assert history[0] == f"{hub.epoch}-3"
    assert history[2] == {"samples": [], "query": [], "demo": [{"value": 0}, {"value": 1}, {"value": 2, "events": ["many"]}]}
    hub.publish("demo", {"value": 3, "events": []})
    hub.tick()
    assert [(identity, name) for identity, name, _ in parsed(reader.take())] == [
        (f"{hub.epoch}-4", "demo"),
        (f"{hub.epoch}-5", "sample"),
    ]


def test_all_readers_share_one_encoding(hub):
    readers = [hub.join() for _ in range(3)]
    for reader in readers:
        reader.take()
    hub.tick()
    first, *others = (reader.queue[0] for reader in readers)
    assert all(other is first for other in others)


def test_a_query_has_its_own_readers(hub):
    hurricane, tomato, none = hub.join("hurricane"), hub.join("tomato"), hub.join()
    for reader in (hurricane, tomato, none):
        reader.take()
    hub._keep(hub._watches["hurricane"].ring, "query", {"query": "hurricane"}, {})  # kept, not sent
    for tally in hub._tallies.values():
        tally.unknown = True
    hub.tick()
    assert parsed(hurricane.take())[-1] == ("", "query", {"query": "hurricane", "missing": True})
    assert parsed(tomato.take())[-1] == ("", "query", {"query": "tomato", "missing": True})
    assert names(none.take()) == ["sample"]


def test_a_query_of_two_spellings_is_tallied_once_and_told_twice(hub):
    hub.join("Hurricane"), hub.join("hurricane")
    assert len(hub.service.ranking.watched) == 1
    (tally,) = hub.service.ranking.watched.values()
    key = hub.service.ranker.key_from("hurricane")
    for top in ("a", "b", "a"):
        hub.service.ranking.watched[key]([top, "c"])
    assert tally.tops == {"a": 2, "b": 1} and tally.ranking == ["a", "c"]


def test_places_explored_results_and_clicks_by_slot_are_tallied(hub):
    """Two pages, the second one with an explored result in slot 2, and a click on slot 3."""
    hub.join("hurricane")
    key = hub.service.ranker.key_from("hurricane")
    assert hub.service.feedback.watched is hub.service.ranking.watched
    (tally,) = hub.service.feedback.watched.values()
    asked = Prepared(key, "hurricane", ["c", "a", "b"])
    hub.service.ranking.watched[key](["a", "b", "c"], -1, asked)
    hub.service.ranking.watched[key](["a", "c", "b"], 1, asked)
    hub.service.feedback.watched[key].clicked(2)
    assert tally.places == {"a": [2, 0], "b": [2, 3], "c": [2, 3]}
    assert tally.explored == {"c": 1}
    assert tally.slots == [0, 0, 1, *[0] * 7]
    assert tally.given() == ["c", "a", "b"]
    tally.clear()
    assert (tally.places, tally.explored, sum(tally.slots), tally.ranking) == ({}, {}, 0, ["a", "c", "b"])


def test_held_out_pages_are_not_those_of_the_policy(hub):
    """A page of the control is told only until there is one of the policy."""
    hub.join("hurricane")
    key = hub.service.ranker.key_from("hurricane")
    (tally,) = hub.service.ranking.watched.values()
    treated, control = (Prepared(key, "hurricane", ["c", "a", "b"], arm=arm) for arm in (TREATED, CONTROL))
    tally(["c", "a", "b"], -1, control)
    assert tally.ranking == ["c", "a", "b"] and tally.tops == {"c": 1}
    for _ in range(3):
        tally(["c", "a", "b"], -1, control)
        tally(["a", "b", "c"], 1, treated)
    assert tally.ranking == ["a", "b", "c"] and tally.tops == {"c": 1, "a": 3} and tally.explored == {"b": 3}
    rival = Prepared(b"r" * 16, "hurricane\0arm=control", ["c", "a", "b"], arm=CONTROL, plain=key)
    tally(["b", "c", "a"], -1, rival)  # who watches the record of the control's policy sees that policy's pages
    assert tally.ranking == ["b", "c", "a"] and tally.tops["b"] == 1


def test_ids_of_another_start_or_of_the_future_are_no_place_to_go_on_from(hub):
    for value in range(3):
        hub.publish("demo", {"value": value})
    for last in ("", "x", "0-1", f"{hub.epoch}-4", f"{hub.epoch}-", f"{hub.epoch}--1", f"{hub.epoch}-" + "9" * 30, "-1", "²-1"):
        assert names(hub.join(last=last).take()) == ["hello", "history"], last
    hello, *rest = parsed(hub.join(last=f"{hub.epoch}-1").take())
    assert hello[2]["resumed"] is True and [data["value"] for _, _, data in rest] == [1, 2]


def test_what_is_no_longer_kept_whole_is_sent_in_brief(hub):
    for value in range(KEPT_WHOLE + 1):
        hub.publish("demo", {"value": value, "events": []})
    assert parsed(hub.join(last=f"{hub.epoch}-0").take())[0][2]["resumed"] is False
    assert parsed(hub.join(last=f"{hub.epoch}-1").take())[0][2]["resumed"] is True
    for value in range(KEPT_BRIEF):
        hub.publish("demo", {"value": value, "events": []})
    (_, _, past) = parsed(hub.join().take())[1]
    assert [entry["value"] for entry in past["demo"]] == list(range(KEPT_BRIEF))


@given(st.lists(st.tuples(st.sampled_from(["demo", "sample", "both"]), st.integers(0, 5), st.booleans()), max_size=40))
def test_whatever_is_lost_on_the_way_nothing_is_missed_and_nothing_comes_twice(service, steps):
    """A client loses its connection in the middle of the messages, several times."""
    hub = Hub(service)
    reader, seen, last, published = hub.join(), [], "", []
    for what, read, lost in steps:
        if what in ("demo", "both"):
            hub.publish("demo", {"value": hub.number})
        if what in ("sample", "both"):
            hub.tick()
        published = list(range(1, hub.number + 1))
        messages = parsed(reader.take())
        if lost:  # only a part arrived
            hub.leave(reader)
            messages = messages[:read]
        for identity, name, _ in messages:
            if identity:
                last = identity
                if name != "history":
                    seen.append(int(identity.rpartition("-")[2]))
        if lost:
            reader = hub.join(last=last)
    for identity, name, _ in parsed(reader.take()):
        if identity and name != "history":
            seen.append(int(identity.rpartition("-")[2]))
    first = seen[0] if seen else hub.number + 1
    assert seen == published[first - 1 :]  # earlier messages are in the history


def test_a_reader_that_does_not_keep_up_is_ended_and_the_others_go_on(hub):
    slow, quick = hub.join(), hub.join()
    slow.take(), quick.take()
    for value in range(MOST_WAITING + 1):
        hub.publish("demo", {"value": value})
        quick.take()
    assert slow.ended and not quick.ended
    assert len(slow.queue) <= MOST_WAITING
    hub.publish("demo", {"value": 0})
    assert len(slow.queue) <= MOST_WAITING and quick.queue


def test_watched_queries_are_bounded_and_forgotten(hub, monkeypatch):
    clock = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    hub.watch("always")
    readers = [hub.join(f"query {number}") for number in range(MOST_WATCHED - 1)]
    with pytest.raises(Refused, match="64 queries are being watched") as refused:
        hub.admit("one more")
    assert refused.value.status == 503
    hub.admit("query 0")  # already watched
    hub.admit(None)
    hub.leave(readers[3])
    clock[0] += 1.0
    hub.leave(readers[5])
    hub.admit("one more")  # replaces the query whose last reader left first
    assert len(hub.service.ranking.watched) == MOST_WATCHED - 1
    hub.join("one more")
    hub.leave(readers[7])
    clock[0] += module.LINGER_SECONDS - 0.5
    hub.tick()
    assert "query 5" in hub._watches and "query 7" in hub._watches and "query 3" not in hub._watches
    clock[0] += 1.0
    hub.tick()
    assert "query 5" not in hub._watches and "query 7" not in hub._watches
    assert "always" in hub._watches
    assert set(hub.service.ranking.watched) == {hub.service.ranker.key_from(text) for text in hub._watches}


def test_readers_are_bounded(hub, monkeypatch):
    monkeypatch.setattr(module, "MOST_READERS", 2)
    hub.join(), hub.join()
    with pytest.raises(Refused, match="2 others"):
        hub.admit(None)


def test_after_the_end_nobody_is_let_in(hub):
    reader = hub.join()
    hub.close()
    assert reader.ended and hub.join().ended
    with pytest.raises(Refused, match="stopping"):
        hub.admit(None)


def test_it_samples_by_itself_and_one_bad_second_does_not_end_it(hub, monkeypatch, caplog):
    monkeypatch.setattr(module, "SAMPLE_EVERY", 0.01)
    take, fail = hub._sampler.take, iter([False, True, True, False])

    def sometimes() -> dict:
        if next(fail, False):
            raise RuntimeError("out of luck")
        return take()

    monkeypatch.setattr(hub._sampler, "take", sometimes)

    async def some_seconds() -> bytes:
        reader = hub.join()
        running = asyncio.get_running_loop().create_task(hub.run())
        while hub.number < 40:
            await asyncio.sleep(0.01)
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
        return reader.take()

    data = asyncio.run(asyncio.wait_for(some_seconds(), 20))
    assert names(data).count("sample") >= 40
    assert data.count(b"\n\n:\n\n") >= 2  # comments, which keep proxies from closing the connection
    assert [record.message for record in caplog.records] == ["a sample failed"] * 2
