"""The service's benchmark: `rank` and `feedback` over HTTP beside an echo of the same stack, and a store of a million queries.

Echo and service take turns under the same load, so that a slow moment of the machine affects both; a row's ratio is the median over
the rounds. The load comes from a separate process. Before each turn the service has written all pending rows.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, NamedTuple

from swerve.bench import propensities, service_traffic
from swerve.bench.load import DEGRADED, Connection, Turn
from swerve.bench.pages import Pages
from swerve.bench.rows import Bar, Row, row
from swerve.bench.servers import Server, echo, service
from swerve.bench.timing import Pairs
from swerve.core.errors import SwerveError

#: The bars of the service's benchmark. docs/bench.md explains each row.
SERVICE_BARS = {
    "rank": Bar("≥", 0.7),
    "rank-page": Bar("≥", 0.85),
    "rank-p99": Bar("≤", 2.0),
    "feedback": Bar("≥", 0.5),
    "rank-batch": Bar("≥", 12.0),
    "pages": Bar("≥", 0.95),
    "memory": Bar("≤", 1000.0, "value"),
    "disk": Bar("≤", 1.3),
    "restart": Bar("<", 5.0, "value"),
}
#: The default configuration, except for the numbers that the requests carry, and without a limit on new queries.
NUMBERS = "\n".join(f'{name} = "count"' for name in service_traffic.SIGNALS)
CONFIG = f"[signals.numbers]\n{NUMBERS}\n\n[limits]\nnew_queries_per_minute = 1000000000\n"
CONNECTIONS = 32  # enough to keep the server busy, few enough for the load to stay below one core
BATCH_CONNECTIONS = 4  # each keeps a hundred decisions waiting
OPEN_PAGES = 50  # open dashboards
WATCHED = 5  # queries that the pages watch: the most frequent
SUPPLY = 15_000  # decisions made before a feedback turn, per second of the turn: more than it can use
LARGE_STORE_ARMS = 8  # candidates of the queries in the large store
#: Progress reports while the large store is filled, and the fewest queries between two of them.
FILL_REPORTS, FILL_FEWEST = 100, 1000
WRITING_SECONDS = 600.0  # for a million rows to be written
RETRY_SECONDS = 0.01  # seconds between two tries of a request while the service starts
MB, MILLI, MICRO = 1e6, 1e3, 1e6

Progress = Callable[[str], None]
#: A server, a function of `swerve.bench.service_traffic`, and the function's arguments after the port.
Contender = tuple[Any, ...]


class Effort(NamedTuple):
    """The amount of measurement."""

    rounds: int = 9
    seconds: float = 3.0
    queries: int = 100_000
    stored: int = 1_000_000  # queries of the large store; 0 leaves it out
    restarts: int = 3


QUICK = Effort(rounds=3, seconds=1.0, queries=20_000, stored=0)


class Load:
    """The process that sends the load."""

    def __init__(self, queries: int, candidates: int) -> None:
        spawn = multiprocessing.get_context("spawn")  # a fork would copy this process's memory and threads
        self.pool = ProcessPoolExecutor(1, spawn, service_traffic.begin, (queries, candidates))

    def __enter__(self) -> Load:
        return self

    def __exit__(self, *_: object) -> None:
        self.pool.shutdown()

    def run(self, what: Callable[..., Any], *args: object) -> Any:
        """Call a function of `swerve.bench.service_traffic` in the load's process."""
        try:
            return self.pool.submit(what, *args).result()
        except BrokenProcessPool as error:
            raise SwerveError("the process that sends the load ended; is there enough memory?") from error


class Duel(NamedTuple):
    """Turns of the reference and of the service, in pairs."""

    reference: list[Turn]
    own: list[Turn]

    def ratio(self, of: Callable[[Turn], float]) -> float:
        """Return the median of own ÷ reference over the rounds."""
        return Pairs([of(turn) for turn in self.reference], [of(turn) for turn in self.own]).ratio

    def median(self, of: Callable[[Turn], float]) -> float:
        """Return the service's median."""
        return statistics.median(of(turn) for turn in self.own)

    def reference_median(self, of: Callable[[Turn], float]) -> float:
        """Return the reference's median."""
        return statistics.median(of(turn) for turn in self.reference)


