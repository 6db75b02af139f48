"""The kinds of a class, and examples of it to check."""

from __future__ import annotations

import inspect
from typing import Any

from swerve.bandits import UCB1, Testable
from swerve.classifiers import Rectangle
from swerve.conformance import classifiers, detectors, environments, exchanging, policies  # noqa: F401 - they register their checks
from swerve.conformance.checking import Subject, box
from swerve.core.contract import predict, select, watch
from swerve.core.errors import SwerveError
from swerve.core.spec import Spec
from swerve.core.verbs import Verb
from swerve.detectors import GLR
from swerve.environments import world

#: The verb that makes a class one of a kind.
KINDS: dict[str, Verb] = {"policy": select, "classifier": predict, "detector": watch, "environment": world}

#: Parts of a composition, for fields without a default: a bandit, a testable one, a classifier, a sensitive detector.
PARTS: dict[str, list[Spec]] = {
    "bandit": [UCB1(), Testable(UCB1(), length=12)],
    "classifier": [Rectangle(margin=0.2)],
    "detector": [GLR(0.9, 1, 6)],
}


def kinds_of(cls: type[Spec]) -> list[str]:
    """Return the kinds of a class: policy, classifier, detector, environment.

    >>> kinds_of(UCB1), kinds_of(Rectangle), kinds_of(Spec)
    (['policy'], ['classifier'], [])
    """
    return [kind for kind, verb in KINDS.items() if any(base in verb.implementations for base in cls.__mro__)]


def examples_for(cls: type[Spec]) -> list[Subject]:
    """Return specs of a class to check: those of its method `examples`, or one with its defaults and plain parts.

    A static method `contexts` of the class draws contexts of two features for it, from a `random.Random`.
    """
    draw = getattr(cls, "contexts", None) or box
    own = getattr(cls, "examples", None)
    if own is not None:
        made = own()
        if not isinstance(made, list) or not made or not all(isinstance(spec, Spec) for spec in made):
            raise SwerveError(f"{cls.__name__}.examples() = {made!r} is not allowed; it must be a list of specs, at least one")
        return [Subject(spec, draw) for spec in made]
    missing = [name for name, p in inspect.signature(cls).parameters.items() if p.default is inspect.Parameter.empty]
    reason = ""
    for number in range(max([1, *(len(PARTS.get(name, ())) for name in missing)])):
        parts: dict[str, Any] = {name: PARTS[name][min(number, len(PARTS[name]) - 1)] for name in missing if name in PARTS}
        try:
            return [Subject(cls(**parts), draw)]
        except SwerveError as error:
            reason = str(error)
    raise SwerveError(
        f"{cls.__name__} cannot be made ({reason}); give it defaults, or a class method `examples` that returns a list"
    )
