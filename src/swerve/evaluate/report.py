"""The report on a log: one self-contained page with plots and tables."""

from __future__ import annotations

import html
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from swerve.evaluate.history import Histories
from swerve.evaluate.report_text import bound_of, change_of, instant, signals_of, volume_of
from swerve.evaluate.shifts import Found
from swerve.experiments.plots import save
from swerve.experiments.report import STYLE, image, table
from swerve.version import __version__

#: Queries whose shifts are plotted; the table has all.
PLOTTED = 12
SHIFT_HEADS = ("query", "when (UTC)", "shares of clicks", "by chance ≤", "lists", "volume", "signals", "clicks lost", "caught up",
               "ranking moved")  # fmt: skip


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
            html.escape(shift.query.replace("\0", " ")), f"{instant(shift.after)} – {instant(shift.until)}",
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
