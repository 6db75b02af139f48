"""`swerve restore`: puts a backup in place of a store."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path

import click

from swerve.cli.common import console, errors, json_option, late_progress, need_service, write_json
from swerve.core.errors import SwerveError
from swerve.store.restore import restore
from swerve.store.shares import Share, share_path, shares_of
from swerve.store.urls import named_store, refuse_server, store_url
from swerve.store.verify import Report

need_service("`swerve restore`")

from swerve.service.secrets import beside  # noqa: E402
from swerve.service.verify import MEANING, check_secrets  # noqa: E402

#: Seconds between two looks for a name that no replaced store has.
LOOK_SECONDS = 0.1


@click.command("restore")
@click.argument("copy", type=click.Path(path_type=Path))
@click.argument("store")
@click.option(
    "--live", is_flag=True, help="Allow this while a service runs; the service drops its memory and continues with the copy."
)
@click.option("--discard", is_flag=True, help="Do not keep the replaced store.")
@json_option
def command(copy: Path, store: str, live: bool, discard: bool, json_to: str | None) -> None:
    """Check the backup COPY and put it in place of STORE, an address or a file.

    The replaced store is kept beside it, with its log, under a name with the time; COPY is not moved. While a service runs on the
    store the command is refused, unless --live is given. The secrets are not changed: the store needs those it had at the backup.
    """
    started = time.perf_counter()
    refuse_server(store, "restore")
    path = named_store(store)
    secrets = beside(store_url(store))
    assert secrets is not None  # of a file

    def approve(report: Report) -> None:
        check_secrets(report, secrets)
        trouble = [one for one in report.errors if one.name == "secrets"]
        if live and trouble and secrets.exists():  # the service would refuse the store, for lack of its key
            raise SwerveError(
                f"{trouble[0]}; nothing was restored: stop the service and put the secrets of the backup in place first"
            )

    copies, shares = shares_of(copy), shares_of(path)
    if path.exists() and len(shares) != len(copies):
        beside_it = ", ".join(one.name for one in shares)
        raise SwerveError(f"the store has {len(shares)} shares, and the backup {len(copies)}: move {beside_it} away first")
    if live and len(copies) > 1:
        raise SwerveError("a store of several workers is not replaced while they run: stop the service, and restore without --live")
    with late_progress() as progress:
        stamp = free_stamp(path)
        all_done = [
            restore(
                copies[number], share_path(path, Share(number, len(copies))), stamp, live=live, discard=discard, meaning=MEANING,
                progress=progress, approve=approve, whole=len(copies) == 1,
            )
            for number in reversed(range(len(copies)))
        ]  # fmt: skip
    done = all_done[-1]  # that of the first share, which comes last: then the store is whole
    queries, damaged = (sum(getattr(one.report, name) for one in all_done) for name in ("rows", "damaged"))
    findings = [finding for one in reversed(all_done) for finding in one.report.findings]
    data = {
        "store": str(path), "shares": len(copies), "queries": queries, "damaged": damaged, "live": done.live,
        "kept": str(done.kept) if done.kept else None, "secrets": not any(one.name == "secrets" for one in findings),
        "seconds": time.perf_counter() - started,
    }  # fmt: skip
    if write_json(json_to, data):
        return
    among = "" if len(copies) == 1 else f" in {len(copies)} shares"
    console.print(f"{path}: {queries:,} queries{among}, as {copy} has them", soft_wrap=True, highlight=False, markup=False)
    for one in reversed(all_done):
        if one.kept:
            console.print(f"the replaced store is {one.kept}", soft_wrap=True, highlight=False, markup=False)
    for line in dict.fromkeys(f"{'warning' if one.warning else 'wrong'}: {one}" for one in findings):
        errors.print(line, soft_wrap=True, highlight=False, markup=False)
    if not data["secrets"]:
        words = f"put the secrets that belong to the backup in place before the service starts: {secrets}, mode 0600"
        errors.print(words, soft_wrap=True, highlight=False, markup=False)
    elif done.live:
        console.print("the service uses it from its next write on")


def free_stamp(path: Path) -> str:
    """Return the time as the end of a name that no replaced store has: of two restores in one second the later one waits."""
    path = path.absolute().resolve()
    while True:
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        if not any(path.parent.glob(f"{path.name}*.{stamp}*")):
            return stamp
        time.sleep(LOOK_SECONDS)
