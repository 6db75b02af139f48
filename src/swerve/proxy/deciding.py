"""Who decides: the service in this process, or one at an address. Whatever fails, and whatever takes too long, decides nothing."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, NamedTuple, Protocol

import msgspec

from swerve.client.waiting import Breaker
from swerve.proxy.answers import Results
from swerve.proxy.framing import BadBody
from swerve.proxy.heads import BadHead
from swerve.proxy.paths import encode
from swerve.proxy.pool import Away, Pool, TooLarge
from swerve.proxy.wire import Slow
from swerve.service.runtime import Service
from swerve.serving.messages import Asked, RankResponse, Refused

log = logging.getLogger("swerve.proxy")

#: Failures in a row after which the service is left alone, and seconds until it is tried again.
FAILURES, PAUSE = 5, 1.0
#: Bytes of an answer of the service.
MOST_ANSWER = 1 << 20
#: Answers of the service that tell of a wrong configuration of the proxy: its key, or its address.
WRONG = (401, 403, 404, 421)
RESPONSE = msgspec.json.Decoder(RankResponse)


class Decided(NamedTuple):
    """An order of the offered ids, and the decision for clicks, which the policy may not have made."""

    ids: list[str]
    decision: str | None


class Decider(Protocol):
    """Decides the order of results."""

    async def decide(self, results: Results) -> Decided | None:
        """Return the order of the offered ids; None: the engine's order."""

    def close(self) -> None:
        """Close what is open."""


def read(answer: RankResponse, offered: list[str]) -> Decided | None:
    """Return an answer of the service; None if the engine's order passes, or if it has other ids than those on offer."""
    if answer.decision is None and answer.ranking == offered:
        return None
    ranking = answer.ranking
    if len(set(ranking)) != len(ranking) or not set(ranking) <= set(offered):
        return None
    return Decided(ranking, answer.decision)


class Inside:
    """The service in this process."""

    def __init__(self, service: Service, seconds: float) -> None:
        self.service, self.seconds = service, seconds

    async def decide(self, results: Results) -> Decided | None:
        """Return the order; None: the engine's order."""
        target = results.target
        asked = Asked(target.query, msgspec.Raw(results.candidates()), session=target.session, **target.parts)
        try:
            at_once = self.service.ranking.at_once([asked])
            if at_once is not None:
                return read(at_once[0], results.offered)
            async with asyncio.timeout(self.seconds):
                return read(await self.service.ranking.rank_one(asked), results.offered)
        except (Refused, TimeoutError) as error:
            log.debug("no decision: %s", error.code if isinstance(error, Refused) else "deadline")
            return None
        except Exception:
            log.exception("a decision failed; the engine's order passes")
            return None

    def close(self) -> None:
        """There is nothing to close: the service stops by itself."""


class Outside:
    """A service at an address. After several failures in a row it is left alone for a second."""

    def __init__(self, pool: Pool, host: bytes, key: str, seconds: float) -> None:
        self.pool, self.seconds = pool, seconds
        self.breaker = Breaker(FAILURES, PAUSE)
        self.warned = 0
        authorization = f"Authorization: Bearer {key}\r\n".encode() if key else b""
        self.head = b"POST /v1/rank HTTP/1.1\r\nHost: %b\r\nContent-Type: application/json\r\n%bContent-Length: %%d\r\n\r\n" % (
            host,
            authorization.replace(b"%", b"%%"),
        )

    async def decide(self, results: Results) -> Decided | None:
        """Return the order; None: the engine's order."""
        if not self.breaker.closed():
            return None
        target = results.target
        body: dict[str, Any] = {"query": target.query, "candidates": msgspec.Raw(results.candidates()), **target.parts}
        if target.session is not None:
            body["session"] = target.session
        sent = encode(body)
        good, made = False, None
        try:
            async with asyncio.timeout(self.seconds):
                answer = await self.pool.ask(self.head % len(sent) + sent, MOST_ANSWER)
            good = answer.head.status < 500
            if answer.head.status == 200:
                made = read(RESPONSE.decode(answer.body), results.offered)
            elif answer.head.status in WRONG and self.warned != answer.head.status:
                self.warned = answer.head.status
                log.warning("the service refuses the proxy", extra={"status": answer.head.status})
        except (TimeoutError, Away, Slow, TooLarge, BadHead, BadBody, msgspec.DecodeError) as error:
            good = False
            log.debug("no decision: %s", type(error).__name__)
        self.breaker.record(good)
        return made

    def close(self) -> None:
        """Close the connections."""
        self.pool.close()
