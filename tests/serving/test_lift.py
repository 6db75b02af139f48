"""Lift: A/A tests watched at every visit call no winner, real effects are found, ramps do not distort, queries guard themselves."""

from __future__ import annotations

import math
import random

import msgspec
import numpy as np
import pytest

from swerve.serving.holdout import CONTROL, TREATED, Unit
from swerve.serving.lift import ERROR, MOST_QUERIES, Counted, Lift, Tally
from swerve.serving.sequence import bound, log_wealth

DECIDED = math.log(2 / ERROR)


class Tallies:
    """Many tallies at once; `test_many_tallies_are_single_ones` compares them with the real one."""

    def __init__(self, runs: int) -> None:
        self.visits, self.sums = 0, np.zeros(runs)
        self.total, self.squares, self.weight = np.zeros(runs), np.zeros(runs), np.zeros(runs)

    def add(self, outcome, treated, share) -> None:
        step = (outcome - (self.sums + 0.5) / (self.visits + 1)) * (treated - share)
        self.visits += 1
        self.sums += outcome
        self.total += step
        self.squares += step * step
        self.weight += share * (1.0 - share)

    def decided(self):
        return log_wealth(np.abs(self.total), self.squares) >= DECIDED


def test_many_tallies_are_single_ones():
    draw, many, one = np.random.default_rng(1), Tallies(3), [Tally() for _ in range(3)]
    for _ in range(200):
        outcome, share = draw.random(3), 0.3
        treated = draw.random(3) < share
        many.add(outcome, treated, share)
        for k in range(3):
            one[k].add(float(outcome[k]), bool(treated[k]), share)
    assert np.allclose(many.total, [tally.total for tally in one]) and np.allclose(many.squares, [tally.squares for tally in one])
    assert np.allclose(many.weight, [tally.weight for tally in one])


def watched(runs: int, visits: int, rate, share, effect: float, seed: int):
    """Play experiments and look after every visit; return which ever called a winner, and the tallies.

    `rate(step)` is the click rate of the control, `share(step, tallies)` the share of treated units.
    """
    draw, tallies, ever = np.random.default_rng(seed), Tallies(runs), np.zeros(runs, bool)
    for step in range(visits):
        p = share(step, tallies)
        treated = draw.random(runs) < p
        clicked = draw.random(runs) < rate(step) + effect * treated
        tallies.add(clicked.astype(float), treated, p)
        ever |= tallies.decided()
    return ever, tallies


def eager(step: int, tallies: Tallies):
    """An operator who ramps while it looks good, and back while it looks bad."""
    return np.where(tallies.total > 0, 0.8, 0.05)


TRAFFIC = {
    "half": (lambda step: 0.4, lambda step, tallies: 0.5),
    "rare clicks": (lambda step: 0.03, lambda step, tallies: 0.5),
    "ramp while the rate drifts": (
        lambda step: 0.2 + 0.5 * (step > 800),
        lambda step, tallies: 0.02 if step <= 800 else 0.5,
    ),
    "an eager operator": (lambda step: 0.5 + 0.4 * math.sin(step / 150), eager),
}


@pytest.mark.parametrize("traffic", TRAFFIC.values(), ids=TRAFFIC.keys())
def test_of_a_thousand_a_a_tests_watched_at_every_visit_at_most_five_percent_call_a_winner(traffic):
    ever, _ = watched(1000, 2000, *traffic, effect=0.0, seed=7)
    assert ever.sum() <= 50


@pytest.mark.parametrize(("name", "winners"), [("half", 200), ("ramp while the rate drifts", 990)])
def test_the_test_above_can_fail(name, winners):
    """A plain test of the difference of means, at every look, calls many winners in the same experiments."""
    draw, runs, (rate, share) = np.random.default_rng(7), 1000, TRAFFIC[name]
    counts, clicks, ever = np.ones((2, runs)), np.full((2, runs), 0.5), np.zeros(runs, bool)
    for step in range(2000):
        arm = (draw.random(runs) < share(step, None)).astype(int)
        clicked = draw.random(runs) < rate(step)
        counts[arm, np.arange(runs)] += 1
        clicks[arm, np.arange(runs)] += clicked
        if step >= 100:
            means = clicks / counts
            ever |= np.abs(means[1] - means[0]) > 1.96 * np.sqrt((means * (1 - means) / counts).sum(axis=0))
    assert ever.sum() > winners


