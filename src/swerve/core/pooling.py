"""Which queries learn together."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from swerve.core.errors import SwerveError, shown


def groups_of(pooling: str | int | ArrayLike, queries: int) -> NDArray[np.int64]:
    """Return the group that each query learns with: `"shared"` (one for all), `"query"` (one each), a number of groups, or a list.

    >>> groups_of("shared", 3).tolist(), groups_of("query", 3).tolist(), groups_of(2, 3).tolist()
    ([0, 0, 0], [0, 1, 2], [0, 1, 0])
    """
    numbers = np.arange(queries, dtype=np.int64)
    refusal = f"pooling = {shown(pooling)} is not allowed; pooling must be 'shared', 'query', a number of groups ≥ 1, or a list"
    refusal += f" that gives each of the {queries} queries a group number ≥ 0"
    if isinstance(pooling, str):
        if pooling == "shared":
            return numbers * 0
        if pooling == "query":
            return numbers
        if not (pooling.isascii() and pooling.isdecimal()):
            raise SwerveError(refusal)
        pooling = int(pooling)
    if isinstance(pooling, int | np.integer) and not isinstance(pooling, bool):
        if pooling < 1:
            raise SwerveError(refusal)
        return numbers % min(int(pooling), queries)
    try:
        labels = np.asarray(pooling)
    except ValueError:  # lists of different lengths
        raise SwerveError(refusal) from None
    if labels.shape != (queries,) or labels.dtype.kind not in "iu" or labels.min() < 0:
        raise SwerveError(refusal)
    # renumbered without gaps: one pool is allocated per group, and [0, 10**12] are two groups
    return np.unique(labels, return_inverse=True)[1].astype(np.int64)
