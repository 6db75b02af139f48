"""Draw docs/images/testability.png: the rate of wrong guesses of a test of length L = c·n/ε²·ln T, for c = 1/2 … 8."""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))
from testability import EPSILON, HORIZON, N, wrong_guesses  # noqa: E402 - the path must be set first

RUNS = 10_000
LENGTHS = (0.5, 1.0, 2.0, 4.0, 8.0)
DEFAULT = 4.0  # c of the library
NONE = 0.3 / RUNS  # where a rate of 0 is drawn on the logarithmic axis
LABELS = {
    "edge": "one best arm, the others exactly ε below",
    "uniform": "click probabilities from U[0, 1]",
    "tied": "three equally good arms, two ε below",
}


def main() -> None:
    figure, axes = plt.subplots(figsize=(7, 5), layout="constrained")
    for (family, label), marker in zip(LABELS.items(), "osD", strict=True):
        rates = [wrong_guesses(c, RUNS, family) / RUNS for c in LENGTHS]
        print(f"{family:8}", *(f"c = {c:g}: {rate:.4%}" for c, rate in zip(LENGTHS, rates, strict=True)), sep="  ")
        axes.plot(LENGTHS, [rate or NONE for rate in rates], marker=marker, label=label)
    axes.axhline(1 / RUNS, color="grey", linestyle=":", linewidth=1)
    axes.annotate("1 in 10,000", (LENGTHS[0], 1 / RUNS), xytext=(0, 3), textcoords="offset points", color="grey", fontsize=8)
    axes.axvline(DEFAULT, color="grey", linestyle="--", linewidth=1)
    axes.annotate("default c = 4", (DEFAULT, 0.5), xytext=(4, 0), textcoords="offset points", color="grey", fontsize=8)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_ylim(NONE * 0.8, 1.0)
    axes.set_xticks(LENGTHS, ["½", "1", "2", "4", "8"])
    axes.minorticks_off()
    axes.set_yticks([NONE, 1e-4, 1e-3, 1e-2, 1e-1, 1.0], ["none", "0.01 %", "0.1 %", "1 %", "10 %", "100 %"])
    axes.set_xlabel("c, where L = c · n/ε² · ln T")
    axes.set_ylabel("wrong guesses")
    axes.set_title(
        f"How often is the L-th round guess wrong?\nn = {N}, ε = {EPSILON}, T = {HORIZON:,}; {RUNS:,} runs each", fontsize=10
    )
    figure.legend(fontsize=8, loc="outside lower center")
    out = ROOT / "docs" / "images" / "testability.png"
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=150)
    print(out.relative_to(ROOT))


if __name__ == "__main__":
    main()
