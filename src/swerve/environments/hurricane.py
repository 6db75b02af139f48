"""The query "hurricane" of the season of 2017: real shares of interest, real volume, real news; only the clicks are simulated.

Four storms followed each other within 37 days, and people who searched for "hurricane" meant a different one each time. The shift
of intent is gradual, news come about as early as searches, and most bursts of volume mean more of the same: these are realistic
signals. The data are read from the folder named by the environment variable SWERVE_DATA and are not part of the package:
`hurricane_2017/google_trends.csv`, `mediacloud_hurricanes.csv` and `tv_hurricanes.csv` of fivethirtyeight/data, puerto-rico-media
(CC BY 4.0).
"""

from __future__ import annotations

import csv
import datetime
import itertools
import math
import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from swerve.core.elementary import exp, log
from swerve.core.engine import Entry
from swerve.core.errors import SwerveError
from swerve.core.rng import GOLDEN, at, mix, split, unit, wrap_add
from swerve.core.spec import Natural, Positive, Probability, Spec
from swerve.core.verbs import kernel
from swerve.environments.worlds import World, assemble, context, unannounced, world

VARIABLE = "SWERVE_DATA"
FOLDER = "hurricane_2017"
#: The results, in this order. The column of a storm is the one whose title contains its name.
STORMS = ("Harvey", "Irma", "Jose", "Maria")
#: The features: requests for the query, online stories, television.
VOLUME, STORIES, TELEVISION = 0, 1, 2
SIGNALS = 3
DAY = 24
MEMORY = 168.0  # hours that a baseline reaches back
WARM = 24.0  # hours of baseline before anything can be a surprise
LOUD = 0.5  # a surprise of at least this is a crossing
LATCH = 12.0  # hours without a crossing after which the next one is an alarm
SCALE = 16.0  # the deviance that is a surprise of 1
SPREAD = 0.1  # the variance of real counts exceeds Poisson's by about this times the expected count squared
PRIOR_COUNT, PRIOR_HOURS = 0.5, 2.0  # the prior of a rate
BURST_CAP = 2.0  # a burst enters the baseline with at most this many times the known rate
QUIET = 0.3  # quiet features are uniform below this
WINDOW_REQUESTS, WINDOW_LOW, WINDOW_HIGH = 4.0, 2.0, 24.0  # the fast window holds 4 requests, within 2 to 24 hours
SENTENCES = 100.0  # television's shares are percentages of sentences: counted per 10,000
BITS = 16  # bits of a stored surprise
FULL = (1 << BITS) - 1


class Hurricane(Spec):
    """The query "hurricane" of 2017 with four results, Harvey, Irma, Jose and Maria: real interest and news, modelled clicks.

    **Clicks.** Result i is clicked with p_i(t) = click_floor + (click_ceiling − click_floor) · share_i(t), where share_i is the
    share of its storm in the search interest: daily, linear from noon to noon, in steps of an hour. Without interest in any storm
    the shares are equal. An event is the round in which another result becomes best. The first lead after equal shares is no event.

    **Requests** arrive at random, at a rate proportional to the interest in all four storms plus `background_interest`, on the
    scale of the record (100: the busiest day of the busiest storm).

    **Contexts** are three signals in [0, 1]: the requests themselves, online stories, sentences on television. Each is the deviance
    of a recent count from its own baseline, which covers a week and is winsorised. A surprise of ½ or more is a crossing; a
    crossing after 12 hours without one is an alarm. Stories and television are counted by storm and day and are known when the day
    is over: the alarm is the first request of the day after a day with a crossing that followed a day without one. The storm with
    the largest surprise counts. In the request of an alarm the feature is its surprise; in all others it is quiet: uniform below
    0.3. Bit j of a segment's `signal` means that feature j alarms.

    The files are read from the folder named by SWERVE_DATA when an instance is drawn.

    Source: fivethirtyeight/data, puerto-rico-media, CC BY 4.0 (Google Trends, Media Cloud, the TV News Archive); the click model
    is ours.

    >>> Hurricane(impressions=10_000).rounds_per_query
    10000
    """

    impressions: Natural = 100_000
    click_floor: Probability = 0.05
    click_ceiling: Probability = 0.6
    background_interest: Positive = 1.0

    def check(self) -> None:
        if self.click_floor >= self.click_ceiling:
            self.refuse("click_floor", f"< click_ceiling = {self.click_ceiling:g}")

    @property
    def rounds_per_query(self) -> int:
        """Return the number of impressions: all are for the one query."""
        return self.impressions


# ---------------------------------------------------------------------------------------------------------------- the files


