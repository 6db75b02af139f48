"""`swerve learn`: builds a store from logs, so that a service begins warm."""

from __future__ import annotations

from pathlib import Path

import click

from swerve.cli.common import (
    NO_CLICKS,
    console,
    errors,
    json_option,
    late_progress,
    logs_argument,
    need_service,
    spooled,
    write_json,
)
from swerve.core.errors import SwerveError


@click.command()
@logs_argument
@click.option(
    "--store",
    required=True,
    metavar="STORE",
    help="The new store: a file, or an address (sqlite:///PATH, postgresql://USER@HOST/DATABASE, valkey://HOST).",
)
@click.option(
    "--config", "config_file", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="The service's configuration."
)
@click.option(
    "--secrets",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Secrets for the new store, copied beside it.  [default: new ones]",
)
@click.option(
    "--format", "form", help="Format of the logs: swerve, ubi, dsjson, open-bandit or plain.  [default: by the first lines]"
)
@click.option(
    "--map", "columns", multiple=True, metavar="FIELD=COLUMN", help="Where a field lies, e.g. query=term,shown=hits; repeatable."
)
@json_option
def command(
    logs: tuple[Path, ...],
    store: str,
    config_file: Path | None,
    secrets: Path | None,
    form: str | None,
    columns: tuple[str, ...],
    json_to: str | None,
) -> None:
    """Build a store from logs (docs/evaluate.md): day one begins with what the service would have learnt from them.

    A recording of Swerve, with all shares of its store, is replayed with its own configuration: every record has the bytes that
    serving gave it, but for its owner where the secrets are others than the service's. Rankings of other logs teach as
    `POST /v1/observe` does, with the policy and signals of --config.
    """
    need_service("learning from logs")
    from swerve.evaluate.readers import common_format, read
    from swerve.evaluate.readers.source import size_of
    from swerve.evaluate.tally import Tally
    from swerve.service import learning
    from swerve.service.config.load import load
    from swerve.service.config.settings import settings_of
    from swerve.service.secrets import load_secrets, put_back, read_file, secrets_path
    from swerve.serving.ranker import Ranker
    from swerve.store import open_store
    from swerve.store.urls import shown_url, store_exists, store_url

    logs = click.get_current_context().with_resource(spooled(logs))
    config = load(config_file, {"store.url": store_url(store)})
    chosen = form or common_format(logs)
    path, database, there = secrets_path(config), shown_url(config.store.url), store_exists(config.store.url)
    if path is None:
        load_secrets(None)  # before a store is made
    if there or (path is not None and path.exists()):
        taken = database if there else path
        raise SwerveError(f"{taken} exists; `swerve learn` builds a new store and changes none: choose another path")
    if secrets is not None and path is not None:
        put_back(path, read_file(secrets))
    sizes, tally = [size_of(log) for log in logs], Tally()
    opened = open_store(config.store.url, most=config.store.max_mb << 20, may_lose_clicks=config.store.may_lose_clicks)
    try:
        kept = load_secrets(path)
        opened.claim(kept.fingerprint())
        with late_progress() as report:

            def progress(done: int, number: int = 0) -> None:
                report("learning", sum(sizes[:number]) + done, sum(sizes))

            if chosen == "swerve":
                learnt = learning.learn_recordings(logs, kept.query_key, opened, lambda number, done: progress(done, number))
            else:
                ranker = Ranker(settings_of(config), kept.query_key)
                learnt, now = learning.learn_lists(read(logs, chosen, columns, tally=tally, progress=progress), ranker)
                learning.write(ranker, opened, now)
    finally:
        opened.close()
    dropped = sum(drop.lines for drop in tally.dropped.values())
    figures = {"format": chosen, "lists": learnt.lists, "clicks": learnt.clicks, "queries": learnt.queries, "dropped": dropped}
    if write_json(json_to, {**figures, "too_long": learnt.too_long, "store": str(database)}):
        return
    if learnt.lists and not learnt.clicks:
        errors.print(NO_CLICKS, style="yellow", highlight=False, markup=False, soft_wrap=True)
    said = f"learnt from {learnt.lists:,} lists of {learnt.queries:,} queries with {learnt.clicks:,} clicks\nstore: {database}"
    if dropped:
        said += f"\n{dropped:,} lines were dropped; `swerve evaluate` says why"
    if learnt.too_long:
        said += f"\n{learnt.too_long:,} lists were longer than policy.arms = {config.policy.arms}: only their top was learnt"
    console.print(said, soft_wrap=True, highlight=False)
