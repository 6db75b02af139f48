"""The benchmark measures what it states: fair turns, UCB1 in C, the real loop, and rows with their bars."""

import itertools
import json
import math
import random

import numpy as np
import pytest

from swerve.bandits import UCB1, Thompson
from swerve.bench import kernels, peers, reference, rows, timing
from swerve.core.errors import SwerveError
from swerve.environments import workload
from swerve.policies import Swerve
from swerve.simulate import simulate

Fleet = kernels.Fleet  # some tests replace it
CHANCES = [0.1, 0.3, 0.25, 0.55, 0.5]
MASK = (1 << 64) - 1
TINY = kernels.Effort(repeats=2, rounds=2_000, pairs=40, batches=2, batch=6, starts=1, colds=1, queries=1, candidates=(10,))
NAMES = {
    "ucb1-loop",
    "bwc-traffic-d10",
    "bwc-traffic-d40",
    "step-api",
    "batch-api",
    "swerve-clear",
    "page-10-of-10",
    "state-ucb1",
    "state-bwc",
    "state-swerve",
    "start-cached",
    "hull-predict-d10-n300",
}
BESIDE = {
    "naive-c-loop",
    "c-cached-loop",
    "python-loop",
    "ora-traffic-d10",
    "ts-loop",
    "klucb-loop",
    "exp3s-loop",
    "swerve-clear-noisy",
    "swerve-clear-no-contexts",
    "step-api-separate",
    "peer-pymab",
    "peer-river",
    "peer-mabwiser",
    "cold-compile",
    "cold-compile-hull",
    "start-cached-swerve",
    "cold-compile-swerve",
    "hull-nnls-d10-n300",
}


# --- the C loop -------------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def c(tmp_path_factory):
    return reference.Reference(tmp_path_factory.mktemp("c"))


