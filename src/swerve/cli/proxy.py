"""`swerve proxy`: in front of a search engine."""

from __future__ import annotations

from pathlib import Path

import click

from swerve.cli.common import config_option, need_service


@click.command()
@config_option
@click.option("--upstream", metavar="URL", help="The engine, as in http://127.0.0.1:9200.")
@click.option("--listen", metavar="ADDRESS", help="Address and port; port 0 takes any free one.  [default: 127.0.0.1:9280]")
@click.option("--service", metavar="URL", help="The service that decides.  [default: http://127.0.0.1:8350]")
def command(config_file: Path | None, upstream: str | None, listen: str | None, service: str | None) -> None:
    """Stand in front of OpenSearch or Elasticsearch: re-rank its searches by a running service, stream everything else untouched.

    Where the service is away, or slower than proxy.deadline_ms, the engine's answers pass. `swerve serve` has the proxy in its own
    process where its configuration sets proxy.upstream. Ctrl-C or SIGTERM lets open requests finish.
    """
    need_service("swerve proxy")
    from swerve.proxy.run import serve
    from swerve.service.config.load import load

    given = {"proxy.upstream": upstream, "proxy.listen": listen, "proxy.service": service}
    serve(load(config_file, {name: value for name, value in given.items() if value is not None}), click.echo)
