"""A query's senses, uncompiled; and independent definitions of the signals in plain Python."""

from __future__ import annotations

import math

import numpy as np

from swerve.core.spec import pack
from swerve.core.tables import nested
from swerve.signals import Senses, answered, begin_season, begin_senses, reformulated, season_layout, sense, senses_layout

HOUR = 3600.0
#: A Monday, midnight.
MONDAY = 1_767_571_200.0
NONE = math.nan


class Query:
    """One query and its season. Times are hours since `MONDAY`."""

    def __init__(self, *plan: int, numbers: int = 0, spec: Senses | None = None, season=None, word: int = 0) -> None:
        self.spec = pack(spec or Senses())[0]
        self.row = np.zeros(1, nested(senses_layout(numbers)))[0]
        self.season = season
        if season is None:
            self.season = np.zeros(1, nested(season_layout()))[0]
            begin_season(self.spec, self.season, MONDAY)
        begin_senses(self.spec, self.row, np.uint64(word), MONDAY)
        self.plan = np.array(plan, np.int64)
        self.numbers = np.full(numbers, NONE)

    def ask(self, hour: float, *numbers: float, published: float = NONE, first: float = NONE, session: int = 0) -> list[float]:
        """Send a request; return its context. `published` and `first` are hours too."""
        x = np.zeros(len(self.plan))
        sent = np.array(numbers or self.numbers, np.float64)
        at = [MONDAY + HOUR * since for since in (published, first)]
        sense(self.spec, self.row, self.season, self.plan, sent, *at, session, MONDAY + HOUR * hour, x)
        return x.tolist()

    def click(self, shown: float, now: float | None = None, clicked: int = 1) -> None:
        answered(self.spec, self.row, MONDAY + HOUR * shown, clicked, MONDAY + HOUR * (shown if now is None else now))

    def reformulate(self, shown: float) -> None:
        reformulated(self.spec, self.row, MONDAY + HOUR * shown, MONDAY + HOUR * shown)


class Volume:
    """The volume's surprise, from its definition."""

    def __init__(self) -> None:
        self.F = self.S = self.B = 0.0

    def request(self, du: float) -> float:
        lam = (self.S + 0.5) / (self.B + 2)
        tf = min(max(4 / lam, 2), 24)
        F = self.F * math.exp(-du / tf) + 1
        k, e, a, b = 2 * F - 1, 2 * tf, 2 * self.S + 0.5, 2 * self.B + 2
        r = (k + a) / (e + b)
        D = (k * math.log(k / (e * r)) + a * math.log(a / (b * r))) / (1 + 0.1 * 2 * tf * lam) if k > e * r else 0.0
        x = min(1, D / 16) if self.B >= 24 else 0.0
        c = 2 * (lam + 1 / (self.B + 2))
        w = 1 if self.B <= 24 or F / tf <= c else c / (F / tf)
        self.F = F
        self.S = self.S * math.exp(-du / 168) + w
        self.B = self.B * math.exp(-du / 168) + 168 * (1 - math.exp(-du / 168))
        return x


class Rate:
    """A rate's CUSUM, from its definition."""

    def __init__(self) -> None:
        self.W = self.Fk = self.Fn = self.Sk = self.Sn = 0.0

    def outcome(self, y: int) -> float:
        p0 = (self.Sk + 0.6) / (self.Sn + 2)
        p1 = 2 * p0 / (1 + p0)
        self.Fk, self.Fn = 0.975 * self.Fk + y, 0.975 * self.Fn + 1
        weight = 1.0
        if self.Sn >= 30:
            self.W = min(max(self.W + (math.log(p1 / p0) if y else math.log((1 - p1) / (1 - p0))), 0), 30)
            weight = min(1, (1.5 * p0 + 0.05) / (self.Fk / self.Fn)) if self.Fk else 1
        self.Sk, self.Sn = 0.9995 * self.Sk + weight * y, 0.9995 * self.Sn + 1
        return self.W / 30
