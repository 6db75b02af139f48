"""A look at the service when the proxy starts, so that a wrong address is told before anybody misses a decision."""

from __future__ import annotations

import logging
from urllib.parse import urlsplit

import msgspec

from swerve.core.errors import SwerveError
from swerve.proxy.framing import BadBody
from swerve.proxy.heads import BadHead
from swerve.proxy.pool import Away, Pool, TooLarge, address_of
from swerve.proxy.telling import MOST_CODE, NO_ERROR, error_in
from swerve.proxy.wire import Slow
from swerve.serving.messages import Health

log = logging.getLogger("swerve.proxy")

#: Seconds for the look, and bytes of its answer.
SECONDS, MOST = 5.0, 65_536
HEALTH = msgspec.json.Decoder(Health)


async def look(service: str) -> None:
    """Ask a service once whether it is ready, and tell the log what it is. Searches do not wait for it."""
    said = {"service": service}
    try:
        pool = Pool(address_of(service), SECONDS, SECONDS)
        request = b"GET /readyz HTTP/1.1\r\nHost: %b\r\nConnection: close\r\n\r\n" % urlsplit(service).netloc.encode()
        answer = await pool.ask(request, MOST)
        if (error := error_in(answer.body)).code != NO_ERROR:
            more = {"status": answer.head.status, "code": error.code[:MOST_CODE]}
            log.warning("the service refuses the proxy: the engine's order passes", extra={**said, **more})
            return
        health = HEALTH.decode(answer.body)
    except (Away, Slow, SwerveError) as trouble:
        why = str(trouble) or f"nothing came for {SECONDS:g} seconds"
        log.warning("the service does not answer: the engine's order passes until it does", extra={**said, "reason": why})
    except (TooLarge, BadHead, BadBody, msgspec.DecodeError):
        log.warning("what answers at proxy.service is no Swerve: the engine's order passes", extra=said)
    else:
        log.info("the service answers", extra={**said, "status": health.status})
