"""`swerve backup`: a copy of a store while the service runs."""

from __future__ import annotations

import time
from pathlib import Path

import click
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from swerve.cli.common import console, errors, json_option, write_json
from swerve.store.backup import backup
from swerve.store.schema import PAGE_BYTES
from swerve.store.urls import store_path


@click.command("backup")
@click.argument("store_url")
@click.argument("target", type=click.Path(path_type=Path))
@json_option
def command(store_url: str, target: Path, json_to: str | None) -> None:
    """Copy the store STORE_URL, as it is at this moment, to the new file TARGET, and check the copy.

    The service goes on meanwhile. TARGET appears when it is whole, checked and on the disk; an existing file is never overwritten.
    The keys of the service (its secrets file) are not in it: keep a copy of them too, in another place.
    """
    started = time.perf_counter()
    with Progress(
        TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn(),
        console=errors, transient=True, disable=not errors.is_terminal,
    ) as bars:  # fmt: skip
        task = bars.add_task("copying", total=None)

        def report(done: int, total: int) -> None:
            bars.update(
                task, completed=done * PAGE_BYTES, total=total * PAGE_BYTES, description="checking" if done == total else "copying"
            )

        copied = backup(store_path(store_url), target, report)
    seconds = time.perf_counter() - started
    data = {"target": str(target), "queries": copied.rows, "bytes": copied.bytes, "damaged": copied.damaged, "seconds": seconds}
    if write_json(json_to, data):
        return
    console.print(f"{target}: {copied.rows:,} queries, {copied.bytes / 1e6:,.1f} MB, checked, in {seconds:.1f} s", soft_wrap=True)
    if copied.damaged:
        errors.print(f"{copied.damaged:,} records were damaged in the store already; their queries will begin anew", soft_wrap=True)
