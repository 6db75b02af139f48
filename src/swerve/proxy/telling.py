"""What the log says of decisions: when there are none any more, and why, when there are some again, and how wide windows may be."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from typing import Any

import msgspec

from swerve.proxy.rules import Target
from swerve_client.answers import Error, Problem

log = logging.getLogger("swerve.proxy")

#: Seconds in which one reason is told once: a service that answers now and then in time must not fill the disk.
QUIET = 60.0
#: Reasons that are remembered at most; codes come from the service.
MOST_REASONS = 64
#: Characters of a code, and of a message, of the service that are told.
MOST_CODE, MOST_SAID = 64, 300
#: The code that stands for an answer without an error in the service's form.
NO_ERROR = "none"
PROBLEM = msgspec.json.Decoder(Problem)


class Telling:
    """Tells of the way from decisions to none, and back."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.undecided = 0  # searches in a row without a decision
        self._reason = ""  # the one that was told last, since the last decision
        self._told: dict[str, float] = {}

    def decided(self) -> None:
        """Note a decision."""
        if not self.undecided:
            return
        if self._reason:
            log.info("the service decides again", extra={"undecided": self.undecided})
        self.undecided, self._reason = 0, ""

    def undecided_still(self) -> None:
        """Note a search for which the service was not asked: it is left alone for a while."""
        self.undecided += 1

    def not_decided(self, reason: str, **more: Any) -> None:
        """Note a search without a decision. Another reason than before is told, each at most once in `QUIET` seconds."""
        self.undecided += 1
        if reason == self._reason:
            return
        now = self.clock()
        if now - self._told.get(reason, -math.inf) < QUIET:
            return
        if len(self._told) >= MOST_REASONS:
            self._told.clear()
        self._told[reason], self._reason = now, reason
        log.warning("nothing is decided: the engine's order passes", extra={"reason": reason, **more})

    def refused(self, status: int, error: Error, target: Target, key: str = "") -> None:
        """Note a refusal by the service. Its message is left out if it quotes the search, and never shows the key."""
        said = error.message.replace(key, "…") if key else error.message
        if any(text and text in said for text in (target.query, target.session)):
            said = ""
        more: dict[str, Any] = {"status": status, "code": error.code[:MOST_CODE]}
        if error.field is not None:
            more["field"] = error.field[:MOST_CODE]
        self.not_decided(f"the service refuses: {more['code']}", **more, **({"said": said[:MOST_SAID]} if said else {}))


def error_in(body: bytes) -> Error:
    """Return the error in an answer; one that says so if the answer has none in the service's form.

    >>> error_in(b'{"error": {"code": "scope", "message": "no"}}').code, error_in(b"<html>").code
    ('scope', 'none')
    """
    try:
        return PROBLEM.decode(body).error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Error(NO_ERROR, "the answer is not in the form of Swerve: is proxy.service its address?")