@pytest.mark.parametrize(("effect", "visits"), [(0.04, 16_000), (-0.04, 16_000), (0.15, 1500)])
def test_a_real_effect_is_found_and_called_by_its_name(effect, visits):
    """A lift of 10 % on a click rate of 0.4 is decided within 16,000 visits in nine of ten experiments."""
    ever, tallies = watched(100, visits, lambda step: 0.4, lambda step, tallies: 0.5, effect, seed=3)
    assert ever.mean() >= 0.9
    assert np.all(np.sign(tallies.total[tallies.decided()]) == np.sign(effect))
    estimate = tallies.total / tallies.weight
    assert abs(estimate.mean() - effect) < 0.1 * abs(effect)


def test_the_interval_covers_the_effect_at_all_times():
    """With 1,000 experiments: the interval of some visit misses the true difference in at most 5 %."""
    draw, tallies, missed = np.random.default_rng(11), Tallies(1000), np.zeros(1000, bool)
    for step in range(1500):
        treated = draw.random(1000) < 0.3
        tallies.add((draw.random(1000) < np.where(treated, 0.55, 0.4)).astype(float), treated, 0.3)
        if step % 5 == 0:
            missed |= np.abs(tallies.total - 0.15 * tallies.weight) > bound(tallies.squares, ERROR / 2)
    assert missed.sum() <= 50


# visits ---------------------------------------------------------------------------------------------------------------------------


def made(**more) -> Lift:
    return Lift(Counted(since=1.0), **{"visit": 60.0, "guard": 0.01, "patience": 3600.0, **more})


class Traffic:
    """Searches of ever new units."""

    def __init__(self, lift: Lift, share: float = 0.5, seed: int = 1) -> None:
        self.lift, self.share, self.draw, self.now, self.number = lift, share, random.Random(seed), 1000.0, 0
        self.back: list[str] = []

    def unit(self) -> Unit:
        return Unit(self.draw.random(), self.draw.getrandbits(64) or 1)

    def search(self, unit: Unit, clicks: int, names: tuple[str, ...] = ("key:aa",)) -> int:
        arm = TREATED if unit.point < self.share else CONTROL
        self.number += 1
        self.lift.searched(unit, arm, self.share, self.number, names, self.now)
        if clicks:
            self.lift.clicked(arm, self.number, 0, clicks, 0.0, min(float(clicks), 1.0))
        return arm

    def wait(self, seconds: float) -> None:
        self.now += seconds
        while True:
            done, back = self.lift.judge(self.now, 10)
            self.back += back
            if not done:
                return


def test_a_visit_is_judged_once_when_its_time_is_over():
    traffic = Traffic(made())
    unit, lift = traffic.unit(), traffic.lift
    for clicks in (0, 3, 0, 1):
        arm = traffic.search(unit, clicks)
    traffic.wait(100.0)
    assert lift.waiting() == 1 and lift.counted.reward.visits == 0
    lift.clicked(arm, 1, 0, 1, 0.0, 1.0)  # a late click, still in time
    traffic.wait(30.0)
    totals = lift.totals(arm)
    assert (totals.searches, totals.clicked, totals.clicks, totals.visits, totals.judged, totals.abandoned) == (4, 3, 5, 1, 4, 1)
    assert sum(lift.counted.reward.arm_sums) == 0.75 and sum(lift.counted.clicks.arm_sums) == pytest.approx(5 / 12)
    lift.clicked(arm, 3, 0, 1, 0.0, 1.0)  # too late for the visit
    assert totals.clicked == 4 and totals.abandoned == 1 and lift.open == {}


def test_a_unit_is_compared_once():
    traffic = Traffic(made())
    unit = traffic.unit()
    for _ in range(5):
        traffic.search(unit, 1)
        traffic.wait(200.0)
    assert traffic.lift.counted.reward.visits == 1
    assert sum(totals.searches for totals in (traffic.lift.counted.control, traffic.lift.counted.treated)) == 5


def test_one_who_searches_all_day_does_not_outweigh_the_others():
    """A session that clicks a thousand times is one visit; counted by search, it would decide an A/A test."""
    traffic, counted = Traffic(made()), 0
    unit = traffic.unit()
    for _ in range(1000):
        traffic.search(unit, 1)
        traffic.wait(1.0)
        other = traffic.unit()
        traffic.search(other, 0)
        counted += 1
    traffic.wait(500.0)
    assert traffic.lift.outcomes().reward.verdict == "undecided"
    assert traffic.lift.counted.reward.visits == counted + 1


