"""Click probabilities from a file: one's own data as a problem, without a line of code."""

from __future__ import annotations

import csv
import math
import os
from pathlib import Path
from typing import Annotated

import numpy as np

from swerve.core.errors import SwerveError
from swerve.core.rng import GOLDEN, at, mix, unit, wrap_add
from swerve.core.spec import Choice, Natural, Range, Spec
from swerve.core.tables import CAPACITIES
from swerve.environments.hurricane import VARIABLE
from swerve.environments.schedule import arrange
from swerve.environments.worlds import Line, World, assemble, context, unannounced, world

#: The column that names the query of a row; all other columns are results.
QUERY = "query"
#: Features are uniform below this; that of an announced event is 1.
QUIET = 0.5
FEWEST = 2  # results


class Series(Spec):
    """Click probabilities from a CSV file: a column for each result, a row for each `rounds` rounds of a query.

    A column `query` names the query of a row; without it all rows are of one query. The rows of a query are in the order of time.
    The file is looked for where the command runs, then in the folder named by SWERVE_DATA.

    An event is the row in which another result becomes best; other changes are steps of a glide. Changes are unannounced: only an
    oracle is told of them, and every feature of a context is noise, uniform below ½. With `announced` one feature of an event's
    context is 1, a different one each time.

    Source: ours, the click model of `Traffic` with click probabilities from data.
    """

    file: str
    rounds: Natural = 1000
    order: Annotated[str, Choice(("sequential", "uniform"))] = "uniform"
    features: Annotated[int, Range(1, CAPACITIES[-1])] = 1
    announced: bool = False

    def check(self) -> None:
        if not self.file:
            self.refuse("file", "the name of a CSV file")

    @property
    def rounds_per_query(self) -> int:
        """Return the rounds of the query with the most rows."""
        return self.rounds * max(map(len, read(self.file)))


def find(name: str) -> Path:
    """Return the path of a file: as it is written, or in the folder of data."""
    folder = os.environ.get(VARIABLE)
    path = Path(name)
    return Path(folder) / path if folder and not path.exists() else path


def read(name: str) -> list[list[list[float]]]:
    """Return the click probabilities of each query: a row for each step, a number for each result."""
    path = find(name)
    try:
        lines = list(csv.reader(path.read_text(encoding="utf-8-sig").splitlines()))
    except (OSError, UnicodeDecodeError) as problem:
        reason = getattr(problem, "strerror", None) or "it is no text in UTF-8"
        raise SwerveError(f"Series: {path} cannot be read ({reason}); name a file here, or in the folder of --data") from None
    head = [title.strip() for title in lines[0]] if lines else []
    columns = [index for index, title in enumerate(head) if title != QUERY]
    if not FEWEST <= len(columns) <= CAPACITIES[-1]:
        raise SwerveError(
            f"Series: {path} has {len(columns)} columns of results; it must have {FEWEST} to {CAPACITIES[-1]}, and a first line "
            f"with their names ({QUERY!r} names the column of the query)"
        )
    named = head.index(QUERY) if QUERY in head else None
    out: dict[str, list[list[float]]] = {}
    for number, row in enumerate(lines[1:], start=2):
        if not row:
            continue
        try:
            if len(row) != len(head):
                raise ValueError
            values = [float(row[column]) for column in columns]
            if not all(math.isfinite(value) and 0.0 <= value <= 1.0 for value in values):
                raise ValueError
        except ValueError:
            raise SwerveError(
                f"Series: {path}, line {number}: not a click probability in [0, 1] for each of the {len(columns)} results"
            ) from None
        out.setdefault("" if named is None else row[named], []).append(values)
    if not out:
        raise SwerveError(f"Series: {path} holds no rows")
    return list(out.values())


def history(spec: Series, steps: list[list[float]]) -> list[Line]:
    """Return the history of a query: a line where its click probabilities change."""
    changes = {1 + number * spec.rounds: now for number, now in enumerate(steps) if number == 0 or now != steps[number - 1]}
    lines = unannounced(changes)
    if not spec.announced:
        return lines
    events = [line.since for line in lines if line.event]
    return unannounced(changes, {since: 1 + number % spec.features for number, since in enumerate(events)})


@world.register(Series)
def _(spec: Series, seed: int) -> World:
    queries = read(spec.file)
    shares = np.array([spec.rounds * len(steps) for steps in queries], np.int64)
    schedule = arrange(shares, spec.order, seed)
    lines = [history(spec, steps) for steps in queries]
    return assemble(spec, seed, arms=len(queries[0][0]), features=spec.features, histories=lines, schedule=schedule)


@context.register(Series)
def _(spec, scene, cursor, event, x):
    word = at(cursor.contexts, cursor.t)
    for j in range(len(x)):
        word = wrap_add(word, GOLDEN)
        x[j] = QUIET * unit(mix(word))
    if cursor.signal > 0:
        x[cursor.signal - 1] = 1.0
