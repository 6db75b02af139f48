"""Logs: one line per entry, with the request's id, without data of callers."""

from __future__ import annotations

import io
import json
import logging

import pytest

from swerve.core.errors import SwerveError
from swerve.service import logs
from swerve.service.config.sections import Log
from swerve.service.logs import access, log, new_id, request_id, setup


@pytest.fixture
def written():
    """A function that sets up the logs and reads the lines written; the fixture restores the logs afterwards."""
    names = ["", "swerve", "swerve.access", "uvicorn", "uvicorn.error", "uvicorn.asgi", "uvicorn.access"]
    loggers = [logging.getLogger(name) for name in names]
    before = [(one, one.level, list(one.handlers), one.propagate) for one in loggers]
    stream = io.StringIO()

    def start(**fields):
        setup(Log(**fields), stream)
        return lambda: stream.getvalue().splitlines()

    yield start
    for one, level, handlers, propagate in before:
        one.setLevel(level)
        one.handlers[:] = handlers
        one.propagate = propagate


def test_json_lines_with_the_request_id(written):
    lines = written()
    token = request_id.set("abc-1")
    try:
        log.info("started %s", "here", extra={"port": 8350, "store": "sqlite:///x"})
    finally:
        request_id.reset(token)
    log.warning("later")
    log.debug("not written")
    first, second = map(json.loads, lines())
    assert first.pop("at").endswith("Z")
    assert first == {
        "level": "info", "logger": "swerve", "message": "started here", "request": "abc-1", "port": 8350, "store": "sqlite:///x",
    }  # fmt: skip
    assert "request" not in second


def test_text_lines_cannot_be_forged(written):
    lines = written(format="text", level="debug")
    log.debug("one\ntwo\u2028three\x1b[0m", extra={"name_of": 'a b="c"\nERROR d', "n": 1, "s": "\ud800"})
    assert len(lines()) == 1
    assert "\x1b" not in lines()[0]
    assert lines()[0].split("Z ", 1)[1] == ('DEBUG   one\\ntwo\\u2028three\\x1b[0m name_of="a b=\'c\'\\nERROR d" n=1 s="\\ud800"')


def test_odd_values_do_not_stop_a_json_line(written):
    lines = written()
    log.info("odd", extra={"half": "\ud800", "big": 2**70, "thing": object, "not": float("nan")})
    log.info("set", extra={"thing": Secretive()})
    odd, plain = map(json.loads, lines())
    assert (odd["half"], odd["big"], odd["thing"]) == ("\ud800", 2**70, "<class 'object'>")
    assert plain["thing"] == "Secretive"


class Secretive:
    def __repr__(self) -> str:
        return "Secretive"


@pytest.mark.parametrize("form", ["json", "text"])
def test_errors_tell_the_place_and_no_message_of_others(written, form):
    lines = written(format=form)
    try:
        try:
            raise KeyError("my private query")
        except KeyError as inner:
            raise SwerveError("the store is full") from inner
    except SwerveError:
        log.exception("trouble")
    (line,) = lines()
    assert "SwerveError: the store is full" in line
    assert "KeyError" in line
    assert "test_logs.py:" in line
    assert "private" not in line


@pytest.mark.parametrize(("mode", "statuses"), [("errors", [404, 503]), ("all", [200, 404, 503]), ("none", [])])
def test_access_is_errors_all_or_none(written, mode, statuses):
    lines = written(access=mode)
    for status in (200, 404, 503):
        access("/v1/queries/{query}", "GET", status, 0.0123456, "shop")
    found = [json.loads(line) for line in lines()]
    assert [one["status"] for one in found] == statuses
    for one in found:
        assert (one["route"], one["method"], one["ms"], one["key"]) == ("/v1/queries/{query}", "GET", 12.346, "shop")


def test_access_names_the_code_of_an_error(written):
    lines = written(access="all")
    access("/v1/rank", "POST", 422, 0.001, code="too_many")
    access("/v1/rank", "POST", 200, 0.001)
    assert [json.loads(line).get("code") for line in lines()] == ["too_many", None]


def test_access_does_not_depend_on_the_level(written):
    lines = written(access="all", level="error")
    access("/v1/rank", "POST", 200, 0.001)
    log.warning("not written")
    assert [json.loads(line)["message"] for line in lines()] == ["request"]


def test_the_web_servers_own_access_log_is_silent_and_its_errors_are_not(written):
    lines = written(access="all")
    logging.getLogger("uvicorn.access").info("GET /v1/queries/my%20private%20query")
    logging.getLogger("uvicorn.error").error("Exception in ASGI application", extra={"color_message": "x"})
    (line,) = map(json.loads, lines())
    assert line["message"] == "Exception in ASGI application"
    assert "color_message" not in line


def test_a_second_set_up_takes_the_place_of_the_first(written):
    lines = written()
    written(format="text")
    log.info("once")
    assert len(lines()) == 1


def test_ids_are_unique_unless_the_caller_sends_a_plain_one():
    assert len({new_id() for _ in range(1000)}) == 1000
    assert new_id("req-7_a.b") == "req-7_a.b"
    for sent in ("", "a b", "a\nb", "x" * 65, "é", '"'):
        assert new_id(sent) != sent
        assert logs.GOOD_ID.fullmatch(new_id(sent))
