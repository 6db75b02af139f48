"""Environments by name, as in `swerve simulate --environment traffic`."""

from __future__ import annotations

import re

from swerve.core.errors import SwerveError
from swerve.core.parse import parse, spec_classes
from swerve.core.spec import Spec
from swerve.environments.worlds import world


def environments() -> dict[str, type[Spec]]:
    """Return every environment class by its name on the command line."""
    return {
        re.sub(r"(?<!^)(?=[A-Z])", "-", name).lower(): cls
        for name, cls in spec_classes().items()
        if any(base in world.implementations for base in cls.__mro__)
    }


def environment(text: str) -> Spec:
    """Return an environment from text: a name, with parameters in brackets.

    >>> environment("traffic(queries=10, order=zipf)")
    Traffic(queries=10, order='zipf')
    """
    spec = parse(text, environments(), "environment", world)
    if not world.knows(spec):
        raise SwerveError(f"environment = {text!r} is not allowed; {type(spec).__name__} is no environment")
    return spec