def rate(turn: Turn) -> float:
    """Return the answers per second."""
    return turn.rate


def p99(turn: Turn) -> float:
    """Return the 99th percentile of latency in milliseconds."""
    return turn.p99 * MILLI


def run_service(
    *,
    quick: bool = False,
    seconds: float | None = None,
    queries: int | None = None,
    rounds: int | None = None,
    store: Path | None = None,
    effort: Effort | None = None,
    progress: Progress = lambda what: None,
) -> list[Row]:
    """Return all rows; `store` is the folder for temporary stores (default: the system's folder for temporary files)."""
    chosen = effort or (QUICK if quick else Effort())
    given: dict[str, Any] = {"seconds": seconds, "queries": queries, "rounds": rounds}
    chosen = chosen._replace(**{name: value for name, value in given.items() if value is not None})
    if store is not None and not store.is_dir():
        raise NotADirectoryError(f"--store {store} cannot be used: there is no such folder")
    with tempfile.TemporaryDirectory(prefix="swerve-bench-", dir=store) as made:
        folder = Path(made)
        rows = speed(folder, chosen, progress) + draw_rows(chosen, progress)
        if chosen.stored:
            (folder / "large").mkdir()
            rows += large(folder / "large", chosen, progress)
    return rows


# speed ----------------------------------------------------------------------------------------------------------------------------


class Bench:
    """The servers, the load, and turns between them."""

    def __init__(self, own: Server, framed: Server, bare: Server, load: Load, effort: Effort, progress: Progress) -> None:
        self.own, self.framed, self.bare, self.load = own, framed, bare, load
        self.effort, self.progress = effort, progress
        self.busiest = 0.0  # largest share of a core that the load has taken

    def turn(self, server: Server, what: Callable[..., Turn], *args: object) -> Turn:
        """Run one turn of one server, after the service has written all pending rows."""
        self.own.settle()
        out: Turn = self.load.run(what, server.port, *args)
        self.busiest = max(self.busiest, out.cpu)
        return out

    def rounds(self, name: str, *contenders: Contender, before: Callable[[], None] = lambda: None) -> list[list[Turn]]:
        """Return the turns of each contender, taken alternately; the first round is not counted."""
        turns: list[list[Turn]] = [[] for _ in contenders]
        for number in range(self.effort.rounds + 1):
            self.progress(f"{name}: round {number} of {self.effort.rounds}" if number else f"{name}: warming up")
            before()
            for own, contender in zip(turns, contenders, strict=True):
                own.append(self.turn(*contender))
        return [own[1:] for own in turns]


def with_pages(bench: Bench) -> tuple[Duel, float]:
    """Run `rank` without and with pages on the most frequent queries, in turns; also return messages per second and page."""
    duel = Duel([], [])
    watched = [service_traffic.text_of(query) for query in range(WATCHED)]
    messages = seconds = 0.0
    for number in range(bench.effort.rounds + 1):
        bench.progress(f"pages: round {number} of {bench.effort.rounds}" if number else "pages: warming up")
        once = bench.own, service_traffic.rank_turn, CONNECTIONS, bench.effort.seconds
        without = bench.turn(*once)
        with Pages(bench.own.port, OPEN_PAGES, watched) as pages:
            before = pages.messages
            busy = bench.turn(*once)
            messages, seconds = messages + pages.messages - before, seconds + busy.seconds
        if number:
            duel.reference.append(without)
            duel.own.append(busy)
    return duel, messages / seconds / OPEN_PAGES


