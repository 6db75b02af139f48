"""Print the effect of other choices of the open settings: BWC ÷ the paper's BWC in table (b), by features d and test length L.

python tools/sensitivity.py [--runs 6] [--out runs] prints the table of docs/paper.md.
"""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path

from swerve.experiments.definition import Experiment, Setting, run
from swerve.experiments.tables import FRACTION_TABLE

RUNS = 6  # enough to tell the choices apart
FEATURES = (10, 20, 25, 40)
LENGTHS = (10, 20, 50, 100)


def varied(features: int, length: int) -> Experiment:
    """Return table (b) with other settings and the row of BWC alone."""
    settings = tuple(Setting(s.value, dataclasses.replace(s.environment, features=features)) for s in FRACTION_TABLE.settings)
    policies = {"bwc": f"bwc(length={length}, epsilon=0.3, margin=0.1)"}
    return dataclasses.replace(FRACTION_TABLE, settings=settings, policies=policies)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--out", type=Path, help="folder for finished runs, which a second call reuses")
    options = parser.parse_args()
    print("| d | L |", " | ".join(f"{setting.value:g}" for setting in FRACTION_TABLE.settings), "|")
    print("|---" * (2 + len(FRACTION_TABLE.settings)) + "|")
    for features in FEATURES:
        for length in LENGTHS:
            cells = run(varied(features, length), runs=options.runs, out=options.out)
            entries = [f"{cell.mean / cell.paper:.2f} ± {cell.error / cell.paper:.2f}" for cell in cells if cell.paper]
            print(f"| {features} | {length} |", " | ".join(entries), "|", flush=True)


if __name__ == "__main__":
    main()
