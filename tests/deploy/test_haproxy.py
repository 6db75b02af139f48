"""The HAProxy configuration: requests go to the worker of their query at once."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from deploy.balancing import balanced, check_balanced
from service.crewed import crewed, free_ports

HERE = Path(__file__).parents[2] / "deploy" / "haproxy"

pytestmark = pytest.mark.skipif(shutil.which("haproxy") is None, reason="haproxy is not installed (Debian: apt install haproxy)")


def test_requests_go_to_the_worker_of_their_query(tmp_path):
    """With the configuration of the repository, on other ports and in another folder."""
    folder, port = tmp_path / "haproxy", free_ports(1)
    shutil.copytree(HERE, folder)
    with crewed(tmp_path / "crew", 4) as crew:
        text = (folder / "haproxy.cfg").read_text().replace("/etc/haproxy", str(folder))
        text = text.replace("127.0.0.1:8350", f"127.0.0.1:{port}")
        for worker in range(4):
            text = text.replace(f"127.0.0.1:{8360 + worker} ", f"127.0.0.1:{crew.ports + worker} ")
        (folder / "haproxy.cfg").write_text(text)
        with balanced(crew, ["haproxy", "-db", "-f", str(folder / "haproxy.cfg")], port, folder / "log") as client:
            check_balanced(crew, client)
