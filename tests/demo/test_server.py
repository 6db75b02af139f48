"""The demo's additions to the server: port, orders, simulated clock."""

from __future__ import annotations

import socket

import pytest

from swerve.demo import server
from swerve.demo.server import Order, free_port
from swerve.serving.messages import Refused


def test_a_port_that_was_used_a_moment_ago_is_free(monkeypatch: pytest.MonkeyPatch):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        monkeypatch.setattr(server, "DEFAULT_PORT", port)
        assert free_port(None) == 0  # the default port is taken: any free one
        with socket.create_connection(("127.0.0.1", port)) as caller:
            listener.accept()[0].close()  # the side that closes first keeps the port in TIME_WAIT
            assert caller.recv(1) == b""
    assert free_port(None) == port
    assert free_port(5) == 5


@pytest.mark.parametrize(
    ("order", "word"),
    [
        (Order("speed"), "1 to 1000"),
        (Order("speed", "fast"), "1 to 1000"),
        (Order("scenario", "x"), "hurricane"),
        (Order("shift", "x"), "jaguar"),
    ],
)
def test_an_order_that_makes_no_sense_is_refused_with_what_would(order: Order, word: str):
    with pytest.raises(Refused, match=word):
        order.check()


@pytest.mark.parametrize(
    "order", [Order("speed", 5.0), Order("scenario", "storm"), Order("shift"), Order("shift", "jaguar"), Order("pause")]
)
def test_others_are_taken(order: Order):
    assert order.check() is None
