"""Whole pages over HTTP: clicks on any position, what was shown, observed rankings, steady orders, parts of a key, propensities."""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import permutations
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from service.paging import (
    CONFIG as CONFIG,  # the service of these tests, see conftest.py
    NEWS,
    PAGE,
    click,
    counts,
    metric,
    observe,
    refused,
)
from service.running import Running, running, said_of
from service.test_ranking import service_at

from swerve.service.http.schemas import read_rank
from swerve.serving.messages import Event, FeedbackRequest, ObserveRequest
from swerve.serving.tokens import LENGTHS
from swerve.store.protocol import Life


# ---------------------------------------------------------------------- slots
@pytest.mark.parametrize("slots", [1, 3, 10, None])
def test_slots_are_filled_and_the_rest_is_as_given(client, slots):
    more = {} if slots is None else {"slots": slots}
    for given in (PAGE, ["only"]):
        filled = min(slots or 10, len(given))
        for number in range(5):
            answer = client.rank(f"slots {slots}", given, session=f"{number}", **more).json
            assert sorted(answer["ranking"]) == sorted(given)
            assert len(answer["propensities"]) == filled
            assert all(0.0 < chance <= 1.0 for chance in answer["propensities"])
            assert len(answer["decision"]) == LENGTHS[filled]
            page, rest = answer["ranking"][:filled], answer["ranking"][filled:]
            assert rest == [name for name in given if name not in page]
            assert answer["explored"] is None or 1 <= answer["explored"] <= filled
    assert refused(client.rank("slots", PAGE, slots=11)) == (422, "invalid", "slots")


def test_with_fewer_slots_a_click_below_them_is_counted_and_not_learned(client):
    answer = client.rank("below", PAGE, slots=2).json
    below = answer["ranking"][3]
    assert client.feedback(answer["decision"], below).json == {"status": "ignored"}
    assert client.events(answer["decision"], click(position=4)).json == {"status": "ignored"}
    assert {name for name, (plays, *_) in counts(client, "below").items() if plays} == set(answer["ranking"][:2])


def test_a_repeat_has_the_answer_of_the_first_whatever_came_between(client):
    """A click on a slot is learnt and one below the slots is not, in any order; each repeat is answered as its first was."""
    for query, order in (("repeat one", (0, 3)), ("repeat two", (3, 0))):
        answer = client.rank(query, PAGE, slots=2).json
        said = {0: {"status": "learned"}, 3: {"status": "ignored"}}
        for position in (*order, *order, *reversed(order)):
            name = answer["ranking"][position]
            assert client.feedback(answer["decision"], name).json == said[position], (query, position)
            assert client.events(answer["decision"], click(position=position + 1)).json == said[position]
        assert client.clicks(query) == {answer["ranking"][0]: 1}


def test_a_repeat_of_a_click_that_was_no_evidence_is_answered_as_before(client):
    """The session has used its evidence on the result: the click is ignored, and stays so when another click is learnt."""
    assert observe(client, "spent", ["b", "a"], click("b"), session="someone").json["status"] == "learned"
    other = observe(client, "spent", ["b", "a", "d"], session="someone").json["decision"]
    answers = {name: client.feedback(other, name).json["status"] for name in ("b", "a")}
    assert answers == {"b": "ignored", "a": "learned"}
    for name in ("b", "a", "b"):
        assert client.feedback(other, name).json["status"] == answers[name], name


@pytest.mark.parametrize("order", list(permutations([0, 1, 3])))
def test_a_repeat_has_the_answer_of_the_first_also_where_it_was_late(client, order):
    """Clicks on both slots, the second after an operator's shift, and on a result below the slots, in any order."""
    query = f"late {order}"
    answer = client.rank(query, PAGE, slots=2).json
    said: dict[tuple[int, ...], str] = {}
    for places in [(place,) for place in order] + [order[:2], order[1:], order[::2], order]:
        if places == (1,):
            assert client.call("POST", f"/v1/queries/{quote(query)}/shift", {}).status == 200
        for told in (places, *said):
            clicks = [click(answer["ranking"][place]) for place in told]
            status = client.events(answer["decision"], *clicks).json["status"]
            assert said.setdefault(told, status) == status, (places, told)
    early = "learned" if order.index(0) < order.index(1) else "late"
    assert (said[0,], said[1,], said[3,], said[order]) == (early, "late", "ignored", early)
    assert client.clicks(query) == dict.fromkeys(answer["ranking"][:2], 1)


