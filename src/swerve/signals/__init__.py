"""Signals: measures of how surprising a query's traffic is, in [0, 1], as evidence for a shift of its intent."""

from swerve.signals.season import begin_season, season_layout
from swerve.signals.senses import ABANDONMENT, AGE, COUNT, NEW, RAW, REFORMULATION, VOLUME, Senses, senses_layout
from swerve.signals.traffic import answered, begin_senses, reformulated, sense, set_up

__all__ = [
    "ABANDONMENT",
    "AGE",
    "COUNT",
    "NEW",
    "RAW",
    "REFORMULATION",
    "VOLUME",
    "Senses",
    "answered",
    "begin_season",
    "begin_senses",
    "reformulated",
    "season_layout",
    "sense",
    "senses_layout",
    "set_up",
]
