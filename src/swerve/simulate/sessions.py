"""A run in progress on the processor: a policy in a drawn instance, and its counters."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from swerve.core.contract import reads_context
from swerve.core.errors import SwerveError
from swerve.core.fleet import Fleet
from swerve.core.spec import Spec
from swerve.core.tables import Table
from swerve.environments.browsing import browse
from swerve.environments.drawing import FEW, packed
from swerve.environments.worlds import World
from swerve.simulate import loop, pages
from swerve.simulate.results import entry_of


class Session:
    """A run in progress: a fleet in a drawn instance, the current round, and the counters."""

    def __init__(
        self, policy: Spec, instance: World, pooling: str | int | tuple[int, ...] = "shared", *, compiled: bool = True
    ) -> None:
        self.policy, self.instance = policy, instance
        self.fleet = Fleet(
            policy, queries=instance.queries, arms=instance.arms, features=instance.features, pooling=pooling, seed=instance.seed,
            compiled_setup=compiled and instance.queries > FEW,
        )  # fmt: skip
        self.cursors = instance.cursors.copy()
        self.paged = browse.knows(instance.spec)
        self.tallies = np.zeros(instance.queries, pages.TALLY if self.paged else loop.TALLY)
        self.notes = np.zeros(instance.queries, pages.NOTE if self.paged else loop.NOTE)
        self.recovered = np.full(len(instance.segments) if self.paged else 0, -1, np.int64)
        self.x = np.zeros(instance.features)
        self.see = bool(reads_context(policy))
        self.done = 0
        self._env_params = packed(instance.spec)
        entry = entry_of(instance.spec)
        self._play = entry.bind(policy, instance.spec) if compiled else entry.plain
        # the arguments that differ between the two loops: the arms on offer, or scratch space for the given order, grades and page
        slots = getattr(instance.spec, "slots", 0)
        scratch = np.zeros(instance.arms, np.int64), np.zeros(instance.arms, np.uint8), np.zeros(slots, np.int64)
        self._offered = scratch if self.paged else (self.fleet.available,)
        self._counters = (self.tallies, self.notes, self.recovered) if self.paged else (self.tallies, self.notes)

    def play(self, until: int) -> None:
        """Play on, up to and including round `until`."""
        fleet, instance = self.fleet, self.instance
        reached = self._play(
            fleet.params, fleet.table, fleet.pools, fleet.groups, fleet.writer, self._env_params, instance.scene, instance.segments,
            self.cursors, instance.schedule, self.done, until, self.see, self.x, *self._offered, *self._counters,
        )  # fmt: skip
        if reached < until:
            where = f"round {reached + 1}, query {instance.schedule[reached]}"
            raise SwerveError(f"{where}: x = {self.x.tolist()} is not allowed; it lies outside the domain of {self.policy!r}")
        self.done = until

    @property
    def state(self) -> dict[str, bytes]:
        """Return everything that a run's future depends on, and its counters, as bytes."""
        parts = {
            "table": self.fleet.table,
            "pools": self.fleet.pools,
            "cursors": self.cursors,
            "tallies": self.tallies,
            "notes": self.notes,
            "recovered": self.recovered,
        }
        return {name: part.tobytes() for name, part in parts.items()}

    @property
    def counts(self) -> dict[str, float]:
        """Return the counters by name, with the regret also by cause."""
        return counts_of(self.tallies, self.notes, self.recovered, self.instance, self.done)

    @property
    def regret(self) -> float:
        """Return the regret so far."""
        return total(self.tallies["regret"])


def total(column: NDArray[np.float64]) -> float:
    """Return the sum of a column, one number for each query, added in the order of the queries (`sum` would add in another one)."""
    return float(np.cumsum(column)[-1])


def counts_of(tallies: Table, notes: Table, recovered: NDArray[np.int64], instance: World, rounds: int) -> dict[str, float]:
    """Return the counters of a run by name, with the regret also by cause."""
    counts: dict[str, float] = {}
    for name in tallies.dtype.names or ():
        if name == "clicks":
            counts |= {"clicks": total(tallies[name]), "rounds": rounds}
        elif name != "by_cause" and not name.startswith("gap"):
            column = tallies[name]
            counts[name] = total(column) if column.dtype.kind == "f" else int(column.sum())
    counts |= {f"regret_{name}": total(tallies["by_cause"][:, number]) for number, name in enumerate(loop.CAUSES)}
    if "churn" in counts:
        counts |= pages.page_counts(int(counts["churn"]), rounds, notes, recovered, instance.segments["event"])
    return counts


def facts_of(instance: World) -> dict[str, Any]:
    """Return the facts of an instance that are stored with a run."""
    return {"k": instance.k, "shift": instance.shift, "gap": instance.gap}
