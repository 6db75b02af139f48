"""The reference servers of the service's benchmark: the same stack, decoding the same requests and sending answers of equal size.

`starlette` is a minimal application on the service's packages: a route, a decoder, an answer. `bare` omits the framework and shows
the cost of the web server and the decoder alone.
"""

from __future__ import annotations

import socket
import sys
from typing import Any

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from swerve.core.examination import SLOTS
from swerve.service.http.server import loop_factory
from swerve.serving.messages import FeedbackRequest, FeedbackResponse, RankRequest, RankResponse, ids_of
from swerve.serving.tokens import LENGTHS

_rank = msgspec.json.Decoder(RankRequest)
_ranks = msgspec.json.Decoder(list[RankRequest])
_feedback = msgspec.json.Decoder(FeedbackRequest)
_encode = msgspec.json.Encoder().encode
TOKEN = "a" * LENGTHS[-1]
#: Values of typical length in JSON; their meaning does not matter.
TYPICAL_PROPENSITY, TYPICAL_PHASE = 0.8889, 3
BACKLOG = 2048  # connections waiting to be accepted, as in the service
LEARNED = FeedbackResponse("learned")


def response(request: RankRequest) -> RankResponse:
    """Return an answer as large as the service's."""
    ids = ids_of(request.candidates)
    return RankResponse(TOKEN, ids, [TYPICAL_PROPENSITY] * min(len(ids), SLOTS), None, TYPICAL_PHASE, False)


def answer(path: str, body: bytes) -> bytes:
    """Return the answer to a body."""
    if path == "/v1/rank":
        return _encode(response(_rank.decode(body)))
    if path == "/v1/feedback":
        _feedback.decode(body)
        return _encode(LEARNED)
    return _encode([response(request) for request in _ranks.decode(body)])


async def endpoint(request: Request) -> Response:
    """Answer a request through the framework."""
    return Response(answer(request.url.path, await request.body()), media_type="application/json")


def framed() -> Starlette:
    """Return the application with the framework."""
    return Starlette(routes=[Route(path, endpoint, methods=["POST"]) for path in ("/v1/rank", "/v1/rank/batch", "/v1/feedback")])


async def bare(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Answer a request without the framework, as an ASGI application."""
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    content = answer(scope["path"], body)
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(content))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": content})


def main(kind: str) -> None:
    """Serve on a free port of the loopback until terminated, with the service's event loop and parser."""
    import asyncio

    sock = socket.create_server(("127.0.0.1", 0), backlog=BACKLOG)
    app: Any = framed() if kind == "starlette" else bare
    config = uvicorn.Config(app, lifespan="off", access_log=False, log_config=None, server_header=False)
    print(f"ready: http://127.0.0.1:{sock.getsockname()[1]}", flush=True)
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(uvicorn.Server(config).serve(sockets=[sock]))


if __name__ == "__main__":
    main(sys.argv[1])
