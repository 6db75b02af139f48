"""A batch of runs on a GPU: how their work is spread over threads, and the results of the runs.

There are three ways:

- *alone*: a thread for each query of each run, where queries share nothing;
- *waves*: the same where queries share a record that is a join (`contract.joins`) and are played one after the other. The record
  that each query starts with is guessed, all queries are played at once, and what each has learnt is joined in the order of the
  queries. Queries whose start was guessed wrong are played again, until no guess changes. The first query's guess is right, so that
  after wave w at least w queries are right: the result is that of playing them in turn;
- *together*: otherwise, a thread for all queries of a run that learn together.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from swerve.core.contract import joins, reads_context
from swerve.core.engine import NOWHERE, begin_pools
from swerve.core.pooling import groups_of
from swerve.core.spec import Spec, pack
from swerve.core.tables import full_mask, pool_dtype, pools_nothing, row_dtype
from swerve.environments.drawing import packed
from swerve.environments.worlds import CURSOR, World
from swerve.simulate import gpu, gpu_kernels, loop, pages
from swerve.simulate.instances import BYTES, SCHEDULE, Instances, in_order
from swerve.simulate.results import Plan, Run
from swerve.simulate.sessions import Session, counts_of, facts_of

ALONE, WAVES, TOGETHER = "alone", "waves", "together"
#: Bytes of a round in the GPU's memory where rounds are not played in the order of their queries: its number; and of a query's.
ORDERED = 4


def way_of(plan: Plan, drawn: World | Instances, sequential: bool) -> str:
    """Return how the work of a plan is spread, in instances like this one whose queries are played one after the other or not."""
    apart = len(np.unique(groups_of(plan.pooling, drawn.queries))) == drawn.queries
    if apart or pools_nothing(pool_dtype(plan.policy, drawn.features)):
        return ALONE
    return WAVES if joins(plan.policy) and sequential else TOGETHER


def instances_for(plan: Plan, draw: Callable[[int], World], runs: int) -> Instances:
    """Return instances in a GPU's memory, with what a plan needs of their schedules."""
    head = draw(0)
    if way_of(plan, head, in_order(head.schedule)) != TOGETHER:
        return Instances(draw, runs, np.arange(head.queries))
    return Instances(draw, runs, SCHEDULE)


