"""Queries whose click shares changed: when, from what to what, how sure, and what the log's own ranking lost by it.

The share of a result is the share of the query's searches with a click that clicked it. For a split of the n searches with a click
into n − m and m, and a result that was clicked in s of them, r times in the last m, the evidence is the Bayes factor of the
detector `Split`. Given n, m and s, and if nothing changed, r has a hypergeometric distribution, whatever the click probability;
the mean of the Bayes factor under it is (n + 1) N / ((m + 1) (n − m + 1)), where N is the number of values that r can have.
Divided by this mean it is an e-value: its mean is 1 if nothing changed. So is the mean over all splits and results of a query. By
Markov's inequality the probability that any of Q unchanged queries reaches Q / α is at most α.

The bound holds if the searches of an unchanged query could have come in any order. Where the ranking itself has moved, clicks
follow it: such shifts are marked, by the mean positions of the results before and soon after.
"""

from __future__ import annotations

import math
from itertools import pairwise

import msgspec
import numpy as np
from numpy.typing import NDArray

from swerve.detectors.split import log_gamma
from swerve.evaluate.history import CLICKED, EXAMINED, LISTED, POSITIONS, Bin, Histories, History

#: The probability that any query is listed that has not changed.
FALSE_ALARMS = 0.05
#: Searches with a click that a query needs to be tested.
FEWEST = 20
#: Shifts of one query that are looked for.
MOST_SHIFTS = 8
#: Bins between two shifts at least: a change inside a bin makes the bin look like a segment of its own.
NARROW = 2
#: Results whose shares are reported for a shift.
MOST_SHARES = 5
#: Positions by which the ranking must have moved a result, by the mean, for the shift to be marked.
MOVED = 0.5
#: The part of the segment after a shift that counts as "around it", for volume and signals.
AROUND = 0.25
HOUR = 3600.0

Values = NDArray[np.float64]
_FACTORIALS = np.array([log_gamma(1.0 + k) for k in range(64)])  # type: ignore[no-untyped-call]


class Share(msgspec.Struct):
    """The share of one result before and after a shift, and its mean positions before and soon after."""

    result: str
    before: float
    after: float
    position_before: float | None
    position_after: float | None


class Shift(msgspec.Struct):
    """A change of a query's click shares."""

    query: str
    after: float | None  # the last time before the change, and the first after it
    until: float | None
    chance: float  # at most: that chance alone lists this query
    lists: int  # of the query in the whole log
    clicked_before: int
    clicked_after: int
    risen: str
    fallen: str
    shares: list[Share]
    volume_before: float | None  # lists an hour
    volume_after: float | None
    signals: dict[str, tuple[float, float]]  # means before, and soon after
    moved: bool  # whether the ranking moved the risen or the fallen result at that time: the clicks may only have followed it
    lost: float  # clicks, by the model
    caught_up: float | None  # when the ranking had the risen result on top; None: never


class Found(msgspec.Struct):
    """All shifts of a log."""

    shifts: list[Shift]
    tested: int  # queries
    too_few: int  # queries with too few clicks to be tested
    forgotten: int  # times that a rare query was forgotten, to bound the memory
    false_alarms: float = FALSE_ALARMS

    def bar(self) -> float:
        """Return the logarithm that an e-value must reach."""
        return math.log(max(self.tested, 1) / self.false_alarms)


def log_factorial(k: Values) -> Values:
    """Return ln k! of whole numbers, to 10⁻¹²."""
    small = np.clip(k, 0, len(_FACTORIALS) - 1).astype(np.int64)
    x = np.maximum(k, len(_FACTORIALS)) + 1.0
    y = 1.0 / (x * x)
    series = (1.0 / 12.0 - y * (1.0 / 360.0 - y * (1.0 / 1260.0 - y / 1680.0))) / x
    large = (x - 0.5) * np.log(x) - x + 0.5 * math.log(2.0 * math.pi) + series
    return np.where(k < len(_FACTORIALS), _FACTORIALS[small], large)


def log_evidence(n: Values, s: Values, m: Values, r: Values) -> Values:
    """Return the log e-value of a change before the last m of n searches, r of which clicked a result that s of all clicked."""

    def uniform(size: Values, hits: Values) -> Values:  # ln B(1 + hits, 1 + size − hits)
        return log_factorial(hits) + log_factorial(size - hits) - log_factorial(size + 1.0)

    bayes = uniform(m, r) + uniform(n - m, s - r) - uniform(n, s)
    values = np.minimum(m, s) - np.maximum(0.0, s - (n - m)) + 1.0
    return bayes + np.log((m + 1.0) * (n - m + 1.0) / ((n + 1.0) * values))


def split_of(clicked: Values, hits: Values) -> tuple[float, int, int]:
    """Return the log e-value of "something changed", the bins before the best split, and the result with the most evidence.

    `clicked` has the searches with a click of each bin, `hits` those that clicked each result.
    """
    n, s = clicked.sum(), hits.sum(axis=0)
    live = np.flatnonzero(s > 0)
    after = (n - np.cumsum(clicked))[:-1, None]
    right = (s - np.cumsum(hits, axis=0))[:-1, live]
    valid = np.flatnonzero((after[:, 0] > 0) & (after[:, 0] < n))
    if not len(valid) or not len(live):
        return -math.inf, 0, 0
    scores = log_evidence(np.full_like(right[valid], n), np.broadcast_to(s[live], right[valid].shape), after[valid], right[valid])
    top = float(scores.max())
    total = top + math.log(np.exp(scores - top).mean())
    split, result = np.unravel_index(int(scores.argmax()), scores.shape)
    return total, int(valid[split]) + 1, int(live[result])


