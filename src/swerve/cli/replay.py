"""`swerve replay`: plays a recording of requests through the ranker again."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING

import click

from swerve.cli.common import LogPath, console, each_once, json_option, load_option, need_service, write_json
from swerve.core.errors import SwerveError

if TYPE_CHECKING:
    from swerve.serving.replay import Replayed


@click.command()
@click.argument("recording", type=LogPath(exists=True, path_type=Path), callback=each_once)
@load_option
@json_option
def command(recording: tuple[Path, ...], json_to: str | None) -> None:
    """Replay a RECORDING, the log of a store (the folder swerve.db.journal beside swerve.db, or the address of a store), and
    compare every page with the one that was shown.

    Every page and every record's bytes are reproduced, without the service's secrets. All queries must fit into memory
    (store.cache_mb of the recorded configuration). Of a store with several shares each is replayed by itself: swerve.db or
    swerve.db.journal names all of them, the folder of another share only that one. A log does not contain your own classes: name
    their file with --load.
    """
    need_service("a replay")
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    from swerve.cli.common import errors
    from swerve.evaluate.readers.source import size_of
    from swerve.service.config.settings import settings_in
    from swerve.serving.replay import Replay, summed

    for path in recording:
        if not path.is_dir():
            raise SwerveError(f"{path} is no log of a store; name the store, or the folder of its log, such as swerve.db.journal")
    found: list[Replayed] = []
    with Progress(
        TextColumn("replaying"), BarColumn(), DownloadColumn(), TimeRemainingColumn(),
        console=errors, transient=True, disable=not errors.is_terminal,
    ) as bars:  # fmt: skip
        task = bars.add_task("replaying", total=sum(map(size_of, recording)))
        before = 0
        for folder in recording:
            replay = Replay(folder, functools.partial(settings_in, str(folder)))
            found.append(replay.run(lambda read, before=before: bars.update(task, completed=before + read)))  # type: ignore[misc]
            before += size_of(folder)
    import msgspec

    total = summed(found)
    out = msgspec.to_builtins(total)
    if len(found) > 1:
        out["shares"] = [{"log": str(folder), **msgspec.to_builtins(one)} for folder, one in zip(recording, found, strict=True)]
    if write_json(json_to, out):
        return
    for folder, one in zip(recording, found, strict=True):
        console.print(f"{folder}: {said_of(one)}" if len(found) > 1 else said_of(one), soft_wrap=True, highlight=False)
    if len(found) > 1:
        console.print(f"all shares: {said_of(total)}", soft_wrap=True, highlight=False)
    for folder, one in zip(recording, found, strict=True):
        if one.first_difference is not None:
            console.print(f"the first difference is decision {one.first_difference} of {folder}", soft_wrap=True, highlight=False)
    if total.same < total.requests:
        raise click.exceptions.Exit(1)


def said_of(counts: Replayed) -> str:
    """Return the result of a replay as a sentence."""
    return (
        f"{counts.requests:,} rankings of {counts.queries:,} queries, {counts.same:,} with the same page as recorded; "
        f"{counts.feedback:,} feedback requests, {counts.clicks:,} clicks; {counts.alarms:,} alarms, "
        f"{counts.shifts:,} queries shifted"
    )
