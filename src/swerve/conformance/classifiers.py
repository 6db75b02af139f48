"""What holds for every classifier.

There are two kinds. Classifiers that learn from labels are join semilattices: merging the same data twice, or in any order, changes
nothing, and a stale copy never misses an event. Classifiers that absorb contexts without a label count them: their deltas add up,
so merging a delta twice would count it twice, and a stale copy may miss an event. For both, an empty delta is neutral, and the
deltas of several writers may come in any order.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Collection, Iterator

import numpy as np

from swerve.classifiers.learner import Learner, absorb_one
from swerve.conformance.checking import FEATURES, Subject, check, need, reads_back
from swerve.core import engine
from swerve.core.contract import absorb, clear, learn, merge, pool_layout
from swerve.core.errors import SwerveError

Context = list[float]


def absorbs(subject: Subject) -> bool:
    """Whether it learns from contexts without a label."""
    return absorb.knows(subject.spec)


def safe(subject: Subject) -> bool:
    """Whether it learns from labels alone."""
    return not absorb.knows(subject.spec)


def reads(subject: Subject) -> bool:
    """Whether it reads features."""
    return pool_layout.knows(subject.spec)


def learns(subject: Subject) -> bool:
    """Whether labels teach it."""
    return learn.knows(subject.spec)


def taught(subject: Subject, false: list[Context]) -> Learner:
    """Return a classifier after these false labels."""
    learner = Learner(subject.spec, d=FEATURES)
    for x in false:
        learner.learn(x)
    return learner


def after(subject: Subject, contexts: list[Context]) -> Learner:
    """Return a classifier after these contexts without a label."""
    learner = Learner(subject.spec, d=FEATURES)
    for x in contexts:
        learner.absorb(x)
    return learner


def holes(x: Context, where: Collection[int]) -> Context:
    """Return the context with these features missing."""
    return [math.nan if j in where else value for j, value in enumerate(x)]


def several(subject: Subject) -> Iterator[Learner]:
    """Yield an empty classifier, a taught one, and one after many contexts."""
    yield Learner(subject.spec, d=FEATURES)
    learner = taught(subject, subject.contexts(5))
    yield learner.copy()
    for x in subject.contexts(100, seed=3):
        learner.absorb(x)
    yield learner


def byte_for_byte(subject: Subject, missing: float) -> None:
    """Fail unless compiled and interpreted code have the same bytes after each of 150 contexts."""
    fast, slow = Learner(subject.spec, d=FEATURES), Learner(subject.spec, d=FEATURES)
    engine.begin_pools.plain(slow.params, slow.pools, FEATURES)
    dice = random.Random(5)
    for i, whole in enumerate(subject.contexts(150)):
        x = holes(whole, {j for j in (0, 1) if dice.random() < missing})
        spot = np.array(x)
        positive = engine.predict_one.plain(slow.params, slow.pools, 0, 1, spot)
        need(positive >= 0, f"the context {x} is outside its domain: give the class a static method `contexts`")
        need(fast.predict(x) == bool(positive), f"context {i}, {x}: compiled and interpreted predictions differ")
        if positive and i % 2:
            fast.learn(x)
            engine.learn_one.plain(slow.params, slow.pools, 0, 1, spot)
        fast.absorb(x)
        absorb_one.plain(slow.params, slow.pools, 0, 1, spot)
        need(fast.pools.tobytes() == slow.pools.tobytes(), f"context {i}, {x}: the compiled and the interpreted pool differ")


@check("classifier")
def compiled_equals_interpreted(subject: Subject) -> None:
    """compiled and interpreted give the same bytes."""
    need(not Learner(subject.spec, d=FEATURES).pools.dtype.hasobject, "the layout of its pool has Python objects")
    byte_for_byte(subject, 0.0)


@check("classifier")
def compiled_equals_interpreted_with_holes(subject: Subject) -> None:
    """compiled and interpreted give the same bytes where features are missing (NaN)."""
    byte_for_byte(subject, 0.3)


@check("classifier")
def asking_changes_nothing(subject: Subject) -> None:
    """asking changes nothing that is known."""
    learner = taught(subject, subject.contexts(5))
    for x in subject.contexts(40, seed=7):
        learner.absorb(x)
    before = learner.pools[0].tobytes()
    asked = subject.contexts(20, seed=1)
    first = [learner.predict(x) for x in asked]
    need(learner.pools[0].tobytes() == before, "`predict` writes to the pool")
    need([learner.predict(x) for x in asked] == first, "the same contexts are predicted otherwise when asked again")


@check("classifier", learns)
def what_was_called_harmless_is_negative(subject: Subject) -> None:
    """what was called harmless is negative."""
    learner = Learner(subject.spec, d=FEATURES)
    for x in subject.contexts(15):
        learner.learn(x)
        need(not learner.predict(x), f"{x} is positive right after it was called harmless")


@check("classifier", learns)
def a_stale_copy_never_misses(subject: Subject) -> None:
    """a stale copy is positive wherever an up-to-date one is."""
    false, asked = subject.contexts(12), subject.contexts(60, seed=2)
    fresh = taught(subject, false)
    for known in range(len(false)):
        stale = taught(subject, false[:known])
        for x in asked:
            need(stale.predict(x) or not fresh.predict(x), f"{x} is negative with {known} labels and positive with {len(false)}")


@check("classifier", safe)
def merges_are_joins(subject: Subject) -> None:
    """`merge` commutes, associates and repeats harmlessly on predictions."""
    parts = [taught(subject, subject.contexts(4, seed=s)) for s in (3, 4, 5)]
    asked = subject.contexts(60, seed=6)
    answers = set()
    for order in itertools.permutations(parts):
        left = order[0].copy()
        left.merge(order[1])
        left.merge(order[2])
        left.merge(order[0])
        tail = order[1].copy()
        tail.merge(order[2])
        right = order[0].copy()
        right.merge(tail)
        right.merge(right.copy())
        answers |= {tuple(left.predict(x) for x in asked), tuple(right.predict(x) for x in asked)}
    need(len(answers) == 1, f"merges of three parts in different orders give {len(answers)} different classifiers")
    together = taught(subject, [x for s in (3, 4, 5) for x in subject.contexts(4, seed=s)])
    need(answers == {tuple(together.predict(x) for x in asked)}, "merged parts differ from one that has learnt everything")


@check("classifier", safe)
def no_label_teaches_nothing(subject: Subject) -> None:
    """a context without a label teaches nothing."""
    learner = taught(subject, subject.contexts(5))
    before = learner.pools.tobytes()
    for x in subject.contexts(5, seed=8):
        learner.absorb(x)
    need(learner.pools.tobytes() == before, "contexts without a label change the pool although `absorb` is not registered")


@check("classifier", absorbs)
def an_empty_delta_is_neutral(subject: Subject) -> None:
    """an empty delta is neutral, and a cleared one is empty."""
    spec, seen, fresh = subject.spec, after(subject, subject.contexts(50)), Learner(subject.spec, d=FEATURES)
    known, delta = seen.pools[:1].copy(), fresh.pools[1:].copy()
    merge(spec, known[0], delta[0])
    need(known.tobytes() == seen.pools[:1].tobytes(), "merging an empty delta changes the pool")
    for x in subject.contexts(5, seed=1):
        need(absorb(spec, known[0], delta[0], np.array(x)), "`absorb` says that there is nothing to fold")
    need(delta.tobytes() != fresh.pools[1:].tobytes(), "`absorb` writes nothing to the delta")
    need(known.tobytes() == seen.pools[:1].tobytes(), "`absorb` writes to the pool, before the fold")
    clear(spec, delta[0])
    need(delta.tobytes() == fresh.pools[1:].tobytes(), "a cleared delta is not an empty one")


@check("classifier", absorbs)
def deltas_come_in_any_order(subject: Subject) -> None:
    """the deltas of several writers may come in any order."""
    spec, known, deltas = subject.spec, after(subject, subject.contexts(500)), []
    for writer in range(3):
        delta = Learner(spec, d=FEATURES).pools[1:]
        for x in subject.contexts(10, seed=10 + writer):
            absorb(spec, known.pools[0], delta[0], np.array(x))
        deltas.append(delta)
    asked = [[1.6 * a - 0.3, 1.6 * b - 0.3] for a, b in subject.contexts(100, seed=20)]
    answers = set()
    for order in itertools.permutations(deltas):
        joined = known.copy()
        for delta in order:
            merge(spec, joined.pools[0], delta[0])
        for x in subject.contexts(100, seed=30):
            joined.absorb(x)
        answers.add(tuple(joined.predict(x) for x in asked))
    need(len(answers) == 1, f"three deltas in different orders give {len(answers)} different classifiers")


@check("classifier")
def infinite_contexts_are_refused(subject: Subject) -> None:
    """a context that is infinite is refused."""
    learner = Learner(subject.spec, d=FEATURES)
    for verb in (learner.predict, learner.learn, learner.absorb, learner.blame):
        for x in ([0.0, math.inf], [0.0, -math.inf], [math.nan, math.inf]):
            try:
                verb(x)
            except SwerveError:
                continue
            need(False, f"{x} is taken by {verb.__name__}: its `domain` must leave out infinite numbers")


NOTHING = [math.nan, math.nan]


@check("classifier", reads)
def no_features_are_negative(subject: Subject) -> None:
    """a context without features is negative and teaches nothing."""
    for learner in several(subject):
        before = learner.pools[0].tobytes()
        need(not learner.predict(NOTHING), "a context without any feature is positive")
        learner.learn(NOTHING)
        learner.absorb(NOTHING)
        need(learner.pools[0].tobytes() == before, "a context without any feature changes what is known")
        need(learner.blame(NOTHING) == 0, "a feature beyond the first is blamed although all are missing")


@check("classifier", reads)
def a_missing_feature_raises_no_alarm(subject: Subject) -> None:
    """a missing feature raises no alarm, and is never blamed."""
    for learner in several(subject):
        for x in subject.contexts(60, seed=11):
            for hole in (0, 1):
                spot = holes([1.4 * value for value in x] if absorbs(subject) else x, {hole})
                if learner.predict(spot):
                    need(learner.blame(spot) != hole, f"{spot} is positive, and its missing feature {hole} is blamed")


@check("classifier", safe)
def positive_with_a_hole_is_positive(subject: Subject) -> None:
    """a positive context with a missing feature stays positive for every value of that feature."""
    for learner in several(subject):
        for x in subject.contexts(40, seed=12):
            for hole in (0, 1):
                if learner.predict(holes(x, {hole})):
                    for other in subject.contexts(10, seed=13):
                        filled = [other[j] if j == hole else value for j, value in enumerate(x)]
                        need(learner.predict(filled), f"{holes(x, {hole})} is positive and {filled} is not")


@check("classifier", learns)
def a_hole_hides_no_value(subject: Subject) -> None:
    """a label of a context with holes hides no value of what was missing."""
    for hole in (0, 1):
        learner, fresh = Learner(subject.spec, d=FEATURES), Learner(subject.spec, d=FEATURES)
        for x in subject.contexts(10):
            learner.learn(holes(x, {hole}))
        for x in subject.contexts(40, seed=14):
            alone = holes(x, {1 - hole})
            need(learner.predict(alone) == fresh.predict(alone), f"labels without feature {hole} change the prediction of {alone}")


@check("classifier", safe)
def merges_with_holes_are_joins(subject: Subject) -> None:
    """with holes merges commute, and a stale copy never misses."""
    dice = random.Random(6)
    false = [holes(x, {j for j in (0, 1) if dice.random() < 0.3}) for x in subject.contexts(12)]
    asked = subject.contexts(60, seed=15)
    asked += [holes(x, {k % 2}) for k, x in enumerate(asked)]
    one, two = taught(subject, false[:6]), taught(subject, false[6:])
    left, right = one.copy(), two.copy()
    left.merge(two)
    right.merge(one)
    right.merge(two)
    together = taught(subject, false)
    for x in asked:
        need(
            left.predict(x) == right.predict(x) == together.predict(x), f"{x} is predicted otherwise after merges in another order"
        )
        need(one.predict(x) or not together.predict(x), f"{x} is negative for a stale copy and positive for the whole")


@check("classifier")
def its_text_reads_back(subject: Subject) -> None:
    """its text reads back."""
    reads_back(subject.spec, "classifier")
