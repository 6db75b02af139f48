"""The results of a scenario as plain values: reports for the page, and the summary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from swerve.demo.intents import View
from swerve.demo.tallies import Line, Part, Tallies

LIVE = "swerve"
#: The rival that learns nothing: what the service makes of the search engine's own order is measured against it.
ENGINE = "fixed"
#: Most events in a report.
EVENTS_SHOWN = 50
PERCENT = 100.0
#: Decimals: of totals, of click rates, of shares, of percentages.
DECIMALS, RATE_DECIMALS, SHARE_DECIMALS, PERCENT_DECIMALS = 3, 5, 4, 2


def rates(lines: Mapping[str, Line], impressions: int) -> dict[str, float]:
    """Return the share of searches with a click, of each policy."""
    return {name: round(line.clicks / max(impressions, 1), RATE_DECIMALS) for name, line in lines.items()}


def gained(lines: Mapping[str, Line]) -> float | None:
    """Return the live service's clicks beyond those of the search engine's own order, in percent of these; None without any.

    >>> gained({"swerve": Line(clicks=6), "fixed": Line(clicks=5)})
    20.0
    """
    clicks, engine = lines[LIVE].clicks, lines[ENGINE].clicks
    return round(PERCENT * (clicks - engine) / engine, PERCENT_DECIMALS) if engine else None


def part_of(part: Part) -> dict[str, Any]:
    """Return the totals of a part of the traffic."""
    clicks = {name: line.clicks for name, line in part.lines.items()}
    ctr = rates(part.lines, part.impressions)
    return {"impressions": part.impressions, "clicks": clicks, "ctr": ctr, "gained_percent": gained(part.lines)}


def totals_of(tallies: Tallies) -> dict[str, Any]:
    """Return the totals that reports and the summary share."""
    return {
        "impressions": tallies.impressions,
        "held_out": tallies.held,
        "regret": {name: round(line.regret, DECIMALS) for name, line in tallies.lines.items()},
        "ctr": rates(tallies.lines, tallies.impressions),
        "slots": {name: list(line.slots) for name, line in tallies.lines.items()},
        "head": part_of(tallies.head),
        "tail": part_of(tallies.tail),
    }


def report_of(tallies: Tallies, views: Mapping[str, View]) -> dict[str, Any]:
    """Return totals, events and intents of the famous queries, for the page."""
    shifts = tallies.shifts[-EVENTS_SHOWN:]
    return {
        **totals_of(tallies),
        "events": [shift.as_dict() for shift in shifts],
        "intent": {
            query: {name: round(share, SHARE_DECIMALS) for name, share in view.shares.items()} for query, view in views.items()
        },
        "best": {query: view.leader.id for query, view in views.items()},
        "adapt": [{"query": one.event.query, "at": one.event.at, "impressions": one.impressions} for one in shifts],
    }


def summary_of(tallies: Tallies) -> dict[str, Any]:
    """Return the totals at the end."""
    lines, every = tallies.lines, max(tallies.impressions, 1)
    points = PERCENT * (lines[LIVE].clicks - lines[ENGINE].clicks) / every
    return {
        **totals_of(tallies),
        "ctr_top": {name: round(line.tops / every, RATE_DECIMALS) for name, line in lines.items()},
        "ctr_gained": {"points": round(points, DECIMALS), "percent": gained(lines)},
        "events": [{**shift.as_dict(), "impressions": shift.impressions} for shift in tallies.shifts],
        "alarms": tallies.alarms,
        "alarms_off_events": tallies.off_events,
        "false_alarms": tallies.false_alarms,
        "degraded": tallies.degraded,
        "pinned": tallies.pinned,
    }
