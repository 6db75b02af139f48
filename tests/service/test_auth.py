"""API keys and their scopes; query texts and secrets appear in no log and no file."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import forking
import pytest
from service.running import Http, Running, running, said_of, until

from swerve.service.secrets import new_key

ALL, RANK, READ = (new_key("all"), new_key("searcher", ["rank"]), new_key("reader", ["read"]))
CONFIG = {
    "security": {
        "api_keys": [{"name": k.entry.name, "hash": k.entry.hash, "scopes": list(k.entry.scopes)} for k in (ALL, RANK, READ)]
    },
    "server": {"host": "0.0.0.0"},  # allowed only with API keys
    "log": {"access": "all", "level": "debug"},
}
MARKER = "zanzibar-xylophone"
ASK = {"query": "q", "candidates": ["a", "b"]}


def serve_command(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "swerve", "serve", *options]
    return forking.run(*command)


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_no_other_address_without_a_key(host, tmp_path):
    done = serve_command("--host", host, "--port", "0", "--store", f"sqlite:///{tmp_path}/swerve.db")
    assert done.returncode == 2
    assert "without an API key" in done.stderr and "swerve keys new" in done.stderr
    assert not list(tmp_path.iterdir())  # refused before any file was created


def routes(token: str) -> dict[str, list[tuple[str, str, object]]]:
    """Return the requests that each scope allows."""
    return {
        "rank": [("POST", "/v1/rank", ASK), ("POST", "/v1/rank/batch", [ASK])],
        "feedback": [
            ("POST", "/v1/feedback", said_of(token, "a")),
            ("POST", "/v1/feedback/batch", [said_of(token, "a")]),
            ("POST", "/v1/queries/q/shift", {}),
        ],
        "operate": [
            ("POST", "/v1/rules", {"kind": "block", "result": "x"}),
            ("GET", "/v1/rules", None),
            ("GET", "/v1/audit", None),
        ],
        "signals": [
            ("POST", "/v1/signals", {"name": "news", "value": 1}),
            ("POST", "/v1/signals/batch", [{"name": "news", "value": 1}]),
        ],
        "read": [("GET", "/v1/queries", None), ("GET", "/v1/queries/q", None), ("GET", "/metrics", None)],
    }


def test_every_scope_opens_its_routes_and_no_others(served):
    good = served.client(ALL.text)
    token = good.call("POST", "/v1/rank", ASK).json["decision"]
    for scope, calls in routes(token).items():
        for call in calls:
            assert good.call(*call).status == 200, call
            for key in (RANK, READ):
                answer = served.client(key.text).call(*call)
                assert answer.status == (200 if scope in key.entry.scopes else 403), (call, key.entry)
                if answer.status == 403:
                    assert answer.json["error"]["code"] == "scope"


def test_without_a_good_key_nothing_is_said(served):
    client = served.client()
    wrong = [
        "",
        "Bearer",
        "Bearer ",
        "Basic Og==",
        "Bearer swerve_wrong",
        f"Bearer {ALL.entry.hash}",
        f"Bearer {ALL.text}x",
        ALL.text,
    ]
    for headers in ({}, *({"Authorization": text} for text in wrong)):
        for calls in routes("x" * 80).values():
            for method, path, body in calls:
                answer = client.call(method, path, body, headers)
                assert answer.status == 401, headers
                assert answer.headers["www-authenticate"] == "Bearer"
                assert set(answer.json) == {"error"}


def test_the_key_is_asked_before_the_body_is_read(served):
    """Without a key, a body over the limit is refused because of the key."""
    assert served.client().call("POST", "/v1/rank", b"x" * 2_000_000).status == 401


def test_health_and_description_need_no_key(served):
    for path in ("/healthz", "/readyz", "/openapi.json", "/docs"):
        assert served.client().call("GET", path).status == 200


def everything_that_can_be_asked(client: Http, stranger: Http, text: str) -> None:
    """Send requests of all kinds that contain a text, valid and invalid ones."""
    ask = {"query": text, "candidates": ["a", "b"], "session": f"session {text}"}
    token = client.call("POST", "/v1/rank", ask).json["decision"]
    for body in (
        ask,
        {**ask, "candidates": []},
        {**ask, "candidates": [text, text]},
        {**ask, "signals": {text: 1.0}},
        {**ask, "unknown": 1},
        {**ask, text: 1},
        {"query": text},
        {"query": [text]},
        [text],
        text,
        json.dumps(ask).encode()[:-3],
        b'{"query": "' + text.encode() + b'\xff"}',
    ):
        client.call("POST", "/v1/rank", body)
        client.call("POST", "/v1/rank/batch", body)
        client.call("POST", "/v1/feedback", body)
        stranger.call("POST", "/v1/rank", body)
    for clicked in ("a", None, text):
        client.call("POST", "/v1/feedback", said_of(token, clicked))
    client.call("POST", "/v1/feedback", said_of(text, text))
    for path in (text, f"{text} unknown", f"{text}/a/b", f"{text}%00", f"{text}\ud7ff", "x" * 600 + text):
        for method in ("GET", "POST", "PUT", "DELETE", "HEAD", "PATCH"):
            client.call(method, f"/v1/queries/{quote(path)}")
            client.call(method, f"/v1/queries/{quote(path)}/shift", {})
            client.call(method, f"/{quote(path)}")
    client.call("GET", f"/v1/queries?order={quote(text)}&limit={quote(text)}&{quote(text)}=1")
    stranger.call("GET", f"/v1/queries/{quote(text)}")
    client.call("GET", "/v1/queries", headers={"X-Request-Id": f"{text} {text}", "Referer": text})
    client.call("GET", "/metrics")


def holds(service: Running, text: str) -> list[str]:
    """Return the files of the service that contain a text, in any form that it may have on disk."""
    words = {text, text.upper(), text.title(), quote(text)}
    forms = [form for word in words for form in (word.encode(), word.encode("utf-16-le"))]
    found = []
    for path in (*filter(Path.is_file, service.state.rglob("*")), service.log):
        data = path.read_bytes()
        if any(form in data for form in forms):
            found.append(path.name)
    return found


def test_query_texts_appear_in_no_log_and_in_no_file(served):
    client, stranger = served.client(ALL.text), served.client()
    for text in (MARKER, MARKER.upper(), f"what is {MARKER}?"):
        everything_that_can_be_asked(client, stranger, text)
    until(lambda: served.database.with_name("swerve.db-wal").stat().st_size > 0)
    assert len(served.stderr().splitlines()) > 50  # requests were logged, with ids and routes
    assert served.client(ALL.text).call("GET", "/v1/queries").body.decode().find(MARKER) < 0
    assert MARKER not in served.client(ALL.text).call("GET", "/metrics").body.decode()
    assert holds(served, MARKER) == []
    assert served.stop() == 0
    assert holds(served, MARKER) == []
    assert MARKER not in " ".join(served.said_last)
    served.start()


def test_a_defect_does_not_tell_the_text_either(served):
    """The log names no query, even for requests that fail with 5xx."""
    log = [json.loads(line) for line in served.stderr().splitlines()]
    assert {line["route"] for line in log if line["message"] == "request"} >= {"rank", "feedback", "query", "shift"}
    assert not [line for line in log if line["level"] == "error"], [line for line in log if line["level"] == "error"]


def test_files_are_for_their_owner_only(served):
    files = {path.name: stat.S_IMODE(path.stat().st_mode) for path in served.state.rglob("*") if path.is_file()}
    assert stat.S_IMODE((served.state / "swerve.db.journal").stat().st_mode) == 0o700
    assert set(files.values()) == {0o600}
    assert {"swerve.db", "swerve.db.lock", "swerve.db.secrets"} <= set(files)


def test_keys_and_secrets_are_in_no_log(served):
    secrets = json.loads(served.database.with_name("swerve.db.secrets").read_text())
    text = served.stderr() + served.client().call("GET", "/openapi.json").body.decode()
    text += served.client(ALL.text).call("GET", "/metrics").body.decode()
    for secret in (ALL.text, RANK.text, ALL.entry.hash, secrets["query_key"], *secrets["token_keys"]):
        assert secret not in text


def test_with_store_queries_the_operator_sees_the_text(tmp_path):
    with running(tmp_path, {"store": {"store_queries": True}}) as service:
        client = service.client()
        client.rank(MARKER, ["a", "b"])
        assert client.query(MARKER).json["query"] == MARKER
        until(lambda: MARKER in client.call("GET", "/v1/queries").body.decode())
        until(lambda: "swerve.db-wal" in holds(service, MARKER))
        assert service.log.name not in holds(service, MARKER)
