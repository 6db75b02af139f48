"""Compare the service over SQLite with the service over a server, under the load of `swerve bench service`.

python tools/compare_engines.py postgresql://USER@HOST/DATABASE?schema=NEW [--rounds N] [--seconds S] [--queries Q]

Both run at the same time, each with a load of its own, and take turns after each has written its pending rows; so a slow moment of
the machine affects both. A ratio is the median over the rounds of the server's ÷ SQLite's answers per second. The schema must not
be there yet; drop it afterwards.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import tempfile
from pathlib import Path

from swerve.bench import service_traffic
from swerve.bench.servers import Server, service
from swerve.bench.service import CONFIG, CONNECTIONS, SUPPLY, Load, rate

#: What the engine of a server must reach, see docs/store.md.
BARS = {"rank": 0.9, "feedback": 0.5}
#: Seconds after which rows are written: short, because each turn waits for that; so rows are written more often than by default.
FLUSH = 1.0
MILLI = 1e3


def main() -> None:
    """Run both services and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("store", help="address of a store that is not there yet")
    parser.add_argument("--rounds", type=int, default=7, help="turns of each row (7)")
    parser.add_argument("--seconds", type=float, default=2.0, help="of a turn (2)")
    parser.add_argument("--queries", type=int, default=20_000, help="that are asked (20000)")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="swerve-engines-") as made, contextlib.ExitStack() as undo:
        both: list[tuple[Server, Load]] = []
        for name, store in (("sqlite", ""), ("server", asked.store)):
            folder = Path(made) / name
            folder.mkdir()
            config = f'{CONFIG}\n[store]\nflush_seconds = {FLUSH}\n\n[security]\nsecrets = "{folder / "swerve.secrets"}"\n'
            own = undo.enter_context(service(folder, config, store)).ready().whole()
            load = undo.enter_context(Load(asked.queries, service_traffic.CANDIDATES))
            load.run(service_traffic.fill, own.port, 0, asked.queries)
            own.settle()
            both.append((own, load))
        print(f"{'row':12}{'sqlite':>12}{'server':>12}{'ratio':>8}{'bar':>6}  spread, and the 99th percentiles in ms", flush=True)
        for row, bar in BARS.items():
            compare(row, bar, both, asked.rounds, asked.seconds)


def compare(row: str, bar: float, both: list[tuple[Server, Load]], rounds: int, seconds: float) -> None:
    """Measure a row, in turns, and print it."""
    turns: list[list[service_traffic.Turn]] = [[], []]
    for number in range(rounds + 1):  # the first one warms up
        for at in (0, 1) if number % 2 else (1, 0):
            own, load = both[at]
            if row == "feedback":
                load.run(service_traffic.decide, own.port, int(SUPPLY * seconds))
            for other, _ in both:
                other.settle()
            what = service_traffic.rank_turn if row == "rank" else service_traffic.feedback_turn
            turns[at].append(load.run(what, own.port, CONNECTIONS, seconds))
    pairs = [(rate(old), rate(new)) for old, new in zip(*turns, strict=True)][1:]
    ratios = [new / old for old, new in pairs]
    olds, news = (statistics.median(pair[side] for pair in pairs) for side in (0, 1))
    late = [statistics.median(turn.p99 for turn in some[1:]) * MILLI for some in turns]
    print(
        f"{row:12}{olds:12,.0f}{news:12,.0f}{statistics.median(ratios):8.2f}{bar:6.1f}  {min(ratios):.2f} … {max(ratios):.2f}, "
        f"{late[0]:.1f} and {late[1]:.1f}",
        flush=True,
    )


if __name__ == "__main__":
    main()