class Batch:
    """The runs of a plan in some instances, played on a GPU."""

    def __init__(self, plan: Plan, instances: Instances, marks: NDArray[np.int64]) -> None:
        self.plan, self.instances, self.marks = plan, instances, marks
        policy, queries, runs = plan.policy, instances.queries, instances.runs
        self.groups = groups_of(plan.pooling, queries)
        self.parts = int(self.groups.max()) + 1
        self.way = way_of(plan, instances, instances.sequential)
        self.params = pack(policy)
        self.fresh = np.zeros(1, pool_dtype(policy, instances.features))
        begin_pools.plain(self.params, self.fresh, instances.features)
        self.rows = row_dtype(policy, instances.arms, instances.features)
        self.tally, self.note = (pages.TALLY, pages.NOTE) if instances.paged else (loop.TALLY, loop.NOTE)
        self.tasks = runs * queries
        self.waves = 0
        tasks, points = self.tasks, len(marks)
        # what is kept in global memory from the first round on must be blank; the rest is written at the end
        made = blank_on_device if self.way == TOGETHER else gpu.empty
        self.table, self.tallies = made(tasks, self.rows), made(tasks, self.tally)
        self.notes = made(tasks, self.note)
        self.ends = (
            gpu.on_device(np.concatenate([d.cursors for d in instances.worlds]))
            if self.way == TOGETHER
            else gpu.empty(tasks, CURSOR)
        )
        self.regret, self.clicks = gpu.empty((points, tasks), np.float64), gpu.empty((points, tasks), np.float64)
        self.refused = gpu.empty(tasks, np.int64)
        lines = int(instances.bounds[-1]) if instances.paged else 1
        self.recovered = gpu.on_device(np.full(lines, -1, np.int64))
        self._carries = gpu.empty(runs * self.parts, self.fresh.dtype)  # what the groups know in the end

    # ------------------------------------------------------------------ kernels
    def _lengths(self) -> dict[str, Any]:
        """Return the constants of a kernel. An array in local memory has room for at least one number."""
        instances, see = self.instances, bool(reads_context(self.plan.policy))
        return {
            "turn": gpu_kernels.page_turn if instances.paged else gpu_kernels.single_turn,
            "features": max(1, instances.features) if see else 1,
            "arms": instances.arms if instances.paged else 1,
            "slots": max(1, getattr(instances.spec, "slots", 0)),
            "see": see,
        }

    def kernel(self) -> tuple[Callable[..., None], Callable[[NDArray[np.int64], Any], tuple[Any, ...]]]:
        """Return the kernel's function, and a function that gives its arguments for the tasks that are to be played."""
        instances = self.instances
        params, fresh = gpu.on_device(self.params), gpu.on_device(self.fresh)
        envs = instances.shared("envs", lambda: packed(instances.spec))
        which = instances.shared("which", lambda: np.zeros(instances.runs, np.int64))
        bounds = instances.shared("bounds", lambda: instances.bounds)
        marks = gpu.on_device(np.append(self.marks, gpu_kernels.NEVER))
        world_data = (params, envs, which, instances.joined("scene"), instances.joined("segments"), bounds)
        available = full_mask(instances.arms)
        counters = (self.tallies, self.notes, self.regret, self.clicks, self.refused)
        if self.way == TOGETHER:
            parts = self.parts
            order, first, count = instances.orders(self.groups)
            groups, schedule = gpu.on_device(self.groups), instances.schedule()

            def together(tasks: NDArray[np.int64], _: Any) -> tuple[Any, ...]:
                return (
                    gpu.on_device(tasks), instances.queries, parts, groups, *world_data, instances.words(), fresh, schedule,
                    instances.horizon, order, len(order) > 1, first, count, marks, available, self.recovered, self.table,
                    self.ends, self._carries, *counters,
                )  # fmt: skip

            return gpu_kernels.together(**self._lengths()), together
        order, first, count = instances.orders(np.arange(instances.queries))
        cursors = instances.joined("cursors")
        blanks = tuple(gpu.on_device(np.zeros(1, dtype)) for dtype in (self.rows, self.tally, self.note))
        pools = self._pools_out = gpu.empty(self.tasks, self.fresh.dtype)
        journals = self._journals = gpu.empty(self.tasks, self.fresh.dtype)

        def alone(tasks: NDArray[np.int64], known: Any) -> tuple[Any, ...]:
            return (
                gpu.on_device(tasks), instances.queries, *world_data, cursors, instances.words(), known, fresh, *blanks, order,
                len(order) > 1, first, count, marks, available, self.recovered, self.table, self.ends, pools, journals, *counters,
            )  # fmt: skip

        return gpu_kernels.alone(**self._lengths(), journal=gpu_kernels.JOURNAL if self.way == WAVES else NOWHERE), alone

    # ------------------------------------------------------------------ playing
    def play(self) -> None:
        """Play everything."""
        instances = self.instances
        function, arguments = self.kernel()
        kernel = kernel_of(function, self.plan.policy, instances.spec)
        self.waves = 1
        if self.way == TOGETHER:
            tasks = np.arange(instances.runs * self.parts)
            kernel.play(len(tasks), *arguments(tasks, None))
            return
        guesses = gpu.on_device(np.repeat(self.fresh, self.tasks))
        todo = np.arange(self.tasks)
        kernel.play(len(todo), *arguments(todo, guesses))
        if self.way == WAVES:
            while len(todo := self._wrong(guesses)):
                kernel.play(len(todo), *arguments(todo, guesses))
                self.waves += 1

    def _wrong(self, guesses: Any) -> NDArray[np.int64]:
        """Correct the guesses in place; return the tasks whose guess has changed."""
        policy, runs = self.plan.policy, self.instances.runs
        wrong = gpu.empty(self.tasks, np.bool_)
        kernel_of(gpu_kernels.relay, policy).launch(
            runs, gpu.on_device(self.params), gpu.on_device(self.groups), self.parts, gpu.on_device(self.fresh), self._carries,
            self._carries.view(np.uint64), self._journals, guesses, guesses.view(np.uint64), wrong,
        )  # fmt: skip
        return np.flatnonzero(gpu.on_host(wrong))

    # ------------------------------------------------------------------ results
    @property
    def refusals(self) -> list[int]:
        """The runs in which a context was refused, by their number."""
        tasks = self.tasks if self.way != TOGETHER else self.instances.runs * self.parts
        refused = gpu.on_host(self.refused)[:tasks].reshape(self.instances.runs, -1)
        return [int(run) for run in np.flatnonzero(refused.any(axis=1))]

    def curves(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the regret and the clicks of the runs, in rows, at the checkpoints."""
        out = []
        shape = (len(self.marks), self.instances.runs)
        for columns in (self.regret, self.clicks):
            totals = gpu.empty(shape, np.float64)
            kernel_of(gpu_kernels.sum_queries).launch(shape[0] * shape[1], columns, self.instances.queries, totals)
            out.append(gpu.on_host(totals).T.copy())
        return out[0], out[1]

    def results(self) -> list[Run]:
        """Return the results of all runs. One with a context that the policy refuses is played again, to raise its error."""
        instances, queries = self.instances, self.instances.queries
        for run in self.refusals:
            Session(self.plan.policy, instances.draw(run), self.plan.pooling).play(instances.horizon)
        regret, clicks = self.curves()
        tallies, notes, recovered = gpu.on_host(self.tallies), gpu.on_host(self.notes), gpu.on_host(self.recovered)
        out = []
        for run, drawn in enumerate(instances.worlds):
            own, lines = slice(run * queries, (run + 1) * queries), slice(instances.bounds[run], instances.bounds[run + 1])
            counts = counts_of(tallies[own], notes[own], recovered[lines], drawn, instances.horizon)
            out.append(Run(drawn.seed, self.marks, regret[run], clicks[run], counts, facts_of(drawn)))
        return out

    def state(self, run: int) -> dict[str, bytes]:
        """Return what `Session.state` returns for one run, without the writer's delta."""
        queries, parts = self.instances.queries, self.parts
        own = slice(run * queries, (run + 1) * queries)
        if self.way != ALONE:
            pools = gpu.on_host(self._carries)[run * parts : (run + 1) * parts]
        else:
            pools = gpu.on_host(self._pools_out)[own][np.unique(self.groups, return_index=True)[1]]
        lines = slice(self.instances.bounds[run], self.instances.bounds[run + 1])
        tables = {"table": self.table, "cursors": self.ends, "tallies": self.tallies, "notes": self.notes}
        return {
            **{name: gpu.on_host(table)[own].tobytes() for name, table in tables.items()},
            "pools": pools.tobytes(),
            "recovered": gpu.on_host(self.recovered)[lines].tobytes() if self.instances.paged else b"",
        }


def bytes_of(plan: Plan, drawn: World) -> int:
    """Return about how many bytes of a GPU's memory a run takes, with its instance."""
    sequential = in_order(drawn.schedule)
    if way_of(plan, drawn, sequential) == TOGETHER:
        order = len(drawn.schedule) * (1 if drawn.queries <= BYTES else ORDERED)
    else:
        order = 0 if sequential else ORDERED * len(drawn.schedule)
    row, pool = (
        dtype.itemsize for dtype in (row_dtype(plan.policy, drawn.arms, drawn.features), pool_dtype(plan.policy, drawn.features))
    )
    counters = pages.TALLY.itemsize + pages.NOTE.itemsize + 2 * CURSOR.itemsize + 16 * plan.points
    return order + 2 * drawn.segments.nbytes + drawn.queries * (row + 4 * pool + counters)


def blank_on_device(count: int, dtype: Any) -> Any:
    """Return records of zeros in the GPU's memory."""
    return gpu.on_device(np.zeros(count, dtype))


_KERNELS: dict[tuple[Callable[..., None], str], gpu.Kernel] = {}
_making = threading.Lock()


def kernel_of(function: Callable[..., None], *specs: Spec) -> gpu.Kernel:
    """Return the kernel of a function for a policy and an environment: one for all specs of the same classes."""
    with _making:  # one thread at a time, so that there is one of each
        key = (function, gpu.digest_of(function, specs))
        if key not in _KERNELS:
            _KERNELS[key] = gpu.Kernel(function, specs)
        return _KERNELS[key]
