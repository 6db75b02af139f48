"""`swerve verify`: checks a store."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from swerve.cli.common import MB, console, counted, errors, json_option, late_progress, need_service, write_json
from swerve.core.errors import SwerveError
from swerve.store.copies import verified
from swerve.store.protocol import InUse
from swerve.store.urls import share_urls, store_url
from swerve.store.verify import Report, verify_journal

need_service("`swerve verify`")

from swerve.service.secrets import beside  # noqa: E402
from swerve.service.verify import MEANING, check_secrets  # noqa: E402


@click.command("verify")
@click.argument("store")
@click.option(
    "--secrets",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="The store's file of secrets.  [default: the file beside the store]",
)
@json_option
def command(store: str, secrets: Path | None, json_to: str | None) -> None:
    """Check STORE, an address or a file, or the folder of a journal, and report its defects; nothing is changed. A store of several
    workers is checked share by share.

    Checks structure, checksums, owners of records, plausibility of counts, names, used decisions and secrets; SQLite's log; and
    every block of the store's own log, and that both belong together. The exit status is 1 for any defect, and 0 with warnings
    only. While a service runs on a file the command is refused: check a backup. A store on a server is copied to the folder for
    temporary files, as it is at one moment, and checked there, also while a service runs on it.
    """
    started = time.perf_counter()
    if Path(store).is_dir():
        return journal(Path(store), json_to)
    reports = []
    for url in share_urls(store_url(store)):
        try:
            with late_progress() as progress:
                report = verified(url, MEANING, progress)
        except InUse as error:
            raise SwerveError(f"{str(error).partition(';')[0]}; stop that process, or check a backup of the store") from None
        check_secrets(report, secrets or beside(store_url(store)), "name the right file with --secrets")
        reports.append(report)
    seconds = {"seconds": time.perf_counter() - started}
    said = [as_json(report) for report in reports]
    ok = all(report.ok for report in reports)
    if not write_json(json_to, said[0] | seconds if len(said) == 1 else {"ok": ok, "shares": said} | seconds):
        for report in reports:
            tell(report, seconds["seconds"])
    raise click.exceptions.Exit(0 if ok else 1)


def journal(folder: Path, json_to: str | None) -> None:
    """Check a journal and tell what is wrong."""
    started = time.perf_counter()
    checked = verify_journal(folder)
    wrong, doubts = ([one.message for one in checked.findings if one.warning is doubt] for doubt in (False, True))
    figures = {"journal": str(folder), "ok": not wrong, "first": checked.first, "end": checked.end, "segments": checked.segments,
               "bytes": checked.size, "errors": wrong, "warnings": doubts, "seconds": time.perf_counter() - started}  # fmt: skip
    if not write_json(json_to, figures):
        console.print(
            f"{folder}: {counted(checked.end - checked.first, 'entry')} in {counted(checked.segments, 'segment')}, "
            f"{checked.size / MB:,.1f} MB, "
            f"checked in {time.perf_counter() - started:.1f} s",
            soft_wrap=True, highlight=False, markup=False,
        )  # fmt: skip
        for kind, some in (("wrong", wrong), ("warning", doubts)):
            for words in some:
                errors.print(f"{kind}: {words}", soft_wrap=True, highlight=False, markup=False)
        if not checked.findings:
            console.print("nothing is wrong")
    raise click.exceptions.Exit(1 if wrong else 0)


def as_json(report: Report) -> dict[str, Any]:
    """Return a report as figures."""
    found = [
        [{"name": one.name, "message": one.message, "count": one.count, "examples": one.examples} for one in some]
        for some in (report.errors, report.warnings)
    ]
    log = {"bytes": report.log.bytes, "commits": report.log.commits, "lost": report.log.lost}
    kept = report.journal
    behind = None if kept is None else {
        "first": kept.first, "begin": report.said["begin"], "end": kept.end, "segments": kept.segments, "bytes": kept.size,
    }  # fmt: skip
    return {
        "store": report.server or str(report.path), "ok": report.ok, "queries": report.rows, "bytes": report.size,
        "schema": report.schema, "older": report.older, "log": log, "journal": behind, "errors": found[0], "warnings": found[1],
    }  # fmt: skip


def tell(report: Report, seconds: float) -> None:
    """Print a report."""
    log = f", a log of {report.log.bytes / MB:,.1f} MB with {report.log.commits:,} commits" if report.log.bytes else ""
    console.print(
        f"{report.server or report.path}: {report.rows:,} queries, {report.size / MB:,.1f} MB{log}, checked in {seconds:.1f} s",
        soft_wrap=True, highlight=False, markup=False,
    )  # fmt: skip
    if (kept := report.journal) is not None:
        console.print(
            f"its log: {counted(kept.end - kept.first, 'entry')} in {counted(kept.segments, 'segment')}, {kept.size / MB:,.1f} MB; "
            f"the next start plays {max(kept.end - report.said['begin'], 0):,}",
            soft_wrap=True, highlight=False, markup=False,
        )  # fmt: skip
    if report.older:
        console.print(f"{report.older:,} records of an older layout, which does not name the owner", soft_wrap=True)
    for one in report.errors:
        errors.print(f"wrong: {one}", soft_wrap=True, highlight=False, markup=False)
    for one in report.warnings:
        errors.print(f"warning: {one}", soft_wrap=True, highlight=False, markup=False)
    if not report.findings:
        console.print("nothing is wrong")
