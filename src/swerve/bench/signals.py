"""The signals' benchmark: noise, bursts, changing rates, seasons, the effect on a policy, and real series.

All traffic is synthetic and seeded, except the real series, which are read if a folder of data is named: three series of mentions
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

from swerve.bench.requests import CLICKED_BIT, HOUR, REFORMULATED_BIT, START, WEEK, Heard, Listener, Times, arrivals, played
from swerve.core.errors import SwerveError
from swerve.core.spec import Spec
from swerve.core.tables import nested
from swerve.policies import policy
from swerve.signals import ABANDONMENT, AGE, COUNT, NEW, REFORMULATION, VOLUME, Senses, senses_layout

VARIABLE = "SWERVE_DATA"
SERIES_FOLDER = "tweet_volume"
#: Requests per hour.
RATES = (1, 10, 100, 1000)
#: The columns of a line: by rate, by the kind of burst and whether it means a change of intent, or a single figure.
BY_RATE = tuple(f"{rate:,}/h" for rate in RATES)
CASES = {"ramps": (False, False), "jumps": (True, False), "ramps, meant": (False, True), "jumps, meant": (True, True)}
ALONE = ("",)
#: Queries of each measurement, by rate: busy queries give as many requests with fewer.
QUERIES = {1: 100, 10: 100, 100: 40, 1000: 8}
FEWEST_QUERIES = 2  # queries of a quick measurement
QUICK_SHARE = 10  # a quick measurement has this fraction of the queries
NOISE_WEEKS, QUICK_NOISE_WEEKS = 12, 4
SEASON_WEEKS, QUICK_SEASON_WEEKS = 8, 3
RECORD_SEEDS, QUICK_RECORD_SEEDS = 5, 1  # draws of requests from the recorded series
LOOP_SEEDS, QUICK_LOOP_SEEDS = range(5, 9), range(5, 6)
#: A ramp: the factor of the rate, and the hours of rise, plateau and fall.
RAMP_FACTOR, RAMP_RISE, RAMP_HOLD, RAMP_FALL = 5.0, 12.0, 12.0, 12.0
RAMP_HOURS = RAMP_RISE + RAMP_HOLD + RAMP_FALL
JUMP_RISE, JUMP_HOLD = 0.01, 24.0  # a jump: a ramp that rises within one hour and stays for a day
RAMP_AFTER = 12.0  # hours after a ramp in which an alarm still counts for it
JUMP_HOURS = 48.0  # hours from a jump in which an alarm counts for it
QUIET_WEEKS, WEEKS = 2, 3  # weeks without bursts, in which the signals learn; and all weeks
QUIET_HOURS = QUIET_WEEKS * WEEK
ONSETS, LOOP_ONSETS = 120, 240  # hours over which the beginnings of bursts are spread
NEWS_RATE = 10.0  # articles per hour, on average
WILD_DEVIATION = 0.5  # standard deviation of an hour's rate in wilder noise, as a share of the rate
CLICKED_SHARE, REFORMULATED_SHARE = 0.5, 0.1  # shares of requests on noise
ABANDONED_SHARE, ODDS_FACTOR = 0.3, 3.0  # share of abandoned requests before the change of rates, and the factor of the odds
SEASON_RATES, SEASON_QUERIES = (1.0, 10.0, 100.0), (60, 30, 10)
BUSY_AMPLITUDE, BUSY_FROM, NIGHT, PEAKED = 0.8, 9, 0.05, 1.5  # shape of a day: sine from 9 h on, floor, exponent
WEEKEND, WORKDAY = 0.5, 1.1  # factors of a day's rate
FIRST_WEEKEND_DAY = 5  # traffic begins on a Monday
HOURS_PER_DAY = 24
#: The measurement with a policy: queries, bursts, weeks, and the requests per hour of the busiest query.
LOOP_QUERIES, LOOP_BURSTS, LOOP_WEEKS, BUSIEST_RATE = 200, 40, 4, 60.0
REGRET_PER = 1000.0  # regret is per this many requests
COST_QUERIES, COST_RATE, COST_TURNS, COST_SEED = 100, 12.0, 5, 7  # 12 requests per hour: a query of medium traffic
NEVER_ENOUGH = 1e15  # requests: a season that needs so many is never used
PLAN = [VOLUME, ABANDONMENT, REFORMULATION, AGE, NEW]
CHANCES = [0.6, 0.3, 0.2, 0.2, 0.1]  # click probabilities: one result is clearly the best
SERIES_STEP = 300.0  # seconds between the lines of the recorded series
NANO = 1e9  # per second
ISO_SECONDS = 19  # characters of an ISO time up to its seconds


class Line(NamedTuple):
    """One line of the table: a figure for each of `columns`."""

    name: str
    unit: str
    columns: tuple[str, ...]
    values: tuple[float | None, ...]
    note: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return the line for JSON."""
        return {
            "name": self.name,
            "unit": self.unit,
            "values": dict(zip(self.columns, self.values, strict=True)),
            "note": self.note,
        }


