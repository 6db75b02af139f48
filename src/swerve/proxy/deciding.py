"""Who decides: the service in this process, or one at an address. Whatever fails, and whatever takes too long, decides nothing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, Protocol

import msgspec

from swerve.proxy.answers import Results
from swerve.proxy.framing import BadBody
from swerve.proxy.heads import BadHead
from swerve.proxy.paths import encode
from swerve.proxy.pool import Away, Pool, TooLarge
from swerve.proxy.rules import Target
from swerve.proxy.telling import Telling, error_in
from swerve.proxy.wire import Slow
from swerve.service.runtime import Service
from swerve.serving.messages import Asked, Error, RankResponse, Refused
from swerve_client.waiting import Breaker

log = logging.getLogger("swerve.proxy")

#: Failures in a row after which the service is left alone, and seconds until it is tried again.
FAILURES, PAUSE = 5, 1.0
#: Bytes of an answer of the service.
MOST_ANSWER = 1 << 20
#: Why there is no decision, in words.
AWAY, RUBBISH, DEGRADED = "the service cannot be reached", "the service's answer cannot be read", "the service is degraded"
FAILED = "the service failed"
RESPONSE = msgspec.json.Decoder(RankResponse)
#: Told of a namespace in which at most so many candidates are taken.
Learn = Callable[[str, int], None]


class Decided(NamedTuple):
    """An order of the offered ids, the decision for clicks, which the policy may not have made, and the ids that are not shown."""

    ids: list[str]
    decision: str | None
    hidden: frozenset[str] = frozenset()


class Decider(Protocol):
    """Decides the order of results."""

    #: Whether a decision is a call to another process, or inside this one.
    kind: Literal["client", "internal"]

    async def decide(self, results: Results, traceparent: bytes = b"") -> Decided | None:
        """Return the order of the offered ids; None: the engine's order. `traceparent` is handed on to another process."""

    def close(self) -> None:
        """Close what is open."""


def read(answer: RankResponse, offered: list[str], telling: Telling) -> Decided | None:
    """Return an answer of the service; None if it is degraded, or if it has other ids than those on offer.

    An operator who has switched the policy off has decided: the order is the engine's, without a decision for clicks.
    """
    ranking, ids = answer.ranking, frozenset(offered)
    if len(set(ranking)) != len(ranking) or not ids.issuperset(ranking):
        telling.not_decided(RUBBISH)
        return None
    if answer.degraded:
        telling.not_decided(DEGRADED)
        if ranking == offered:
            return None
    else:
        telling.decided()
    return Decided(ranking, answer.decision, ids.difference(ranking))


def narrower(error: Error, target: Target, offered: int, learn: Learn) -> bool:
    """Return whether a refusal says that fewer candidates are taken, after telling `learn` of it."""
    if error.code != "too_many" or error.field != "candidates" or error.limit is None or not 1 <= error.limit < offered:
        return False
    learn(target.rule.namespace, error.limit)
    return True


def identity_of(target: Target, most: int) -> str | None:
    """Return the `query_id` of a search, if a service takes it: one that is too long must not hinder the decision."""
    found = target.query_id
    return found if found and len(found) <= most and "\0" not in found else None


def late(seconds: float) -> str:
    """Return the reason of a decision that did not come in time."""
    return f"the service took longer than proxy.deadline_ms = {seconds * 1000:g}"


class Inside:
    """The service in this process."""

    kind: Literal["client", "internal"] = "internal"

    def __init__(self, service: Service, seconds: float, learn: Learn) -> None:
        self.service, self.seconds, self.learn = service, seconds, learn
        self.telling = Telling()

    async def decide(self, results: Results, traceparent: bytes = b"") -> Decided | None:
        """Return the order; None: the engine's order."""
        target, telling = results.target, self.telling
        identity = identity_of(target, self.service.config.limits.session_chars)
        asked = Asked(target.query, msgspec.Raw(results.candidates()), session=target.session, query_id=identity, **target.parts)
        try:
            at_once = self.service.ranking.at_once(asked)
            if at_once is not None:
                return read(at_once, results.offered, telling)
            async with asyncio.timeout(self.seconds):
                return read(await self.service.ranking.rank_one(asked), results.offered, telling)
        except Refused as refused:
            if not narrower(refused.error, target, len(results.offered), self.learn):
                telling.refused(refused.status, refused.error, target)
        except TimeoutError:
            telling.not_decided(late(self.seconds))
        except Exception:
            log.exception("a decision failed; the engine's order passes")
        return None

    def close(self) -> None:
        """There is nothing to close: the service stops by itself."""


class Outside:
    """A service at an address. After several failures in a row it is left alone for a second."""

    kind: Literal["client", "internal"] = "client"

    def __init__(self, pool: Pool, host: bytes, key: str, seconds: float, learn: Learn, most_id: int) -> None:
        self.pool, self.key, self.seconds, self.learn, self.most_id = pool, key, seconds, learn, most_id
        self.breaker, self.telling = Breaker(FAILURES, PAUSE), Telling()
        authorization = f"Authorization: Bearer {key}\r\n".encode() if key else b""
        self.head = b"POST /v1/rank HTTP/1.1\r\nHost: %b\r\nContent-Type: application/json\r\n%b%%bContent-Length: %%d\r\n\r\n" % (
            host,
            authorization.replace(b"%", b"%%"),
        )

    async def decide(self, results: Results, traceparent: bytes = b"") -> Decided | None:
        """Return the order; None: the engine's order."""
        target, telling = results.target, self.telling
        if not self.breaker.closed():
            telling.undecided_still()
            return None
        body: dict[str, Any] = {"query": target.query, "candidates": msgspec.Raw(results.candidates()), **target.parts}
        if target.session is not None:
            body["session"] = target.session
        if (identity := identity_of(target, self.most_id)) is not None:
            body["query_id"] = identity
        sent = encode(body)
        trace = b"Traceparent: %b\r\n" % traceparent if traceparent else b""
        good, made = False, None
        try:
            async with asyncio.timeout(self.seconds):
                answer = await self.pool.ask(self.head % (trace, len(sent)) + sent, MOST_ANSWER)
            status = answer.head.status
            good = status < 500
            if status == 200:
                made = read(RESPONSE.decode(answer.body), results.offered, telling)
            elif not good:
                telling.not_decided(FAILED, status=status)
            elif not narrower(error := error_in(answer.body), target, len(results.offered), self.learn):
                telling.refused(status, error, target, self.key)
        except (TimeoutError, Slow):
            telling.not_decided(late(self.seconds))
        except Away as away:
            telling.not_decided(AWAY, why=str(away))
        except (TooLarge, BadHead, BadBody, msgspec.DecodeError):
            good = False
            telling.not_decided(RUBBISH)
        self.breaker.record(good)
        return made

    def close(self) -> None:
        """Close the connections."""
        self.pool.close()
