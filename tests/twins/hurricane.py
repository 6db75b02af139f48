"""Invented records for `Hurricane`, and its quantities computed from the definitions in plain Python."""

from __future__ import annotations

import datetime
import math
from pathlib import Path

from twins.splitmix import as_unit, named, word

FIRST = datetime.date(2017, 8, 20)
STORMS = ("Harvey", "Irma", "Maria", "Jose")  # in the order of the files, which differs from that of the results

# Invented: eleven days; Harvey leads first, then Irma, then Maria; the first and the last day have no interest.
INTEREST = [
    (0, 0, 0, 0), (0, 0, 0, 0), (4, 0, 0, 0), (40, 0, 0, 0), (30, 10, 0, 0), (10, 60, 0, 0), (5, 100, 0, 3), (2, 30, 10, 5),
    (1, 5, 40, 2), (0, 1, 20, 0), (0, 0, 0, 0),
]  # fmt: skip
STORIES = [
    (0, 0, 0, 0), (0, 0, 0, 0), (1, 0, 0, 0), (300, 0, 0, 0), (400, 20, 0, 0), (300, 200, 0, 0), (200, 400, 0, 1), (90, 200, 90, 2),
    (30, 50, 200, 0), (20, 10, 100, 0), (5, 5, 20, 0),
]  # fmt: skip
TELEVISION = [tuple(value / 1000 for value in day) for day in STORIES]


def write(folder: Path, interest=INTEREST, stories=STORIES, television=TELEVISION) -> Path:
    """Write the three files into a subfolder of `folder`; return `folder`, the value for SWERVE_DATA."""
    place = folder / "hurricane_2017"
    place.mkdir(parents=True, exist_ok=True)

    def rows(table, form):
        for number, day in enumerate(table):
            date = FIRST + datetime.timedelta(number)
            text = date.isoformat() if form == "iso" else f"{date.month}/{date.day}/{date.year % 100}"
            yield ",".join([text, *map(str, day)])

    head = ",".join(["Day", *(f'"""Hurricane {storm}"": (United States)"' for storm in STORMS)])
    (place / "google_trends.csv").write_text("\n".join([head, *rows(interest, "iso")]) + "\n", encoding="utf-8")
    for name, table in (("mediacloud_hurricanes.csv", stories), ("tv_hurricanes.csv", television)):
        (place / name).write_text("\n".join([",".join(["Date", *STORMS]), *rows(table, "us")]), encoding="utf-8")
    return folder


def share(storm: str, hour: int, interest=INTEREST) -> float:
    """Return a storm's share in the middle of an hour: linear between the noons, equal without interest."""
    column = STORMS.index(storm)
    daily = [day[column] / sum(day) if sum(day) else 0.25 for day in interest]
    days = (hour + 0.5 - 12) / 24
    if days <= 0:
        return daily[0]
    if days >= len(daily) - 1:
        return daily[-1]
    low = int(days)
    return daily[low] + (days - low) * (daily[low + 1] - daily[low])


def times(seed: int, requests: int, background: float, interest=INTEREST) -> list[float]:
    """Return the hour of each request: order statistics of the hourly interest in all storms."""
    totals = [sum(day) for day in interest]
    rates = []
    for hour in range(24 * len(totals)):
        days = min(max((hour + 0.5 - 12) / 24, 0.0), len(totals) - 1.0)
        low = min(int(days), len(totals) - 2)
        rates.append(totals[low] + (days - low) * (totals[low + 1] - totals[low]) + background)
    start = named(seed, "requests")
    waits = [-math.log(1 - as_unit(word(start, i))) for i in range(requests + 1)]
    out, passed, hour, before = [], 0.0, 0, 0.0
    for wait in waits[:-1]:
        passed += wait
        quantile = passed / sum(waits) * sum(rates)
        while before + rates[hour] <= quantile:
            before += rates[hour]
            hour += 1
        out.append(hour + (quantile - before) / rates[hour])
    return out


def volume_alarms(hours: list[float]) -> dict[int, float]:
    """Return, by round, the surprise of the volume signal's alarms, from the definition."""
    F = S = B = last = 0.0
    crossed = -math.inf
    out = {}
    for number, u in enumerate(hours, start=1):
        du, last = u - last, u
        lam = (S + 0.5) / (B + 2)
        tf = min(max(4 / lam, 2), 24)
        F = F * math.exp(-du / tf) + 1
        k, e, a, b = 2 * F - 1, 2 * tf, 2 * S + 0.5, 2 * B + 2
        r = (k + a) / (e + b)
        D = (k * math.log(k / (e * r)) + a * math.log(a / (b * r))) / (1 + 0.1 * 2 * tf * lam) if k > e * r else 0
        x = min(1, D / 16) if B >= 24 else 0
        if x >= 0.5:
            if u - crossed > 12:
                out[number] = x
            crossed = u
        c = 2 * (lam + 1 / (B + 2))
        w = 1 if B <= 24 or F / tf <= c else c / (F / tf)
        S = S * math.exp(-du / 168) + w
        B = B * math.exp(-du / 168) + 168 * (1 - math.exp(-du / 168))
    return out
