"""`swerve delete`: deletes a query or a result for good, through a running service or in a store that none has open."""

from __future__ import annotations

import functools
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from swerve.cli.common import ask, console, errors, json_option, write_json
from swerve.cli.rules import as_json, client_of, key_option, url_option, where_options
from swerve.core.errors import SwerveError

if TYPE_CHECKING:
    from swerve.serving.control import DeleteResponse

#: Bytes of memory for queries: a deletion in a file holds none.
NO_ROWS = 1 << 20


@click.command("delete")
@click.option("--result", help="The id of a result: in the query, or in all queries.")
@functools.partial(where_options, namespace="The namespace of the query, or of the result's queries.")
@click.option("--store", help="A store that no service has open, an address or a file, instead of a running service.")
@click.option(
    "--config",
    "file",
    type=click.Path(path_type=Path),
    help="With --store: the service's configuration.",
)
@click.option("--secrets", type=click.Path(path_type=Path), help="With --store: its secrets.  [default: the file beside the store]")
@click.option("--yes", is_flag=True, help="Do not ask.")
@url_option
@key_option
@json_option
def command(
    result: str | None, query: str | None, store: str | None, file: Path | None, secrets: Path | None, yes: bool,
    url: str, key: str | None, json_to: str | None, **parts: Any,
) -> None:  # fmt: skip
    """Delete for good: a query (--query), a result in a query (--query and --result), or a result in all queries (--result).

    It is durable, and overwritten in the store's files, when the command returns. Backups, logs and other recordings are not
    reached (docs/operations.md).
    """
    if query is None and result is None:
        raise SwerveError("neither --query nor --result is given; name what to delete")
    what = "everything about the query" if result is None else "the result in this query" if query else "the result in all queries"
    if not yes:
        ask(f"Delete {what} for good?")
    if store is None:
        with client_of(url, key) as client:
            done = client.delete(query, result=result, **parts)
    else:
        done = in_file(store, file, secrets, {"query": query, "result": result, **parts})
    if write_json(json_to, as_json(done)):
        return
    if not done.queries and not done.results:
        unknown = f": the namespace {parts['namespace']!r} is not known" if done.unknown_namespace else ""
        console.print(f"nothing of it was there{unknown}", highlight=False, markup=False, soft_wrap=True)
    else:
        console.print("deleted: the query" if result is None else f"deleted: the result, in {done.results:,} queries")
    if query is not None and not any(parts.values()):
        errors.print("with a locale, filter, segment or namespace the text is another query, which this does not touch")


def in_file(store: str, file: Path | None, secrets: Path | None, request: dict[str, Any]) -> DeleteResponse:
    """Delete in a store that no service has open."""
    from swerve.cli.common import need_service

    need_service("`swerve delete --store`")
    from swerve.service.config.load import load
    from swerve.service.config.settings import settings_of, windows_of
    from swerve.service.erasing import erase_stored, told
    from swerve.service.secrets import beside, load_secrets
    from swerve.serving.control import DeleteRequest, DeleteResponse, check_delete
    from swerve.serving.ranker import Ranker
    from swerve.store.urls import open_store, share_urls, shown_url, store_exists, store_url

    named = store_url(store)
    if not store_exists(named):
        raise SwerveError(f"there is no store {shown_url(named)}; name the one that the service used")
    config, asked = load(file), DeleteRequest(**request)
    check_delete(asked, config.limits)
    kept = load_secrets(secrets or beside(named), make=False)
    done = DeleteResponse(0, 0)
    for url in share_urls(named):
        opened = open_store(url, may_lose_clicks=config.store.may_lose_clicks)
        try:
            if not opened.claim(kept.fingerprint()):
                raise SwerveError("the queries of this store are stored under other secrets; name the right file with --secrets")
            ranker = Ranker(settings_of(config)._replace(budget=NO_ROWS), kept.query_key)
            one = erase_stored(opened, ranker, asked, max(windows_of(config).values()), time.time())
        finally:
            opened.close()
        done.queries, done.results = done.queries + one.queries, done.results + one.results
    return told(done, asked.namespace, ranker)
