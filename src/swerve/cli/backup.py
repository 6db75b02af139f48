"""`swerve backup`: copies a store while the service runs."""

from __future__ import annotations

import os
import time
from pathlib import Path

import click

from swerve.cli.common import MB, console, errors, json_option, late_progress, need_service, write_json
from swerve.core.errors import SwerveError
from swerve.store.backup import backup
from swerve.store.shares import Share, share_path, shares_of
from swerve.store.urls import named_store, refuse_server

need_service("`swerve backup`")

from swerve.service.recovering import settle  # noqa: E402
from swerve.service.verify import MEANING  # noqa: E402


@click.command("backup")
@click.argument("store")
@click.argument("target", type=click.Path(path_type=Path))
@json_option
def command(store: str, target: Path, json_to: str | None) -> None:
    """Copy STORE, an address or a file, as it is at this moment to the new file TARGET, and check the copy like `swerve verify`.

    The copy has everything that the log of the store has, and needs no log itself. Of a store of several workers each share is
    copied, the further ones to TARGET.1-of-N and so on.

    The service keeps running. TARGET appears when it is complete, checked and on disk; an existing file is never overwritten.
    The copy does not contain the service's secrets file: back that up too, in another location. A store on a server is backed up
    by its own programs.
    """
    started = time.perf_counter()
    refuse_server(store, "backup")
    paths = shares_of(named_store(store))
    targets = [share_path(target, Share(number, len(paths))) for number in range(len(paths))]
    if taken := [path for path in targets if os.path.lexists(path)]:
        raise SwerveError(f"{taken[0]} exists already; a backup never overwrites: name a new file")
    with late_progress() as progress:
        reports = [backup(path, copy, MEANING, progress, settle) for path, copy in zip(paths, targets, strict=True)]
    seconds = time.perf_counter() - started
    rows, size, damaged = (sum(getattr(one, name) for one in reports) for name in ("rows", "size", "damaged"))
    data = {"target": str(target), "queries": rows, "bytes": size, "damaged": damaged, "seconds": seconds}
    if write_json(json_to, data):
        return
    of = f" and {len(paths) - 1} more, {len(paths)} shares" if len(paths) > 1 else ""
    console.print(f"{target}{of}: {rows:,} queries, {size / MB:,.1f} MB, checked, in {seconds:.1f} s", soft_wrap=True)
    for one in (one for report in reports for one in report.findings):
        errors.print(f"{'warning' if one.warning else 'wrong'}: {one}", soft_wrap=True, highlight=False, markup=False)
    if damaged:
        errors.print("the damage is in the store too; queries with a damaged record will start over", soft_wrap=True)