def folder() -> Path:
    """Return the folder of the files."""
    named = os.environ.get(VARIABLE)
    if not named:
        raise SwerveError(f"Hurricane needs recorded signals; name their folder with --data or in the variable {VARIABLE}")
    return Path(named) / FOLDER


def day_of(text: str) -> datetime.date:
    """Return a date from its text in the files: 2017-09-01 or 9/1/17."""
    return datetime.datetime.strptime(text, "%Y-%m-%d" if "-" in text else "%m/%d/%y").date()


def read(path: Path) -> dict[datetime.date, list[float]]:
    """Return a file's numbers by day: one per storm, in the order of `STORMS`."""
    try:
        rows = list(csv.reader(path.read_text(encoding="utf-8-sig").splitlines()))
    except OSError as problem:
        reason = problem.strerror or problem
        raise SwerveError(
            f"Hurricane: {path} cannot be read ({reason}); --data or {VARIABLE} must name the folder above {FOLDER}"
        ) from None
    head = rows[0] if rows else []
    columns = [next((i for i, title in enumerate(head) if storm in title), None) for storm in STORMS]
    out: dict[datetime.date, list[float]] = {}
    for number, row in enumerate(rows[1:], start=2):
        try:
            values = [float(row[column]) for column in columns if column is not None]
            if len(values) != len(STORMS) or not all(0.0 <= value < math.inf for value in values):
                raise ValueError
            out[day_of(row[0])] = values
        except (ValueError, IndexError):
            raise SwerveError(
                f"Hurricane: {path}, line {number}: not a day and a number ≥ 0 for each of {', '.join(STORMS)}"
            ) from None
    if not out:
        raise SwerveError(f"Hurricane: {path} holds no days")
    return out


def recorded() -> list[NDArray[np.float64]]:
    """Return search interest, stories and television: one row per day of the search interest, one column per storm."""
    where = folder()
    interest = read(where / "google_trends.csv")
    days = sorted(interest)
    if (days[-1] - days[0]).days + 1 != len(days):
        raise SwerveError(f"Hurricane: {where / 'google_trends.csv'} leaves out a day between {days[0]} and {days[-1]}")
    if not any(map(any, interest.values())):
        raise SwerveError(f"Hurricane: {where / 'google_trends.csv'} has no interest in any storm")
    tables = [interest]
    for name in ("mediacloud_hurricanes.csv", "tv_hurricanes.csv"):
        table = read(where / name)
        missing = [day for day in days if day not in table]
        if missing:
            raise SwerveError(f"Hurricane: {where / name} leaves out {missing[0]}")
        tables.append(table)
    interest_by_day, stories, television = (np.array([table[day] for day in days]) for table in tables)
    return [interest_by_day, stories, television * SENTENCES]