def test_without_a_unit_or_with_one_arm_nothing_is_compared():
    lift = made()
    lift.searched(None, TREATED, 0.5, 1, ("key:aa",), 10.0)
    assert (lift.counted.by_query, lift.counted.treated.searches, lift.waiting()) == (1, 1, 0)
    for share in (0.0, 1.0):
        lift.searched(Unit(0.5, 7), TREATED, share, 2, ("key:aa",), 10.0)
    assert lift.waiting() == 0 and lift.counted.treated.searches == 3
    assert lift.outcomes().reward.difference is None


def test_a_ramp_leaves_out_the_visits_under_way():
    traffic = Traffic(made())
    for _ in range(10):
        traffic.search(traffic.unit(), 1)
    traffic.lift.forget_open()
    traffic.wait(500.0)
    assert traffic.lift.counted.reward.visits == 0 and traffic.lift.waiting() == 0


def test_segments_and_queries_have_lines_of_their_own():
    traffic = Traffic(made(guard=0.0))
    for _ in range(3000):
        unit = traffic.unit()
        treated = unit.point < 0.5
        traffic.search(unit, int(traffic.draw.random() < (0.6 if treated else 0.3)), ("key:aa", "locale=de"))
        other = traffic.unit()
        traffic.search(other, int(traffic.draw.random() < (0.3 if other.point < 0.5 else 0.6)), ("key:bb", "locale=fr"))
        traffic.wait(1.0)
    traffic.wait(500.0)
    lift = traffic.lift
    assert {line.name: line.effect.verdict for line in lift.lines(lift.counted.segments, 5)} == {
        "locale=de": "helps", "locale=fr": "hurts",
    }  # fmt: skip
    assert {line.name: line.effect.verdict for line in lift.lines(lift.counted.queries, 5)} == {
        "key:aa": "helps",
        "key:bb": "hurts",
    }
    outcomes = lift.outcomes()
    assert outcomes.reward.verdict == "undecided" and outcomes.reward.low < 0.0 < outcomes.reward.high
    assert outcomes.abandonment.difference == pytest.approx(-outcomes.reward.difference)
    assert outcomes.abandonment.control == pytest.approx(1.0 - outcomes.reward.control)


def test_busy_queries_keep_their_lines_in_a_flood_of_rare_ones():
    traffic = Traffic(made())
    for number in range(3 * MOST_QUERIES):
        traffic.search(traffic.unit(), 0, (f"key:{number:08x}",))
        traffic.search(traffic.unit(), 0, (f"key:ff{number % 20:02d}",))
        traffic.wait(1.0)
    traffic.wait(500.0)
    lines = traffic.lift.counted.queries
    assert len(lines) == MOST_QUERIES and all(f"key:ff{number:02d}" in lines for number in range(20))
    assert lines["key:ff07"].tally.visits == 150


def test_the_counts_survive_as_a_record():
    traffic = Traffic(made())
    for _ in range(300):
        traffic.search(traffic.unit(), int(traffic.draw.random() < 0.5), ("key:aa", "segment=app"))
        traffic.wait(1.0)
    kept = msgspec.json.decode(msgspec.json.encode(traffic.lift.counted), type=Counted)
    assert kept == traffic.lift.counted
    again = Lift(kept, visit=60.0, guard=0.01, patience=3600.0)
    assert again.outcomes() == traffic.lift.outcomes()


# the guard ------------------------------------------------------------------------------------------------------------------------


def play(traffic: Traffic, visits: int, treated: float, control: float, key: str = "aa") -> int:
    """Play visits of one query until its guard acts; return how many there were."""
    for visit in range(visits):
        unit = traffic.unit()
        rate = treated if unit.point < traffic.share else control
        traffic.search(unit, int(traffic.draw.random() < rate), (f"key:{key}",))
        traffic.wait(1.0)
        if traffic.back:
            return visit + 1
    return visits


