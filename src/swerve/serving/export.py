"""Everything learnt, line by line: queries, their candidates, and what queries share. docs/operations.md has every column."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from swerve.core.spec import Spec
from swerve.core.tables import CAPACITIES, nested, pool_dtype
from swerve.serving.explain import alarms_of, under_test
from swerve.serving.kernels import query_dtype
from swerve.serving.messages import parts_of
from swerve.serving.migration import policy_in
from swerve.serving.place import UNPACK
from swerve.serving.ranker import RIVAL
from swerve.serving.settings import Settings, kind_of, shared_name
from swerve.signals import season_layout
from swerve.store.layouts import layout_of
from swerve.store.protocol import Row

Line = dict[str, Any]
#: Padding between the fields of a record.
GAP = re.compile(r"gap[0-9]+")
#: Separates the name of a shared record from its namespace.
OF = " of "

#: The columns, in order, with their types: text, number, whole, yes, alarms (a list) and state (numbers by name).
COLUMNS: dict[str, str] = {
    "kind": "text", "key": "text", "namespace": "text", "query": "text", "locale": "text", "filter": "text", "segment": "text",
    "created": "number", "seen": "number", "requests": "whole", "phase": "whole", "phase_began": "number",
    "phase_requests": "whole", "shifted": "number", "testing": "yes", "session_pages": "whole", "alarm_count": "whole",
    "alarms": "alarms", "policy": "text", "id": "text", "arm": "whole", "plays": "whole", "clicks": "whole",
    "phase_plays": "whole", "phase_clicks": "whole", "estimate": "number", "first_seen": "number", "last_offered": "number",
    "name": "text", "state": "state", "control": "yes",
}  # fmt: skip


class Policy(NamedTuple):
    """The configured policy, whose numbers are exported: its classes, and which of its fields have a value for each arm."""

    kind: str
    per_arm: frozenset[tuple[str, ...]]


def policies_of(settings: Settings) -> list[Policy]:
    """Return the configured policies: a field has a value for each arm if its length grows with the capacity."""
    found = []
    for policy in policies_in(settings):
        small, large = (dict(shapes(_state(policy, arms, settings))) for arms in CAPACITIES[:2])
        found.append(Policy(kind_of(policy), frozenset(path for path, shape in small.items() if shape != large.get(path))))
    return found


def policies_in(settings: Settings) -> list[Spec]:
    """Return the policy, and that of the control arm where it has one."""
    return [settings.policy, *([] if settings.rival is None else [settings.rival])]


def _state(policy: Spec, arms: int, settings: Settings) -> np.dtype[Any]:
    state: np.dtype[Any] = query_dtype(policy, arms, len(settings.plan), len(settings.numbers))["policy"]
    return state


def shapes(record: np.dtype[Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], tuple[int, ...]]]:
    """Yield the path and the shape of every field of a record."""
    for name in record.names or ():
        field = record[name]
        if field.base.names:
            yield from shapes(field.base, (*path, name))
        elif not GAP.fullmatch(name):
            yield (*path, name), field.shape


def at(record: Any, path: tuple[str, ...]) -> Any:
    """Return a field of a record as plain numbers."""
    for name in path:
        record = record[name]
    return plain(record.tolist())


def plain(value: Any) -> Any:
    """Return numbers for JSON, which has no infinity and no NaN: null."""
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def lines_of(row: Row, layouts: Mapping[int, str], names: tuple[str, ...], policies: Sequence[Policy]) -> Iterator[Line]:
    """Yield the line of a stored query, then those of its candidates. Where the record is one of another policy than `policies`,
    `state` is null."""
    text = layouts[row.layout]
    record = np.frombuffer(row.record, layout_of(text)[0])[0]
    book = record["ledger"].view(np.recarray)
    kept = UNPACK.decode(row.names)
    query, parts = parts_of(kept.query)
    key, classes = row.key.hex(), policy_in(text)
    field = next(name for name in record.dtype.names if name.startswith("policy"))
    policy = next((one for one in policies if one.kind == classes), None)
    paths = list(shapes(record[field].dtype)) if policy is not None else []
    per_arm = policy.per_arm if policy is not None else frozenset()
    given = {} if parts is None else {part: getattr(parts, part) for part in ("locale", "filter", "segment")}
    yield {
        "kind": "query", "key": key, "namespace": kept.namespace, "query": query, **given,
        "created": float(book.created), "seen": float(book.seen), "requests": int(book.requests), "phase": int(book.phase),
        "phase_began": float(book.began), "phase_requests": int(book.phase_requests), "shifted": float(book.shifted) or None,
        "testing": under_test(book), "session_pages": int(book.named), "alarm_count": int(book.alarms),
        "alarms": [{"at": a.at, "signal": a.signal, "value": a.value, "verdict": a.verdict, "phase": a.phase}
                   for a in alarms_of(book, names)],
        "policy": classes,
        "state": {".".join(path): at(record[field], path) for path, _ in paths if path not in per_arm} or None,
        "control": kept.rival,
    }  # fmt: skip
    values = {".".join(path): at(record[field], path) for path, _ in paths if path in per_arm}
    for arm, candidate in enumerate(kept.ids):
        if candidate is None or arm >= len(book.plays):
            continue
        plays, clicks = int(book.phase_plays[arm]), int(book.phase_clicks[arm])
        yield {
            "kind": "candidate", "key": key, "namespace": kept.namespace, "query": query, **given, "id": candidate, "arm": arm,
            "plays": int(book.plays[arm]), "clicks": int(book.clicks[arm]), "phase_plays": plays, "phase_clicks": clicks,
            "estimate": clicks / plays if plays else None, "first_seen": float(book.first[arm]) or float(book.created),
            "last_offered": float(book.offered[arm]), "policy": classes,
            "state": {name: value[arm] for name, value in values.items()} or None, "control": kept.rival,
        }  # fmt: skip


def shared_lines(records: Mapping[str, bytes], settings: Settings) -> Iterator[Line]:
    """Yield what queries share, for each policy and namespace: what policies have learnt together, and the season."""
    season = nested(season_layout())
    for policy, prefix in zip(policies_in(settings), ("", RIVAL), strict=False):
        pool = pool_dtype(policy, len(settings.plan))
        name = shared_name(settings, policy, pool)
        for stored, record in records.items():
            base, _, namespace = stored.partition(OF)
            kind = {f"{prefix}{name}": "policy", f"{prefix}season": "season"}.get(base)
            layout = pool if kind == "policy" else season
            if kind is None or len(record) != layout.itemsize:
                continue
            value = np.frombuffer(record, layout)[0]
            state = {".".join(path): at(value, path) for path, _ in shapes(layout)}
            yield {
                "kind": "shared", "namespace": namespace or None, "name": kind,
                "policy": kind_of(policy) if kind == "policy" else None, "state": state, "control": prefix == RIVAL,
            }  # fmt: skip


def as_columns(line: Line) -> Line:
    """Return a line with every column, in order, and its state as JSON, for formats with a fixed type for each column."""
    state = line.get("state")
    return {**{name: line.get(name) for name in COLUMNS}, "state": None if state is None else json.dumps(state)}
