"""Rows of a benchmark's result, and the bars that some of them must meet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple


class Bar(NamedTuple):
    """A condition on a row: a limit on its ratio, or on its value if `of` says so."""

    sense: Literal["≤", "≥", "<"]
    limit: float
    of: Literal["ratio", "value"] = "ratio"

    def met(self, number: float) -> bool:
        """Return whether `number` meets the bar."""
        if self.sense == "≥":
            return number >= self.limit
        return number < self.limit if self.sense == "<" else number <= self.limit


#: The bars of the kernels' benchmark. docs/bench.md explains each row.
KERNEL_BARS = {
    "ucb1-loop": Bar("≤", 1.0),
    "bwc-traffic-d10": Bar("≤", 2.5),
    "bwc-traffic-d40": Bar("≤", 4.0),
    "ts-loop": Bar("≤", 8.0),
    "swerve-clear": Bar("≤", 1.5),
    "page-10-of-10": Bar("≤", 1.8),
    "page-10-of-64": Bar("≤", 1.3),
    "step-api": Bar("≥", 2.0),
    "step-api-separate": Bar("≥", 1.0),
    "batch-api": Bar("≤", 2.5),
    "state-ucb1": Bar("≤", 256, "value"),
    "state-bwc": Bar("≤", 640, "value"),
    "state-swerve": Bar("≤", 1536, "value"),
    "start-cached": Bar("≤", 2.0, "value"),
    "cold-compile": Bar("≤", 6.0, "value"),
    "hull-predict-d10-n300": Bar("<", 20.0, "value"),
}


class Row(NamedTuple):
    """One measurement. `ratio` refers to `reference`; `bar` is the condition, `ok` whether it holds (None: no bar).

    >>> row("ucb1-loop", 24.0, "ns/round", "naive C", 0.8)
    Row(name='ucb1-loop', value=24.0, unit='ns/round', reference='naive C', ratio=0.8, bar='≤ 1 × naive C', ok=True, note='')
    """

    name: str
    value: float | None
    unit: str
    reference: str
    ratio: float | None
    bar: str
    ok: bool | None
    note: str

    def as_dict(self) -> dict[str, Any]:
        """Return the row for JSON."""
        return self._asdict()


def row(
    name: str,
    value: float | None,
    unit: str,
    reference: str,
    ratio: float | None,
    note: str = "",
    bars: Mapping[str, Bar] = KERNEL_BARS,
) -> Row:
    """Return a row, with its bar if it has one."""
    bar = bars.get(name)
    if bar is None:
        return Row(name, value, unit, reference, ratio, "", None, note)
    number, text = (ratio, f"× {reference}") if bar.of == "ratio" else (value, unit)
    ok = None if number is None else bar.met(number)
    return Row(name, value, unit, reference, ratio, f"{bar.sense} {bar.limit:g} {text}", ok, note)


def against_bar(name: str, value: float, unit: str, note: str = "") -> Row:
    """Return a row whose only reference is its bar.

    >>> against_bar("state-ucb1", 128, "B").ratio
    0.5
    """
    limit = KERNEL_BARS[name].limit
    return row(name, value, unit, f"bar {limit:g} {unit}", value / limit, note)
