"""The contract of every combinator: it passes each verb on to the bandit inside, or is listed as an exception."""

from __future__ import annotations

import functools
import sys

import numpy as np
import pytest
from conformance.examples import cls_named, examples_of, load
from numba import njit

from swerve import BWC, UCB1, Never, Oracle, Spec, Testable, Thompson
from swerve.core.contract import (
    absorb,
    begin,
    begin_pool,
    blame,
    clear,
    contribution_layout,
    layout,
    mean_of,
    merge,
    plays_of,
    pool_layout,
    reward,
    select,
    starts,
)
from swerve.core.engine import decide
from swerve.core.pages import HOLDING, redraw
from swerve.core.spec import field_types, pack
from swerve.core.tables import contribution_dtype, full_mask, pool_dtype, row_dtype
from swerve.core.verbs import MARKERS, WRAPPING, Verb

N, D = 4, 2
ARMS, FEATURES = 8, 8

#: Verbs that a combinator answers by itself, with the reason.
OWN = {
    ("BWC", "blame"): "alarms are those of its classifier",
    ("BWC", "reads_context"): "it reads contexts whatever the bandit does",
    ("BWC", "joins"): "what queries share is its classifier; the bandit inside must share nothing",
    ("Oracle", "needs_events"): "what it is for",
    ("Testable", "guess"): "what it is for",
    ("Testable", "test_length"): "its field",
    ("ExploreFirst", "guess"): "what it is for",
    ("ExploreFirst", "test_length"): "its field",
}


class Probe(Spec):
    """A bandit that implements every verb, and records the verbs that were called."""


def all_verbs() -> list[Verb]:
    """Return every verb that is a name in a module of the package."""
    load()
    ours = [module for name, module in list(sys.modules.items()) if name.startswith("swerve.")]
    found = {id(value): value for module in ours for value in vars(module).values() if isinstance(value, Verb)}
    return sorted(found.values(), key=lambda verb: verb.__name__)


VERBS = all_verbs()
ASKED: set[str] = set()
ANSWERS = {"guess": (0, 0), "test_length": 5, "room": ARMS, "played": 100, "domain": True, "reads_context": True, "plays_of": 1}


def noting(verb):
    """Return the probe's implementation of a verb."""

    def answer(spec, *args):
        assert isinstance(spec, Probe), f"{verb} was asked with another spec"
        for name, value in zip(verb.parameters[1:], args, strict=True):
            if name in ("row", "pool", "delta", "own", "theirs", "known"):
                assert value.dtype.names == ("probe",), f"{verb}: {name} is not the bandit's part"
        ASKED.add(verb.__name__)
        return [("probe", "i8")] if verb in (layout, pool_layout, contribution_layout) else ANSWERS.get(verb.__name__, 0)

    return answer


@pytest.fixture(scope="module", autouse=True)
def _known():
    """Register the probe in these tests only: otherwise it would be listed as a policy, a classifier and an environment."""
    for verb in VERBS:
        verb.register(Probe)(noting(verb))
    yield
    for verb in VERBS:
        del verb.implementations[Probe]
    del MARKERS[Probe.marker]


#: By default a combinator fills a page by its own choice of the top, so that the bandit inside is asked for that. `Patient` hands
#: plays over later.
THROUGH = {
    "order": {"select"},
    "present": {"show", "hand"},
    "respond": {"reward", "hand"},
    "present_and_respond": {"present", "respond", "show", "reward", "hand"},
    "show": {"hand"},
    "reward": {"hand"},
    "settle": {"hand"},
}

#: `RestartingList` and `Listed` read records of their bandits, which the probe does not have:
#: tests/policies/test_restarting_list.py and test_listed.py.
WRAPPERS = [cls for cls in load() if "bandit" in field_types(cls) and cls.__name__ not in ("RestartingList", "Listed")]
EVERY = pytest.mark.parametrize("cls", WRAPPERS, ids=lambda cls: cls.__name__)


def around(cls, bandit):
    """Return an example of the class with this bandit inside."""
    example = examples_of(cls)[0]
    return cls(**{name: getattr(example, name) for name in field_types(cls)} | {"bandit": bandit})


class Tables:
    """A row and a pool of a policy, for calling its verbs."""

    def __init__(self, spec):
        self.spec = spec
        self.table, self.pools = np.zeros(1, row_dtype(spec, N, D)), np.zeros(2, pool_dtype(spec, D))
        self.contributions = np.zeros(3, contribution_dtype(spec, D))
        begin(spec, self.table[0], np.uint64(7))
        begin_pool(spec, self.pools[0], D)

    def play(self, t, told):
        """Play a round, a hundred seconds after the previous one."""
        now, offer = 100.0 * t, np.int64(full_mask(N))
        return decide(self.spec, self.table[0], self.pools, 0, 1, np.zeros(D), int(told), offer, now)[0]

    def ask(self, verb):
        """Call the verb with a value for every argument."""
        fitting = {
            "spec": self.spec,
            "row": self.table[0],
            "pool": self.pools[0],
            "delta": self.pools[1],
            **{name: self.contributions[number] for number, name in enumerate(("own", "theirs", "known"))},
            "arms": ARMS,
            "features": FEATURES,
            "word": np.uint64(7),
            "d": D,
            "available": np.int64(full_mask(N)),
            "x": np.zeros(D),
            "told": 1,
            "arm": 0,
            "value": 1.0,
            "shown": 1e6,
            "now": 1e6,
        }
        return verb(*[fitting.get(name) for name in verb.parameters])


