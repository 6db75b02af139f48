"""What can be wrong with what a user asks for, said in one line."""

from __future__ import annotations

from typing import Any


class SwerveError(ValueError):
    """Base of the errors that Swerve raises about its input."""


class SpecError(SwerveError):
    """A field has a value that it cannot have."""

    def __init__(self, owner: str, field: str, value: Any, allowed: str) -> None:
        super().__init__(f"{owner}: {field} = {value!r} is not allowed; {field} must be {allowed}")
        self.owner, self.field, self.value, self.allowed = owner, field, value, allowed