def test_a_position_beyond_the_ranking_is_refused_with_its_field(client):
    answer = client.rank("beyond", PAGE, slots=2).json
    for shown, position in ((None, 6), (None, 1000), (PAGE[:3], 4)):
        more = {} if shown is None else {"shown": shown}
        said = client.events(answer["decision"], click("a"), click(position=position), **more)
        assert refused(said) == (422, "not_offered", "events[1].position"), said
        assert f"position {position}" in said.json["error"]["message"]
    assert client.clicks("beyond") == {}  # nothing of a refused request is counted
    assert client.events(answer["decision"], click(position=5)).json == {"status": "ignored"}
    batch = client.call("POST", "/v1/feedback/batch", [{"decision": answer["decision"], "events": [click(position=9)]}]).json
    assert batch[0]["error"]["field"] == "events[0].position"
    assert refused(observe(client, "beyond", PAGE, click(position=6))) == (422, "not_offered", "events[0].position")
    rule = client.call("POST", "/v1/rules", {"kind": "pin", "result": "new", "position": 6, "query": "beyond"}).json
    pinned = client.rank("beyond", [*PAGE, "new"], slots=2).json
    assert pinned["ranking"][5] == "new"
    assert client.events(pinned["decision"], click(position=6)).status == 200
    client.call("DELETE", f"/v1/rules/{rule['id']}")


# ---------------------------------------------------------------------- events
def test_events_in_any_order_one_by_one_or_together_give_equal_records(client):
    """Also with repeats, by result or by position, as an observed ranking and as a decision."""
    clicks = ["a", "c", "e"]
    ways: list[list[list[str]]] = [[list(order)] for order in permutations(clicks)]
    ways += [[[name] for name in order] for order in permutations(clicks)]
    ways += [[["c"], [], ["a", "e"]], [["c", "c"], ["c"], ["a"], ["a", "e", "c"]]]
    expected = {name: (1, int(name in clicks), 1, int(name in clicks)) for name in PAGE}
    for number, way in enumerate(ways):
        query = f"ways {number}"
        token = observe(client, query, PAGE).json["decision"]
        for names in way:
            events = [click(name) if number % 2 else click(position=PAGE.index(name) + 1) for name in names]
            assert client.events(token, *events).json == {"status": "learned"}
        assert counts(client, query) == expected, way
    whole = observe(client, "whole", PAGE, *(click(name) for name in clicks))
    assert whole.json["status"] == "learned"
    assert counts(client, "whole") == expected


def test_that_nobody_clicked_and_then_a_click(client):
    answer = client.rank("nobody", PAGE).json
    for _ in range(2):
        assert client.events(answer["decision"]).json == {"status": "learned"}
    assert client.clicks("nobody") == {}
    third = answer["ranking"][2]
    before = metric(client, 'swerve_clicks_total{position="3"}')
    assert client.events(answer["decision"], click(third)).json == {"status": "learned"}
    assert client.events(answer["decision"]).json == {"status": "learned"}
    assert client.clicks("nobody") == {third: 1}
    assert metric(client, 'swerve_clicks_total{position="3"}') == before + 1


def test_position_and_result_are_two_names_for_one_click(client):
    answer = client.rank("names", PAGE).json
    for event in (click(position=2), click(answer["ranking"][1]), click(answer["ranking"][1], id="e1"), click(position=2, id="e2")):
        assert client.events(answer["decision"], event, event).json == {"status": "learned"}
    assert client.clicks("names") == {answer["ranking"][1]: 1}
    assert client.events(answer["decision"], click(position=6)).status == 422  # the page has five
    assert client.clicks("names") == {answer["ranking"][1]: 1}


