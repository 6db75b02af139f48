"""Draw the README's plot: mean cumulative regret of Swerve, the paper's policies and two oracles; a quarter shifts."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

import swerve

COLOURS = {"ucb1": "#c0392b", "bwc": "#2563b0", "ora": "#2a9d5c", "oracle-ts": "#e08e0b", "swerve": "#1a1a1a"}
LABELS = {
    "ucb1": "UCB1: notices nothing",
    "bwc": "BWC: the paper's, learns to notice",
    "ora": "ORA: UCB1, told of every event",
    "oracle-ts": "Thompson sampling, told of every event",
    "swerve": "Swerve: learns to notice, and what to believe",
}


def main() -> None:
    figure, axes = plt.subplots(figsize=(8, 4.2), dpi=150)
    for name, colour in COLOURS.items():
        results = swerve.simulate(swerve.policy(name), swerve.Traffic(shifting_share=0.25, order="uniform"), runs=10)
        rounds, curves = results.rounds / 1e6, results.curves / 1e3
        mean, spread = curves.mean(axis=0), curves.std(axis=0, ddof=1)
        axes.plot(rounds, mean, color=colour, label=LABELS[name], linewidth=2, linestyle="--" if name == "oracle-ts" else "-")
        axes.fill_between(rounds, mean - spread, mean + spread, color=colour, alpha=0.15, linewidth=0)
    axes.set(xlabel="impressions (millions)", ylabel="lost clicks (thousands)", xlim=(0, 3), ylim=(0, None))
    axes.set_title("100 queries, a quarter of them shifting: mean of 10 runs, band ± 1 sd", fontsize=10, loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    figure.tight_layout()
    target = Path(__file__).parent.parent / "docs" / "images" / "head_to_head.png"
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target)
    print(target.relative_to(Path.cwd()) if target.is_relative_to(Path.cwd()) else target.name)


if __name__ == "__main__":
    main()
