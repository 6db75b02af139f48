"""`swerve replay`: plays a recording of requests through the ranker again."""

from __future__ import annotations

from pathlib import Path

import click

from swerve.cli.common import LogPath, console, json_option, load_option, need_service, write_json


@click.command()
@click.argument("recording", type=LogPath(exists=True, file_okay=False, path_type=Path))
@load_option
@json_option
def command(recording: Path, json_to: str | None) -> None:
    """Replay a RECORDING, the log of a store (the folder swerve.db.journal beside swerve.db, or the address of a store on a
    server), and compare every page with the one that was shown.

    Every page and every record's bytes are reproduced, without the service's secrets. All queries must fit into memory
    (store.cache_mb of the recorded configuration). A log does not contain your own classes: name their file with --load.
    """
    need_service("a replay")
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    from swerve.cli.common import errors
    from swerve.service.config.settings import settings_in
    from swerve.serving.replay import Replay

    replay = Replay(recording, lambda tables: settings_in(str(recording), tables))
    with Progress(
        TextColumn("replaying"), BarColumn(), DownloadColumn(), TimeRemainingColumn(),
        console=errors, transient=True, disable=not errors.is_terminal,
    ) as bars:  # fmt: skip
        task = bars.add_task("replaying", total=sum(path.stat().st_size for path in recording.iterdir()))
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
        console.print(f"the first difference is decision {counts.first_difference} of the recording", soft_wrap=True)
        raise click.exceptions.Exit(1)