@pytest.mark.parametrize("event", [click("a", position=1), click(), click(None, id="e")])
def test_an_event_has_a_result_or_a_position_and_not_both(client, event):
    token = client.rank("both", PAGE).json["decision"]
    assert refused(client.events(token, click("a"), event)) == (422, "invalid", "events[1]")
    assert refused(observe(client, "both", PAGE, event)) == (422, "invalid", "events[0]")
    batch = client.call("POST", "/v1/feedback/batch", [{"decision": token, "events": [event]}, said_of(token, None)]).json
    assert batch[0]["error"]["field"] == "events[0]" and batch[1] == {"status": "learned"}
    assert client.clicks("both") == {}  # of a request that is refused nothing counts


def test_a_click_on_a_result_of_another_request_is_refused(client):
    client.rank("others", ["x", "y"])
    time.sleep(1.1)  # a candidate that is known for less than a second may have been on offer under another arm
    token = client.rank("others", PAGE).json["decision"]
    assert refused(client.events(token, click("a"), click("x"))) == (422, "not_offered", "events[1].result")
    assert client.clicks("others") == {}


# ---------------------------------------------------------------------- what was shown
def test_what_was_really_shown_overrides_the_ranking(client):
    answer = client.rank("shown", PAGE).json
    shown = [*reversed(answer["ranking"][:4])]  # another order, and without the last
    assert client.events(answer["decision"], click(position=1), shown=shown).json == {"status": "learned"}
    assert client.clicks("shown") == {shown[0]: 1}
    assert client.events(answer["decision"], click(position=2)).json == {"status": "learned"}  # of what was shown
    assert client.clicks("shown") == {shown[0]: 1, shown[1]: 1}
    assert client.events(answer["decision"], click(answer["ranking"][4])).json["status"] == "ignored"
    assert client.clicks("shown") == {shown[0]: 1, shown[1]: 1}


def test_clicks_that_came_before_stay_with_their_results(client):
    answer = client.rank("moved", PAGE).json
    token, ranking = answer["decision"], answer["ranking"]
    assert client.events(token, click(position=3)).json == {"status": "learned"}
    assert client.events(token, shown=[ranking[2], ranking[0]]).json == {"status": "learned"}
    for event in (click(position=1), click(ranking[2])):  # the same click again
        assert client.events(token, event).json == {"status": "learned"}
    assert client.clicks("moved") == {ranking[2]: 1}


def test_results_that_were_not_on_offer_or_are_there_twice_are_not_what_was_shown(client):
    client.rank("strangers", ["x", "y"])
    token = client.rank("strangers", PAGE[:3]).json["decision"]
    for stranger in ("x", "never seen"):  # one that the query knows, and one that it does not
        assert refused(client.events(token, shown=["a", stranger])) == (422, "not_offered", "shown[1]"), stranger
    assert refused(client.events(token, shown=["a", "b", "a"])) == (422, "repeated", "shown")
    assert refused(client.events(token, shown=[])) == (422, "empty", "shown")
    assert refused(client.events(token, shown=["a", ""])) == (422, "empty", "shown[1]")
    assert client.clicks("strangers") == {}
    assert client.events(token, click(position=1), shown=["c", "a"]).json == {"status": "learned"}
    assert client.clicks("strangers") == {"c": 1}


def test_a_result_from_below_the_slots_may_have_been_shown(client):
    answer = client.rank("pulled up", PAGE, slots=2).json
    below = answer["ranking"][4]
    assert client.events(answer["decision"], click(position=1), shown=[below, answer["ranking"][0]]).json == {"status": "learned"}
    assert client.clicks("pulled up") == {below: 1}
    shown = {name: found[0] for name, found in counts(client, "pulled up").items() if found[0]}
    assert shown == {below: 1, answer["ranking"][0]: 1}  # and the second was not