def xoshiro(seed):
    """Yield uniform numbers of Blackman and Vigna's xoshiro256++, seeded by splitmix64, written from their description."""
    state = []
    for _ in range(4):
        seed = (seed + 0x9E3779B97F4A7C15) & MASK
        z = ((seed ^ (seed >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        state.append(z ^ (z >> 31))

    def rotate(x, k):
        return ((x << k) | (x >> (64 - k))) & MASK

    a, b, c, d = state
    while True:
        yield ((rotate((a + d) & MASK, 23) + a) & MASK) / 2**64
        t = (b << 17) & MASK
        c ^= a
        d ^= b
        b ^= c
        a ^= d
        c ^= t
        d = rotate(d, 45)


def ucb1(uniforms, chances, rounds):
    """Auer, Cesa-Bianchi and Fischer's UCB1: every arm once, then the highest mean + √(2 ln t / n)."""
    plays, wins, regret = [0] * len(chances), [0] * len(chances), []
    for t in range(1, rounds + 1):
        if t <= len(chances):
            arm = t - 1
        else:
            arm = max(range(len(chances)), key=lambda u: wins[u] / plays[u] + math.sqrt(2 * math.log(t) / plays[u]))
        plays[arm] += 1
        wins[arm] += next(uniforms) < chances[arm]
        regret.append(max(chances) - chances[arm])
    return math.fsum(regret), sum(wins), plays


@pytest.mark.parametrize("seed", [0, 1, 2**64 - 1])
@pytest.mark.parametrize("loop", ["naive", "cached"])
def test_the_c_loops_are_ucb1(c, loop, seed):
    regret, clicks, plays = ucb1(xoshiro(seed), CHANCES, 5_000)
    got = getattr(c, loop)(5_000, CHANCES, seed)
    assert (got.clicks, got.plays) == (clicks, plays)
    assert got.regret == pytest.approx(regret, rel=1e-12)
    assert min(plays) > 20  # all arms were played, so that the agreement is meaningful


def test_the_python_loop_is_ucb1():
    draws = random.Random(3)
    regret, clicks, plays = ucb1(iter(draws.random, None), CHANCES, 3_000)
    got = reference.python_loop(3_000, CHANCES, seed=3)
    assert (got.clicks, got.plays) == (clicks, plays)
    assert got.regret == pytest.approx(regret, rel=1e-12)


def test_the_c_loop_has_five_arms(c):
    with pytest.raises(SwerveError, match=r"chances has shape \(4,\); the C loop has 5 arms"):
        c.naive(10, CHANCES[:4])


def test_no_compiler(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SwerveError, match=r"^gcc was not found.*install gcc.*$"):
        reference.Reference(tmp_path)


def test_no_headers(monkeypatch, tmp_path):
    broken = tmp_path / "broken.c"
    broken.write_text("#include <no/such/header.h>\n")
    monkeypatch.setattr(reference, "SOURCE", broken)
    with pytest.raises(SwerveError, match=r"^gcc could not compile.*headers installed\?.*no/such/header\.h.*$"):
        reference.Reference(tmp_path)


# --- timing -----------------------------------------------------------------------------------------------------------
class Machine:
    """A clock that advances with work, on a machine whose speed differs from turn to turn."""

    def __init__(self, *slowness):
        self.now, self.log, self.slowness = 0.0, [], itertools.cycle(slowness)

    def clock(self):
        return self.now

    def contender(self, name, cost, units=1, new_turn=False):
        def prepare():
            self.now += 1000.0  # set-up: must not be counted

            def work():
                if new_turn:
                    self.factor = next(self.slowness)
                self.log.append(name)
                self.now += cost * units * self.factor

            return work

        return timing.Contender(name, units, prepare)


def test_turns_are_interleaved_and_paired():
    machine = Machine(1.0, 1.0, 50.0, 3.0)  # the first turn is the warm-up
    yardstick = machine.contender("c", 2.0, units=10, new_turn=True)
    ticks = []
    got = timing.interleave(yardstick, [machine.contender("a", 5.0, units=4)], 3, machine.clock, ticks.append)["a"]
    assert machine.log == ["c", "a"] + ["c", "a"] * 3
    assert ticks == [1, 2, 3]
    assert got.reference == pytest.approx([2.0, 100.0, 6.0])
    assert got.own == pytest.approx([5.0, 250.0, 15.0])
    assert got.ratio == pytest.approx(2.5)  # at any speed of the machine in each turn
    assert (got.value, got.reference_value) == pytest.approx((15.0, 6.0))


def test_every_contender_has_its_own_yardstick_call():
    machine = Machine(1.0)
    yardstick = machine.contender("c", 1.0, new_turn=True)
    both = [machine.contender("a", 2.0), machine.contender("b", 3.0)]
    got = timing.interleave(yardstick, both, 2, machine.clock)
    assert machine.log == ["c", "a", "b"] + ["c", "a", "c", "b"] * 2
    assert {name: pairs.ratio for name, pairs in got.items()} == pytest.approx({"a": 2.0, "b": 3.0})


def test_the_ratio_is_a_median_of_quotients():
    pairs = timing.Pairs([1.0, 1.0, 100.0], [3.0, 4.0, 200.0])
    assert pairs.ratio == 3.0
    assert pairs.value / pairs.reference_value == 4.0


# --- rows -------------------------------------------------------------------------------------------------------------
def test_bars():
    assert rows.row("ucb1-loop", 30.0, "ns/round", "naive C", 1.0).ok is True
    assert rows.row("ucb1-loop", 30.0, "ns/round", "naive C", 1.01).ok is False
    assert rows.row("step-api", 1.0, "pairs/s", "fastest peer (river)", 1.99).ok is False
    assert rows.row("step-api", 1.0, "pairs/s", "fastest peer (river)", 2.0).ok is True
    assert rows.row("step-api", 1.0, "pairs/s", "fastest peer (none installed)", None).ok is None
    assert rows.row("hull-predict-d10-n300", 20.0, "µs", "SciPy nnls", 0.01).ok is False  # the bar is below 20
    assert rows.against_bar("state-bwc", 641, "B").ok is False
    assert rows.row("klucb-loop", 1.0, "ns/round", "UCB1 loop", 99.0).ok is None


def check_rows(got):
    names = [line.name for line in got]
    assert len(set(names)) == len(names)
    assert set(names) == NAMES | BESIDE
    assert set(rows.KERNEL_BARS) - {"page-10-of-64"} <= set(names)  # compiling for 64 candidates takes long
    table = {line["name"]: line for line in json.loads(json.dumps([line.as_dict() for line in got]))}
    for name, line in table.items():
        assert list(line) == ["name", "value", "unit", "reference", "ratio", "bar", "ok", "note"]
        assert line["unit"]
        assert line["reference"]
        assert (line["value"] is None) == line["note"].endswith("is not installed")
        assert line["value"] is None or line["value"] > 0
        assert (name in rows.KERNEL_BARS) == bool(line["bar"])
    for name in NAMES - {"step-api"}:
        assert table[name]["ratio"] > 0
        assert isinstance(table[name]["ok"], bool)
    assert table["state-ucb1"]["ok"]
    assert table["state-bwc"]["ok"]
    assert table["state-swerve"]["ok"]
    assert table["naive-c-loop"]["ratio"] == 1.0
    assert table["cold-compile"]["value"] > table["start-cached"]["value"]


def test_a_whole_run(monkeypatch):
    """A run without long compilations: one bandit instead of all, and no new processes."""
    simulated, starts, said = kernels.simulated, [], []
    monkeypatch.setattr(kernels, "simulated", lambda name, *_: simulated(name, UCB1(), kernels.one_query(500)))
    monkeypatch.setattr(kernels, "first_decision", lambda cache, policy="": starts.append(cache.name) or 4.0 / len(starts))
    check_rows(kernels.run_kernels(effort=TINY, progress=said.append))
    # the last two reuse the code that the first compiled
    assert starts == ["cache-0", "cache-hull", "cache-swerve", "cache-0", "cache-swerve"]
    assert "loops beside C 2/2" in said


@pytest.mark.slow
def test_a_whole_run_as_it_is():
    check_rows(kernels.run_kernels(effort=TINY))


def test_quick_is_less_work():
    assert all(few <= many for few, many in zip(kernels.QUICK, kernels.FULL, strict=True))
    assert kernels.QUICK.repeats >= 3
    assert kernels.FULL.repeats >= 7


# --- contenders -------------------------------------------------------------------------------------------------------
def test_our_loop_is_the_simulation(c):
    traffic = kernels.one_query(4_000)
    contender = kernels.simulated("ucb1-loop", UCB1(), traffic)
    tally = contender.prepare()()[0]
    run = simulate(UCB1(), traffic, runs=1).runs[0]
    assert contender.units == 4_000
    assert (tally["regret"], tally["clicks"]) == (run.regret[-1], run.clicks[-1])  # of all rounds
    again = contender.prepare()()[0]  # a second turn starts from the beginning
    assert again == tally


def test_ours_and_c_do_the_same_job(c):
    """The same probabilities and index, but other clicks: regrets agree up to random variation."""
    traffic = kernels.one_query(30_000)
    ours = float(kernels.simulated("ucb1-loop", UCB1(), traffic).prepare()()[0]["regret"])
    chances = kernels.world(traffic, 0).chances[0]
    theirs = [c.naive(30_000, chances, seed).regret for seed in range(40)]
    assert abs(ours - np.mean(theirs)) < 4 * np.std(theirs)
    assert np.std(theirs) < 0.2 * np.mean(theirs)


@pytest.mark.parametrize("make", [kernels.stepped, kernels.separate])
def test_a_pair_is_a_decision_and_its_reward(make, monkeypatch):
    made = []
    monkeypatch.setattr(kernels, "Fleet", lambda *args, **kwargs: made.append(Fleet(*args, **kwargs)) or made[-1])
    make("x", 50).prepare()()
    row = made[0].table[0]
    assert row["total"].sum() == 50
    assert row["plays"].sum() == (51 if make is kernels.stepped else 50)  # the fused call's first decision is set-up


def test_a_batch_is_a_decision_and_its_reward_per_row(monkeypatch):
    made = []
    monkeypatch.setattr(kernels, "Fleet", lambda *args, **kwargs: made.append(Fleet(*args, **kwargs)) or made[-1])
    contender = kernels.batched("batch-api", 3)
    contender.prepare()()
    assert contender.units == 3 * kernels.QUERIES_PER_CALL == made[0].table["plays"].sum()
    assert made[0].table["total"].sum() == 1.5 * kernels.QUERIES_PER_CALL


def test_state_is_what_a_fleet_holds():
    ucb1, bwc, swerve = kernels.state_rows()
    assert ucb1.value == Fleet(UCB1(), queries=1, arms=8).table.nbytes
    assert bwc.value == Fleet(kernels.paper_policy(), queries=1, arms=8, features=8).table.nbytes
    assert swerve.value == Fleet(Swerve(), queries=1, arms=8, features=8).table.nbytes


def test_swerve_is_measured_beside_thompson_sampling_on_the_same_traffic(monkeypatch):
    made = []

    def spy(name, policy, environment, see=None):
        made.append((name, type(policy), environment, see))
        return timing.Contender(name, 1, lambda: lambda: None)

    monkeypatch.setattr(kernels, "simulated", spy)
    got = kernels.swerve_rows(kernels.QUICK._replace(repeats=3), lambda text: None)
    for line, (yardstick, own) in zip(got, zip(made[::2], made[1::2], strict=True), strict=True):
        assert yardstick[2] == own[2]
        assert (own[1], own[3]) == (Swerve, None)  # contexts are drawn, because Swerve reads them
        assert yardstick[1] is Thompson
        assert line.name == own[0]
    assert [yardstick[3] for yardstick in made[::2]] == [True, True, False]
    assert made[0][2] == workload("clear", 0.1, queries=10, impressions=300_000)
    assert made[2][2] == workload("clear-noisy", 0.5, queries=10, impressions=300_000)
    assert [line.ok is None for line in got] == [False, True, True]


def test_contexts_are_drawn_for_who_reads_them_unless_told_otherwise(monkeypatch):
    seen = []

    class Spy(kernels.Session):
        def play(self, until):
            seen.append(self.see)
            super().play(until)

    monkeypatch.setattr(kernels, "Session", Spy)
    traffic = kernels.traffic(600, 3)
    runs = [kernels.simulated("x", UCB1(), traffic, see).prepare()()[0] for see in (None, True, False)]
    assert seen == [False, True, False]
    assert runs[0] == runs[1] == runs[2]  # contexts cost time, and change nothing for a policy that does not read them


def test_a_failing_start_is_said_in_one_line(monkeypatch, tmp_path):
    monkeypatch.setattr(kernels, "FIRST_DECISION", "raise RuntimeError('no luck')")
    with pytest.raises(SwerveError, match=r"^a new process failed before its first decision: RuntimeError: no luck$"):
        kernels.first_decision(tmp_path)


# --- peers ------------------------------------------------------------------------------------------------------------
def loop_of(cost):
    return lambda module, pairs: lambda: sum(range(cost * pairs))


def test_the_fastest_peer_is_found_on_an_uneven_machine():
    """The first two turns are so slow that timing one peer after the other would name the wrong one."""
    machine = Machine(1.0, 9.0, 9.0, 1.0)
    there = {"slow": machine.contender("slow", 5.0, new_turn=True), "fast": machine.contender("fast", 4.0)}
    assert peers.fastest(there, 3, machine.clock) == "fast"
    assert machine.log == ["slow", "fast"] * 4
    assert peers.fastest({}) is None


def test_a_missing_peer_says_so(monkeypatch):
    there = {
        "peer-slow": peers.Peer("Slow", "json", loop_of(20_000)),
        "peer-fast": peers.Peer("Fast", "math", loop_of(100)),
        "peer-gone": peers.Peer("Gone", "no_such_library", loop_of(1)),
    }
    monkeypatch.setattr(peers, "PEERS", there)
    got = {line.name: line for line in kernels.api_rows(TINY, lambda text: None)}
    assert got["peer-gone"].value is None
    assert got["peer-gone"].note == "Gone is not installed"
    assert {line.reference for line in got.values()} == {"fastest peer (Fast)"}
    assert got["peer-fast"].ratio == 1.0
    assert got["peer-slow"].ratio < 1.0
    for name in ("step-api", "step-api-separate"):
        assert got[name].ok is not None


def test_no_peer_at_all(monkeypatch):
    monkeypatch.setattr(peers, "PEERS", {"peer-gone": peers.Peer("Gone", "no_such_library", loop_of(1))})
    got = {line.name: line for line in kernels.api_rows(TINY, lambda text: None)}
    assert got["step-api"].value > 0
    assert (got["step-api"].ratio, got["step-api"].ok) == (None, None)
    assert got["step-api"].note == "install the extra 'bench' to compare"
