"""The kernels of a GPU: the loops around a round, whose source is that of the processor's loops.

A thread plays one query (`alone`) or all queries that learn together (`together`) of one run. Everything that it touches in each
round is in its local memory. `gpu.py` compiles and launches them.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from swerve.core.contract import begin, merge
from swerve.core.engine import NOWHERE
from swerve.core.verbs import inlined
from swerve.simulate.loop import play_round
from swerve.simulate.pages import play_page

#: Numba's target for GPUs: `gpu_compiler` puts it here before it compiles.
cuda: Any

_making = threading.Lock()

#: The last round of all: later than any.
NEVER = np.iinfo(np.int64).max


def made_once(make: Callable[..., Callable[..., None]]) -> Callable[..., Callable[..., None]]:
    """Return a function that makes each kernel once, and gives it to all threads. The kernel's `made` says how it is made."""

    @functools.cache
    def kept(**named: Any) -> Callable[..., None]:
        function: Any = make(**named)
        function.made = make.__name__, named
        return function  # type: ignore[no-any-return]

    @functools.wraps(make)
    def one(**named: Any) -> Callable[..., None]:
        with _making:
            return kept(**named)

    return one


# rows of a thread's own pools: what its group knows, what it has learnt since the last fold, and all that it has learnt
POOL, DELTA, JOURNAL = range(3)


@inlined
def single_turn(
    spec, row, pools, group, writer, env, facts, segments, cursor, t, see, x, available, given, grades, page, tally, note,
    recovered, journal,
):  # fmt: skip
    """Play a round with one slot, by the arguments of a round with a page."""
    return play_round(
        spec, row, pools, group, writer, env, facts, segments, cursor, t, see, x, available, tally, note, journal
    )  # fmt: skip


@inlined
def page_turn(
    spec, row, pools, group, writer, env, facts, segments, cursor, t, see, x, available, given, grades, page, tally, note,
    recovered, journal,
):  # fmt: skip
    """Play a round with a page."""
    return play_page(
        spec, row, pools, group, writer, env, facts, segments, cursor, t, see, x, given, grades, page, tally, note, recovered,
        journal,
    )  # fmt: skip


