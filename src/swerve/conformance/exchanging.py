"""What holds for the exchange of contributions between workers, for every policy and classifier.

A worker sends all that it has contributed each time. Messages that are repeated, or older than one that was taken up, change
nothing; after lost ones the next has everything. What two workers have learnt is known to both in the end, whoever says it first.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from swerve.conformance.checking import ARMS, FEATURES, Subject, check, need
from swerve.conformance.policies import Plain
from swerve.core import engine
from swerve.core.contract import absorb, begin_contribution, clear, contribute, learn, merge, predict, reward, select, show
from swerve.core.spec import pack
from swerve.core.tables import Table, contribution_dtype, full_mask, pool_dtype, pools_nothing

#: Rounds of a worker between two messages, and messages of each.
ROUNDS, MESSAGES = 40, 3
#: Fields that are scratch space, or whose order has no meaning.
UNORDERED = {"work", "version", "points", "code", "often", "noted"}
#: The largest difference between what two orders of messages teach, as a share of a value: counts fade with later ones, and
#: quantiles follow the contexts in their order.
NEAR = 0.05


class Worker(Plain):
    """A policy that plays queries of its own, and what it has contributed to the pool."""

    def __init__(self, subject: Subject, seed: int) -> None:
        super().__init__(subject.spec, arms=ARMS, features=FEATURES, seed=seed)
        self.owns = fresh(subject)
        self.subject, self.dice, self.rounds = subject, random.Random(seed), 0
        self.known: dict[int, Table] = {}

    def play(self, rounds: int) -> None:
        """Play rounds, with clicks."""
        offer, quiet = np.int64(full_mask(ARMS)), engine.NOWHERE
        for _ in range(rounds):
            self.rounds += 1
            now, x = float(self.rounds), np.array(self.subject.draw(self.dice))
            spec, row = self.params[0], self.table[0]
            engine.consider(spec, row, self.pools, 0, 1, x, int(self.rounds % 40 == 39), now, quiet, self.owns)
            arm = int(select(spec, row, self.pools[0], offer, now))
            show(spec, row, arm, now)
            if self.dice.random() < 0.2 * (arm + 1):
                reward(spec, row, arm, 1.0, now, now)

    def take_up(self, worker: int, own: Table) -> bool:
        """Take up the contribution of another worker; return whether it had anything new."""
        known = self.known.setdefault(worker, np.zeros(1, self.owns.dtype))
        theirs = own.copy()
        if theirs.tobytes() == fresh(self.subject).tobytes() or not engine.novel_one.plain(self.params, theirs, known):
            return False
        engine.take_up_one.plain(self.params, self.pools, 0, 1, theirs, known)
        return True

    @property
    def pool(self) -> bytes:
        """What it knows, as bytes."""
        return self.pools[:1].tobytes()


def fresh(subject: Subject) -> Table:
    """Return an empty contribution."""
    made: Table = np.zeros(1, contribution_dtype(subject.spec, FEATURES))
    begin_contribution(subject.spec, made[0], FEATURES)
    return made


def exchanges(subject: Subject) -> bool:
    """Whether it shares anything that workers exchange."""
    return not pools_nothing(contribution_dtype(subject.spec, FEATURES))


def taught(subject: Subject, seed: int) -> list[Table]:
    """Return what a worker says after each of some rounds."""
    worker, said = Worker(subject, seed), []
    for _ in range(MESSAGES):
        worker.play(ROUNDS)
        said.append(worker.owns.copy())
    return said


def numbers_in(record: Any) -> list[float]:
    """Return the numbers of a record, in order."""
    found: list[float] = []
    for name, (part, *_) in (record.dtype.fields or {}).items():
        if name in UNORDERED:
            continue
        value = record[name]
        if part.base.fields:
            for each in np.atleast_1d(value).reshape(-1):
                found += numbers_in(each)
        else:
            found += [float(each) for each in np.asarray(value).reshape(-1)]
    return found


def near(one: Worker, other: Worker) -> bool:
    """Return whether two workers know nearly the same."""
    left, right = numbers_in(one.pools[0]), numbers_in(other.pools[0])
    return bool(np.allclose(left, right, rtol=NEAR, atol=NEAR))


@check("policy", exchanges)
def contributing_changes_nothing_else(subject: Subject) -> None:
    """what a worker keeps for others changes neither its row nor its pool."""
    one, other = Worker(subject, 1), Worker(subject, 1)
    other.owns = other.owns[:0]
    for worker in (one, other):
        worker.play(2 * ROUNDS)
    need(one.state == other.state, "`contribute` writes to the delta: a worker with others plays otherwise")


@check("policy", exchanges)
def a_repeated_or_late_message_teaches_nothing(subject: Subject) -> None:
    """a contribution that is taken up again, or is older than one that was, changes nothing."""
    said, worker = taught(subject, 2), Worker(subject, 3)
    worker.play(ROUNDS)
    for own in said:
        worker.take_up(7, own)
    before = worker.pool
    for own in reversed(said):
        worker.take_up(7, own)
    need(worker.pool == before, "a contribution that is known teaches something when it is taken up again")


@check("policy", exchanges)
def the_next_message_has_what_was_lost(subject: Subject) -> None:
    """after a lost message the next one has everything."""
    said, every, last = taught(subject, 4), Worker(subject, 5), Worker(subject, 5)
    for worker in (every, last):
        worker.play(ROUNDS)
    for own in said:
        every.take_up(7, own)
    last.take_up(7, said[-1])
    need(near(every, last), "the last contribution alone teaches other things than all of them")


@check("policy", exchanges)
def the_order_of_workers_matters_little(subject: Subject) -> None:
    """workers that have taken up the same know the same, up to the order of what came at the same time."""
    workers = [Worker(subject, seed) for seed in (6, 7, 8)]
    for _ in range(4 * MESSAGES):  # quantiles that began apart take some contexts to come together
        for worker in workers:
            worker.play(ROUNDS)
        said = [worker.owns.copy() for worker in workers]
        for number, worker in enumerate(workers):
            for other in (1, 2) if number != 1 else (2, 1):
                worker.take_up((number + other) % 3, said[(number + other) % 3])
    need(all(near(workers[0], worker) for worker in workers[1:]), "after the same messages workers know different things")


class Classifying:
    """A classifier, with the kernels' source run by Python."""

    def __init__(self, subject: Subject) -> None:
        self.params = pack(subject.spec)
        self.pools = np.zeros(2, pool_dtype(subject.spec, FEATURES))
        engine.begin_pools.plain(self.params, self.pools, FEATURES)

    def meet(self, x: NDArray[np.float64], harmless: bool, owns: Table) -> None:
        """Learn from a context, and contribute that."""
        spec, delta = self.params[0], self.pools[1]
        if harmless:
            learn(spec, delta, x)
        absorb(spec, self.pools[0], delta, x)
        contribute(spec, owns[0], delta)
        merge(spec, self.pools[0], delta)
        clear(spec, delta)

    def asked(self, x: NDArray[np.float64]) -> bool:
        """Return whether a context is positive."""
        return bool(predict(self.params[0], self.pools[0], self.pools[1], x, 0))


@check("classifier", exchanges)
def what_others_have_learnt_is_known(subject: Subject) -> None:
    """one that takes up what another contributes predicts as that one does."""
    learning, other, owns, known = Classifying(subject), Classifying(subject), fresh(subject), fresh(subject)
    stretch = 1.6 if absorb.knows(subject.spec) else 1.0  # safe classifiers take only contexts of their domain
    asked = [np.array([stretch * a - (stretch - 1.0) / 2.0 for a in x]) for x in subject.contexts(80, seed=4)]
    for number, x in enumerate(subject.contexts(5 * ROUNDS, seed=3), 1):
        learning.meet(np.array(x), number % 20 == 0, owns)
        if number % ROUNDS == 0:
            theirs = owns.copy()
            engine.novel_one.plain(other.params, theirs, known)
            engine.take_up_one.plain(other.params, other.pools, 0, 1, theirs, known)
            for each in asked:
                need(learning.asked(each) == other.asked(each), f"after {number} contexts, {each.tolist()} is predicted otherwise")
