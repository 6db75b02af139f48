"""`GET /v1/live`: the hub's messages as server-sent events."""

from __future__ import annotations

import asyncio
from typing import Any

from swerve.dashboard.hub import Hub, Reader
from swerve.service.http.endpoint import needed
from swerve.service.http.handlers import Answer, Scope
from swerve.service.http.limits import parameters
from swerve.service.http.passing import Passing
from swerve.service.secrets import ApiKeys, Denied
from swerve.serving.checks import check_query
from swerve.serving.messages import Refused

EVENTS = b"text/event-stream"
PARAMETERS_SHOWN = 100  # characters of unknown parameters that a refusal shows


class Live:
    """The handler of the route: checks the request and returns an endless body."""

    def __init__(self, hub: Hub) -> None:
        self.hub, self.keys = hub, ApiKeys(hub.service.config.security.api_keys)
        crew = hub.service.crew
        self.passing = None if crew is None else Passing(crew, hub.service.metrics)

    def operates(self, scope: Scope) -> bool:
        """Return whether the reader's key has the scope `operate` too."""
        try:
            self.keys.check(needed(scope["headers"])[0], "operate")
        except Denied:
            return False
        return True

    async def __call__(self, scope: Scope, body: bytes) -> Answer:
        asked = parameters(scope["query_string"])
        text = asked.pop("query", None)
        if asked:
            raise Refused(422, "shape", f"unknown parameter: {', '.join(sorted(asked))[:PARAMETERS_SHOWN]}; there is `query`")
        if text is not None:
            check_query(text, self.hub.service.config.limits)
            if self.passing is not None and not scope.get("inner"):
                sibling = self.passing.crew.foreign(self.hub.service.ranker.key_from(text))
                if sibling is not None:  # it sees the query's rankings and clicks
                    return await self.passing.stream(sibling, scope)
        last = next((value.decode("latin-1") for name, value in scope["headers"] if name == b"last-event-id"), "")
        transport, operate = scope["app"].transport_of(scope), self.operates(scope)
        self.hub.admit(text)
        if text is not None and scope["method"] == "GET":
            await self.hub.seek(text)

        async def pieces(receive: Any, send: Any) -> None:
            reader = self.hub.join(text, last, transport, operate)
            listening = asyncio.get_running_loop().create_task(listen(receive, reader), name="swerve-listen")
            try:
                await pump(reader, send)
            finally:
                listening.cancel()
                self.hub.leave(reader)

        return 200, pieces, EVENTS


async def pump(reader: Reader, send: Any) -> None:
    """Send a reader's messages until it ends."""
    while not reader.ended:
        if reader.queue:
            reader.sending = True
            await send({"type": "http.response.body", "body": reader.take(), "more_body": True})
            reader.sending = False
        else:
            reader.wake.clear()
            await reader.wake.wait()
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def listen(receive: Any, reader: Reader) -> None:
    """End a reader when its connection closes."""
    while (await receive())["type"] != "http.disconnect":
        pass
    reader.end()
