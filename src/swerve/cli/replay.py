"""`swerve replay`: plays a recording of requests through the ranker again."""

from __future__ import annotations

import os
from pathlib import Path

import click

from swerve.cli.common import console, json_option, load_option, need_service, write_json

#: With a configured policy.seed rankings do not depend on the key, so any key will do.
NO_KEY = bytes(32)


@click.command()
@click.argument("recording", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--secrets",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="The service's file of secrets; needed unless policy.seed or SWERVE_QUERY_KEY is set.",
)
@load_option
@json_option
def command(recording: Path, secrets: Path | None, json_to: str | None) -> None:
    """Replay a RECORDING (log.record in the configuration) and compare every ranking with the one shown.

    The recording must begin with an empty store. With the service's secrets, or a configured policy.seed, every ranking and
    every record's bytes are reproduced. A recording does not contain your own classes: name their file with --load.
    """
    need_service("a replay")
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    from swerve.cli.common import errors
    from swerve.service.config.settings import settings_in
    from swerve.service.secrets import decode_key, read_file
    from swerve.serving.replay import Replay

    named = os.environ.get("SWERVE_QUERY_KEY")
    key = read_file(secrets).query_key if secrets else decode_key("SWERVE_QUERY_KEY", named) if named else NO_KEY
    replay = Replay(recording, key, lambda tables: settings_in(str(recording), tables))
    with Progress(
        TextColumn("replaying"), BarColumn(), DownloadColumn(), TimeRemainingColumn(),
        console=errors, transient=True, disable=not errors.is_terminal,
    ) as bars:  # fmt: skip
        task = bars.add_task("replaying", total=recording.stat().st_size)
        counts = replay.run(lambda read: bars.update(task, completed=read))
    import msgspec

    if write_json(json_to, msgspec.to_builtins(counts)):
        return
    console.print(
        f"{counts.requests:,} rankings of {counts.queries:,} queries, {counts.same:,} with the same page as recorded; "
        f"{counts.feedback:,} feedback requests, {counts.clicks:,} clicks; {counts.alarms:,} alarms, "
        f"{counts.shifts:,} queries shifted",
        soft_wrap=True,
    )
    if counts.first_difference is not None:
        console.print(f"the first difference is in line {counts.first_difference}", soft_wrap=True)
        raise click.exceptions.Exit(1)