def test_a_query_that_is_worse_goes_back_says_why_and_tries_again_later():
    traffic = Traffic(made())
    key = bytes.fromhex("aa")
    assert play(traffic, 2000, treated=0.1, control=0.5) < 400
    assert traffic.back == ["key:aa"]
    (line,) = traffic.lift.guards()
    assert line.look == 1 and line.until == line.since + 3600.0
    assert line.why.startswith("worse than its given order: reward 0.") and "held out, in" in line.why
    assert traffic.lift.on_guard(key, traffic.now) is not None
    visits = traffic.lift.counted.queries["key:aa"].tally.visits
    traffic.back.clear()
    play(traffic, 100, treated=0.5, control=0.5)
    assert traffic.lift.counted.queries["key:aa"].tally.visits == visits  # nothing to compare meanwhile
    assert traffic.lift.on_guard(key, line.until + 1.0) is None
    fresh = traffic.lift.counted.queries["key:aa"]
    assert (fresh.look, fresh.guarded, fresh.tally.visits) == (2, 0.0, 0) and fresh.error(0.01) < 0.01 / 6
    traffic.now = line.until + 2.0
    later = play(traffic, 4000, treated=0.1, control=0.5)
    assert traffic.back == ["key:aa"] and later < 500 and traffic.lift.guards()[0].look == 2


def test_the_guard_survives_a_restart():
    traffic = Traffic(made())
    play(traffic, 2000, treated=0.1, control=0.5)
    kept = msgspec.json.decode(msgspec.json.encode(traffic.lift.counted), type=Counted)
    again = Lift(kept, visit=60.0, guard=0.01, patience=3600.0)
    assert again.on_guard(bytes.fromhex("aa"), traffic.now) is not None


def test_an_adversary_who_hides_can_take_no_more_than_the_bound():
    """Users punish the treated order as hard as they can without moving the guard: while it is silent, the loss is within the
    bound for the squares so far, which grows like their root; and what is lost more moves the guard at once."""
    for seed in range(2):
        traffic = Traffic(made(), seed=seed)
        line = None
        for _ in range(3000):
            unit = traffic.unit()
            treated = unit.point < 0.5
            line = traffic.lift.counted.queries.get("key:aa")
            near = line is not None and line.tally.total < -0.8 * float(bound(line.tally.squares, 0.01 * 6 / math.pi**2))
            traffic.search(unit, int(treated if near else not treated))
            traffic.wait(200.0)
            if traffic.back:
                break
            line = traffic.lift.counted.queries["key:aa"]
            assert -line.tally.total <= float(bound(line.tally.squares, line.error(0.01))) + 1e-9
        else:
            assert line is not None and line.tally.visits == 3000
            assert -line.tally.total <= float(bound(3000 / 4, line.error(0.01)))


def test_queries_that_are_not_worse_hardly_ever_go_back():
    """1,000 queries, eight looks each of 400 visits, watched at every visit: at most 1 % ever go back, at a guard of 1 %."""
    draw, back = np.random.default_rng(5), np.zeros(1000, bool)
    for look in range(1, 9):
        tallies, error = Tallies(1000), 0.01 * 6 / (math.pi * look) ** 2
        for _ in range(400):
            treated = draw.random(1000) < 0.9
            tallies.add((draw.random(1000) < 0.4).astype(float), treated, 0.9)
            back |= log_wealth(-tallies.total, tallies.squares) >= -math.log(error)
    assert back.sum() <= 10


def winner(tally: Tally) -> bool:
    """Return whether a tally calls a winner now."""
    near = tally.total * tally.total >= 2.0 * tally.squares * DECIDED
    return near and bool(log_wealth(abs(tally.total), tally.squares) >= DECIDED)


@pytest.mark.slow
def test_a_thousand_a_a_tests_of_sessions_with_dependent_searches_through_the_real_thing():
    """Sessions have one to eight searches, all clicked or none, and half of them come back. Compared search by search, the same
    experiments call many winners."""
    winners = by_search = 0
    for seed in range(1000):
        traffic, searches = Traffic(made(), seed=seed), Tally()
        known, called, wrongly = list[Unit](), False, False
        for _ in range(400):
            unit = traffic.draw.choice(known) if known and traffic.draw.random() < 0.5 else traffic.unit()
            known.append(unit)
            clicks = int(unit.name % 5 < 2)  # people have their habits
            for _ in range(traffic.draw.randrange(1, 9)):
                arm = traffic.search(unit, clicks)
                searches.add(float(clicks), arm == TREATED, 0.5)
            traffic.wait(20.0)
            called |= winner(traffic.lift.counted.reward)
            wrongly |= winner(searches)
        winners += called
        by_search += wrongly
    assert winners <= 50 and by_search > 200
