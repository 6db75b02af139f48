"""A query's state as the API and the dashboard show it."""

from __future__ import annotations

import math
from typing import Any

from swerve.serving.ledger import CLICKS, CUT, LOG, NO_SHIFT, OPEN, OPERATOR, SHIFT
from swerve.serving.messages import Alarm, ArmState, QueryState, QuerySummary, parts_of
from swerve.serving.place import Place

#: Decimals of signals in answers: single precision has no more.
DECIMALS = 6
VERDICTS: dict[int, Any] = {OPEN: "open", SHIFT: "true", NO_SHIFT: "false", CUT: "none"}


def signal_name(code: int, names: tuple[str, ...]) -> str:
    """Return the name of the signal that raised an alarm."""
    if code == OPERATOR:
        return "operator"
    if code == CLICKS:
        return "clicks"
    return names[code] if code < len(names) else f"signal {code}"  # the alarm is of a configuration with more signals


def alarms_of(book: Any, names: tuple[str, ...]) -> list[Alarm]:
    """Return the last alarms, the newest first."""
    out = []
    count = int(book.alarms)
    for number in range(count - 1, max(count - LOG, 0) - 1, -1):
        at = number % LOG
        code = int(book.alarm_signal[at])
        out.append(
            Alarm(
                at=float(book.alarm_at[at]),
                signal=signal_name(code, names),
                value=float(book.alarm_value[at]) if code >= 0 and not math.isnan(book.alarm_value[at]) else None,
                verdict=VERDICTS[int(book.alarm_verdict[at])],
                phase=int(book.alarm_phase[at]),
            )
        )
    return out


def under_test(book: Any) -> bool:
    """Return whether the last alarm has no verdict yet."""
    count = int(book.alarms)
    return count > 0 and int(book.alarm_verdict[(count - 1) % LOG]) == OPEN


def arms_of(place: Place, book: Any) -> list[ArmState]:
    """Return the candidates, those with the most plays in this phase first."""
    out = []
    for arm, candidate in enumerate(place.ids):
        if candidate is not None:
            plays, clicks = int(book.phase_plays[arm]), int(book.phase_clicks[arm])
            out.append(
                ArmState(
                    id=candidate,
                    plays=int(book.plays[arm]),
                    clicks=int(book.clicks[arm]),
                    phase_plays=plays,
                    phase_clicks=clicks,
                    first_seen=float(book.first[arm]) or float(book.created),
                    last_offered=float(book.offered[arm]),
                    estimate=clicks / plays if plays else None,
                )
            )
    return sorted(out, key=lambda arm: (-arm.phase_plays, -arm.plays))


def present(value: float) -> float | None:
    """Return a signal as answers show it; None for one that was missing."""
    return None if math.isnan(value) else round(value, DECIMALS)


def state_of(place: Place, names: tuple[str, ...]) -> QueryState:
    """Return the state of a query."""
    record = place.record
    book = record.ledger
    query, parts = parts_of(place.query)
    return QueryState(
        query=query,
        parts=parts,
        phase=int(book.phase),
        phases=int(book.phase),
        requests=int(book.requests),
        created=float(book.created),
        seen=float(book.seen),
        testing=under_test(book),
        signals={name: present(float(book.surprise[j])) for j, name in enumerate(names)},
        arms=arms_of(place, book),
        alarms=alarms_of(book, names),
        namespace=place.namespace,
        control=place.shelf.rival,
    )


def summary_of(key: bytes, record: Any, text: str | None, namespace: str | None, control: bool) -> QuerySummary:
    """Return the line of a query in the list."""
    book = record.ledger
    query, parts = parts_of(text)
    return QuerySummary(
        key=key.hex(),
        query=query,
        parts=parts,
        requests=int(book.requests),
        phase=int(book.phase),
        seen=float(book.seen),
        shifted=float(book.shifted) or None,
        testing=under_test(book),
        namespace=namespace,
        control=control,
    )