def ramp(hours: int, onset: float, factor: float = RAMP_FACTOR, rise: float = RAMP_RISE, hold: float = RAMP_HOLD) -> Times:
    """Return the factor of each hour's rate when a burst begins at `onset`."""
    since = np.arange(hours) + 0.5 - onset  # at the middle of each hour
    shape = np.minimum(since / rise, (rise + hold + RAMP_FALL - since) / RAMP_FALL)
    out: Times = 1.0 + (factor - 1.0) * np.clip(shape, 0.0, 1.0)
    return out


def season() -> Times:
    """Return the rates of a week with a strong season: 28 times as busy in the afternoon as at night, half as busy at weekends."""
    hour = np.arange(WEEK)
    angle = (hour % HOURS_PER_DAY - BUSY_FROM) / HOURS_PER_DAY * 2 * np.pi
    day = np.clip(1.0 + BUSY_AMPLITUDE * np.sin(angle), NIGHT, None) ** PEAKED
    week = day * np.where(hour // HOURS_PER_DAY >= FIRST_WEEKEND_DAY, WEEKEND, WORKDAY)
    out: Times = week / week.mean()
    return out


def hours_of(heard: Sequence[Heard], query: int, signal: int = 0) -> list[float]:
    """Return the times of a query's loud signals, in hours since the start."""
    return [(one.time - START) / HOUR for one in heard if one.query == query and one.signal == signal]


def on_noise(spec: Senses, rate: float, queries: int, weeks: int, wild: float = 0.0, seed: int = 1) -> list[float]:
    """Return false alarms per query and week at a steady rate: volume, abandonment (half of the requests), reformulation (a tenth).

    With `wild`, each hour's rate has that relative standard deviation: real counts vary more than Poisson's.
    """
    rng = np.random.default_rng(seed)
    listener = Listener(spec, queries, [VOLUME, ABANDONMENT, REFORMULATION])
    counts = [0, 0, 0]
    for week in range(weeks):
        off = rng.gamma(1.0 / wild**2, wild**2, (queries, WEEK)) if wild else np.ones((queries, WEEK))
        times, whose = arrivals(rng, rate * off, START + week * WEEK * HOUR)
        outcomes = CLICKED_BIT * (rng.random(len(times)) < CLICKED_SHARE) + REFORMULATED_BIT * (
            rng.random(len(times)) < REFORMULATED_SHARE
        )
        for one in listener.hear(times, whose, outcomes):
            counts[one.signal] += 1
    return [count / (queries * weeks) for count in counts]


def on_ramps(spec: Senses, rate: float, queries: int, seed: int = 2) -> tuple[float, float | None, float | None]:
    """Return the share of ramps found after two quiet weeks, the hours until an alarm, and alarms per ramp that is found."""
    rng = np.random.default_rng(seed)
    onsets = QUIET_HOURS + rng.integers(0, ONSETS, queries)
    rates = rate * np.array([ramp(WEEKS * WEEK, onset) for onset in onsets])
    heard = Listener(spec, queries, [VOLUME]).hear(*arrivals(rng, rates, START))
    per_burst = [
        [h - onset for h in hours_of(heard, i) if 0.0 <= h - onset < RAMP_HOURS + RAMP_AFTER] for i, onset in enumerate(onsets)
    ]
    return summary(per_burst)


def summary(per_burst: list[list[float]]) -> tuple[float, float | None, float | None]:
    """Return the share of bursts with an alarm, the median delay of the first alarm, and alarms per burst with an alarm."""
    found = [alarms for alarms in per_burst if alarms]
    if not found:
        return 0.0, None, None
    delay = float(median(alarms[0] for alarms in found))
    return len(found) / len(per_burst), delay, fmean(map(len, found))


def on_rates(spec: Senses, rate: float, queries: int, seed: int = 3) -> list[tuple[float, float | None, float | None]]:
    """Return whether threefold odds of abandonment (from 0.3) and of reformulation (from 0.1) are found within a week."""
    rng = np.random.default_rng(seed)
    times, whose = arrivals(rng, np.full((queries, WEEKS * WEEK), float(rate)), START)
    after = times >= START + QUIET_HOURS * HOUR
    outcomes = np.zeros(len(times), np.int64)
    for bit, p in ((CLICKED_BIT, ABANDONED_SHARE), (REFORMULATED_BIT, REFORMULATED_SHARE)):
        happens = rng.random(len(times)) < np.where(after, ODDS_FACTOR * p / (1.0 + (ODDS_FACTOR - 1.0) * p), p)
        outcomes += bit * (happens if bit == REFORMULATED_BIT else ~happens)
    heard = Listener(spec, queries, [ABANDONMENT, REFORMULATION]).hear(times, whose, outcomes)
    each = [[[h - QUIET_HOURS for h in hours_of(heard, i, j) if h >= QUIET_HOURS] for i in range(queries)] for j in range(2)]
    return [summary(per_query) for per_query in each]


def through_seasons(spec: Senses, weeks: int, seed: int = 4) -> list[float]:
    """Return alarms per query in each week of a strong season: 60 queries at 1 request per hour, 30 at 10, 10 at 100."""
    rng = np.random.default_rng(seed)
    rates = np.repeat(SEASON_RATES, SEASON_QUERIES)
    listener = Listener(spec, len(rates), [VOLUME])
    out = []
    for week in range(weeks):
        heard = listener.hear(*arrivals(rng, np.outer(rates, season()), START + week * WEEK * HOUR))
        out.append(len(heard) / len(rates))
    return out


def on_news(spec: Senses, rate: float, queries: int, seed: int = 6) -> tuple[float, float, float | None]:
    """Return false alarms per week of a count that changes hourly, the share of fivefold jumps found, and alarms per jump."""
    rng = np.random.default_rng(seed)
    hours = WEEKS * WEEK
    onsets = QUIET_HOURS + rng.integers(0, ONSETS, queries)
    level = NEWS_RATE * np.array([ramp(hours, onset, rise=JUMP_RISE, hold=JUMP_HOLD) for onset in onsets])
    articles = rng.poisson(level).astype(np.float64)
    times, whose = arrivals(rng, np.full((queries, hours), float(rate)), START)
    numbers = articles[whose, ((times - START) // HOUR).astype(np.int64)]
    heard = Listener(spec, queries, [COUNT], numbers=1).hear(times, whose, None, numbers[:, None].copy())
    per_jump = [[h - onset for h in hours_of(heard, i) if 0.0 <= h - onset < JUMP_HOURS] for i, onset in enumerate(onsets)]
    found, _, alarms = summary(per_jump)
    return (len(heard) - sum(map(len, per_jump))) / (queries * WEEKS), found, alarms


class Loop(NamedTuple):
    """The effect of the signals on a policy."""

    found: float  # share of the bursts that raise an alarm
    per_burst: float | None  # alarms per burst with an alarm
    elsewhere: float  # alarms per query and week outside bursts, after the first week, in which a classifier learns
    regret: float  # per 1,000 requests


def in_the_loop(spec: Senses, tried: Spec, plan: list[int], abrupt: bool, meant: bool, seed: int = 5) -> Loop:
    """Play 200 queries at 1 to 60 requests per hour for four weeks; 40 of them burst, to five times the rate.

    A burst is a ramp, or a jump if `abrupt`. If `meant`, the results swap their click probabilities as the burst begins.
    """
    rng = np.random.default_rng(seed)
    hours, bursting = LOOP_WEEKS * WEEK, LOOP_BURSTS
    rates = np.repeat(np.exp(rng.uniform(0.0, np.log(BUSIEST_RATE), LOOP_QUERIES))[:, None], hours, axis=1)
    onsets = QUIET_HOURS + rng.integers(0, LOOP_ONSETS, bursting)
    turns = np.full(len(rates), np.inf)
    for i, onset in enumerate(onsets):
        rates[i] *= ramp(hours, onset, rise=JUMP_RISE, hold=JUMP_HOLD) if abrupt else ramp(hours, onset)
        if meant:
            turns[i] = START + HOUR * (onset if abrupt else onset + RAMP_RISE / 2)
    times, whose = arrivals(rng, rates, START)
    alarms, regret = played(spec, tried, plan, times, whose, CHANCES, turns, seed)
    per_burst: list[list[float]] = [[] for _ in onsets]
    elsewhere = 0
    for t in alarms:
        i, hour = int(whose[t]), float((times[t] - START) / HOUR)
        if i < bursting and 0.0 <= hour - onsets[i] < JUMP_HOURS:
            per_burst[i].append(hour - float(onsets[i]))
        elif hour >= WEEK:
            elsewhere += 1
    found, _, each = summary(per_burst)
    return Loop(found, each, elsewhere / (LOOP_QUERIES * (LOOP_WEEKS - 1)), REGRET_PER * regret / len(times))


def cost(spec: Senses) -> float:
    """Return the nanoseconds per request of volume, both rates, age and new candidates, with 100 queries."""
    rng = np.random.default_rng(COST_SEED)
    times, whose = arrivals(rng, np.full((COST_QUERIES, WEEK), COST_RATE), START)
    listener = Listener(spec, COST_QUERIES, PLAN)
    spent = []
    for turn in range(COST_TURNS):
        later = times + turn * WEEK * HOUR
        begun = time.perf_counter()
        listener.hear(later, whose)
        spent.append((time.perf_counter() - begun) / len(times) * NANO)
    return median(spent)


# --- the real series


def moment(text: str) -> float:
    """Return a time of the files in unix seconds."""
    return datetime.datetime.fromisoformat(text[:ISO_SECONDS]).replace(tzinfo=datetime.UTC).timestamp()


class Series(NamedTuple):
    """A recorded series: its beginning, its count in each five minutes, and the times of its labelled bursts."""

    begin: float
    counts: Times
    bursts: list[tuple[float, float]]


def recorded(folder: Path) -> list[Series]:
    """Return the series in the folder, which is `tweet_volume` in the folder of data."""
    labels = folder / "combined_windows.json"
    try:
        windows = json.loads(labels.read_text(encoding="utf-8"))
        out = []
        for path in sorted(folder.glob("Twitter_volume_*.csv")):
            rows = list(csv.reader(path.read_text(encoding="utf-8").splitlines()))[1:]
            bursts = [(moment(first), moment(last)) for first, last in windows[f"realTweets/{path.name}"]]
            out.append(Series(moment(rows[0][0]), np.array([float(row[1]) for row in rows]), bursts))
    except OSError as problem:
        where = f"--data or {VARIABLE} must name the folder above {SERIES_FOLDER}"
        raise SwerveError(f"{problem.filename} cannot be read ({problem.strerror or problem}); {where}") from None
    except (KeyError, IndexError, TypeError, ValueError) as problem:
        raise SwerveError(f"{folder}: not series of times and counts with labelled windows ({problem!r})") from None
    if not out:
        raise SwerveError(f"{folder} has no files Twitter_volume_NAME.csv")
    return out


def on_records(spec: Senses, series: list[Series], rate: float, seed: int) -> tuple[float, float | None, float]:
    """Return labelled bursts found, alarms per burst found, and alarms elsewhere per week; each series is one query."""
    rng = np.random.default_rng(seed)
    steps = min(len(one.counts) for one in series)
    begin = series[0].begin
    rates = np.array([one.counts[:steps] / one.counts[:steps].mean() * rate for one in series])
    heard = Listener(spec, len(series), [VOLUME], now=begin).hear(*arrivals(rng, rates, begin, SERIES_STEP))
    per_burst: list[list[float]] = []
    for i, one in enumerate(series):
        shift = begin - one.begin  # align every series with the first
        alarms = [each.time - shift for each in heard if each.query == i]
        per_burst += [[alarm for alarm in alarms if first <= alarm <= last] for first, last in one.bursts]
    found, _, each = summary(per_burst)
    weeks = len(series) * steps * SERIES_STEP / (WEEK * HOUR)
    return found, each, (len(heard) - sum(map(len, per_burst))) / weeks


# --- the table


def by_rate(name: str, unit: str, figures: list[float | None], note: str = "") -> Line:
    """Return a line with a figure for each rate."""
    return Line(name, unit, BY_RATE, tuple(figures), note)


def percent(shares: Iterable[float]) -> list[float | None]:
    """Return shares in percent."""
    return [100.0 * share for share in shares]


def listening(spec: Senses, queries: dict[int, int], weeks: int, progress: Callable[[str], None]) -> Iterator[Line]:
    """Yield the lines on synthetic traffic, by rate."""
    progress("noise")
    noise = [on_noise(spec, rate, queries[rate], weeks) for rate in RATES]
    wild = [on_noise(spec, rate, queries[rate], weeks, WILD_DEVIATION) for rate in RATES]
    yield by_rate("volume: false alarms on noise", "per week", [each[0] for each in noise])
    yield by_rate(
        "volume: … on wilder noise", "per week", [each[0] for each in wild], f"hourly rates off by {100 * WILD_DEVIATION:.0f} %"
    )
    yield by_rate("abandonment: false alarms", "per week", [each[1] for each in noise])
    yield by_rate("reformulation: false alarms", "per week", [each[2] for each in noise])
    progress("bursts")
    ramps = [on_ramps(spec, rate, queries[rate]) for rate in RATES]
    shape = f"×{RAMP_FACTOR:g} within {RAMP_RISE:g} h, {RAMP_HOLD:g} h long"
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
    yield by_rate("count: false alarms", "per week", [each[0] for each in news], f"{NEWS_RATE:g} articles an hour")
    yield by_rate("count: jumps × 5 found", "%", percent(each[1] for each in news))
    yield by_rate("count: alarms per jump", "", [each[2] for each in news])


def looping(spec: Senses, progress: Callable[[str], None]) -> Iterator[Line]:
    """Yield the lines on policies."""
    columns = tuple(CASES)
    for name in ("swerve", "bwc"):
        progress(f"in the loop: {name}")
        loops = [in_the_loop(spec, policy(name), PLAN, abrupt, meant) for abrupt, meant in CASES.values()]
        yield Line(f"{name}: bursts with an alarm", "%", columns, tuple(100.0 * loop.found for loop in loops))
        yield Line(f"{name}: alarms per burst", "", columns, tuple(loop.per_burst for loop in loops))
        yield Line(f"{name}: alarms elsewhere", "per week", columns, tuple(loop.elsewhere for loop in loops), "per query")
        yield Line(f"{name}: regret", "", columns, tuple(loop.regret for loop in loops), "per 1,000 requests")


def planning(spec: Senses, seeds: range, progress: Callable[[str], None]) -> Iterator[Line]:
    """Yield the lines on the value of different signals for Swerve, if bursts mean a change of intent."""
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
    """Return the whole table. `data` names the folder of recorded series; without it and without SWERVE_DATA they are left out."""
    spec = Senses()
    named = data or (Path(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else None)
    series = recorded(named / SERIES_FOLDER) if named is not None else []
    queries = {rate: max(FEWEST_QUERIES, count // (QUICK_SHARE if quick else 1)) for rate, count in QUERIES.items()}
    lines = list(listening(spec, queries, QUICK_NOISE_WEEKS if quick else NOISE_WEEKS, progress))
    if series:
        progress("real series")
        seeds = range(QUICK_RECORD_SEEDS if quick else RECORD_SEEDS)
        real = [[on_records(spec, series, rate, seed) for seed in seeds] for rate in RATES]
        total = sum(len(one.bursts) for one in series)
        lines.append(by_rate("real series: bursts found", "%", percent(fmean(e[0] for e in r) for r in real), f"of {total}"))
        lines.append(by_rate("real series: alarms per burst", "", [fmean(e[1] or 0.0 for e in r) for r in real]))
        lines.append(by_rate("real series: alarms elsewhere", "per week", [fmean(e[2] for e in r) for r in real]))
    lines.extend(looping(spec, progress))
    lines.extend(planning(spec, QUICK_LOOP_SEEDS if quick else LOOP_SEEDS, progress))
    progress("seasons")
    weeks = QUICK_SEASON_WEEKS if quick else SEASON_WEEKS
    shape = "28 times as busy by day as at night"
    lines.append(Line("season: alarms per query", "per week", ALONE, (fmean(through_seasons(spec, weeks)),), shape))
    plain = through_seasons(replace(spec, season_half_trust_requests=NEVER_ENOUGH), weeks)
    lines.append(Line("season: … without its clock", "per week", ALONE, (fmean(plain),)))
    progress("cost")
    lines.append(Line("cost of a request", "ns", ALONE, (cost(spec),), "all five signals"))
    lines.append(Line("state of a query", "B", ALONE, (float(nested(senses_layout(0)).itemsize),), "32 more for each number sent"))
    return lines
