"""Logs of every format are read as one form; what cannot be read is counted, with a reason and an example."""

from __future__ import annotations

import gzip
import json
import math
import random
import tracemalloc

import pytest
from serving.scripted import Recorder, Script, ranker

from swerve.core.errors import SwerveError
from swerve.evaluate.readers import format_of, read
from swerve.evaluate.tally import Tally
from swerve.serving.messages import Candidate, Event
from swerve.serving.outcomes import Outcome
from swerve.serving.replay import ticket_of
from swerve.serving.times import seconds
from swerve.store.protocol import Life


def write(path, *lines):
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines), encoding="utf-8")
    return path


def taken(*paths, **options):
    tally = Tally()
    return list(read(paths, tally=tally, **options)), tally


def recorded(folder):
    """Make a recording of two lives, with feedback of all kinds; return the pages that were shown."""
    pages = []
    script = Script(ranker("ts", slots=2, numbers=("news", "rain"), plan=(0, 5, 6), weights=(("click", 1.0), ("cart", 0.5))))
    for life in (7, 8):
        script.ranker.rows.clear()
        script.ranker.life, script.ranker.issued = Life(1, life, life), 0
        recorder = Recorder(folder, {}, script.ranker, script.now)
        if life == 7:
            pages.append(script.rank("q\0locale=en", ["a", Candidate("b"), "c"], signals={"news": 0.5, "rain": None}))
            pages.append(script.rank("q\0locale=en", ["a", "b"]))
            script.click(pages[1], 2)
            script.click(pages[0], [pages[0].ranking[0], "z"])  # one of them is on no page
            script.ranker.shift(script.place("q\0locale=en"), script.now)
            pages.append(script.rank("r", ["c", "d"], as_given=True))
            script.click(pages[2], 1, shown=["d", "c"])
        else:
            unknown = script.rank("other", ["a", "b"])
            pages.append(unknown)
            script.respond(unknown, None)
            events = [Event("cart", position=1), Event("click", position=2)]
            ticket = ticket_of(unknown, script.ranker.life)
            place, number = script.place("other"), unknown.signed.number
            script.ranker.feedback(place, ticket, number, script.outcomes[number], events, None, script.now)
            before = unknown.signed._replace(number=unknown.signed.number - 1)  # of before the recording
            script.ranker.feedback(place, ticket, before.number, Outcome(0, 0), [Event("click", position=1)], None, script.now)
        recorder.close(script.now)
        script.ranker.notes = script.ranker.arms.notes = None
    return pages


def test_a_recording_joins_pages_and_feedback(tmp_path, uncompiled):
    pages = recorded(tmp_path / "log")
    assert format_of(tmp_path / "log") == "swerve"
    lists, tally = taken(tmp_path / "log")
    assert [(entry.query, entry.shown, entry.clicks) for entry in lists] == [
        ("q\0locale=en", pages[0].ranking[:2], [1]),
        ("q\0locale=en", pages[1].ranking, [2]),
        ("r", ["d", "c"], [1]),
        ("other", pages[3].ranking, [2]),
    ]
    assert lists[0].given == ["a", "b", "c"]
    assert (lists[0].signals, lists[1].signals) == ({"news": 0.5}, None)
    assert [entry.propensities for entry in lists] == [pages[0].chances, pages[1].chances, None, pages[3].chances]
    assert {reason: found.lines for reason, found in tally.dropped.items()} == {
        "a click below the page, or on a result that is not on it": 1,
        "feedback for a decision that is not in the recording": 1,
        "feedback with an event that is no click: cart": 1,
    }
    where = tally.dropped["feedback for a decision that is not in the recording"].where
    assert where.startswith(f"{tmp_path / 'log'}:")
    assert (tally.lists, tally.queries, tally.clicks) == (4, 3, 4)
    assert lists[0].time == 1_000_001.0


