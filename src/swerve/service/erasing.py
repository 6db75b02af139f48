"""Deletion for good by an operator: from memory and from the store, durable and overwritten before it is answered."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable

import msgspec

from swerve.core.errors import SwerveError
from swerve.service.availability import Availability, Unavailable
from swerve.service.batches import row_of
from swerve.service.committer import Committer
from swerve.service.config.callers import Limits
from swerve.service.control import AUDIT, RULES, Control
from swerve.service.experiments import COUNTS
from swerve.service.loader import Loader
from swerve.service.namespaces import Within, require, require_all
from swerve.service.ranking import Ranking
from swerve.service.recovering import recover
from swerve.serving.control import MOST_CHANGES, Change, DeleteRequest, DeleteResponse, Kept, Rule, check_delete
from swerve.serving.erasing import (
    DELETED,
    Erased,
    Eraser,
    Target,
    forget,
    names_it,
    scrubbed,
    target_of,
)
from swerve.serving.lift import Counted, line_of
from swerve.serving.messages import Refused, encode
from swerve.serving.migration import Layouts
from swerve.serving.place import UNPACK, Place
from swerve.serving.ranker import Ranker
from swerve.serving.unrecording import Scrub
from swerve.store.protocol import Row, Store, StoreError

log = logging.getLogger("swerve.service")

#: Deletes on other workers, for a caller and the namespaces that it may use.
Elsewhere = Callable[[DeleteRequest, str | None, Within], Awaitable[list[DeleteResponse]]]


def records_after(
    target: Target,
    ranker: Ranker,
    erased: Erased,
    rules: Kept,
    changes: Iterable[Change],
    counted: Counted | None,
    now: float,
    by: str | None,
) -> tuple[list[Change], dict[str, bytes]]:
    """Return the audit after a deletion, and the records to write with it: deletions, rules in force, audit, experiment.

    The totals of an experiment keep the searches of a deleted query; its own line is dropped.
    """
    change = Change(now, "delete", by, query=target.query_name, namespace=target.namespace, result=target.result_name)
    after = [*scrubbed(changes, target, ranker.key_from, ranker.rows.short), change][-MOST_CHANGES:]
    records = {DELETED: erased.record(), RULES: encode(rules), AUDIT: encode(after)}
    if counted is not None and target.key is not None and target.result is None:
        counted.queries.pop(line_of(target.key), None)
        records[COUNTS] = encode(counted)
    return after, records


def refuse_ruled(target: Target, ranker: Ranker, rules: Iterable[Rule]) -> None:
    """Refuse a deletion of something that rules in force name."""
    if named := [rule.id for rule in rules if names_it(rule, target, ranker.key_from, ranker.rows.short)]:
        listed = ", ".join(map(str, named))
        raise Refused(409, "ruled", f"rules in force name it (ids {listed}); remove them first: they would be lost with it")


def erase_stored(store: Store, ranker: Ranker, request: DeleteRequest, window: float, now: float) -> DeleteResponse:
    """Delete from a store that no service has open, and from its log. Raises `Refused`, `SwerveError` or `StoreError`."""
    recover(store, lambda: ranker.settings)
    key = None if request.query is None else ranker.key_from(request.query, request.parts)
    result = None if request.result is None else ranker.rows.short(request.result)
    target, kept = target_of(ranker, key, result, request.namespace), shared_records(store)
    rules = msgspec.json.decode(kept[RULES], type=Kept) if RULES in kept else Kept(1, [])
    rules.rules = [rule for rule in rules.rules if rule.holds(now)]
    refuse_ruled(target, ranker, rules.rules)
    stored: set[bytes] = set()
    if request.result is not None:
        known = set(store.layouts().values())
        if store.count() and not known & {shelf.description for shelf in ranker.rows.tables}:
            raise SwerveError("the store was never used with this configuration; name that of its service with --config")
        stored = set(target.keys)
        after: int | None = None if key is not None else 0
        while after is not None:
            keys, after = store.naming(request.result.encode("utf-8", "surrogatepass"), after)
            stored |= set(keys)
    eraser = Eraser(ranker, Layouts(store, ranker)) if stored else None

    def changed(row: Row) -> Row | None:
        if eraser is None or result is None or not target.concerns(row.key, UNPACK.decode(row.names).namespace):
            return None
        return eraser.without(row, result)

    erased = Erased(window)
    erased.load(kept, now)
    erased.note(target, now)
    changes = msgspec.json.decode(kept[AUDIT], type=list[Change]) if AUDIT in kept else []
    counted = msgspec.json.decode(kept[COUNTS], type=Counted) if COUNTS in kept else None
    _, groups = records_after(target, ranker, erased, rules, changes, counted, now, None)
    gone, versions = store.erase(target.keys if result is None else [], sorted(stored), changed, groups)
    store.scrub(Scrub(target.keys, request.result, target.result_name or "", target.concerns), now)
    return told(DeleteResponse(gone, len(versions)), request.namespace, ranker)


def told(done: DeleteResponse, namespace: str | None, ranker: Ranker) -> DeleteResponse:
    """Return the answer of a deletion, which says whether it found nothing because nobody knows the namespace."""
    done.unknown_namespace = not (done.queries or done.results) and not ranker.settings.knows(namespace)
    return done


def shared_records(store: Store) -> dict[str, bytes]:
    """Return the records that all queries share, without damaged ones."""
    return {name: record for (name, _), record in store.groups().items() if isinstance(record, bytes)}


class Erasing:
    """The deleting side of a service."""

    def __init__(
        self,
        ranker: Ranker,
        ranking: Ranking,
        loader: Loader,
        committer: Committer,
        control: Control,
        availability: Availability,
        clock: Callable[[], float],
        *,
        limits: Limits,
        erased: Erased,
        layouts: Callable[[], Layouts],
    ) -> None:
        self.ranker, self.ranking, self.loader, self.committer = ranker, ranking, loader, committer
        self.control, self.availability, self.clock, self.limits = control, availability, clock, limits
        self.erased, self.layouts = erased, layouts
        self.elsewhere: Elsewhere | None = None  # deletes on other workers

    async def one(self, request: DeleteRequest, by: str | None, within: Within = None) -> DeleteResponse:
        """Delete, and return once it is durable and overwritten. Raises `Refused`, or `Unavailable`: then it may be sent again."""
        check_delete(request, self.limits)
        require(within, request.namespace)
        if request.query is None and request.namespace is None:
            require_all(within, "a result in all queries")
        target = await self._target(request, within)
        async with self.control.one_at_a_time:
            refuse_ruled(target, self.ranker, self.control.rules())
            others = [] if self.elsewhere is None else await self.elsewhere(request, by, within)
            done = await self._from(target, request, by)
            for other in others:
                done.queries, done.results = done.queries + other.queries, done.results + other.results
            if self.control.published is not None:
                await self.control.published()  # the audit without it
            return told(done, request.namespace, self.ranker)

    async def here(self, request: DeleteRequest, by: str | None, within: Within) -> DeleteResponse:
        """Delete what another worker was asked to delete everywhere. Raises `Refused`, or `Unavailable`."""
        target = await self._target(request, within)
        async with self.control.one_at_a_time:
            return await self._from(target, request, by)

    async def _target(self, request: DeleteRequest, within: Within) -> Target:
        self.availability.require()
        ranker = self.ranker
        key = None if request.query is None else ranker.key_from(request.query, request.parts)
        if key is not None and within is not None:  # a key in place of the text may be that of another namespace
            await self._check_place(key, request.namespace)
        result = None if request.result is None else ranker.rows.short(request.result)
        return target_of(ranker, key, result, request.namespace)

    async def _from(self, target: Target, request: DeleteRequest, by: str | None) -> DeleteResponse:
        """Delete from this worker's memory and store."""
        try:
            stored = await self._stored(target, request.result)
            done = await self.committer.aside(lambda: self._erase(target, stored, by))
            try:
                scrub = Scrub(target.keys, request.result, target.result_name or "", target.concerns)
                await asyncio.to_thread(self.committer.store.scrub, scrub, self.clock())
            except StoreError as error:
                log.warning("it is deleted, but the log still has it (%s): %s", error.kind, error)
                raise Unavailable from None
            return done
        finally:
            self.committer.rows.named = None

    async def _check_place(self, key: bytes, namespace: str | None) -> None:
        place = self.ranker.rows.get(key)
        if place is None:
            try:
                (row,) = await self.loader.ask(self.loader.store.load, [key])
            except StoreError:
                raise Unavailable from None
            found = UNPACK.decode(row.names).namespace if isinstance(row, Row) else namespace
        else:
            found = place.namespace
        if found != namespace:
            raise Refused(404, "unknown_query", "this query is not known in the namespace")

    async def _stored(self, target: Target, result: str | None) -> set[bytes]:
        """Return the keys of stored rows that may have the result. Rows that are written meanwhile are added by the committer."""
        if result is None:
            return set()
        if target.key is not None:
            return set(target.keys)
        needle, after = result.encode("utf-8", "surrogatepass"), 0
        found = self.committer.rows.naming = set()
        self.committer.rows.named = result
        while True:
            try:
                keys, last = await self.loader.ask(self.loader.store.naming, needle, after)
            except StoreError:
                raise Unavailable from None
            found |= set(keys)
            if last is None:
                return found
            after = last

    async def _erase(self, target: Target, stored: set[bytes], by: str | None) -> DeleteResponse:
        """Delete, while no checkpoint is being written and no row is being taken up from the store.

        The log before the deletion must not be played after it. So it is played from a generation that has no rows yet, but for
        those that change meanwhile: whoever starts after a crash finds the deletion in the store, or nothing of it.
        """
        ranker, committer, control = self.ranker, self.committer, self.control
        await self._begin_anew()
        now, at = self.clock(), self.clock()
        known = 0
        held: dict[bytes, tuple[Place, Row]] = {}
        eraser = Eraser(ranker, self.layouts())
        if target.result is None:
            assert target.key is not None, "a deletion names a query or a result"
            known = sum(key in ranker.rows.places for key in target.keys)
            self._drop(target, now)
        else:
            for key in stored:
                place = ranker.rows.get(key)
                if place is not None and place.version and target.concerns(key, place.namespace):
                    place.pinned += 1
                    row = row_of(place, committer.rows.layouts, committer.store.epoch)
                    held[key] = place, eraser.without(row, target.result) or row
        self.erased.note(target, at)
        rules = Kept(control.next, control.rules())

        def after() -> tuple[list[Change], dict[str, bytes]]:
            lift = self.ranking.experiments.lift
            return records_after(
                target, ranker, self.erased, rules, control.changes, None if lift is None else lift.counted, now, by
            )

        def changed(row: Row) -> Row | None:
            if row.key in held:
                return held[row.key][1]
            if target.concerns(row.key, UNPACK.decode(row.names).namespace) and target.result is not None:
                return eraser.without(row, target.result)
            return None

        keys = target.keys if target.result is None else []
        try:
            gone, versions = await committer.rows.erase(keys, sorted(stored), changed, after()[1])
        except (StoreError, Unavailable) as error:
            if isinstance(error, StoreError):
                committer.suspect(error, "written")
            if isinstance(error, StoreError) and error.uncertain:  # it may be deleted: what is in memory must not bring it back
                control.changes = deque(after()[0], MOST_CHANGES)
                self._drop(target, now)
            else:
                self.erased.without(target, at, now)
            raise Unavailable from None
        finally:
            self.loader.deletions += 1
            for place, _ in held.values():
                place.pinned -= 1
        changes, records = after()  # with shifts that were reported meanwhile
        control.changes = deque(changes, MOST_CHANGES)
        committer.notes.kept(records, now)
        committer.keep({name: records[name] for name in (RULES, AUDIT)})
        for key, (place, _) in held.items():
            place.version = versions.get(key, place.version)
        touched = self._drop(target, self.clock())
        await self._begin_anew()
        log.info("deleted", extra={"query": target.query_name, "result": target.result_name})
        if target.result is None:
            return DeleteResponse(max(gone, known), 0)
        return DeleteResponse(0, len({*versions, *(place.key for place in touched)}))

    async def _begin_anew(self) -> None:
        """Begin a generation of the log, and return when a start plays the log from it on."""
        self.committer.rows.begin_generation()
        try:
            await self.committer.rows.write_all()
        except StoreError:
            raise Unavailable from None

    def _drop(self, target: Target, now: float) -> list[Place]:
        """Delete from memory."""
        touched = forget(self.ranker, target, now)
        if (lift := self.ranking.experiments.lift) is not None and target.key is not None and target.result is None:
            lift.forget(target.key)
        self.ranking.forget({place.key for place in touched} | set(target.keys))
        return touched
