"""What the signals hear, measured: noise, bursts, rates that change, seasons, what a policy makes of it, real series.

Everything is made up and seeded except the real series, which are read where a folder of data is named: three series of mentions
on Twitter with hand-labelled bursts, `tweet_volume` of numenta/NAB (MIT).
"""

from __future__ import annotations

import csv
import datetime
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple

import numpy as np

from swerve.bench.requests import CLICKED, HOUR, REFORMULATED, START, WEEK, Heard, Listener, Times, arrivals, played
from swerve.core.errors import SwerveError
from swerve.core.spec import Spec
from swerve.core.tables import nested
from swerve.policies import policy
from swerve.signals import ABANDONMENT, AGE, COUNT, NEW, REFORMULATION, VOLUME, Senses, senses_layout

VARIABLE = "SWERVE_DATA"
FOLDER = "tweet_volume"
#: Requests an hour.
RATES = (1, 10, 100, 1000)
#: The columns of a line: by rate, by what a burst is like and whether it means anything, or one figure.
BY_RATE = tuple(f"{rate:,}/h" for rate in RATES)
CASES = {"ramps": (False, False), "jumps": (True, False), "ramps, meant": (False, True), "jumps, meant": (True, True)}
ALONE = ("",)
#: Queries of each measurement, by rate: busy ones say as much in fewer.
QUERIES = {1: 100, 10: 100, 100: 40, 1000: 8}
FACTOR, RISE, HOLD, FALL = 5.0, 12.0, 12.0, 12.0  # a ramp: so many times the rate, within so many hours
LENGTH = RISE + HOLD + FALL
NEWS = 10.0  # articles an hour, on average
WILD = 0.5  # how far an hour's rate is off in wilder noise, as a share of it
PLAN = [VOLUME, ABANDONMENT, REFORMULATION, AGE, NEW]
CHANCES = [0.6, 0.3, 0.2, 0.2, 0.1]
STEP = 300.0  # seconds between the lines of the recorded series


class Line(NamedTuple):
    """One line of the table: a figure for each of `columns`."""

    name: str
    unit: str
    columns: tuple[str, ...]
    values: tuple[float | None, ...]
    note: str = ""

    def as_dict(self) -> dict[str, Any]:
        """The line as JSON has it."""
        return {
            "name": self.name,
            "unit": self.unit,
            "values": dict(zip(self.columns, self.values, strict=True)),
            "note": self.note,
        }


def ramp(hours: int, onset: float, factor: float = FACTOR, rise: float = RISE, hold: float = HOLD) -> Times:
    """What an hour's rate is multiplied by when a burst begins at `onset`."""
    since = np.arange(hours) + 0.5 - onset
    shape = np.minimum(since / rise, (rise + hold + FALL - since) / FALL)
    out: Times = 1.0 + (factor - 1.0) * np.clip(shape, 0.0, 1.0)
    return out