@made_once
def alone(turn: Callable[..., bool], features: int, arms: int, slots: int, see: bool, journal: int) -> Callable[..., None]:
    """Return the kernel in which a thread plays one query of one run. Lengths are constants, so that loops are unrolled."""

    def play_alone(
        stride, tasks, queries, params, envs, which, scenes, segments, bounds, cursors, words, known, fresh, blank_row, blank_tally,
        blank_note, order, shuffled, first, count, marks, available, recovered, table, ends, pools_out, journals, tallies, notes,
        regret, clicks, refused,
    ):  # fmt: skip
        thread = cuda.grid(1)
        if thread % stride != 0 or thread // stride >= len(tasks):
            return
        task = tasks[thread // stride]
        run = task // queries
        row = cuda.local.array(1, table.dtype)
        cursor = cuda.local.array(1, cursors.dtype)
        pools = cuda.local.array(3, fresh.dtype)
        tally = cuda.local.array(1, tallies.dtype)
        note = cuda.local.array(1, notes.dtype)
        x = cuda.local.array(features, np.float64)
        given = cuda.local.array(arms, np.int64)
        grades = cuda.local.array(arms, np.uint8)
        page = cuda.local.array(slots, np.int64)
        row[0], cursor[0], tally[0], note[0] = blank_row[0], cursors[task], blank_tally[0], blank_note[0]
        pools[POOL], pools[DELTA], pools[JOURNAL] = known[task], fresh[0], fresh[0]
        for j in range(features):
            x[j] = 0.0
        spec, env, facts = params[0], envs[which[run]], scenes[run]
        own, back = segments[bounds[run] : bounds[run + 1]], recovered[bounds[run] : bounds[run + 1]]
        begin(spec, row[0], words[task])
        mark, turning = 0, marks[0]
        refused[task] = 0
        for k in range(count[task]):
            t = first[task] + k
            if shuffled:
                t = np.int64(order[t])
            while t >= turning:
                regret[mark, task], clicks[mark, task] = tally[0].regret, tally[0].clicks
                mark += 1
                turning = marks[mark]
            if not turn(
                spec, row[0], pools, POOL, DELTA, env, facts, own, cursor[0], t, see, x, available, given, grades, page, tally[0],
                note[0], back, journal,
            ):  # fmt: skip
                refused[task] = 1
                break
        while mark < len(marks) - 1:
            regret[mark, task], clicks[mark, task] = tally[0].regret, tally[0].clicks
            mark += 1
        table[task], ends[task], tallies[task], notes[task] = row[0], cursor[0], tally[0], note[0]
        pools_out[task], journals[task] = pools[POOL], pools[JOURNAL]

    return play_alone


@made_once
def together(turn: Callable[..., bool], features: int, arms: int, slots: int, see: bool) -> Callable[..., None]:
    """Return the kernel in which a thread plays all queries of one run that learn together. Their rows are in global memory.

    With a copy of the round's row in local memory a round of `Swerve` took three times as long.
    """

    def play_together(
        stride, tasks, queries, parts, groups, params, envs, which, scenes, segments, bounds, words, fresh, schedule, horizon,
        order, shuffled, first, count, marks, available, recovered, table, ends, pools_out, tallies, notes, regret, clicks, refused,
    ):  # fmt: skip
        thread = cuda.grid(1)
        if thread % stride != 0 or thread // stride >= len(tasks):
            return
        task = tasks[thread // stride]
        run, part = task // parts, task % parts
        base = run * queries
        pools = cuda.local.array(2, fresh.dtype)
        x = cuda.local.array(features, np.float64)
        given = cuda.local.array(arms, np.int64)
        grades = cuda.local.array(arms, np.uint8)
        page = cuda.local.array(slots, np.int64)
        pools[POOL], pools[DELTA] = fresh[0], fresh[0]
        for j in range(features):
            x[j] = 0.0
        spec, env, facts = params[0], envs[which[run]], scenes[run]
        own, back = segments[bounds[run] : bounds[run + 1]], recovered[bounds[run] : bounds[run + 1]]
        for query in range(queries):
            if groups[query] == part:
                begin(spec, table[base + query], words[base + query])
        mark, turning = 0, marks[0]
        refused[task] = 0
        for k in range(count[task]):
            t = first[task] + k
            if shuffled:
                t = np.int64(order[t])
            while t >= turning:
                for query in range(queries):
                    if groups[query] == part:
                        regret[mark, base + query] = tallies[base + query].regret
                        clicks[mark, base + query] = tallies[base + query].clicks
                mark += 1
                turning = marks[mark]
            at = base + schedule[run * horizon + t]
            if not turn(
                spec, table[at], pools, POOL, DELTA, env, facts, own, ends[at], t, see, x, available, given, grades, page,
                tallies[at], notes[at], back, NOWHERE,
            ):  # fmt: skip
                refused[task] = 1
                break
        while mark < len(marks) - 1:
            for query in range(queries):
                if groups[query] == part:
                    regret[mark, base + query] = tallies[base + query].regret
                    clicks[mark, base + query] = tallies[base + query].clicks
            mark += 1
        pools_out[task] = pools[POOL]

    return play_together


def relay(params, groups, parts, fresh, carries, carried, journals, guesses, guessed, wrong):
    """Join what the queries of a run have learnt in their order; correct the guesses of their starts, and mark those that change.

    `carries` becomes what each group knows in the end. `carried` and `guessed` are the words of `carries` and `guesses`.
    """
    run = cuda.grid(1)
    queries, words = len(groups), carried.shape[0] // carries.shape[0]
    if run * queries >= len(wrong):
        return
    for part in range(parts):
        carries[run * parts + part] = fresh[0]
    for query in range(queries):
        known, task = run * parts + groups[query], run * queries + query
        changed = False
        for i in range(words):
            changed |= carried[known * words + i] != guessed[task * words + i]
        if changed:
            guesses[task] = carries[known]
        wrong[task] = changed
        merge(params[0], carries[known], journals[task])


def sum_queries(columns, queries, out):
    """Add the numbers of a run's queries in their order, for each checkpoint."""
    thread = cuda.grid(1)
    runs = out.shape[1]
    if thread >= out.size:
        return
    mark, run = thread // runs, thread % runs
    total = 0.0
    for query in range(queries):
        total += columns[mark, run * queries + query]
    out[mark, run] = total
