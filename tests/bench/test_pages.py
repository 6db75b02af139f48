"""Open pages of the service's benchmark: they read their messages, and raise if there are none."""

from __future__ import annotations

import pytest

pytest.importorskip("uvicorn", reason="the service's packages are not installed")

from dashboard.listening import Site
from service.running import until

from swerve.bench.pages import Pages
from swerve.bench.servers import echo
from swerve.core.errors import SwerveError


def test_all_of_them_read(tmp_path):
    with Site(tmp_path) as site:
        with Pages(site.port, 6, ["what is 000000", "what is 000001"]) as pages:
            until(lambda: site.do(lambda: len(site.hub.readers)) == 6)
            assert set(site.hub._watches) == {"what is 000000", "what is 000001"}
            for _ in range(3):
                site.do(site.hub.tick)
            until(lambda: pages.messages >= 36)  # a sample, and a query that was never asked
            assert pages.messages <= 36 + 18  # hello, history and the query, if they did not arrive with the head
        until(lambda: site.do(lambda: len(site.hub.readers)) == 0)


def test_a_server_without_live_events_is_said(tmp_path):
    with (
        echo("starlette", tmp_path) as server,
        pytest.raises(SwerveError, match=r"gave no live stream: HTTP/1\.1 404"),
        Pages(server.port, 2, ["q"]),
    ):
        pass
