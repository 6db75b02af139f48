"""A run whose queries belong to several workers, each with a pool of its own, which exchange what they contribute.

The kernels are those of the service's exchange (`swerve.serving.exchange`); the messages are records instead of bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from swerve.core import engine
from swerve.core.contract import begin_contribution
from swerve.core.engine import NOWHERE, Entry
from swerve.core.errors import SwerveError
from swerve.core.spec import Spec
from swerve.core.tables import contribution_dtype
from swerve.environments.worlds import World
from swerve.simulate.loop import play_round
from swerve.simulate.pages import play_page
from swerve.simulate.sessions import Session


@Entry
def play_apart(
    params, table, pools, owns, groups, writer, env_params, scene, segments, cursors, schedule, start, stop, see, x, available,
    tallies, notes,
):  # fmt: skip
    """Do what `loop.play` does, and keep apart what each group contributes."""
    for t in range(start, stop):
        query = schedule[t]
        group = groups[query]
        if not play_round(
            params[0], table[query], pools, group, writer, env_params[0], scene[0], segments, cursors[query], t, see, x, available,
            tallies[query], notes[query], NOWHERE, owns[group : group + 1],
        ):  # fmt: skip
            return t
    return stop


@Entry
def play_pages_apart(
    params, table, pools, owns, groups, writer, env_params, scene, segments, cursors, schedule, start, stop, see, x, given, grades,
    page, tallies, notes, recovered,
):  # fmt: skip
    """Do what `pages.play_pages` does, and keep apart what each group contributes."""
    for t in range(start, stop):
        query = schedule[t]
        group = groups[query]
        if not play_page(
            params[0], table[query], pools, group, writer, env_params[0], scene[0], segments, cursors[query], t, see, x, given,
            grades, page, tallies[query], notes[query], recovered, NOWHERE, owns[group : group + 1],
        ):  # fmt: skip
            return t
    return stop


class Workers(Session):
    """A run in progress whose queries belong to workers: `owners` has that of each query, counted from 0."""

    def __init__(self, policy: Spec, instance: World, owners: Sequence[int], *, compiled: bool = True) -> None:
        super().__init__(policy, instance, tuple(owners), compiled=compiled)
        count, features = self.fleet.writer, instance.features
        self.owns = np.zeros(count, contribution_dtype(policy, features))
        for own in self.owns:
            begin_contribution(self.fleet.params[0], own, features)
        self.known = np.zeros((count, count), self.owns.dtype)  # of each worker, what it has taken up of each other one
        entry = play_pages_apart if self.paged else play_apart
        self._play = entry.bind(policy, instance.spec) if compiled else entry.plain
        ways = engine.novel_one, engine.take_up_one
        self._novel, self._take_up = (way.bind(policy) if compiled else way.plain for way in ways)

    def play(self, until: int) -> None:
        """Play on, up to and including round `until`."""
        fleet, instance = self.fleet, self.instance
        reached = self._play(
            fleet.params, fleet.table, fleet.pools, self.owns, fleet.groups, fleet.writer, self._env_params, instance.scene,
            instance.segments, self.cursors, instance.schedule, self.done, until, self.see, self.x, *self._offered, *self._counters,
        )  # fmt: skip
        if reached < until:
            raise SwerveError(f"round {reached + 1}: a context is not allowed; it lies outside the domain of {self.policy!r}")
        self.done = until

    def exchange(self) -> None:
        """Let every worker take up what all others have contributed until now."""
        fleet, said = self.fleet, self.owns.copy()
        for worker in range(len(said)):
            for other in range(len(said)):
                if other == worker:
                    continue
                theirs, known = said[other : other + 1].copy(), self.known[worker, other : other + 1]
                if self._novel(fleet.params, theirs, known):
                    self._take_up(fleet.params, fleet.pools, worker, fleet.writer, theirs, known)