@functools.cache
def asked_in_a_life(cls):
    """Return the verbs called on a bandit inside when its combinator begins and plays, long enough for plays that are held back."""
    ASKED.clear()
    tables = Tables(around(cls, Probe()))
    for t in range(8):
        arm = tables.play(t, told=t == 5)
        reward(tables.spec, tables.table[0], arm, 1.0, 100.0 * t, 100.0 * t)
    return frozenset(ASKED)


def test_every_combinator_is_a_wrapping_and_is_tried():
    assert {cls.__name__ for cls in WRAPPERS} >= {"Testable", "ExploreFirst", "Forced", "BWC", "Oracle", "Restarting", "Patient"}
    assert set(WRAPPERS) <= set(WRAPPING)
    assert {(cls.__name__, verb.__name__) for cls in WRAPPERS for verb in VERBS} >= set(OWN)


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.__name__)
@EVERY
def test_every_verb_reaches_the_bandit_inside_or_is_withheld_by_name(cls, verb):
    spec = around(cls, Probe())
    if verb in WRAPPING[cls]:
        assert not verb.knows(spec)
        return
    assert verb.knows(spec)
    if (cls.__name__, verb.__name__) in OWN:
        assert cls in verb.implementations
        return
    # a combinator has the verbs of held pages in terms of its own; its `order` is its own, so that a page of the bandit inside,
    # drawn again, is not what it would show
    if verb in HOLDING or verb is redraw:
        assert cls in verb.implementations
        return
    if ({verb.__name__} | THROUGH.get(verb.__name__, set())) & asked_in_a_life(cls):
        return
    tables = Tables(spec)
    ASKED.clear()
    tables.ask(verb)
    assert verb.__name__ in ASKED, f"{cls.__name__} has lost {verb}"


@EVERY
def test_what_the_bandit_does_not_know_its_combinator_does_not_claim(cls):
    """Compositions are checked with `knows`."""
    spec = around(cls, Testable(UCB1(), length=5))
    exp3s = cls_named("EXP3S")()
    assert not any(verb.knows(spec) for verb in VERBS if verb.__name__ in ("predict", "watch", "world", "concepts"))
    if cls.__name__ in ("Oracle", "Forced", "Restarting"):
        assert mean_of.knows(spec)
        assert plays_of.knows(spec)
        assert not mean_of.knows(around(cls, exp3s))
        assert not plays_of.knows(around(cls, exp3s))
        assert select.knows(around(cls, exp3s))


@EVERY
def test_a_blamed_feature_is_the_classifiers_compiled_too(cls):
    """A feature that is too low raises an alarm, under every combinator that accepts BWC."""
    bwc = BWC(
        Testable(Thompson(), length=5),
        cls_named("QuantileBox")(outer_tail=0.1, inner_tail=0.3, tail_factor=0.1, warmup_contexts=20),
    )
    if cls in (BWC, Testable, cls_named("ExploreFirst")):
        spec = bwc if cls is BWC else BWC(around(cls, Thompson()), bwc.classifier)
    else:
        spec = around(cls, bwc)
    tables = Tables(spec)
    pool = tables.pools[0]
    while "classifier" not in pool.dtype.names:
        pool = pool["bandit"]
    low = np.array([0.5, -5.0])
    for t in range(400):
        x = np.array([t % 20 / 20.0, t * 7 % 20 / 20.0])
        step(bwc.classifier, pool["classifier"], x)
    params = pack(spec)
    compiled = njit(lambda params, pools, x: blame(params[0], pools[0], x))
    assert blame(bwc.classifier, pool["classifier"], low) == 1
    assert blame(spec, tables.pools[0], low) == 1
    assert compiled(params, tables.pools, low) == 1


def step(classifier, pool, x):
    """Show the classifier one more context."""
    delta = np.zeros(1, pool.dtype)[0]
    if absorb(classifier, pool, delta, x):
        merge(classifier, pool, delta)
        clear(classifier, delta)


def test_starts_of_a_bandit_under_bwc_count():
    """A click from before the bandit inside started over must not be learnt."""
    spec = BWC(Testable(Oracle(UCB1()), length=500), Never())
    tables, begun = Tables(spec), []
    for t in range(6):
        tables.play(t, told=t == 3)
        begun.append(int(starts(spec, tables.table[0])))
    assert begun[2] < begun[3] == begun[5]
