"""Figures as text, for the terminal and for the report."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from swerve.evaluate.estimators import Estimate
from swerve.evaluate.forecast import LEAST_QUERIES, Gain
from swerve.evaluate.shifts import Found, Shift

NO_PROPENSITIES = (
    "This cannot be estimated: the log holds no randomisation (no list has propensities), so nothing in it says what people would "
    "have clicked in another order. What a forecast says about it is a model."
)
MODEL = (
    "Model, not measurement: a position-based click model was fitted to the log, and the policies were played on it. Gains are in "
    "clicks, against the log's own ranking on the same model, with 95 % intervals over queries "
    f"(from {LEAST_QUERIES} played queries on); they leave out how far the model is from people. best knows the model. "
    "Breaks even: impressions of a query until its gains so far stay above 0."
)


def instant(at: float | None) -> str:
    """Return a time as text, in UTC.

    >>> instant(0.0), instant(None)
    ('1970-01-01 00:00', '–')
    """
    return "–" if at is None else datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M")


def between(shift: Shift) -> str:
    """Return the times between which a query has changed, as text."""
    return f"{instant(shift.after)} and {instant(shift.until)}"


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


def estimate_of(each: Estimate) -> str:
    """Return an estimate with its interval as text."""
    return f"{each.value:.4g} ({each.low:.4g} to {each.high:.4g})"


def lift_of(each: Estimate, logged: float) -> str:
    """Return the difference to the log's own clicks per list as text, in percent where there are any.

    >>> lift_of(Estimate(0.3, 0.2, 0.4, 0.1, 0.0, 0.2, 9.0), 0.2)
    '+50 % (+0 to +100)'
    """
    if logged <= 0.0:
        return f"{each.lift:+.3g} ({each.lift_low:+.3g} to {each.lift_high:+.3g})"
    return f"{100 * each.lift / logged:+.3g} % ({100 * each.lift_low / logged:+.3g} to {100 * each.lift_high / logged:+.3g})"


def gain_text(gain: Gain | None) -> str:
    """Return a gain in percent with its interval as text."""
    if gain is None or gain.percent is None:
        return "–"
    if gain.percent_low is None:
        return f"{gain.percent:+.1f} % (too few queries)"
    return f"{gain.percent:+.1f} % ({gain.percent_low:+.1f} to {gain.percent_high:+.1f})"


def break_even_of(gain: Gain | None) -> str:
    """Return the impressions until a policy breaks even as text."""
    return "–" if gain is None else "not in this log" if gain.breaks_even is None else f"{gain.breaks_even:,}"


def columns_of(read: dict[str, Any]) -> str:
    """Return the columns of a plain log that were used, and those that were not, as text.

    >>> columns_of({"columns": {"query": ["q"], "time": ["ts", "at"]}, "columns_not_used": ["level"]})
    'query from q; time from ts, at; not used: level'
    """
    used = [f"{field} from {', '.join(names)}" for field, names in read["columns"].items()]
    rest = read["columns_not_used"]
    return "; ".join([*used, *([f"not used: {', '.join(rest)}"] if rest else [])])