# ---------------------------------------------------------------------- restarts, batches, propensities
def test_a_repeat_counts_once_also_after_a_restart(tmp_path: Path):
    """What was shown and clicked is known to the next start too; and a steady order ends with its seconds."""
    with running(tmp_path, {"feedback": {"steady_seconds": 1.0}}) as service:
        client = service.client()
        plain, moved = client.rank("plain", PAGE).json, client.rank("moved", PAGE).json
        shown = moved["ranking"][::-1]
        once = [(plain["decision"], [click(position=3), click(position=1)], {})]
        once += [(moved["decision"], [click(position=2)], {"shown": shown})]
        expected = {"plain": {plain["ranking"][0]: 1, plain["ranking"][2]: 1}, "moved": {shown[1]: 1}}
        for round_ in range(3):
            for token, events, more in once:
                assert client.events(token, *events, **more).json == {"status": "learned"}
            assert {query: client.clicks(query) for query in expected} == expected, round_
            if round_ == 0:
                assert service.stop() == 0
                client = service.start().client()
            elif round_ == 1:
                service.kill()
                client = service.start().client()
        # a further click of a decision of two starts ago counts, once, where it was really shown
        for _ in range(2):
            assert client.events(moved["decision"], click(position=5)).json["status"] in ("learned", "late")
        assert client.clicks("moved") == {shown[1]: 1, shown[4]: 1}
        first = client.rank("steady", PAGE, session="s").json
        time.sleep(1.1)
        assert client.rank("steady", PAGE, session="s").json["decision"] != first["decision"]


def told(answer: dict[str, Any]) -> dict[str, Any]:
    """An answer without its token, in which stores and times differ."""
    return {name: value for name, value in answer.items() if name != "decision"}


def test_a_batch_is_its_requests_one_by_one(tmp_path: Path):
    """Two services with one seed: the same requests and feedback, singly to one and in batches to the other."""
    changes = {"policy": {"seed": 7}}
    with running(tmp_path / "one", changes) as singly, running(tmp_path / "many", changes) as together:
        one, many = singly.client(), together.client()
        rng = random.Random(5)
        queries = [f"q{number}" for number in range(4)]
        for _ in range(12):
            asked = []
            for _ in range(10):
                ask: dict[str, Any] = {"query": rng.choice(queries), "candidates": rng.sample(PAGE, rng.randint(2, 5))}
                ask |= {"slots": rng.choice([1, 3, 10])} if rng.random() < 0.5 else {}
                ask |= {"session": f"s{rng.randrange(6)}"} if rng.random() < 0.5 else {}
                ask |= {"filter": rng.choice("xy")} if rng.random() < 0.3 else {}
                asked.append(ask)
            alone = [one.call("POST", "/v1/rank", ask).json for ask in asked]
            batch = many.call("POST", "/v1/rank/batch", asked).json
            assert [told(answer) for answer in batch] == [told(answer) for answer in alone]
            events = [[click(position=rng.randint(1, len(ask["candidates"]))) for _ in range(rng.randint(0, 2))] for ask in asked]
            said = [one.events(answer["decision"], *events[k]).json for k, answer in enumerate(alone)]
            entries = [{"decision": answer["decision"], "events": events[k]} for k, answer in enumerate(batch)]
            assert many.call("POST", "/v1/feedback/batch", entries).json == said
        for query in queries:
            assert counts(one, query) == counts(many, query)
        assert sum(sum(one.clicks(query).values()) for query in queries) > 20