def test_a_damaged_recording_is_refused(tmp_path, uncompiled):
    recorded(tmp_path / "log")
    first = min((tmp_path / "log").glob("*.journal"))
    content = bytearray(first.read_bytes())
    content[len(content) // 2] ^= 1
    first.write_bytes(content)
    with pytest.raises(SwerveError, match="put back a copy of this file"):
        taken(tmp_path / "log")


def test_ubi_joins_queries_and_events_from_two_files_leniently(tmp_path):
    queries = write(
        tmp_path / "ubi_queries.ndjson",
        {"query_id": "1", "user_query": "boots", "timestamp": "2024-11-16T10:00:00Z", "query_response_hit_ids": ["x", "y", "z"]},
        {"query_id": "2", "user_query": "boots", "timestamp": 1731751260000, "query_response_hit_ids": "x|y"},
        {"query_id": "3", "user_query": "hats", "timestamp": "2024-11-16 10:02:00"},
        [{"query_id": "4", "query_response_hit_ids": ["x"]}],
    )
    events = write(
        tmp_path / "ubi_events.ndjson",
        {
            "action_name": "click",
            "query_id": "1",
            "timestamp": "2024-11-16T10:00:09Z",
            "event_attributes": {"object": {"object_id": "y"}, "position": {"ordinal": 7}},
        },
        {
            "action_name": "item_click",
            "query_id": "2",
            "timestamp": "2024-11-16T10:01:09.1234567Z",
            "event_attributes": {"position": {"ordinal": 0}},
        },
        {"action_name": "page_exit", "query_id": "1", "timestamp": "2024-11-16T10:03:00Z"},
        {"action_name": "click", "query_id": "77", "timestamp": "2024-11-16T10:03:00Z"},
        {"action_name": "click", "query_id": "1", "timestamp": "soon"},
        "{not json",
    )
    assert format_of(queries) == format_of(events) == "ubi"
    lists, tally = taken(events, queries)  # the order of the files does not matter: their times do
    assert [(entry.query, entry.shown, entry.clicks) for entry in lists] == [
        ("boots", ["x", "y", "z"], [2]),
        ("boots", ["x", "y"], [1]),
    ]
    assert lists[1].time == 1731751260.0
    assert {reason: found.lines for reason, found in tally.dropped.items()} == {
        "a query without query_response_hit_ids": 1,
        "a query without user_query": 1,
        "an event that is no click: page_exit": 1,
        "a click whose query is not in the log, or came later, or lies too far back": 1,
        "an event whose time cannot be read": 1,
        "not JSON": 1,
    }
    assert tally.lines == 10


def test_dsjson_has_the_chances_of_all_actions(tmp_path):
    line = {
        "_label_cost": -1.0,
        "_label_probability": 0.8,
        "_label_Action": 2,
        "Timestamp": "2021-02-04T16:31:29.2460000Z",
        "EventId": "e",
        "a": [2, 1, 3],
        "p": [0.8, 0.1, 0.1],
        "c": {"user": {"term": "boots"}, "_multi": [{"id": "x"}, {"id": "y"}, {"id": "z"}]},
    }
    path = write(
        tmp_path / "log.dsjson",
        line,
        {**line, "_label_cost": 0},
        {"EventId": "e", "v": 1},
        {**line, "_outcomes": []},
        {**line, "_label_probability": 0},
    )
    assert format_of(path) == "dsjson"
    lists, tally = taken(path, map=["query=c.user.term", "shown=id"])
    assert [(entry.query, entry.shown, entry.clicks, entry.propensities) for entry in lists] == [
        ("boots", ["y"], [1], [0.8]),
        ("boots", ["y"], [], [0.8]),
    ]
    assert (lists[0].choices, lists[0].chances) == (["y", "x", "z"], [0.8, 0.1, 0.1])
    assert sum(found.lines for found in tally.dropped.values()) == 3
    assert taken(path)[0][0].shown == ["2"]


def test_open_bandit_rows_have_their_position(tmp_path):
    path = write(
        tmp_path / "all.csv",
        ",timestamp,item_id,position,click,propensity_score,user_feature_0",
        "0,2019-11-24 00:00:28.443500+00:00,79,2,1,0.0125,a",
        "1,2019-11-24 00:00:30+00:00,14,1,0,0.0125,a",
        "2,2019-11-24 00:00:30+00:00,14,1,0,1.5,a",
        "3,short",
    )
    assert format_of(path) == "open-bandit"
    lists, tally = taken(path)
    assert [(entry.shown, entry.top, entry.clicks, entry.propensities) for entry in lists] == [
        (["79"], 2, [2], [0.0125]),
        (["14"], 1, [], [0.0125]),
    ]
    assert {reason: found.where for reason, found in tally.dropped.items()} == {
        "a propensity_score outside (0, 1]": f"{path}:4",
        "another number of columns than the head": f"{path}:5",
    }


def test_plain_logs_with_usual_and_with_mapped_columns(tmp_path):
    usual = write(
        tmp_path / "a.jsonl",
        {"time": 5, "query": "q", "shown": ["a", "b"], "clicks": ["b"], "propensities": [0.5, 0.5], "signals": {"s": 1}},
        {"time": 6, "query": "q", "shown": ["a", "b"], "positions": [1]},
        {"time": 6, "query": "q", "shown": ["a", "a"]},
        {"time": 6, "query": "q", "shown": ["a"], "clicks": ["z"]},
        {"time": 6, "query": "q", "shown": ["a"], "propensities": [0.0]},
        {"time": 6, "shown": ["a"]},
    )
    lists, tally = taken(usual)
    assert [(entry.clicks, entry.propensities, entry.signals) for entry in lists] == [
        ([2], [0.5, 0.5], {"s": 1.0}),
        ([1], None, None),
    ]
    assert sum(found.lines for found in tally.dropped.values()) == 4
    mapped = write(tmp_path / "b.csv", "when,term,list,hit,rain", "7,Q,a|b|c,3,0.5", "8,Q,a|b|c,,")
    lists, _ = taken(mapped, map=["time=when,query=term,shown=list", "positions=hit", "signal.rain=rain"])
    assert [(entry.time, entry.clicks, entry.signals) for entry in lists] == [(7.0, [3], {"rain": 0.5}), (8.0, [], None)]


def test_a_mapped_column_that_no_line_has_is_refused(tmp_path):
    log = write(tmp_path / "a.csv", "when,term,list,hit", "7,Q,a|b,2", "8,Q,a|b,")
    with pytest.raises(
        SwerveError, match=r"no line has the mapped column HIT \(for positions\); the first line has when, term, list, hit"
    ):
        taken(log, map=["time=when,query=term,shown=list,positions=HIT"])
    nested = write(
        tmp_path / "a.jsonl", {"q": "Q", "shown": ["a"], "user": {"hit": None}}, {"q": "Q", "shown": ["a"], "user": {"hit": "a"}}
    )
    assert [entry.clicks for entry in taken(nested, map=["clicks=user.hit"])[0]] == [[], [1]]


def test_what_cannot_be_read_is_counted(tmp_path):
    log = write(
        tmp_path / "a.jsonl",
        {"time": "yesterday", "query": "q", "shown": ["a"], "clicks": ["a"]},
        {"time": -5, "query": "q", "shown": ["a"]},
        {"time": "", "query": "q", "shown": ["a"], "positions": ["a"]},
        {"time": "", "query": "q", "shown": ["a"], "positions": ["", 1]},
    )
    lists, tally = taken(log)
    assert [entry.clicks for entry in lists] == [[1]]
    assert {reason: found.lines for reason, found in tally.dropped.items()} == {
        "a time that cannot be read": 2,
        "a click on a result or position that the list does not have": 1,
    }


def test_parquet_is_read_like_json_lines(tmp_path):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    table = pa.table({"time": [1.0, 2.0], "query": ["q", "q"], "shown": [["a", "b"], ["b", "a"]], "clicks": [["b"], []]})
    pq.write_table(table, tmp_path / "log.parquet")
    lists, tally = taken(tmp_path / "log.parquet")
    assert [(entry.shown, entry.clicks) for entry in lists] == [(["a", "b"], [2]), (["b", "a"], [])]
    assert tally.lines == 2
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 and nothing else")
    with pytest.raises(SwerveError, match=r"bad.parquet cannot be read as Parquet"):
        taken(tmp_path / "bad.parquet")


def test_wrong_requests_are_refused_in_one_line(tmp_path):
    path = write(tmp_path / "a.jsonl", {"query": "q", "shown": ["a"]})
    with pytest.raises(SwerveError, match=r"--format ubj is not allowed; .*did you mean 'ubi'"):
        taken(path, format="ubj")
    with pytest.raises(SwerveError, match="--map colour=x is not allowed"):
        taken(path, map=["colour=x"])
    (tmp_path / "log").mkdir()
    with pytest.raises(SwerveError, match=r"one format: .*a.jsonl is plain, .*log is swerve"):
        taken(path, tmp_path / "log")
    with pytest.raises(SwerveError, match="log is no journal"):
        taken(tmp_path / "log")
    with pytest.raises(SwerveError, match=r"a\.jsonl is no log of Swerve"):
        taken(path, format="swerve")
    with pytest.raises(SwerveError, match=r"none\.jsonl cannot be read"):
        taken(tmp_path / "none.jsonl")
    assert taken(path, format="ubi")[0] == []


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (1.7e9, 1.7e9),
        ("1700000000", 1.7e9),
        (1.7e12, 1.7e9),
        (1.7e15, 1.7e9),
        ("2023-11-14T22:13:20.000Z", 1.7e9),
        ("2023-11-14 22:13:20 UTC", 1.7e9),
        ("14/Nov/2023:22:13:20 +0000", 1.7e9),
        (None, math.nan),
        ("x", math.nan),
        (True, math.nan),
    ],
)
def test_times(written, expected):
    assert seconds(written) == pytest.approx(expected, nan_ok=True)


