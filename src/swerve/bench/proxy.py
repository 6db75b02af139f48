"""The proxy's benchmark: what it adds to an engine's answers, and how many it passes on, beside a stub of an engine alone.

The stub alone and the proxy in front of it take turns under the same load, so that a slow moment of the machine affects both. The
load comes from a separate process. Overhead is the median over the rounds of the difference between the two.
"""

from __future__ import annotations

import multiprocessing
import socket
import statistics
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

from swerve.bench import proxy_traffic
from swerve.bench.load import HOST, Turn
from swerve.bench.rows import Bar, Row, row
from swerve.bench.servers import Server, service

#: The bars of the proxy's benchmark. docs/bench.md explains each row.
PROXY_BARS = {
    "stream": Bar("≥", 2000.0, "value"),
    "stream-p50": Bar("<", 1.0, "value"),
    "stream-p99": Bar("<", 5.0, "value"),
    "stream-core": Bar("≥", 2000.0, "value"),
    "rerank": Bar("≥", 2000.0, "value"),
    "rerank-core": Bar("≥", 2000.0, "value"),
    "rerank-p50": Bar("<", 1.0, "value"),
    "rerank-p99": Bar("<", 5.0, "value"),
}
CONNECTIONS = 32
PACED_CONNECTIONS = 16
#: Requests per second at which latency is measured: a busy search box, and a share of what the proxy can do.
PACE = 400.0
WINDOW = 50
MILLI = 1e3
OUTCOME = 'swerve_proxy_requests_total{{outcome="{}"}}'
CONFIG = """
[proxy]
listen = "{host}:{port}"
upstream = "http://{host}:{upstream}"
service = "http://{host}:{service}"
rules = [{{ window = {window} }}]

[limits]
new_queries_per_minute = 1000000000
"""

Progress = Callable[[str], None]


class Effort(NamedTuple):
    """The amount of measurement."""

    rounds: int = 9
    seconds: float = 3.0


QUICK = Effort(rounds=3, seconds=1.0)


def free_port() -> int:
    """Return a port of the loopback that nobody listens on."""
    with socket.create_server((HOST, 0)) as opened:
        return int(opened.getsockname()[1])


def run_proxy(
    *, quick: bool = False, seconds: float | None = None, rounds: int | None = None, progress: Progress = lambda what: None
) -> list[Row]:
    """Return all rows."""
    chosen = QUICK if quick else Effort()
    chosen = Effort(rounds or chosen.rounds, seconds or chosen.seconds)
    with tempfile.TemporaryDirectory(prefix="swerve-bench-") as made:
        return measure(Path(made), chosen, progress)


def measure(folder: Path, effort: Effort, progress: Progress, more: str = "") -> list[Row]:
    """Start the servers and measure; `more` is further configuration of the service."""
    progress("starting the servers and compiling missing code")
    inside, outside = free_port(), free_port()
    with Server([sys.executable, "-m", "swerve.bench.stub"], folder / "stub.log") as stub:
        values = {"host": HOST, "upstream": stub.port, "window": WINDOW}
        with service(folder, CONFIG.format(port=inside, service=inside, **values) + more) as own:
            own.ready().whole()
            config = folder / "outside.toml"
            config.write_text(CONFIG.format(port=outside, service=own.port, **values))
            command = [sys.executable, "-m", "swerve", "proxy", "--config", str(config)]
            spawn = multiprocessing.get_context("spawn")  # a fork would copy this process's memory and threads
            with Server(command, folder / "proxy.log") as second, ProcessPoolExecutor(1, spawn) as load:
                second.ready()
                for port in (inside, outside):
                    load.submit(proxy_traffic.fill, port).result()
                targets = Target(stub, stub.port), Target(own, inside), Target(second, outside)
                return compared(load, targets, effort, progress)


class Target(NamedTuple):
    """A process, and the port that the load goes to."""

    server: Server
    port: int


def compared(load: ProcessPoolExecutor, targets: tuple[Target, Target, Target], effort: Effort, progress: Progress) -> list[Row]:
    """Measure in turns: the stub, the proxy in the service's process, and the proxy of its own."""
    busiest = 0.0
    used: dict[tuple[str, int], list[float]] = {}  # requests per second of processor time, by name and port

    def rounds(name: str, kind: str, some: tuple[Target, ...], rate: float | None) -> list[list[Turn]]:
        nonlocal busiest
        turns: list[list[Turn]] = [[] for _ in some]
        for number in range(effort.rounds + 1):
            progress(f"{name}: round {number} of {effort.rounds}" if number else f"{name}: warming up")
            for made, (server, port) in zip(turns, some, strict=True):
                connections = CONNECTIONS if rate is None else PACED_CONNECTIONS
                before = server.cpu()
                made.append(load.submit(proxy_traffic.turn, port, kind, connections, effort.seconds, rate).result())
                after = server.cpu()
                busiest = max(busiest, made[-1].cpu)
                if number and rate is None and before is not None and after is not None and after > before:
                    used.setdefault((kind, port), []).append(made[-1].answers / (after - before))
        return [made[1:] for made in turns]

    rows: list[Row] = []
    alone: dict[str, list[Turn]] = {}
    own = targets[1].server
    for name, kind, some in (("stream", "plain", targets[:2]), ("rerank", "search", targets)):
        names = (name, f"{name}-two")
        fast = rounds(f"{name}, as fast as it goes", kind, some, None)
        paced = rounds(f"{name}, {PACE:,.0f} requests/s", kind, some, PACE)
        alone[name] = fast[0]
        for label, target, quick, slow in zip(names, some[1:], fast[1:], paced[1:], strict=False):
            rate = statistics.median(turn.rate for turn in quick)
            ratio = statistics.median(one.rate / two.rate for one, two in zip(quick, fast[0], strict=True))
            where = "a proxy of its own and a service" if label.endswith("two") else "in the service's process"
            rows.append(line(label, rate, "requests/s", "stub", ratio, f"{where}; {CONNECTIONS} connections"))
            core = used.get((kind, target.port))
            value = None if core is None else statistics.median(core)
            rows.append(line(f"{label}-core", value, "requests/s", note="for each second of processor time of its process"))
            for at, of in (("p50", p50), ("p99", p99)):
                more = statistics.median(of(one) - of(two) for one, two in zip(slow, paced[0], strict=True)) * MILLI
                total = statistics.median(of(one) for one in slow) * MILLI
                ratio = statistics.median(of(one) / of(two) for one, two in zip(slow, paced[0], strict=True))
                rows.append(line(f"{label}-{at}", more, "ms", "stub", ratio, f"added to the stub's; in all {total:.2f} ms"))
    counts = {outcome: own.metric(OUTCOME.format(outcome)) for outcome in ("reranked", "engine_order")}
    share = counts["reranked"] / max(sum(counts.values()), 1.0)
    rows.append(line("reranked", 100 * share, "%", note="of the searches in the service's process had a decision in time"))
    for name, turns in alone.items():
        rows.append(line(f"stub-{name}", statistics.median(turn.rate for turn in turns), "requests/s"))
    rows.append(line("load-cpu", busiest, "cores", note="the most that the load took: near 1 it would be the limit"))
    return rows


def p50(turn: Turn) -> float:
    """Return the median latency in seconds."""
    return turn.p50


def p99(turn: Turn) -> float:
    """Return the 99th percentile of latency in seconds."""
    return turn.p99


def line(name: str, value: float | None, unit: str, reference: str = "", ratio: float | None = None, note: str = "") -> Row:
    """Return a row, with its bar if it has one."""
    return row(name, value, unit, reference, ratio, note, PROXY_BARS)
