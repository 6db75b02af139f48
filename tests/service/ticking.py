"""`swerve serve` that measures the longest time for which its event loop was held; GET /test/held returns it and resets it.

It measures the processor time of the loop's thread between two looks, so that other processes of a busy machine do not count.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any

from starlette.routing import Route

from swerve.service.config.load import load
from swerve.service.http.endpoint import Endpoint
from swerve.service.http.handlers import JSON, Answer, Scope
from swerve.service.http.routes import Route as Described
from swerve.service.http.server import Extension, serve
from swerve.service.runtime import Service
from swerve.service.secrets import ApiKeys
from swerve.serving.messages import encode


class Ticker:
    """Looks at the clock every half millisecond."""

    def __init__(self) -> None:
        self.longest = 0.0

    async def run(self) -> None:
        last = time.thread_time()
        while True:
            await asyncio.sleep(0.0005)
            now = time.thread_time()
            self.longest = max(self.longest, now - last)
            last = time.thread_time()

    async def held(self, scope: Scope, body: bytes) -> Answer:
        longest, self.longest = self.longest, 0.0
        return 200, encode({"seconds": longest}), JSON


def extend(service: Service, address: str) -> Extension:
    ticker = Ticker()
    described = Described("get", "/test/held", "held", "The longest time that the loop was held", None)
    endpoint: Any = Endpoint(service, ApiKeys(()), described, ticker.held, None)
    return Extension([Route(described.path, endpoint, methods=["GET"], name="held")], ticker.run)


if __name__ == "__main__":
    serve(load(sys.argv[2]), lambda line: print(line, flush=True), extend=extend)
