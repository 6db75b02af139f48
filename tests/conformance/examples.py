"""Everything registered, found by walking the package, with an example of each class.

A class that can be made without arguments needs no line here. One that cannot, or whose defaults are too large for a test, has one.
The first example of a class is the one that every run of the tests compiles.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
import random
from collections.abc import Callable

import swerve
from swerve import BWC, UCB1, ExploreFirst, Finite, Matrix, Oracle, Spec, SwerveError, Testable, Thompson
from swerve.conformance import CHECKS, Check, Subject
from swerve.core.contract import predict, select, watch
from swerve.core.verbs import MARKERS, Verb
from swerve.environments import world

#: The packages of policies, classifiers and environments.
PACKAGES = ("bandits", "classifiers", "detectors", "policies", "environments", "signals")

L = 12
TABLE = tuple(tuple(random.Random(i).choices((-1, 1, 0), k=6)) for i in range(9))

EXAMPLES: dict[str, Callable[[], list[Spec]]] = {
    "Testable": lambda: [Testable(UCB1(), L), Testable(Thompson(), L)],
    "ExploreFirst": lambda: [ExploreFirst(UCB1(), L)],
    "Oracle": lambda: [Oracle(UCB1())],
    "RestartingList": lambda: [
        cls_named("RestartingList")(cls_named("CascadeKLUCB")(), cls_named("GLR")(0.9, 1, 6), exploration=0.3),
        cls_named("RestartingList")(cls_named("DCMKLUCB")(), cls_named("CUSUM")(5, 0.05, 1.0)),
    ],
    "Top": lambda: [cls_named("Top")(UCB1())],
    "BWC": lambda: (
        [
            BWC(Testable(UCB1(), L), classifier)
            for classifier in sorted(classifiers(), key=lambda c: type(c).__name__ != "Rectangle")
        ]
        + [BWC(ExploreFirst(UCB1(), L), swerve.Told(), 5)]
    ),
    "Restarting": lambda: [
        *[
            cls_named("Restarting")(Thompson(), detector)
            for detector in sorted(detectors(), key=lambda d: type(d).__name__ != "GLR")
        ],
        cls_named("Restarting")(UCB1(), cls_named("CUSUM")(5, 0.05, 1.0), "arm"),
        cls_named("Restarting")(BWC(Testable(UCB1(), L), swerve.Told()), cls_named("CUSUM")(5, 0.05, 1.0)),
    ],
    "Swerve": lambda: [  # tests, verdicts and suspicions must occur within the few rounds of a unit test
        cls_named("Swerve")(
            examples_of(cls_named("QuantileBox"))[0],
            cls_named("Split")(0.01, 1.0),  # as long as that of the default: the same code
            verdict_after=12,
            revise_until=40,
            min_test_rounds=4,
        ),
        cls_named("Swerve")(
            swerve.Rectangle(margin=0.2), cls_named("Blind")(), verdict_after=12, revise_until=40, min_test_rounds=4
        ),
    ],
    "Patient": lambda: [cls_named("Patient")(Thompson(), 9.0), cls_named("Patient")(examples_of(cls_named("Swerve"))[0])],
    "Listed": lambda: [cls_named("Listed")(examples_of(cls_named("Swerve"))[0])],
    "Forced": lambda: [
        cls_named("Forced")(UCB1(), 0.3, rate_grows=True),
        cls_named("Forced")(Thompson(), 0.3, "random"),
    ],
    "CUSUM": lambda: [cls_named("CUSUM")(10, 0.05, 2.0)],  # sensitive: an alarm must occur within the few rounds of a unit test
    "GLR": lambda: [cls_named("GLR")(0.9, 1, 6), cls_named("GLR")(0.9, 3, 12)],
    "BOCPD": lambda: [cls_named("BOCPD")(0.9, 1, 6)],
    "MUCB": lambda: [cls_named("MUCB")(12, 3.0)],
    "Split": lambda: [cls_named("Split")(0.01, 1.0, 6)],
    "SWUCB": lambda: [cls_named("SWUCB")(40)],
    "SWTS": lambda: [cls_named("SWTS")(40)],
    "DUCB": lambda: [cls_named("DUCB")(0.9)],
    "DTS": lambda: [cls_named("DTS")(0.2)],  # weights are rescaled within the few rounds of a unit test
    "Finite": lambda: [Finite(Matrix(TABLE))],
    "Matrix": lambda: [Matrix(TABLE)],
    "QuantileBox": lambda: [
        cls_named("QuantileBox")(outer_tail=0.1, inner_tail=0.3, tail_factor=0.1, warmup_contexts=20)
    ],  # alarms occur within the rounds of a unit test
    "Hull": lambda: [cls_named("Hull")(margin=0.05, max_points=24)],
    "Traffic": lambda: [
        cls_named("Traffic")(queries=3, impressions=900, results=4, shifting_share=1.0, features=2, order="zipf"),
        cls_named("Traffic")(queries=2, impressions=600, features=3, shifting_share=1.0, oracle="hyperplane"),
    ],
    "Shifts": lambda: [
        cls_named("Shifts")(
            queries=3,
            impressions=900,
            results=4,
            shifting_share=1.0,
            features=2,
            silent_share=0.3,
            spurious_share=0.05,
            lag_rounds=20,
        ),
        cls_named("Shifts")(
            queries=3,
            impressions=900,
            shifting_share=0.3,
            bursting_share=0.3,
            burst_every=50,
            features=3,
            moves="one",
            edge_drift=0.1,
        ),
        cls_named("Shifts")(
            queries=2,
            impressions=900,
            shifting_share=1.0,
            events_high=3,
            features=2,
            moves="return",
            poison_share=0.1,
            glide_rounds=40,
            missing_share=0.2,
            extreme_share=0.05,
        ),
    ],
    "Pages": lambda: [
        cls_named("Pages")(queries=3, impressions=900, results=6, slots=4, features=2, silent_share=0.3, spurious_share=0.05),
        cls_named("Pages")(queries=2, impressions=600, results=12, features=2, moves="one", clicks="pbm", engine=float("inf")),
        cls_named("Pages")(
            queries=2, impressions=600, results=16, slots=3, features=2, moves="intents", value="click", clicks="dcm"
        ),
        cls_named("Pages")(queries=2, impressions=600, results=5, slots=5, features=2, clicks="cascade", right_share=0.5),
    ],
    "Hurricane": lambda: [cls_named("Hurricane")(impressions=600)],
    "Series": lambda: [cls_named("Series")("series.csv", rounds=100, features=2, announced=True)],
    "SingleEvent": lambda: [cls_named("SingleEvent")(horizon=400, features=2)],
    "ManyPhases": lambda: [cls_named("ManyPhases")(horizon=400, phases=4, features=2)],
    "FalsePositives": lambda: [cls_named("FalsePositives")(horizon=400, features=2)],
    "OutsideClass": lambda: [cls_named("OutsideClass")(horizon=400, features=2)],
}

#: Contexts for classifiers that do not accept every point of [0, 0.7]², which lies in both unit balls.
CONTEXTS: dict[str, Callable[[random.Random], list[float]]] = {"Finite": lambda dice: [float(dice.randrange(6)), 0.0]}


@functools.cache
def import_all() -> None:
    """Import every module that registers something."""
    for found in pkgutil.walk_packages(swerve.__path__, "swerve."):
        if found.name.split(".")[1] in PACKAGES:
            importlib.import_module(found.name)


def load() -> list[type[Spec]]:
    """Every spec class of the package, in a stable order."""
    import_all()
    ours = [cls for cls in MARKERS.values() if cls.__module__.startswith("swerve.")]
    return sorted(set(ours), key=lambda cls: (cls.__module__, cls.__qualname__))


def cls_named(name: str) -> type:
    return next(cls for cls in load() if cls.__name__ == name)


def examples_of(cls: type[Spec]) -> list[Spec]:
    if cls.__name__ in EXAMPLES:
        return EXAMPLES[cls.__name__]()
    try:
        return [cls()]
    except SwerveError:
        where = "EXAMPLES in tests/conformance/examples.py"
        raise AssertionError(f"{cls.__module__}.{cls.__name__} needs arguments to be made: give it a line in {where}") from None


def with_verb(verb: Verb) -> list[Spec]:
    return [spec for cls in load() if any(base in verb.implementations for base in cls.__mro__) for spec in examples_of(cls)]


def policies() -> list[Spec]:
    return with_verb(select)


def classifiers() -> list[Spec]:
    return with_verb(predict)


def detectors() -> list[Spec]:
    return with_verb(watch)


def environments() -> list[Spec]:
    return with_verb(world)


def of_kind(kind: str) -> list[Check]:
    """Return the checks of a kind."""
    return CHECKS[kind]


def subject_of(spec: Spec) -> Subject:
    """Return a spec with contexts that it accepts."""
    return Subject(spec, contexts_for(spec))


def label(spec: Spec) -> str:
    """Return the class names of a spec, nested like the spec."""
    inner = [label(value) for value in vars(spec).values() if isinstance(value, Spec)]
    return type(spec).__name__ + (f"({', '.join(inner)})" if inner else "")


def contexts_for(spec: Spec) -> Callable[[random.Random], list[float]]:
    """Return random contexts of two features that the spec accepts."""
    for part in (spec, getattr(spec, "classifier", None)):
        if type(part).__name__ in CONTEXTS:
            return CONTEXTS[type(part).__name__]
    return lambda dice: [0.7 * dice.random(), 0.7 * dice.random()]