def test_memory_does_not_grow_with_the_log(tmp_path):
    """Four times the lines need no more memory: nothing but counts and open lists is held."""

    def peak(lines):
        path = tmp_path / f"{lines}.jsonl"
        with path.open("w", encoding="utf-8") as file:
            for number in range(lines):
                file.write(
                    json.dumps({"time": number, "query": f"q{number % 50}", "shown": list("abcdefgh"), "positions": [1]}) + "\n"
                )
        tracemalloc.start()
        count = sum(1 for _ in read([path]))
        size = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert count == lines
        return size

    peak(100)
    assert peak(8000) < 1.2 * peak(2000)


def test_progress_ends_at_the_size_of_all_files(tmp_path):
    paths = [write(tmp_path / f"{name}.jsonl", *[{"query": "q", "shown": ["a"]}] * 1500) for name in "ab"]
    seen = []
    assert len(list(read(paths, progress=seen.append))) == 3000
    assert seen == sorted(seen)
    assert seen[-1] == sum(path.stat().st_size for path in paths)


def zstd(text: bytes) -> bytes:
    pyarrow = pytest.importorskip("pyarrow")
    return bytes(pyarrow.Codec("zstd").compress(text, asbytes=True))


@pytest.mark.parametrize("pack", [gzip.compress, zstd])
def test_a_compressed_log_is_read_as_it_is_without(tmp_path, pack):
    plain = b'{"query": "q", "shown": ["a", "b"], "clicks": ["b"]}\nno\n' * 500
    read_of = {}
    for name, content in (("plain", plain), ("packed", pack(plain))):
        path = tmp_path / name
        path.write_bytes(content)
        tally, done = Tally(), []
        entries = list(read([path], tally=tally, progress=done.append))
        read_of[name] = [entries, tally.lines, {why: drop.lines for why, drop in tally.dropped.items()}]
        assert done[-1] == path.stat().st_size
    assert read_of["plain"] == read_of["packed"]
    assert read_of["packed"][1] == 1000


def test_a_compressed_log_that_is_cut_off_says_where(tmp_path):
    path = tmp_path / "log.gz"
    lines = "\n".join(json.dumps({"query": f"q{random.random()}", "shown": ["a"]}) for _ in range(20_000))
    path.write_bytes(gzip.compress(lines.encode())[:-20_000])
    found = []
    with pytest.raises(SwerveError, match=r"log\.gz:\d+: the file cannot be read any further"):
        found.extend(read([path]))
