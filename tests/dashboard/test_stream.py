"""`GET /v1/live` over a real connection: reconnecting, slow readers, and a stop that does not wait for readers."""

from __future__ import annotations

import http.client
import json
import socket
import time
from urllib.parse import quote

import pytest
from dashboard.listening import Site
from hypothesis import HealthCheck, given, settings, strategies as st
from service.running import until

from swerve.dashboard.hub import MOST_WAITING


def values(events) -> list[int]:
    return [event.data["value"] for event in events]


def readers(site: Site) -> int:
    return site.do(lambda: len(site.hub.readers))


def test_the_first_messages(site):
    site.publish(1)
    with site.listen("hurricane") as line:
        assert line.response.status == 200
        headers = {name.lower(): value for name, value in line.response.getheaders()}
        assert headers["content-type"] == "text/event-stream" and headers["cache-control"] == "no-store"
        assert headers["x-request-id"]
        hello, history = line.next(), line.next()
        assert line.retry == 1000
        assert (hello.name, hello.id, hello.data["query"]) == ("hello", None, "hurricane")
        assert (history.name, history.data["demo"][0]["value"]) == ("history", 1)
        assert line.next() == (None, "query", {"query": "hurricane", "missing": True})
        site.do(site.hub.tick)
        sample = line.next()
        assert sample.name == "sample" and sample.number == history.number + 1
        assert sample.data["store"]["state"] == "starting"


def test_after_a_lost_connection_no_message_is_missed_and_none_comes_twice(site):
    seen = []
    with site.listen() as line:
        line.until("history")
        site.publish(1, 2, 3)
        events = line.until("demo", 2)  # the third is sent and never read
        seen += values(events)
        line.socket.close()  # without a goodbye, like a lost network
    site.publish(4)
    site.do(site.hub.tick)
    site.publish(5)
    with site.listen(last=events[-1].id) as line:
        assert line.next().data["resumed"] is True
        again = [line.next() for _ in range(4)]
        assert [event.name for event in again] == ["demo", "demo", "sample", "demo"]
        site.publish(6)
        again.append(line.next())
    seen += values(event for event in again if event.name == "demo")
    assert seen == [1, 2, 3, 4, 5, 6]
    numbers = [event.number for event in [*events, *again]]
    assert numbers == list(range(numbers[0], numbers[0] + 7))


def test_who_comes_back_to_another_start_begins_anew(site):
    site.publish(1, 2)
    with site.listen(last="0123456789ab-2") as line:
        assert line.next().data["resumed"] is False
        assert values_of_history(line) == [1, 2]


def values_of_history(line) -> list[int]:
    return [entry["value"] for entry in line.until("history")[0].data["demo"]]


def test_who_goes_away_is_noticed(site):
    lines = [site.listen("hurricane") for _ in range(5)]
    for line in lines:
        line.until("history")
    assert readers(site) == 5
    for line in lines:
        line.close()
    until(lambda: readers(site) == 0)
    assert site.do(lambda: site.hub._watches["hurricane"].readers) == set()


def test_a_slow_reader_is_cut_off_and_the_others_notice_nothing(site):
    """The reader reads nothing while more is sent than the network buffers."""
    large = "x" * 300_000
    with site.listen() as quick, site.listen() as slow:
        quick.until("history")
        until(lambda: readers(site) == 2)
        for number in range(MOST_WAITING * 3):
            site.do(lambda number=number: site.hub.publish("demo", {"value": number, "large": large}))
            assert quick.until("demo")[0].data["value"] == number
            if readers(site) == 1:
                break
        assert readers(site) == 1
        assert number > MOST_WAITING
        with pytest.raises((OSError, EOFError, http.client.IncompleteRead)):
            slow.until("demo", MOST_WAITING * 3)
        site.publish(-1)
        assert quick.until("demo")[0].data["value"] == -1


def test_the_end_of_the_server_does_not_wait_for_readers(tmp_path):
    """The server waits neither for active readers nor for one that reads nothing."""
    with Site(tmp_path) as site:
        listening, stuck = site.listen(), site.listen()
        listening.until("history")
        for _ in range(40):  # more than the network buffers, less than the limit of waiting messages
            site.do(lambda: site.hub.publish("demo", {"value": 0, "large": "x" * 300_000}))
            listening.until("demo")
        assert site.do(lambda: [reader.sending for reader in site.hub.readers].count(True)) == 1
        started = time.perf_counter()
    assert time.perf_counter() - started < 2.0
    with pytest.raises(EOFError):  # an orderly end, with the last chunk
        listening.next()
    listening.close()
    stuck.close()


def ask(site: Site, path: str, method: str = "GET", headers: dict[str, str] | None = None) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", site.port, timeout=10)
    connection.putrequest(method, path, skip_accept_encoding=True)
    for name, value in (headers or {}).items():
        connection.putheader(name, value.encode())
    connection.endheaders()
    answer = connection.getresponse()
    body = answer.read1(65536) if answer.status == 200 and method == "GET" else answer.read()
    connection.close()
    answer.close()
    return answer.status, body


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/v1/live?query=", "empty"),
        ("/v1/live?query=%20%09", "empty"),
        ("/v1/live?query=a%00b", "not_text"),
        ("/v1/live?query=" + "x" * 513, "too_long"),
        ("/v1/live?querry=x", "shape"),
    ],
)
def test_what_cannot_be_watched_is_refused_in_words(site, path, code):
    status, body = ask(site, path)
    assert (status, json.loads(body)["error"]["code"]) == (422, code)
    assert readers(site) == 0


def test_head_has_no_body(site):
    assert ask(site, "/v1/live", "HEAD") == (200, b"")


def test_anything_may_be_asked(site):
    @given(query=st.text(max_size=40), last=st.text(st.characters(max_codepoint=255, exclude_categories=["Cc"]), max_size=40))
    @settings(max_examples=60, suppress_health_check=list(HealthCheck))
    def answered(query: str, last: str) -> None:
        status, body = ask(site, f"/v1/live?query={quote(query, safe='')}", headers={"Last-Event-ID": last.strip()})
        if status == 200:
            assert body.startswith(b"retry: 1000\n\nevent: hello\ndata: {")
        else:
            assert status == 422 or (status, json.loads(body)["error"]["code"]) == (503, "too_many")

    answered()
    until(lambda: readers(site) == 0)


def test_nothing_may_be_sent_behind_a_stream(site):
    """A request behind a stream would hide that the reader has gone."""
    with socket.create_connection(("127.0.0.1", site.port), timeout=10) as line:
        line.sendall(b"GET /v1/live HTTP/1.1\r\nHost: localhost\r\n\r\n" * 2)
        assert line.recv(65536).startswith(b"HTTP/1.1 422")
    until(lambda: readers(site) == 0)


def test_a_later_request_behind_a_stream_does_not_keep_it_alive(site):
    with socket.create_connection(("127.0.0.1", site.port), timeout=10) as line:
        line.sendall(b"GET /v1/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"event: hello" in line.recv(65536)
        line.sendall(b"GET /v1/live HTTP/1.1\r\nHost: localhost\r\n\r\n")

    def gone() -> bool:
        site.do(site.hub.tick)  # the server no longer reads, so a failing write shows that the reader has gone
        return readers(site) == 0

    until(gone)
