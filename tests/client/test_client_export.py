"""The export of both clients, from a server that sends it in pieces, cuts it or refuses it."""

from __future__ import annotations

import asyncio
import json

import pytest
from client.misbehaving import BROKEN, refused, trickle

from swerve_client import AsyncClient, Client, ServiceAway, SwerveClientError

LINES = [{"kind": "query", "key": "00"}, {"kind": "end", "queries": 1, "candidates": 0, "shared": 0, "damaged": 0}]


def exported(kind, url, **options):
    """All lines of an export, by either client."""
    if kind == "sync":
        with Client(url, feedback_timeout=0.5) as client:
            return list(client.export(**options))

    async def gather():
        async with AsyncClient(url, feedback_timeout=0.5) as client:
            return [line async for line in client.export(**options)]

    return asyncio.run(gather())


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_an_export_is_read_in_pieces(server, kind):
    def pieces(handler):
        """Send two lines in pieces of three bytes; an `ü` is cut in its middle."""
        body = "".join(json.dumps({**line, "text": "ü"}, ensure_ascii=False) + "\n" for line in LINES).encode()
        handler.wfile.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        for at in range(0, len(body), 3):
            piece = body[at : at + 3]
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        handler.wfile.write(b"0\r\n\r\n")

    server.script += [pieces]
    assert exported(kind, server.url, namespace="toys", brief=True) == [{**line, "text": "ü"} for line in LINES]
    assert server.seen[0][:2] == ("GET", "/v1/export?namespace=toys&brief=true")


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("misbehave", [one for one in BROKEN if one is not trickle])
def test_an_export_that_is_cut_is_an_error(server, kind, misbehave):
    server.script += [misbehave]
    with pytest.raises(ServiceAway):
        exported(kind, server.url)


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_an_export_without_its_last_line_and_a_refused_one_are_errors(server, kind):
    server.script += [lambda handler: handler.reply(200, json.dumps(LINES[0]).encode() + b"\n"), refused(403)]
    with pytest.raises(ServiceAway, match="last line is missing"):
        exported(kind, server.url)
    with pytest.raises(SwerveClientError) as caught:
        exported(kind, server.url)
    assert caught.value.status == 403
