"""A detector on its own, from Python: pass it the rewards of one or more arms."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from swerve.core.contract import evict, restart, watch
from swerve.core.engine import Entry
from swerve.core.errors import SwerveError, table_of, whole
from swerve.core.spec import Spec, pack
from swerve.core.tables import Table, row_dtype


@Entry
def watch_many(params, table, arms, values, alarms):
    """Add plays, in order; `alarms[k]` becomes whether the k-th raised an alarm. After an alarm the arm starts over."""
    for k in range(len(values)):
        alarms[k] = watch(params[0], table[0], arms[k], values[k])
        if alarms[k]:
            evict(params[0], table[0], arms[k])


@Entry
def begin_watch(params, table):
    """Initialise a zeroed row."""
    restart(params[0], table[0])


class Watcher:
    """One detector and its state.

    >>> from swerve.detectors import GLR
    >>> watcher = Watcher(GLR(check_every=1))
    >>> any(watcher.watch(1.0) for _ in range(50)), any(watcher.watch(0.0) for _ in range(50))
    (False, True)
    """

    def __init__(self, detector: Spec, arms: int = 1) -> None:
        if not isinstance(detector, Spec) or not watch.knows(detector):
            raise SwerveError(f"detector = {detector!r} is not allowed; it must be able to watch, such as GLR()")
        self.detector, self.arms = detector, whole("arms", arms, 1)
        self.params = pack(detector)
        self.table: Table = np.zeros(1, row_dtype(detector, self.arms, 0))
        begin_watch.plain(self.params, self.table)

    def watch(self, value: float, arm: int = 0) -> bool:
        """Add the reward of one play; return True when the arm seems to have changed. The arm then starts over."""
        return bool(self._take([arm], [value])[0])

    def run(self, values: ArrayLike, arm: int = 0) -> list[int]:
        """Add many plays of one arm; return after how many of them there were alarms. The arm starts over after each alarm."""
        rewards = table_of("values", values)
        return (np.flatnonzero(self._take(np.full(rewards.shape, arm), rewards)) + 1).tolist()

    def _take(self, arms: ArrayLike, values: ArrayLike) -> NDArray[np.bool_]:
        chosen, rewards = np.asarray(arms), np.ascontiguousarray(table_of("values", values), np.float64)
        if rewards.ndim != 1:
            raise SwerveError("values must be one row of rewards, one for each play")
        if chosen.dtype.kind not in "iu":
            raise SwerveError(f"arm = {arms!r} is not allowed; arm must be a whole number")
        chosen = chosen.astype(np.int64)
        if chosen.size and (chosen.min() < 0 or chosen.max() >= self.arms):
            raise SwerveError(f"arm must be in [0, {self.arms - 1}]")
        if not ((rewards >= 0.0) & (rewards <= 1.0)).all():
            raise SwerveError("a reward must be in [0, 1]")
        alarms = np.zeros(len(rewards), np.bool_)
        watch_many.bind(self.detector)(self.params, self.table, chosen, rewards, alarms)
        return alarms
