"""`swerve export`: everything that a store has learnt, as JSON lines or Parquet."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

from swerve.cli.common import errors, late_progress, need_service
from swerve.core.errors import SwerveError
from swerve.store.copies import whole_of
from swerve.store.lock import OWNER_ONLY
from swerve.store.shares import Share
from swerve.store.snapshot import snapshot
from swerve.store.urls import share_urls, store_url

need_service("`swerve export`")

from swerve.service.config.load import load, signal_names  # noqa: E402
from swerve.service.config.settings import settings_of  # noqa: E402
from swerve.service.recovering import settle  # noqa: E402
from swerve.serving.export import COLUMNS, Line, as_columns, lines_of, policies_of, shared_lines  # noqa: E402
from swerve.serving.migration import is_rival  # noqa: E402

#: Lines of one row group of Parquet: bounds the memory.
GROUP = 10_000
#: The formats by the ending of the file.
ENDINGS = {"": "jsonl", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".parquet": "parquet", ".pq": "parquet"}
#: Rows between two reports of progress.
REPORT_EVERY = 500


@click.command("export")
@click.argument("store")
@click.option("--out", type=click.Path(path_type=Path), help="The new file.  [default: JSON lines to standard output]")
@click.option("--format", "kind", type=click.Choice(["jsonl", "parquet"]), help="[default: by the ending of --out, else jsonl]")
@click.option("--namespace", help="Only queries of this namespace.")
@click.option(
    "--config", "file", type=click.Path(path_type=Path),
    help="The service's configuration: names of signals, and the meaning of the policy's own numbers.  [default: SWERVE_CONFIG]",
)  # fmt: skip
@click.option("--brief", is_flag=True, help="Leave out `state`, the policy's own numbers, and what queries share.")
def command(store: str, out: Path | None, kind: str | None, namespace: str | None, file: Path | None, brief: bool) -> None:
    """Export everything that STORE, an address or a file, has learnt: a line for each query, each of its candidates, and what
    queries share (docs/operations.md has every column).

    The store is read as it is at one moment, also while a service runs on it; what only its log has yet is played into a copy in
    the folder for temporary files. A file is never overwritten, and appears when it is complete.
    """
    kind = kind or kind_of(out)
    if kind == "parquet" and out is None:
        raise SwerveError("Parquet needs a file: name one with --out")
    if out is not None and os.path.lexists(out):
        raise SwerveError(f"{out} exists already; an export never overwrites: name a new file")
    config = load(file)
    settings, names = settings_of(config), signal_names(config)
    policies = [] if brief else policies_of(settings)
    counts = {"query": 0, "candidate": 0, "shared": 0}
    unread = damaged = 0
    urls = share_urls(store_url(store))
    with late_progress() as progress, written(out, kind) as write:
        for share, url in enumerate(urls):
            with whole_of(url, settle) as file_of_all, snapshot(file_of_all) as stored:
                for line in shared_lines(stored.groups(), settings) if not brief and share == 0 else ():
                    if namespace is None or line["namespace"] == namespace:
                        counts["shared"] += 1
                        write(line)
                for number, row in enumerate(stored.rows()):
                    if number % REPORT_EVERY == 0:
                        progress("exporting", number, stored.count)
                    if not (Share(share, len(urls)).has(row.key) or is_rival(row)):
                        continue
                    for line in lines_of(row, stored.layouts, names, policies):
                        if namespace is not None and line["namespace"] != namespace:
                            break
                        counts[line["kind"]] += 1
                        unread += line["kind"] == "query" and not brief and line["state"] is None
                        write(line)
                damaged += stored.damaged
        if not any(counts.values()) and not settings.knows(namespace):
            known = ", ".join(settings.namespaces) or "none"
            raise SwerveError(f"no query of the store has the namespace {namespace!r}; the configuration names {known}")
    said = f"{counts['query']:,} queries, {counts['candidate']:,} candidates, {counts['shared']:,} shared records"
    if out is not None:
        errors.print(f"{out}: {said}", soft_wrap=True, highlight=False, markup=False)
    if unread:
        errors.print(
            f"{unread:,} queries were written with another policy than the configuration's, so that their `state` is left out; "
            "--config names the configuration",
            soft_wrap=True, highlight=False, markup=False,
        )  # fmt: skip
    if damaged:
        errors.print(f"{damaged:,} records are damaged and were left out: run `swerve verify`", soft_wrap=True, highlight=False)
        raise click.exceptions.Exit(1)


def kind_of(out: Path | None) -> str:
    """Return the format that the ending of a file names; raises for endings of other formats."""
    ending = "" if out is None else out.suffix
    if ending not in ENDINGS:
        raise SwerveError(f"{out} ends in {ending}; an export must end in .jsonl or .parquet, or --format must name its format")
    return ENDINGS[ending]


@contextlib.contextmanager
def written(out: Path | None, kind: str) -> Iterator[Callable[[Line], None]]:
    """Yield a function that writes a line; the file appears under its name when the block ends well."""
    if out is None:
        yield lambda line: print(json.dumps(line, ensure_ascii=False, allow_nan=False), file=sys.stdout)
        return
    if not out.parent.is_dir():
        raise SwerveError(f"there is no folder {out.parent}; make it, or name another folder")
    part = out.with_name(f".{out.name}.{os.getpid()}.part")
    try:
        os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, OWNER_ONLY))
        with parquet(part) if kind == "parquet" else jsonl(part) as write:
            yield write
        try:
            os.link(part, out)  # unlike a rename, fails if another process has created the file meanwhile
        except FileExistsError:
            raise SwerveError(f"{out} exists already; an export never overwrites: name a new file") from None
    finally:
        part.unlink(missing_ok=True)


@contextlib.contextmanager
def jsonl(path: Path) -> Iterator[Callable[[Line], None]]:
    """Write lines as JSON."""
    with path.open("w", encoding="utf-8") as file:
        yield lambda line: print(json.dumps(line, ensure_ascii=False, allow_nan=False), file=file)


@contextlib.contextmanager
def parquet(path: Path) -> Iterator[Callable[[Line], None]]:
    """Write lines as rows of one table, in groups."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise SwerveError("Parquet needs the package pyarrow; install it, or export JSON lines (--format jsonl)") from None
    alarm = [
        ("at", pa.float64()),
        ("signal", pa.string()),
        ("value", pa.float64()),
        ("verdict", pa.string()),
        ("phase", pa.int64()),
    ]
    types: dict[str, Any] = {
        "text": pa.string(), "number": pa.float64(), "whole": pa.int64(), "yes": pa.bool_(), "state": pa.string(),
        "alarms": pa.list_(pa.struct(alarm)),
    }  # fmt: skip
    schema = pa.schema([(name, types[column]) for name, column in COLUMNS.items()])
    group: list[Line] = []
    with pq.ParquetWriter(path, schema) as writer:

        def flush() -> None:
            writer.write_table(pa.Table.from_pylist(group, schema=schema))
            group.clear()

        def write(line: Line) -> None:
            group.append(as_columns(line))
            if len(group) >= GROUP:
                flush()

        yield write
        if group:
            flush()