def hourly(daily: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a daily series at the middle of each hour, linear between noons."""
    days = np.arange(len(daily)) * DAY + DAY / 2
    out: NDArray[np.float64] = np.interp(np.arange(len(daily) * DAY) + 0.5, days, daily)
    return out


# -------------------------------------------------------------------------------------------------------------- the signals


@kernel
def surprise(count, hours, past, past_hours, expected):
    """Return the surprise in [0, 1] of `count` in `hours` against the past: a two-sample Poisson deviance.

    The deviance is divided by the overdispersion of real counts, so that one threshold fits any volume.
    """
    rate = (count + past) / (hours + past_hours)
    if count <= hours * rate:
        return 0.0
    deviance = count * log(count / (hours * rate)) + past * log(past / (past_hours * rate))
    return min(1.0, deviance / (1.0 + SPREAD * expected) / SCALE)


def daily_surprise(counts: NDArray[np.float64]) -> list[float]:
    """Return the surprise of each day's count."""
    out: list[float] = []
    seen, span = 0.0, 0.0
    keep = exp(-DAY / MEMORY)
    for count in counts.tolist():
        rate = (seen + PRIOR_COUNT) / (span + PRIOR_HOURS)
        out.append(surprise(count, DAY, 2.0 * seen + PRIOR_COUNT, 2.0 * span + PRIOR_HOURS, DAY * rate) if span >= WARM else 0.0)
        # winsorised: a burst enters the baseline with at most twice the known rate, or the next burst would be missed
        entering = count / DAY if span <= WARM else min(count / DAY, BURST_CAP * (rate + 1.0 / (span + PRIOR_HOURS)))
        seen = seen * keep + entering * MEMORY * (1.0 - keep)
        span = span * keep + MEMORY * (1.0 - keep)
    return out


def alarms_of(counts: NDArray[np.float64]) -> list[float]:
    """Return the alarm of each day's first request: yesterday's surprise if it crossed and the day before did not, else 0."""
    levels = [0.0, 0.0, *daily_surprise(counts)[:-1]]
    return [now if now >= LOUD > then else 0.0 for then, now in itertools.pairwise(levels)]


@kernel
def waited(word, i):
    """Return the i-th waiting time of a Poisson process of rate 1."""
    return -log(1.0 - unit(at(word, i)))


@kernel
def said(j, level):
    """Return signal j at this level as part of a segment's `signal`: its bit, and its level in higher bits."""
    return (1 << j) | (int(level * FULL + 0.5) << (SIGNALS + BITS * j))


@Entry
def arrive(word, requests, mass, news, opened, alarms):
    """Simulate the arrival of all requests; return the number of lines written to `alarms` (round, signal).

    `mass[h]` is the expected share of requests before hour h; `news[j, day]` is the alarm of a news signal at a day's first
    request; `opened[h]` becomes the round of the first request of hour h.
    """
    total = 0.0
    for i in range(requests + 1):
        total += waited(word, i)
    hour, day, passed, before, crossed = 0, -1, 0.0, 0.0, -2.0 * LATCH
    fast, seen, span = 0.0, 0.0, 0.0
    written = 0
    for i in range(requests):
        # waiting times divided by their sum are sorted uniform numbers, hence quantiles of the request times
        passed += waited(word, i)
        quantile = passed / total
        while hour + 1 < len(opened) and mass[hour + 1] <= quantile:
            hour += 1
        now = hour + min(1.0, (quantile - mass[hour]) / (mass[hour + 1] - mass[hour]))
        if opened[hour] == 0:
            opened[hour] = i + 1
        rate = (seen + PRIOR_COUNT) / (span + PRIOR_HOURS)
        window = min(max(WINDOW_REQUESTS / rate, WINDOW_LOW), WINDOW_HIGH)  # wider when traffic is low
        fast = fast * exp(-(now - before) / window) + 1.0
        heard = 0
        if span >= WARM:
            level = surprise(
                2.0 * fast - 1.0, 2.0 * window, 2.0 * seen + PRIOR_COUNT, 2.0 * span + PRIOR_HOURS, 2.0 * window * rate
            )
            if level >= LOUD:
                if now - crossed > LATCH:
                    heard |= said(VOLUME, level)
                crossed = now  # every crossing renews the latch
        if hour // DAY != day:
            day = hour // DAY
            for j in range(len(news)):
                if news[j, day] > 0.0:
                    heard |= said(STORIES + j, news[j, day])
        if heard != 0:
            alarms[written, 0] = i + 1
            alarms[written, 1] = heard
            written += 1
        most = BURST_CAP * (rate + 1.0 / (span + PRIOR_HOURS))
        keep = exp(-(now - before) / MEMORY)
        seen = seen * keep + (1.0 if span <= WARM or fast / window <= most else most * window / fast)
        span = span * keep + MEMORY * (1.0 - keep)
        before = now
    return written


# ------------------------------------------------------------------------------------------------------------- the instance


@world.register(Hurricane)
def _(spec: Hurricane, seed: int) -> World:
    interest, *news = recorded()
    total = interest.sum(axis=1)
    shares = np.full(interest.shape, 1.0 / len(STORMS))
    np.divide(interest, total[:, None], out=shares, where=total[:, None] > 0.0)
    chances = spec.click_floor + (spec.click_ceiling - spec.click_floor) * np.stack([hourly(share) for share in shares.T], axis=1)
    rates = hourly(total) + spec.background_interest
    mass = np.concatenate([[0.0], np.cumsum(rates / rates.sum())])
    known = np.array([np.max([alarms_of(counts) for counts in table.T], axis=0) for table in news])
    opened = np.zeros(len(rates), np.int64)
    alarms = np.zeros((int(len(rates) / LATCH) + 2 + len(interest), 2), np.int64)  # at most one in 12 hours, and one a day
    walk = arrive.fitting(spec.impressions)
    count = walk(np.uint64(split(seed, "requests")), spec.impressions, mass, known, opened, alarms)
    heard = {int(since): int(signal) for since, signal in alarms[:count]}
    hours = {int(opened[hour]): chances[hour].tolist() for hour in range(len(opened)) if opened[hour] > 0}
    lines = unannounced(hours, heard)
    schedule = np.zeros(spec.impressions, np.int32)
    return assemble(spec, seed, arms=len(STORMS), features=SIGNALS, histories=[lines], schedule=schedule)


@context.register(Hurricane)
def _(spec, scene, cursor, event, x):
    word = at(cursor.contexts, cursor.t)
    for j in range(SIGNALS):
        word = wrap_add(word, GOLDEN)
        x[j] = QUIET * unit(mix(word))
        if (cursor.signal >> j) & 1:
            x[j] = ((cursor.signal >> (SIGNALS + BITS * j)) & FULL) / FULL
