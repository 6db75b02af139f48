"""The report on a log: one self-contained page with plots and tables."""

from __future__ import annotations

import html
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from swerve.evaluate.estimators import Judgement
from swerve.evaluate.forecast import Forecast
from swerve.evaluate.history import Histories
from swerve.evaluate.report_text import (
    MODEL,
    NO_PROPENSITIES,
    between,
    bound_of,
    break_even_of,
    change_of,
    columns_of,
    estimate_of,
    gain_text,
    instant,
    lift_of,
    signals_of,
    volume_of,
)
from swerve.evaluate.shifts import Found
from swerve.experiments.plots import save
from swerve.experiments.report import STYLE, image, table
from swerve.version import __version__

#: Queries whose shifts are plotted; the table has all.
PLOTTED = 12
SHIFT_HEADS = (
    "query", "changed between (UTC)", "shares of clicks", "by chance ≤", "lists", "volume", "signals", "clicks lost", "caught up",
    "ranking moved",
)  # fmt: skip


def read_section(form: str, read: dict[str, Any]) -> list[str]:
    """Return the section on what was read and dropped."""
    least = "at least " if read["queries_at_least"] else ""
    rows = [
        ["format", html.escape(form)],
        ["lines", f"{read['lines']:,}"],
        ["lists, clicks", f"{read['lists']:,}, {read['clicks']:,}"],
        ["queries", f"{least}{read['queries']:,}"],
        ["time (UTC)", f"{instant(read['first'])} to {instant(read['last'])}"],
        ["lists with propensities", f"{read['lists_with_propensities']:,}"],
    ]
    if "columns" in read:
        rows.append(["columns", html.escape(columns_of(read))])
    out = ["<h2 id='read'>What was read</h2>", table(["what", "value"], rows, "words")]
    shown, clicked = read["shown_by_position"], read["clicks_by_position"]
    body = [[at, f"{shown[at]:,}", f"{clicked.get(at, 0):,}", f"{100 * clicked.get(at, 0) / shown[at]:.2f} %"] for at in shown]
    out.append(table(["position", "shown", "clicks", "click rate"], body))
    if read["dropped"]:
        drops = [
            [html.escape(why), f"{each['lines']:,}", html.escape(each["where"]), f"<code>{html.escape(each['example'])}</code>"]
            for why, each in read["dropped"].items()
        ]
        out.append(table(["dropped because", "times", "first", "line"], drops, "words"))
    else:
        out.append("<p>Nothing was dropped.</p>")
    return out


def shifts_section(found: Found, histories: Histories, folder: Path) -> list[str]:
    """Return the section on shifts, with plots of the queries that lost the most clicks."""
    from swerve.evaluate.plots import query_plot

    out = ["<h2 id='shifts'>Which queries shift</h2>", f"<p>{html.escape(bound_of(found))}</p>"]
    if not found.shifts:
        return [*out, "<p>No query is listed.</p>"]
    rows = [
        [
            html.escape(shift.query.replace("\0", " ")), between(shift),
            html.escape(change_of(shift)), f"{shift.chance:.1g}", f"{shift.lists:,}", volume_of(shift),
            html.escape(signals_of(shift)), f"{shift.lost:,.0f}", instant(shift.caught_up), "yes" if shift.moved else "no",
        ]
        for shift in found.shifts
    ]  # fmt: skip
    out.append(table(SHIFT_HEADS, rows, "words"))
    out.append(
        "<p class='soft'>Clicks lost is a model: the risen result changes places with the best seen one until the log's own "
        "ranking has it there, under the position-based examination curve. Where the ranking moved at the same time, "
        "clicks may only have followed it.</p>"
    )
    for number, query in enumerate(list(dict.fromkeys(shift.query for shift in found.shifts))[:PLOTTED]):
        own = [shift for shift in found.shifts if shift.query == query]
        drawn = save(query_plot(query.replace("\0", " "), histories.by_query[query], own), folder, f"shift-{number + 1}")
        out.append(image(drawn, f"{query}: click shares and volume over time; dashed: shifts".replace("\0", " ")))
    return out


def judgements_section(judgements: Sequence[Judgement]) -> list[str]:
    """Return the section on what other rankings would have brought."""
    out = ["<h2 id='helped'>Would it have helped?</h2>"]
    if not judgements:
        return [*out, f"<p>{html.escape(NO_PROPENSITIES)}</p>"]
    rows = [
        [html.escape(found.target), name, estimate_of(each), lift_of(each, found.logged), f"{each.effective:,.0f}"]
        for found in judgements
        for name, each in found.estimates.items()
    ]
    if rows:
        out.append(table(["target", "estimator", "clicks per list (95 %)", "against the log", "effective lists"], rows, "words"))
    for found in judgements:
        note = f"{100 * min(found.inside, 1.0):.3g} % of its choice lies inside the log's support."
        if found.refused:
            note = f"No estimate: {found.refused}."
        out.append(f"<p><b>{html.escape(found.target)}</b>: {html.escape(note)} {html.escape(found.warning or '')}</p>")
    return out


def forecast_section(found: Forecast, folder: Path) -> list[str]:
    """Return the section on traffic bands."""
    from swerve.evaluate.plots import bands_plot

    policies = list(found.everything)
    rows = [
        [
            band.name,
            f"{band.queries:,}",
            f"{band.lists:,}",
            *(gain_text(band.gains.get(policy)) for policy in policies),
            break_even_of(band.gains.get("swerve")),
        ]
        for band in found.bands
    ]
    rows.append(["all", "", "", *(gain_text(found.everything[policy]) for policy in policies), ""])
    out = ["<h2 id='forecast'>Forecast by traffic band: a model</h2>", f"<p>{html.escape(MODEL)}</p>"]
    out.append(table(["band", "queries", "lists", *policies, "swerve breaks even"], rows))
    out.append(image(save(bands_plot(found), folder, "forecast"), "Clicks gained by traffic band, by the model"))
    return out


def write(folder: Path, parts: Sequence[str], command: str) -> Path:
    """Write the page of all sections; return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    body = "\n".join(["<h1>What the search log says</h1>", *parts])
    made = f"<h2 id='again'>Made with</h2><pre>{html.escape(command)}</pre><p class='soft'>Swerve {__version__}</p>"
    page = folder / "index.html"
    page.write_text(
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'><meta name='viewport' content='width=device-width'>"
        f"<title>What the search log says</title><style>{STYLE}</style></head><body><main>\n{body}\n{made}</main></body></html>\n",
        encoding="utf-8",
    )
    return page