def test_propensities_are_the_shares_of_repeated_draws(tmp_path: Path):
    """The same history under many queries: how often each result is on top, and what the answers say of that."""
    queries, draws = 400, 400
    changes = {"policy": {"propensity_draws": draws}, "limits": {"new_queries_per_minute": 100_000}}
    history = [("a", True), ("b", True), ("b", False), ("c", False)]  # top, clicked?
    with running(tmp_path, changes) as service:

        def teach(some: range) -> None:
            client = service.client()
            for number in some:
                for top, clicked in history:
                    shown = [top, *(name for name in "abc" if name != top)]
                    assert observe(client, f"q{number}", shown, *([click(top)] if clicked else [])).json["status"] == "learned"

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(teach, [range(start, queries, 8) for start in range(8)]))
        asked = [{"query": f"q{number}", "candidates": list("abc")} for number in range(queries)]
        answers = service.client().call("POST", "/v1/rank/batch", asked).json
    told: dict[str, list[float]] = defaultdict(list)
    for answer in answers:
        assert not answer["degraded"]
        told[answer["ranking"][0]].append(answer["propensities"][0])
        assert answer["explored"] == next((slot for slot, p in enumerate(answer["propensities"], 1) if p < 0.5), None)
    assert set(told) == set("abc")
    for name, chances in told.items():
        share, mean = len(chances) / queries, sum(chances) / len(chances)
        error = math.sqrt(mean * (1 - mean) / queries)
        assert abs(share - mean) < 4 * error, (name, share, mean, error)
        spread = math.sqrt(sum((chance - mean) ** 2 for chance in chances) / len(chances))
        assert spread < 2 * 0.5 / math.sqrt(draws), (name, spread)  # every answer by itself is within the stated error
    assert len({round(sum(chances) / len(chances), 1) for chances in told.values()}) == 3  # the history makes a difference


# ---------------------------------------------------------------------- the default policy
def bytes_after(folder: Path, way: list[list[str]]) -> tuple[bytes, bytes]:
    """The query's record, and what all queries share, after these clicks on two observed pages, a request for each list."""

    async def play() -> tuple[bytes, bytes]:
        now = [1.7e9]
        default = {"spec": "swerve", "arms": 8, "seed": 3, "grace_seconds": 1.0}
        service = service_at(folder, now, policy=default, signals=NEWS)
        await service.start(whole=True)
        service.ranker.life = service.tokens.life = Life(1, 2, 3)  # decisions of one life have the same numbers
        for _ in range(2):
            said = await service.observing.one(ObserveRequest("q", list(PAGE), []))
            now[0] += 0.25
            for names in way:
                await service.feedback.one(FeedbackRequest(said.decision, [Event("click", name) for name in names]))
            now[0] += 30.0
            await service.ranking.rank_one(read_rank(b'{"query": "q", "candidates": ["a", "b", "c", "d", "e"]}'))
        place = service.ranker.rows.get(service.ranker.key_of("q"))
        assert place is not None
        out = place.record.tobytes(), service.ranker.pools.tobytes()
        assert await service.stop()
        return out

    return asyncio.run(play())


def test_the_default_policy_ends_in_the_same_bytes_however_the_clicks_arrive(tmp_path: Path):
    ways = [["a", "c", "e"]], [["e"], ["c"], ["a"]], [["c"], ["e", "a"]], [["a", "c"], ["c"], ["e", "a"]]
    expected, *others = [bytes_after(tmp_path / str(number), way) for number, way in enumerate(ways)]
    assert others == [expected] * 3
    assert bytes_after(tmp_path / "fewer", [["a", "c"]]) != expected


@pytest.fixture(scope="module")
def learner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """The policy that learns from every slot; clicks are waited for half a second."""
    with running(
        tmp_path_factory.mktemp("learner"), {"policy": {"spec": "swerve", "grace_seconds": 0.5}, "signals": NEWS}
    ) as service:
        yield service


def test_a_click_on_position_three_is_learned_and_raises_that_result(learner: Running):
    client = learner.client()
    where: dict[str, list[int]] = {"raised": [], "control": []}
    for number in range(60):
        for query, positions in where.items():
            answer = client.rank(query, PAGE, session=f"{number}").json
            positions.append(answer["ranking"].index("c") + 1)
            events = [click(position=positions[-1])] if query == "raised" else []
            assert client.events(answer["decision"], *events).json == {"status": "learned"}
        time.sleep(0.05)
    assert 3 in where["raised"][:10]  # the given order is where it begins
    assert sum(position == 1 for position in where["raised"][-20:]) >= 15, where
    assert sum(position == 1 for position in where["control"][-20:]) <= 10, where
    assert client.clicks("raised") == {"c": 60}
    state = {arm["id"]: arm for arm in client.query("raised").json["arms"]}
    assert state["c"]["phase_clicks"] >= 50
    assert all(arm["plays"] == 60 for arm in state.values())
