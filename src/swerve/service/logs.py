"""Structured logs on standard error: JSON objects or plain lines, with the request's id and never with a query's text.

Exceptions are written with file, line and function. The message of an exception is written only if it is ours or the operating
system's: other messages may quote the caller's data.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import re
import sys
import time
import traceback
from contextvars import ContextVar
from typing import Any, TextIO

import msgspec

from swerve.core.errors import SwerveError
from swerve.service.config.sections import Log

#: The id of the request that is being answered, "" outside of requests.
request_id: ContextVar[str] = ContextVar("request_id", default="")
#: The id of the trace that it belongs to, "" without one.
trace_id: ContextVar[str] = ContextVar("trace_id", default="")

#: The number of the worker that this process is, None for a service of one process.
worker: int | None = None

log = logging.getLogger("swerve")
access_log = logging.getLogger("swerve.access")

#: Attributes that every record has. All others were given with `extra` and are written.
STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message", "taskName"}
#: Form of a request id that is taken over from the caller: short and plain, so that it cannot forge log lines.
GOOD_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
#: Values that a text line shows without quotes.
BARE = re.compile(r"[^\s\"'=]+")

#: Causes of an exception, and frames of each, that a line names: enough to find the defect, and still one readable line.
MOST_CAUSES, MOST_FRAMES = 5, 8

_start = os.urandom(5).hex()
_count = itertools.count(1)


def _anew() -> None:
    """Let a process that was forked count its requests for itself."""
    global _start
    _start = os.urandom(5).hex()


os.register_at_fork(after_in_child=_anew)


def new_id(sent: str | None = None) -> str:
    """Return the id of a request: the caller's own if it has the right form, else a new unique one."""
    if sent is not None and GOOD_ID.fullmatch(sent):
        return sent
    return f"{_start}-{next(_count):x}"


def setup(config: Log, stream: TextIO | None = None) -> None:
    """Send all logs, the web server's too, to standard error in the configured form."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines() if config.format == "json" else TextLines())
    root = logging.getLogger()
    for old in list(root.handlers):
        if isinstance(old.formatter, Lines):  # a second set-up replaces the first
            root.removeHandler(old)
    root.addHandler(handler)
    log.setLevel(config.level.upper())
    for name in ("uvicorn", "uvicorn.error", "uvicorn.asgi"):
        theirs = logging.getLogger(name)
        theirs.handlers.clear()
        theirs.propagate = True
        theirs.setLevel(max(logging.WARNING, log.level))  # the service logs its start itself
    theirs = logging.getLogger("uvicorn.access")  # it would write the path, which holds the query
    theirs.handlers.clear()
    theirs.propagate = False
    access_log.setLevel({"errors": logging.WARNING, "all": logging.INFO, "none": logging.CRITICAL + 1}[config.access])


def access(
    route: str, method: str, status: int, seconds: float, caller: str = "", identity: str = "", code: str | None = None
) -> None:
    """Log one answered request, by the name of its route: the path may hold a query. `identity` is for where no id is set, and
    `code` is that of an error."""
    level = logging.INFO if status < 400 or route == "readyz" else logging.WARNING if status < 500 else logging.ERROR
    if access_log.isEnabledFor(level):
        extra: dict[str, Any] = {"request": identity} if identity else {}
        extra |= {"route": route, "method": method, "status": status, "ms": round(seconds * 1e3, 3)}
        if code is not None:
            extra["code"] = code
        access_log.log(level, "request", extra={**extra, "key": caller} if caller else extra)


class Lines(logging.Formatter):
    """A record as one line."""

    def fields(self, record: logging.LogRecord) -> dict[str, Any]:
        """Return the fields of the line, the most important first."""
        seconds, rest = divmod(record.created, 1.0)
        out: dict[str, Any] = {
            "at": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{int(rest * 1e3):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if worker is not None:
            out["worker"] = worker
        if current := request_id.get():
            out["request"] = current
        if trace := trace_id.get():
            out["trace"] = trace
        out |= {name: value for name, value in vars(record).items() if name not in STANDARD}
        if record.exc_info and record.exc_info[1] is not None:
            out["error"] = traced(record.exc_info[1])
        return out


class JsonLines(Lines):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        said = self.fields(record)
        try:
            return msgspec.json.encode(said, enc_hook=repr).decode()
        except (UnicodeEncodeError, OverflowError):  # half a surrogate pair, a number beyond 64 bits
            return json.dumps(said, default=repr)


class TextLines(Lines):
    """Time, level, message, then `name=value`."""

    def format(self, record: logging.LogRecord) -> str:
        said = self.fields(record)
        head = f"{said.pop('at')} {said.pop('level').upper():7} {one_line(said.pop('message'))}"
        del said["logger"]
        return " ".join([head, *(f"{name}={quoted(value)}" for name, value in said.items())])


def traced(error: BaseException) -> str:
    """Describe an exception and its causes: types, files and lines; messages only where they are ours or the system's."""
    parts: list[str] = []
    current: BaseException | None = error
    while current is not None and len(parts) < MOST_CAUSES:
        frames = [
            f"{os.path.basename(f.filename)}:{f.lineno} {f.name}"
            for f in traceback.extract_tb(current.__traceback__)[-MOST_FRAMES:]
        ]
        ours = isinstance(current, SwerveError | OSError)
        message = f": {current}" if ours else ""
        parts.append(f"{type(current).__name__}{message} [{' < '.join(reversed(frames))}]")
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)
    return " from ".join(parts)


def one_line(text: str) -> str:
    """Escape line breaks and control characters, so that no value can forge a second line."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def quoted(value: Any) -> str:
    """Format a value for a text line, in quotes where it needs them."""
    text = str(value)
    return text if BARE.fullmatch(text) and text.isprintable() else f'"{one_line(text.replace(chr(34), chr(39)))}"'