@contextlib.contextmanager
def opened(folder: Path, effort: Effort, progress: Progress) -> Iterator[Bench]:
    """Yield a bench with all servers running and each query asked once."""
    progress("starting the servers and compiling missing code")
    with (
        service(folder, CONFIG) as own,
        echo("starlette", folder) as framed,
        echo("bare", folder) as bare,
        Load(effort.queries, candidates=service_traffic.CANDIDATES) as load,
    ):
        own.ready().whole()
        progress(f"asking each of {effort.queries:,} queries once")
        load.run(service_traffic.fill, own.port, 0, effort.queries)
        own.settle()
        yield Bench(own, framed, bare, load, effort, progress)


def speed(folder: Path, effort: Effort, progress: Progress) -> list[Row]:
    """Measure throughput and latency."""
    with opened(folder, effort, progress) as bench:
        once = CONNECTIONS, effort.seconds
        framed, own, plain = bench.rounds(
            "rank", *((at, service_traffic.rank_turn, *once) for at in (bench.framed, bench.own, bench.bare))
        )
        single, bare = Duel(framed, own), Duel(plain, own)
        whole = Duel(
            *bench.rounds(
                "one slot and ten",
                *((bench.own, service_traffic.rank_turn, *once, None, slots) for slots in (1, service_traffic.CANDIDATES)),
            )
        )
        half = single.median(rate) / 2
        paced = Duel(
            *bench.rounds(
                "rank at half the load", *((at, service_traffic.rank_turn, *once, half) for at in (bench.framed, bench.own))
            )
        )
        batches = Duel(
            *bench.rounds(
                "batches",
                (bench.own, service_traffic.rank_turn, *once),
                (bench.own, service_traffic.batch_turn, BATCH_CONNECTIONS, effort.seconds),
            )
        )

        pages, messages = with_pages(bench)

        def supply() -> None:
            bench.load.run(service_traffic.decide, bench.own.port, int(SUPPLY * effort.seconds))

        feedback = Duel(
            *bench.rounds(
                "feedback", *((at, service_traffic.feedback_turn, *once) for at in (bench.framed, bench.own)), before=supply
            )
        )
        wrong = sum(turn.degraded for duel in (single, paced, batches) for turn in duel.own)
        asked = sum(turn.answers for duel in (single, paced, batches) for turn in duel.own)
        said = f"{CONNECTIONS} connections; {wrong:,} of {asked:,} answers held a degraded ranking, in all turns of rank"
        own50 = paced.median(lambda turn: turn.p50) * MILLI
        echo50 = paced.reference_median(lambda turn: turn.p50) * MILLI
        return [
            line("rank", single.median(rate), "requests/s", "echo", single.ratio(rate), said),
            line("rank-bare", single.median(rate), "requests/s", "bare echo", bare.ratio(rate)),
            line("rank-page", whole.median(rate), "requests/s", "one slot", whole.ratio(rate), "ten slots"),
            line("rank-p99", paced.median(p99), "ms", "echo", paced.ratio(p99), f"{half:,.0f} requests/s; median {own50:.2f} ms"),
            line("feedback", feedback.median(rate), "requests/s", "echo", feedback.ratio(rate), f"{CONNECTIONS} connections"),
            line(
                "rank-batch", batches.median(rate) * service_traffic.BATCH_ENTRIES, "decisions/s", "single requests",
                batches.ratio(rate) * service_traffic.BATCH_ENTRIES,
                f"batches of {service_traffic.BATCH_ENTRIES}, {BATCH_CONNECTIONS} connections",
            ),
            line(
                "pages", pages.median(rate), "requests/s", "no page", pages.ratio(rate),
                f"{OPEN_PAGES} open pages, each with a query; {messages:.1f} messages a second for each",
            ),
            line("echo-rank", single.reference_median(rate), "requests/s"),
            line("echo-rank-bare", bare.reference_median(rate), "requests/s", note="without the framework"),
            line("echo-p99", paced.reference_median(p99), "ms", note=f"{half:,.0f} requests/s; median {echo50:.2f} ms"),
            line("echo-feedback", feedback.reference_median(rate), "requests/s"),
            line("load-cpu", bench.busiest, "cores", note="the most that the load took: near 1 it would be the limit"),
        ]  # fmt: skip