def find(histories: Histories, false_alarms: float = FALSE_ALARMS) -> Found:
    """Return the shifts of all queries, those that lost the most clicks first."""
    tested = [(query, history) for query, history in histories if sum(each.clicked for each in history.all_bins()) >= FEWEST]
    found = Found([], len(tested), len(histories) - len(tested), histories.forgotten, false_alarms)
    bar = found.bar()
    for query, history in tested:
        bins, table = history.all_bins(), history.table()
        for low, split, high, score in splits_of(bins, table, bar):
            chance = math.exp(bar - score) * false_alarms  # Q ÷ the e-value
            found.shifts.append(shift_of(query, history, bins, table, (low, split, high), chance))
    found.shifts.sort(key=lambda shift: (-shift.lost, shift.chance, shift.query))
    return found


def splits_of(bins: list[Bin], table: Values, bar: float) -> list[tuple[int, int, int, float]]:
    """Return changes as (first bin, split, last bin + 1, log e-value), by binary segmentation, in order of time."""
    clicked = np.array([each.clicked for each in bins], float)
    out: list[tuple[int, int, int, float]] = []
    waiting = [(0, len(bins))]
    cuts = [0, len(bins)]
    scores: dict[int, float] = {}
    while waiting and len(scores) < MOST_SHIFTS:
        low, high = waiting.pop(0)
        if clicked[low:high].sum() < FEWEST:
            continue
        score, split, _ = split_of(clicked[low:high], table[low:high, :, CLICKED])
        if score >= bar:
            scores[low + split] = score
            cuts.append(low + split)
            waiting += [(low, low + split), (low + split, high)]
    cuts = settled(sorted(cuts), scores)
    for left, split, right in zip(cuts, cuts[1:], cuts[2:], strict=False):
        out.append((left, split, right, scores[split]))
    return out


def settled(cuts: list[int], scores: dict[int, float]) -> list[int]:
    """Return the cuts without those that only surround a bin in which the change lies: of two close ones the surer stays."""
    while len(cuts) > 3:
        close = [pair for pair in pairwise(cuts[1:-1]) if pair[1] - pair[0] <= NARROW]
        if not close:
            break
        cuts.remove(min(close[0], key=lambda cut: scores[cut]))
    return cuts


def shift_of(query: str, history: History, bins: list[Bin], table: Values, where: tuple[int, int, int], chance: float) -> Shift:
    """Return the facts of a change between two segments of bins."""
    low, split, high = where
    left, right = bins[low:split], bins[split:high]
    before, after = table[low:split].sum(axis=0), table[split:high].sum(axis=0)
    clicked = [max(sum(each.clicked for each in part), 1) for part in (left, right)]
    shares = [before[:, CLICKED] / clicked[0], after[:, CLICKED] / clicked[1]]
    change = shares[1] - shares[0]
    names = list(history.names)
    risen, fallen = int(change.argmax()), int(change.argmin())
    soon = max(1, round(AROUND * len(right)))
    positions = [
        np.divide(part[:, POSITIONS], part[:, LISTED], out=np.full(len(names), np.nan), where=part[:, LISTED] > 0)
        for part in (before, table[split : split + soon].sum(axis=0))
    ]
    order = np.argsort(-np.abs(change), kind="stable")[:MOST_SHARES]
    near = right[:soon]
    moved = bool((np.abs(positions[1] - positions[0])[[risen, fallen]] >= MOVED).any())
    lost, caught_up = lag(bins[split:], table[split:high], after, risen)
    return Shift(
        query,
        finite(left[-1].last),
        finite(right[0].first),
        chance,
        history.lists,
        clicked[0],
        clicked[1],
        names[risen],
        names[fallen],
        [
            Share(names[i], float(shares[0][i]), float(shares[1][i]), finite(positions[0][i]), finite(positions[1][i]))
            for i in order.tolist()
        ],
        volume(left),
        volume(near),
        {name: (value, now) for name, value in means(left).items() if (now := means(near).get(name)) is not None},
        moved,
        lost,
        caught_up,
    )


def lag(bins: list[Bin], table: Values, after: Values, risen: int) -> tuple[float, float | None]:
    """Return the clicks lost until the ranking had the risen result on top, and when it had.

    In each bin the risen result changes places with the result that got the most examination; the gain is the difference of their
    examination times that of their attractiveness after the shift. Attractiveness is clicks per examination, with one examination
    without a click added, so that a result with few lists is not overrated.
    """
    attractive = after[:, CLICKED] / (after[:, EXAMINED] + 1.0)
    lost = 0.0
    for index in range(len(table)):
        lists = bins[index].lists
        seen = table[index, :, EXAMINED]
        top = int(seen.argmax())
        if lists and seen[risen] >= seen[top]:
            return lost, finite(bins[index].first)
        lost += max(float(seen[top] - seen[risen]), 0.0) * max(float(attractive[risen] - attractive[top]), 0.0)
    return lost, None


def volume(bins: list[Bin]) -> float | None:
    """Return lists an hour; None without times."""
    first, last = min(each.first for each in bins), max(each.last for each in bins)
    return sum(each.lists for each in bins) / (last - first) * HOUR if last > first else None


def means(bins: list[Bin]) -> dict[str, float]:
    """Return the mean of each signal."""
    sums: dict[str, list[float]] = {}
    for each in bins:
        for name, (total, count) in each.signals.items():
            known = sums.setdefault(name, [0.0, 0.0])
            known[0] += total
            known[1] += count
    return {name: total / count for name, (total, count) in sums.items() if count}


def finite(value: float) -> float | None:
    """Return a number, or None if it is not finite."""
    return float(value) if math.isfinite(value) else None