def season() -> Times:
    """The rates of a week with a strong season: 28 times as busy in the afternoon as at night, half as busy at weekends."""
    hour = np.arange(WEEK)
    day = np.clip(1.0 + 0.8 * np.sin((hour % 24 - 9) / 24 * 2 * np.pi), 0.05, None) ** 1.5
    week = day * np.where(hour // 24 >= 5, 0.5, 1.1)
    out: Times = week / week.mean()
    return out


def hours_of(heard: Sequence[Heard], query: int, signal: int = 0) -> list[float]:
    """When a query was heard, in hours since the start."""
    return [(one.time - START) / HOUR for one in heard if one.query == query and one.signal == signal]


def on_noise(spec: Senses, rate: float, queries: int, weeks: int, wild: float = 0.0, seed: int = 1) -> list[float]:
    """False alarms per query and week at a steady rate: volume, abandonment (half of the requests), reformulation (a tenth).

    If `wild`, each hour's rate is off by that much (standard deviation): real counts vary by more than Poisson's.
    """
    rng = np.random.default_rng(seed)
    listener = Listener(spec, queries, [VOLUME, ABANDONMENT, REFORMULATION])
    counts = [0, 0, 0]
    for week in range(weeks):
        off = rng.gamma(1.0 / wild**2, wild**2, (queries, WEEK)) if wild else np.ones((queries, WEEK))
        times, whose = arrivals(rng, rate * off, START + week * WEEK * HOUR)
        outcomes = CLICKED * (rng.random(len(times)) < 0.5) + REFORMULATED * (rng.random(len(times)) < 0.1)
        for one in listener.hear(times, whose, outcomes):
            counts[one.signal] += 1
    return [count / (queries * weeks) for count in counts]


def on_ramps(spec: Senses, rate: float, queries: int, seed: int = 2) -> tuple[float, float | None, float | None]:
    """Bursts found, hours until they are, and alarms per burst that is found; after two quiet weeks."""
    rng = np.random.default_rng(seed)
    onsets = 2 * WEEK + rng.integers(0, 120, queries)
    rates = rate * np.array([ramp(3 * WEEK, onset) for onset in onsets])
    heard = Listener(spec, queries, [VOLUME]).hear(*arrivals(rng, rates, START))
    per_burst = [[h - onset for h in hours_of(heard, i) if 0.0 <= h - onset < LENGTH + 12.0] for i, onset in enumerate(onsets)]
    return summary(per_burst)


def summary(per_burst: list[list[float]]) -> tuple[float, float | None, float | None]:
    """The share of bursts with an alarm, the median delay of the first, and alarms per burst that has one."""
    found = [alarms for alarms in per_burst if alarms]
    if not found:
        return 0.0, None, None
    delay = float(median(alarms[0] for alarms in found))
    return len(found) / len(per_burst), delay, fmean(map(len, found))


def on_rates(spec: Senses, rate: float, queries: int, seed: int = 3) -> list[tuple[float, float | None, float | None]]:
    """Abandonment from 0.3, and reformulation from 0.1, at three times the odds after two weeks: found within a week or not."""
    rng = np.random.default_rng(seed)
    times, whose = arrivals(rng, np.full((queries, 3 * WEEK), float(rate)), START)
    after = times >= START + 2 * WEEK * HOUR
    outcomes = np.zeros(len(times), np.int64)
    for bit, p in ((CLICKED, 0.3), (REFORMULATED, 0.1)):
        happens = rng.random(len(times)) < np.where(after, 3.0 * p / (1.0 + 2.0 * p), p)
        outcomes += bit * (happens if bit == REFORMULATED else ~happens)
    heard = Listener(spec, queries, [ABANDONMENT, REFORMULATION]).hear(times, whose, outcomes)
    each = [[[h - 2 * WEEK for h in hours_of(heard, i, j) if h >= 2 * WEEK] for i in range(queries)] for j in range(2)]
    return [summary(per_query) for per_query in each]


def through_seasons(spec: Senses, weeks: int, seed: int = 4) -> list[float]:
    """Alarms per query in each week of a strong season: sixty queries at 1 request an hour, thirty at 10, ten at 100."""
    rng = np.random.default_rng(seed)
    rates = np.repeat([1.0, 10.0, 100.0], [60, 30, 10])
    listener = Listener(spec, len(rates), [VOLUME])
    out = []
    for week in range(weeks):
        heard = listener.hear(*arrivals(rng, np.outer(rates, season()), START + week * WEEK * HOUR))
        out.append(len(heard) / len(rates))
    return out


def on_news(spec: Senses, rate: float, queries: int, seed: int = 6) -> tuple[float, float, float | None]:
    """False alarms per week of a count that changes by the hour; jumps to five times as much found, and alarms per jump."""
    rng = np.random.default_rng(seed)
    hours = 3 * WEEK
    onsets = 2 * WEEK + rng.integers(0, 120, queries)
    level = NEWS * np.array([ramp(hours, onset, rise=0.01, hold=24.0) for onset in onsets])
    articles = rng.poisson(level).astype(np.float64)
    times, whose = arrivals(rng, np.full((queries, hours), float(rate)), START)
    numbers = articles[whose, ((times - START) // HOUR).astype(np.int64)]
    heard = Listener(spec, queries, [COUNT], numbers=1).hear(times, whose, None, numbers[:, None].copy())
    per_jump = [[h - onset for h in hours_of(heard, i) if 0.0 <= h - onset < 48.0] for i, onset in enumerate(onsets)]
    found, _, alarms = summary(per_jump)
    return (len(heard) - sum(map(len, per_jump))) / (queries * 3), found, alarms


class Loop(NamedTuple):
    """What a policy makes of the signals."""

    found: float  # the share of the bursts that raise an alarm
    per_burst: float | None  # alarms per burst that does
    elsewhere: float  # alarms per query and week outside bursts, after the first week: a classifier has to learn
    regret: float  # per 1,000 requests


def in_the_loop(spec: Senses, tried: Spec, plan: list[int], abrupt: bool, meant: bool, seed: int = 5) -> Loop:
    """200 queries at 1 to 60 requests an hour for four weeks, of which 40 burst, five times as busy.

    They do so in a ramp, or from one hour to the next if `abrupt`. If `meant`, the results change places as the burst begins.
    """
    rng = np.random.default_rng(seed)
    hours, bursting = 4 * WEEK, 40
    rates = np.repeat(np.exp(rng.uniform(0.0, np.log(60.0), 200))[:, None], hours, axis=1)
    onsets = 2 * WEEK + rng.integers(0, 240, bursting)
    turns = np.full(len(rates), np.inf)
    for i, onset in enumerate(onsets):
        rates[i] *= ramp(hours, onset, rise=0.01, hold=24.0) if abrupt else ramp(hours, onset)
        if meant:
            turns[i] = START + HOUR * (onset if abrupt else onset + RISE / 2)
    times, whose = arrivals(rng, rates, START)
    alarms, regret = played(spec, tried, plan, times, whose, CHANCES, turns, seed)
    per_burst: list[list[float]] = [[] for _ in onsets]
    elsewhere = 0
    for t in alarms:
        i, hour = int(whose[t]), float((times[t] - START) / HOUR)
        if i < bursting and 0.0 <= hour - onsets[i] < 48.0:
            per_burst[i].append(hour - float(onsets[i]))
        elif hour >= WEEK:
            elsewhere += 1
    found, _, each = summary(per_burst)
    return Loop(found, each, elsewhere / (200 * 3), 1000.0 * regret / len(times))


def cost(spec: Senses) -> float:
    """Nanoseconds a request: volume, both rates, age and new candidates, 100 queries."""
    rng = np.random.default_rng(7)
    times, whose = arrivals(rng, np.full((100, WEEK), 12.0), START)
    listener = Listener(spec, 100, PLAN)
    spent = []
    for turn in range(5):
        later = times + turn * WEEK * HOUR
        begun = time.perf_counter()
        listener.hear(later, whose)
        spent.append((time.perf_counter() - begun) / len(times) * 1e9)
    return median(spent)


# ---------------------------------------------------------------------------------------------------------- the real series


def moment(text: str) -> float:
    """A time as the files write it, in unix seconds."""
    return datetime.datetime.fromisoformat(text[:19]).replace(tzinfo=datetime.UTC).timestamp()


class Series(NamedTuple):
    """A recorded series: when it begins, its count of each five minutes, and the times of its labelled bursts."""

    begin: float
    counts: Times
    bursts: list[tuple[float, float]]


def recorded(folder: Path) -> list[Series]:
    """The series in the folder, which is `tweet_volume` below the folder of the data."""
    labels = folder / "combined_windows.json"
    try:
        windows = json.loads(labels.read_text(encoding="utf-8"))
        out = []
        for path in sorted(folder.glob("Twitter_volume_*.csv")):
            rows = list(csv.reader(path.read_text(encoding="utf-8").splitlines()))[1:]
            bursts = [(moment(first), moment(last)) for first, last in windows[f"realTweets/{path.name}"]]
            out.append(Series(moment(rows[0][0]), np.array([float(row[1]) for row in rows]), bursts))
    except OSError as problem:
        where = f"--data or {VARIABLE} must name the folder above {FOLDER}"
        raise SwerveError(f"{problem.filename} cannot be read ({problem.strerror or problem}); {where}") from None
    except (KeyError, IndexError, TypeError, ValueError) as problem:
        raise SwerveError(f"{folder}: not series of times and counts with labelled windows ({problem!r})") from None
    if not out:
        raise SwerveError(f"{folder} has no files Twitter_volume_NAME.csv")
    return out


def on_records(spec: Senses, series: list[Series], rate: float, seed: int) -> tuple[float, float | None, float]:
    """Labelled bursts found, alarms per burst found, alarms elsewhere per week: the series as three queries of one service."""
    rng = np.random.default_rng(seed)
    steps = min(len(one.counts) for one in series)
    begin = series[0].begin
    rates = np.array([one.counts[:steps] / one.counts[:steps].mean() * rate for one in series])
    heard = Listener(spec, len(series), [VOLUME], now=begin).hear(*arrivals(rng, rates, begin, STEP))
    per_burst: list[list[float]] = []
    for i, one in enumerate(series):
        shift = begin - one.begin  # series that begin at another time are moved to the first one's
        alarms = [each.time - shift for each in heard if each.query == i]
        per_burst += [[alarm for alarm in alarms if first <= alarm <= last] for first, last in one.bursts]
    found, _, each = summary(per_burst)
    weeks = len(series) * steps * STEP / (WEEK * HOUR)
    return found, each, (len(heard) - sum(map(len, per_burst))) / weeks


# ------------------------------------------------------------------------------------------------------------------ the table


def by_rate(name: str, unit: str, figures: list[float | None], note: str = "") -> Line:
    """A line with a figure for each rate."""
    return Line(name, unit, BY_RATE, tuple(figures), note)


def percent(shares: Iterable[float]) -> list[float | None]:
    """Shares in hundredths."""
    return [100.0 * share for share in shares]


def listening(spec: Senses, queries: dict[int, int], weeks: int, progress: Callable[[str], None]) -> Iterator[Line]:
    """What is heard at each rate, on made-up traffic."""
    progress("noise")
    noise = [on_noise(spec, rate, queries[rate], weeks) for rate in RATES]
    wild = [on_noise(spec, rate, queries[rate], weeks, WILD) for rate in RATES]
    yield by_rate("volume: false alarms on noise", "per week", [each[0] for each in noise])
    yield by_rate("volume: … on wilder noise", "per week", [each[0] for each in wild], f"hourly rates off by {100 * WILD:.0f} %")
    yield by_rate("abandonment: false alarms", "per week", [each[1] for each in noise])
    yield by_rate("reformulation: false alarms", "per week", [each[2] for each in noise])
    progress("bursts")
    ramps = [on_ramps(spec, rate, queries[rate]) for rate in RATES]
    shape = f"×{FACTOR:g} within {RISE:g} h, {HOLD:g} h long"
    yield by_rate("volume: ramps found", "%", percent(each[0] for each in ramps), shape)
    yield by_rate("volume: delay", "h", [each[1] for each in ramps], "median, from the beginning of the ramp")
    yield by_rate("volume: alarms per ramp", "", [each[2] for each in ramps])
    progress("rates")
    changed = [on_rates(spec, rate, queries[rate]) for rate in RATES]
    for j, name in enumerate(("abandonment", "reformulation")):
        yield by_rate(f"{name}: odds × 3 found", "%", percent(each[j][0] for each in changed), "within a week")
        yield by_rate(f"{name}: delay", "h", [each[j][1] for each in changed])
    progress("news")
    news = [on_news(spec, rate, queries[rate]) for rate in RATES]
    yield by_rate("count: false alarms", "per week", [each[0] for each in news], f"{NEWS:g} articles an hour")
    yield by_rate("count: jumps × 5 found", "%", percent(each[1] for each in news))
    yield by_rate("count: alarms per jump", "", [each[2] for each in news])


def looping(spec: Senses, progress: Callable[[str], None]) -> Iterator[Line]:
    """What policies make of it."""
    columns = tuple(CASES)
    for name in ("swerve", "bwc"):
        progress(f"in the loop: {name}")
        loops = [in_the_loop(spec, policy(name), PLAN, abrupt, meant) for abrupt, meant in CASES.values()]
        yield Line(f"{name}: bursts with an alarm", "%", columns, tuple(100.0 * loop.found for loop in loops))
        yield Line(f"{name}: alarms per burst", "", columns, tuple(loop.per_burst for loop in loops))
        yield Line(f"{name}: alarms elsewhere", "per week", columns, tuple(loop.elsewhere for loop in loops), "per query")
        yield Line(f"{name}: regret", "", columns, tuple(loop.regret for loop in loops), "per 1,000 requests")


def planning(spec: Senses, seeds: range, progress: Callable[[str], None]) -> Iterator[Line]:
    """What which signals are worth to Swerve, where bursts mean something."""
    cases = {name: case for name, case in CASES.items() if case[1]}
    plans = {"volume": [VOLUME], "volume, abandonment": [VOLUME, ABANDONMENT], "abandonment": [ABANDONMENT], "no signal": [VOLUME]}
    for name, plan in plans.items():
        progress(f"in the loop: {name}")
        tried = policy("Swerve(classifier=Never())" if name == "no signal" else "swerve")
        regrets = [
            fmean(in_the_loop(spec, tried, plan, abrupt, meant, seed).regret for seed in seeds) for abrupt, meant in cases.values()
        ]
        yield Line(f"swerve, {name}: regret", "", tuple(cases), tuple(regrets), f"per 1,000 requests, {len(seeds)} seeds")


def measure(quick: bool = False, data: Path | None = None, progress: Callable[[str], None] = lambda what: None) -> list[Line]:
    """The whole table. `data` names the folder of recorded series; without it, and without SWERVE_DATA, they are left out."""
    spec = Senses()
    named = data or (Path(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else None)
    series = recorded(named / FOLDER) if named is not None else []
    queries = {rate: max(2, count // (10 if quick else 1)) for rate, count in QUERIES.items()}
    lines = list(listening(spec, queries, 4 if quick else 12, progress))
    if series:
        progress("real series")
        real = [[on_records(spec, series, rate, seed) for seed in range(1 if quick else 5)] for rate in RATES]
        total = sum(len(one.bursts) for one in series)
        lines.append(by_rate("real series: bursts found", "%", percent(fmean(e[0] for e in r) for r in real), f"of {total}"))
        lines.append(by_rate("real series: alarms per burst", "", [fmean(e[1] or 0.0 for e in r) for r in real]))
        lines.append(by_rate("real series: alarms elsewhere", "per week", [fmean(e[2] for e in r) for r in real]))
    lines.extend(looping(spec, progress))
    lines.extend(planning(spec, range(5, 6 if quick else 9), progress))
    progress("seasons")
    weeks = 3 if quick else 8
    shape = "28 times as busy by day as at night"
    lines.append(Line("season: alarms per query", "per week", ALONE, (fmean(through_seasons(spec, weeks)),), shape))
    plain = through_seasons(replace(spec, season_half_trust_requests=1e15), weeks)
    lines.append(Line("season: … without its clock", "per week", ALONE, (fmean(plain),)))
    progress("cost")
    lines.append(Line("cost of a request", "ns", ALONE, (cost(spec),), "all five signals"))
    lines.append(Line("state of a query", "B", ALONE, (float(nested(senses_layout(0)).itemsize),), "32 more for each number sent"))
    return lines