def line(name: str, value: float | None, unit: str, reference: str = "", ratio: float | None = None, note: str = "") -> Row:
    """Return a row, with its bar if it has one."""
    return row(name, value, unit, reference, ratio, note, SERVICE_BARS)


def draw_rows(effort: Effort, progress: Progress) -> list[Row]:
    """Measure what the estimates of propensities cost, in this process and without HTTP."""
    measured = propensities.measure(
        CONFIG, service_traffic.CANDIDATES, effort.rounds, lambda done: progress(f"propensities: round {done} of {effort.rounds}")
    )
    return [
        line(name, pairs.value * MICRO, "µs", "no draws", pairs.ratio, "of a ranking, in process")
        for name, pairs in measured.items()
    ]


# a large store --------------------------------------------------------------------------------------------------------------------


def large(folder: Path, effort: Effort, progress: Progress) -> list[Row]:
    """Measure memory, disk and restart with many queries, all asked over HTTP."""
    with service(folder, CONFIG) as own, Load(effort.stored, LARGE_STORE_ARMS) as load:
        own.ready().whole()
        step = max(effort.stored // FILL_REPORTS, FILL_FEWEST)
        for start in range(0, effort.stored, step):
            progress(f"a store of {effort.stored:,} queries: {start / effort.stored:.0%}")
            load.run(service_traffic.fill, own.port, start, min(start + step, effort.stored))
        own.settle(patience=WRITING_SECONDS)
        memory, cached = own.memory(), own.metric("swerve_cache_rows")
    count, records, packed, names = contents(folder / "swerve.db")
    if count != effort.stored:
        raise SwerveError(f"the store holds {count:,} queries; {effort.stored:,} were asked")
    disk = sum(file.stat().st_size for file in folder.glob("swerve.db*"))
    starts = []
    for number in range(effort.restarts):
        progress(f"restart {number + 1} of {effort.restarts}")
        starts.append(restart(folder, effort))
    note = f"{effort.stored:,} queries of {LARGE_STORE_ARMS} candidates in the store, {cached:,.0f} of them in memory"
    if memory is not None:
        note += f"; at most {memory.peak / MB:,.0f} MB so far"
    resident = None if memory is None else memory.now / MB
    ratio = None if resident is None else resident / SERVICE_BARS["memory"].limit
    longest = f"from exec to the first ranking that is not degraded, compiled code on disk; longest {max(starts):.2f} s"
    took = statistics.median(starts)
    return [
        line("memory", resident, "MB", "bar 1000 MB", ratio, note),
        line(
            "disk",
            disk / MB,
            "MB",
            "records' bytes",
            disk / records,
            f"records {records / MB:,.0f} MB, packed {packed / MB:,.0f} MB, ids of candidates {names / MB:,.0f} MB",
        ),
        line("restart", took, "s", "bar 5 s", took / SERVICE_BARS["restart"].limit, longest),
    ]


def contents(file: Path) -> tuple[int, int, int, int]:
    """Return the rows of a store that no process has open, and the bytes of their records, of these as they are stored, and of
    their candidates' ids."""
    wanted = "count(*), sum(iif(size, size, length(record))), sum(length(record)), sum(length(names))"
    with contextlib.closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)) as opened:
        count, records, packed, names = opened.execute(f"SELECT {wanted} FROM rows").fetchone()
    return count, records, packed, names


def restart(folder: Path, effort: Effort) -> float:
    """Return the seconds from the start of the process to the first ranking that is not degraded."""
    request = service_traffic.post(
        service_traffic.RANK, service_traffic.Traffic(effort.stored, LARGE_STORE_ARMS).entry(effort.stored // 2, 0)
    )
    with service(folder, CONFIG) as own:
        line = Connection(own.port)
        while DEGRADED in line.call(request):
            time.sleep(RETRY_SECONDS)
        took = time.perf_counter() - own.started
        line.socket.close()
    return took
