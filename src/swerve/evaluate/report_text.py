"""Figures as text, for the terminal and for the report."""

from __future__ import annotations

from datetime import UTC, datetime

from swerve.evaluate.shifts import Found, Shift


def instant(at: float | None) -> str:
    """Return a time as text, in UTC.

    >>> instant(0.0), instant(None)
    ('1970-01-01 00:00', '–')
    """
    return "–" if at is None else datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M")


def change_of(shift: Shift) -> str:
    """Return the shares of the risen and of the fallen result before and after, as text."""
    by_result = {share.result: share for share in shift.shares}
    return "; ".join(
        f"{name} {100 * by_result[name].before:.0f} → {100 * by_result[name].after:.0f} %"
        for name in dict.fromkeys((shift.risen, shift.fallen))
        if name in by_result
    )


def volume_of(shift: Shift) -> str:
    """Return the volume before and soon after as text."""
    if not shift.volume_before or shift.volume_after is None:
        return "–"
    return f"× {shift.volume_after / shift.volume_before:.2g}"


def signals_of(shift: Shift) -> str:
    """Return the means of the signals before and soon after as text."""
    return ", ".join(f"{name} {before:.3g} → {after:.3g}" for name, (before, after) in shift.signals.items()) or "–"


def bound_of(found: Found) -> str:
    """Return the sentence on false alarms."""
    return (
        f"{found.tested:,} queries have enough clicks to be tested. The probability that even one query that did not change "
        f"is listed is at most {100 * found.false_alarms:g} %, if without a change a query's searches could have come in any order."
    )
