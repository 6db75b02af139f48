"""What a part of the queries of a log says, list by list, folded on a node: histories, and rows for the judgement on each list.

A part has all lists of its queries, in the order of the log, and needs of other queries only what comes with its lists: where a
query begins (see `Watched`), and the mean rate of the whole log so far. States and lists travel as plain data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from swerve.core.examination import SLOTS
from swerve.evaluate.history import History
from swerve.evaluate.judging import asked_of, chosen, is_judged, logged
from swerve.evaluate.lists import Shown
from swerve.evaluate.pieces import decode, encode, read_piece
from swerve.evaluate.rates import Known
from swerve.evaluate.targets import ARMS, Asked, Line, Numbered, Policy, Row, tables_of, target_of

_plain = msgspec.msgpack.Decoder().decode

#: Rows of judged lists: columns of arrays, by their names.
Rows = dict[str, NDArray[Any]]


class Portion(NamedTuple):
    """The lists of a part in one piece of the log, packed; which of them begin their query, and the prior before each."""

    lists: bytes
    begins: NDArray[np.bool_]
    priors: NDArray[np.float64]


def fold_histories(state: bytes, portions: Sequence[Portion], gone: Sequence[str]) -> bytes:
    """Return the histories of a part after more lists, without those of the queries that are watched no more."""
    histories = {query: History.of(each) for query, each in _plain(state).items()} if state else {}
    for portion in portions:
        for entry, begins in zip(decode(portion.lists), portion.begins.tolist(), strict=True):
            if begins:
                histories[entry.query] = History()
            histories[entry.query].add(entry)
    for query in gone:
        histories.pop(query, None)
    return encode({query: each.plain() for query, each in histories.items()})


def histories_in(state: bytes) -> dict[str, History]:
    """Return the histories in a state."""
    return {query: History.of(each) for query, each in _plain(state).items()} if state else {}


def fold_judging(
    state: bytes, portions: Sequence[Portion], gone: Sequence[str], names: Sequence[str], full: bool
) -> tuple[bytes, Rows]:
    """Return what is known of a part's queries after more lists, and the rows of those of them that are judged. `full` says that
    the policy has no room for queries that it does not know yet."""
    known, numbered = Known(), Numbered(1 << 62, ARMS)
    if state:
        known.by_query, arms = _plain(state)
        for query, results in arms.items():
            row = numbered.row_of(query)
            assert row is not None
            row.names.extend(results)
            row.arms.update({result: arm for arm, result in enumerate(results)})
    if full:
        numbered.most = len(numbered.rows)
    waiting: list[Asked] = []
    expected: list[list[float]] = []
    for portion in portions:
        entries: list[Shown] = decode(portion.lists)
        for entry, begins, prior in zip(entries, portion.begins.tolist(), portion.priors.tolist(), strict=True):
            if begins:
                known.by_query.pop(entry.query, None)
            if is_judged(entry):
                asked, hoped = asked_of(entry, known, prior)
                waiting.append(asked)
                expected.append(hoped)
            if begins:
                known.by_query[entry.query] = {}
            known.add(entry)
    rows = rows_of(waiting, expected, names, numbered)
    for query in gone:
        known.by_query.pop(query, None)
    return encode((known.by_query, {query: row.names for query, row in numbered.rows.items()})), rows


def rows_of(lists: Sequence[Asked], expected: Sequence[list[float]], names: Sequence[str], numbered: Numbered) -> Rows:
    """Return the rows of judged lists. Where the policy is a target, its column has what it would have without room."""
    if not lists:
        return {}
    out: Rows = {}
    out["clicks"], out["propensities"], out["hoped"] = logged(lists, expected)
    for name in names:
        orders = [asked.offered for asked in lists] if name == Policy.name else target_of(name).orders(lists)
        out[f"{name} chances"], out[f"{name} worth"] = chosen(lists, orders)
    if Policy.name in names:
        out |= policy_rows(lists, numbered)
    return out


def policy_rows(lists: Sequence[Asked], numbered: Numbered) -> Rows:
    """Return what the policy is asked, and what is needed to judge its pages."""
    lines = [numbered.line_of(asked) for asked in lists]
    nothing = Line(Row(0, {}, []), 1, None, 0, [0], 0.0)  # where the policy is not asked
    asked, given, finals = tables_of([line or nothing for line in lines], ARMS)
    by_arm, shown = np.zeros((len(lists), ARMS)), np.full((len(lists), SLOTS), -1, np.int8)
    for number, (each, line) in enumerate(zip(lists, lines, strict=True)):
        if line is None:
            continue
        arms, top = line.row.arms, each.entry.top - 1
        for result, value in each.values.items():
            by_arm[number, arms[result]] = value
        for slot, result in enumerate(each.entry.shown[: SLOTS - top], top):
            shown[number, slot] = arms.get(result, -1)
    return {
        "asked": asked,
        "given": given.astype(np.int8),
        "finals": finals.astype(np.int8),
        "times": np.array([math.nan if line is None else line.now for line in lines]),
        "wants": np.array([bool(each.offered) for each in lists]),
        "fits": np.array([line is not None for line in lines]),
        "shown": shown,
        "by_arm": by_arm,
    }


#: What nodes do, by name.
WORK: dict[str, Callable[..., Any]] = {"read": read_piece, "histories": fold_histories, "judging": fold_judging}


def work(name: str, *order: Any) -> Any:
    """Do a piece of work: on a node."""
    return WORK[name](*order)
