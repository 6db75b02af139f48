"""Comparisons of pairs of arms, shared by bandits that learn an order from which of two results is clicked."""

from __future__ import annotations

from typing import Any

from swerve.core.verbs import kernel


def pair_layout(arms: int) -> list[tuple[Any, ...]]:
    """Return the fields: for each pair, clicks on the first without the second minus the reverse, and the number of both."""
    return [("lead", "i4", (arms, arms)), ("compared", "u4", (arms, arms))]


@kernel
def prefer(row, better, worse):
    """Count a page on which the first arm was clicked and the second was not."""
    row.lead[better, worse] += 1
    row.lead[worse, better] -= 1
    row.compared[better, worse] += 1
    row.compared[worse, better] += 1


@kernel
def forget_pairs(row, arm):
    """Forget all comparisons with an arm."""
    for other in range(row.lead.shape[0]):
        row.lead[arm, other] = row.lead[other, arm] = 0
        row.compared[arm, other] = row.compared[other, arm] = 0
