"""One rule for clicks: the same shows and clicks give the same bytes in a `Fleet` and in the serving code."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest
from serving.scripted import Script, ranker

from swerve import BWC, UCB1, Decision, Fleet, Rectangle, Swerve, Testable, Thompson
from swerve.core.decisions import encode
from swerve.core.spec import Spec
from swerve.policies.patient import Patient
from swerve.serving.migration import Layouts
from swerve.serving.outcomes import IGNORED, LATE, LEARNED
from swerve.serving.requests import Decided
from swerve.serving.tokens import page_of
from swerve.signals import RAW
from swerve.store import Row, open_store

ARMS, CANDIDATES, FEATURES, SEED = 8, 11, 2, 7
LATELY = 40  # the last decisions, for which clicks may come
#: A policy whose tests last a few rounds, with a classifier that is positive until it is taught.
QUICK = Swerve(classifier=Rectangle(margin=0.1), verdict_after=20, revise_until=60, min_test_rounds=5)
POLICIES: dict[str, Spec] = {
    "ts": Thompson(),
    "swerve": QUICK,
    "patient": Patient(QUICK, click_wait=6.0),
    "bwc": BWC(Testable(UCB1(), length=12), Rectangle(margin=0.1), click_wait=2.0),
}


class Both:
    """A query of the service and a query of a fleet, with the same requests and clicks."""

    def __init__(self, policy: Spec, seed: int) -> None:
        plan = tuple(RAW | j << 8 for j in range(FEATURES))
        names = tuple(f"x{j}" for j in range(FEATURES))
        self.script = Script(ranker(policy, arms=ARMS, plan=plan, numbers=names, seed=SEED, per_session=0, draws=1))
        self.fleet = Fleet(policy, queries=1, arms=ARMS, features=FEATURES, seed=SEED)  # query 0 of this seed is the service's "0"
        self.place = self.script.place("0", ARMS)
        self.dice = random.Random(seed)
        self.made: list[tuple[Decided, Decision]] = []
        self.told: set[int] = set()
        self.clicked: set[int] = set()  # decisions with a click on top: another one on the same result counts for nothing
        self.seen: Counter[str] = Counter()

    def check(self, what: str) -> None:
        """Compare the policy's whole state and its pools, after each step."""
        ours, theirs = self.place.record.policy, self.fleet.table[0]
        for name in theirs.dtype.names:
            assert ours[name].tobytes() == theirs[name].tobytes(), f"after {what}: {name}: {ours[name]} and {theirs[name]}"
        assert self.script.ranker.pools[:2].tobytes() == self.fleet.pools.tobytes(), f"after {what}: the pools"

    def pause(self) -> float:
        return self.dice.choice((0.0, 0.3, 1.0, 1.0, 1.0, 2.0, self.dice.expovariate(0.1)))

    def show(self) -> None:
        """Send a request; the service decides which candidate a new one evicts, and the fleet follows."""
        offer = [f"doc-{n}" for n in self.dice.sample(range(CANDIDATES), self.dice.randint(2, 6))]
        if self.dice.random() < 0.8:  # mostly the same candidates, so that the policy learns about them
            offer = [f"doc-{n}" for n in range(4)]
        spike = self.dice.random() < 0.08
        x = [self.dice.random() * (0.3 if not spike else 1.0) for _ in range(FEATURES)]
        before = list(self.place.ids)
        decided = self.script.rank("0", offer, step=self.pause(), signals={f"x{j}": value for j, value in enumerate(x)})
        for arm, name in enumerate(before):
            if name is not None and self.place.ids[arm] != name:
                self.fleet.evict(0, arm)
                self.seen["evicted"] += 1
        mask = sum(1 << self.place.arms[name] for name in offer)
        decision = self.fleet.select(0, x, available=mask, now=self.script.now)
        assert decided.ranking[0] == self.place.ids[decision.arm]
        self.made.append((decided, decision))
        del self.made[:-LATELY]
        self.check("a show")

    def click(self, *, again: bool) -> None:
        """Feedback for a decision of late that got none yet, or further feedback for one that did."""
        some = [pair for pair in self.made if (pair[0].signed.number in self.told) == again]
        if not some:
            return
        decided, decision = self.dice.choice(some)
        self.told.add(decided.signed.number)
        clicked = self.dice.choice((decided.ranking[0], decided.ranking[0], decided.ranking[0], decided.ranking[-1], None))
        self.script.now += self.pause()
        current, number = int(self.place.record.ledger.phase), decided.signed.number
        outcome = self.script.click(decided, clicked)
        if clicked == decided.ranking[0] and number not in self.clicked:
            self.clicked.add(number)
            learnt = self.fleet.reward(0, decision, now=self.script.now)
            assert (outcome == LEARNED) == learnt
            self.seen["of an earlier phase, " + ("learnt" if learnt else "late") if decided.phase != current else "current"] += 1
        elif clicked == decided.ranking[0]:
            self.seen["repeated"] += 1
        elif clicked is not None and not again and outcome != LATE:
            assert outcome == IGNORED  # below the slot that the policy fills
        self.seen["late"] += outcome == LATE
        self.check("a click" + (" told again" if again else ""))

    def shift(self) -> None:
        """Report a shift, as an operator does."""
        self.script.ranker.shift(self.place, self.script.now)
        self.fleet.restart(0)
        self.seen["shifted"] += 1
        self.check("a shift")

    def play(self, steps: int) -> Counter[str]:
        for _ in range(steps):
            luck = self.dice.random()
            if luck < 0.6:
                self.show()
            elif luck < 0.95:
                self.click(again=False)
            elif luck < 0.99:
                self.click(again=True)
            else:
                self.shift()
        self.seen["alarms"] = int(self.place.record.ledger.alarms) - self.seen["shifted"]
        return self.seen


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.usefixtures("uncompiled")
def test_a_fleet_and_the_service_learn_the_same(name: str, seed: int) -> None:
    seen = Both(POLICIES[name], seed).play(500)
    assert min(seen["evicted"], seen["shifted"], seen["late"], seen["current"], seen["repeated"]) > 0
    assert seen["alarms"] > 0 or name == "ts"
    if name in ("swerve", "patient"):  # these do not start over at an alarm: open clicks go into the old record
        assert seen["of an earlier phase, learnt"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_compiled_too(seed: int) -> None:
    seen = Both(POLICIES["patient"], seed).play(2000)
    assert min(seen["evicted"], seen["shifted"], seen["late"], seen["current"], seen["alarms"]) > 0


@pytest.mark.parametrize("owners", [0, 7, 255])
@pytest.mark.usefixtures("uncompiled")
def test_what_another_policy_decided_is_not_this_ones(tmp_path: Path, owners: int) -> None:
    """When another policy is configured, its part of the record starts fresh; clicks on the old policy's decisions stay late."""
    store = open_store(f"sqlite:///{tmp_path / 'swerve.db'}")
    try:
        before, after = Script(ranker(Thompson(), seed=SEED)), Script(ranker(UCB1(), seed=SEED))
        decided = before.rank("0", ["only"])
        place = before.place("0")
        place.record.policy.generation[0] = owners
        (name,) = decided.signed.names
        decided.signed = decided.signed._replace(page=page_of([int(encode(0, owners, 0))], [name]))
        layout = Layouts(store, before.ranker).ids[place.shelf]
        row = Row(place.key, 1, layout, 0, 0, 0.0, place.record.tobytes(), place.names())
        for kept, outcome in ((before, LEARNED), (after, LATE)):
            if kept is after:
                assert Layouts(store, after.ranker).restore(row) is not None
            for _ in range(3):
                assert kept.rank("0", ["only"]).ranking == ["only"]
            state = kept.place("0").record.policy.tobytes()
            assert kept.click(decided, "only") == outcome
            assert (kept.place("0").record.policy.tobytes() == state) == (outcome == LATE)
    finally:
        store.close()
