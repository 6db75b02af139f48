"""`swerve serve`: the HTTP service."""

from __future__ import annotations

from pathlib import Path

import click

from swerve.cli.common import LARGEST_PORT, config_option, need_service


@click.command()
@click.option("--host", help="Address to listen on; anything but the loopback needs an API key.  [default: 127.0.0.1]")
@click.option("--port", type=click.IntRange(0, LARGEST_PORT), help="Port; 0 takes any free one.  [default: 8350]")
@click.option("--workers", type=click.IntRange(1, 64), help="Processes that serve the port together.  [default: 1]")
@click.option(
    "--store", metavar="STORE",
    help="The store: a file, or an address (sqlite:///PATH, postgresql://USER@HOST/DATABASE, valkey://HOST).  "
    "[default: sqlite:///swerve.db]",
)  # fmt: skip
@config_option
@click.option(
    "--load", multiple=True, metavar="FILE",
    help="A Python file with your own classes, for the policy (docs/extending.md); instead of policy.load.",
)  # fmt: skip
@click.option("--new-store", is_flag=True, help="Begin a new store although an earlier one is missing; refused otherwise.")
@click.option(
    "--new-log", is_flag=True, help="Begin a new log in place of one that is missing or damaged: what only it has is lost."
)
@click.option("--standby", is_flag=True, help="Wait while another process owns the store, and take over when it is gone.")
def command(
    host: str | None, port: int | None, workers: int | None, store: str | None, config_file: Path | None, load: tuple[str, ...],
    new_store: bool, new_log: bool, standby: bool,
) -> None:  # fmt: skip
    """Serve `rank` and `feedback` over HTTP, with durable state and a dashboard.

    Options override the environment, which overrides the file. Ctrl-C or SIGTERM shuts down cleanly: requests in progress are
    answered and everything is written.
    """
    need_service()
    from swerve.dashboard import extend
    from swerve.proxy.run import beside
    from swerve.service.config.load import load as read
    from swerve.service.http import machine, supervisor
    from swerve.service.http.server import serve
    from swerve.store.urls import store_url

    given = {
        "server.host": host, "server.port": port, "server.workers": workers,
        "store.url": None if store is None else store_url(store), "policy.load": load or None, "store.standby": standby or None,
    }  # fmt: skip
    config = read(config_file, {name: value for name, value in given.items() if value is not None})
    if machine.is_for(config):
        machine.supervise(config, click.echo, extend=extend, new_store=new_store, new_log=new_log)
    elif config.server.workers > 1:
        supervisor.supervise(config, click.echo, extend=extend, new_store=new_store, new_log=new_log)
    else:
        serve(config, click.echo, extend=beside(extend, click.echo), new_store=new_store, new_log=new_log)
