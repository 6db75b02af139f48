"""Sections of a configuration as msgspec structs. The annotation of a field is the only source of its docs and its errors."""

from __future__ import annotations

import math
import re
import types
import typing
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin

import msgspec
from msgspec import Meta

from swerve.core.errors import SwerveError, nearest, shown
from swerve.service.config.toml import Where, dotted

#: Credentials in an address: what is between its scheme and the last `@`.
CREDENTIALS = re.compile(r"(?<=://).*@", re.DOTALL)


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of the tables of a configuration file."""


class FieldsError(SwerveError):
    """A field whose value is not allowed together with that of another field."""

    def __init__(self, where: Where, message: str) -> None:
        super().__init__(message)
        self.where = where


class Field(NamedTuple):
    """The documentation of one field."""

    section: str
    name: str
    default: Any
    allowed: str
    meaning: str


def about(meaning: str, *, allowed: str | None = None, pattern: str | None = None, shortest: int | None = None) -> Meta:
    """Return the annotation of a field with its meaning; `allowed` describes a pattern in words."""
    return Meta(description=meaning, extra={"allowed": allowed} if allowed else None, pattern=pattern, min_length=shortest)


def within(low: float, high: float, meaning: str = "", *, open_low: bool = False) -> Meta:
    """Return the annotation of a number from `low` (excluded when `open_low`) to `high`."""
    if open_low:
        return Meta(gt=low, le=high, description=meaning or None)
    return Meta(ge=low, le=high, description=meaning or None)


def split(annotation: Any) -> tuple[Any, list[Meta]]:
    """Return the bare type of an annotation, without the None of an optional field, and its `Meta` objects."""
    said: list[Meta] = []
    while True:
        if get_origin(annotation) is Annotated:
            annotation, *extras = get_args(annotation)
            said += [extra for extra in extras if isinstance(extra, Meta)]
        elif get_origin(annotation) in (types.UnionType, typing.Union):
            (annotation,) = [part for part in get_args(annotation) if part is not type(None)]
        else:
            return annotation, said


def allowed(annotation: Any) -> str:
    """Describe the allowed values of a field.

    >>> allowed(Annotated[int, Meta(ge=2, le=64)]), allowed(Annotated[float, Meta(gt=0, le=60)]), allowed(Literal["a", "b"])
    ('a whole number in [2, 64]', 'a number in (0, 60]', 'one of a, b')
    """
    base, said = split(annotation)
    for meta in said:
        if meta.extra and "allowed" in meta.extra:
            return str(meta.extra["allowed"])
    if base is bool:
        return "true or false"
    if get_origin(base) is Literal:
        return f"one of {', '.join(map(str, get_args(base)))}"
    if base is str:
        return "a text that is not empty" if any(meta.min_length for meta in said) else "a text"
    if base in (int, float):
        noun = "a whole number" if base is int else "a number"
        for meta in said:
            low = meta.ge if meta.gt is None else meta.gt
            if low is not None:
                return f"{noun} in {'[' if meta.gt is None else '('}{low}, {meta.le}]"
        return noun
    inner = get_args(base)
    if get_origin(base) is tuple:
        return "a list of tables" if issubclass_of(inner[0], Section) else f"a list in which each entry is {allowed(inner[0])}"
    if get_origin(base) is dict:
        return f"a table in which each value is {allowed(inner[1])}"
    return "a table"


def issubclass_of(annotation: Any, cls: type) -> bool:
    """Return whether a bare annotation is this class or a subclass."""
    return isinstance(annotation, type) and issubclass(annotation, cls)


def hints(cls: type[Section]) -> dict[str, Any]:
    """Return the annotation of each field, `Meta` included."""
    return typing.get_type_hints(cls, include_extras=True)


def described(section: str, cls: type[Section]) -> Iterator[Field]:
    """Yield the documentation of every field of a section."""
    for field in msgspec.structs.fields(cls):
        annotation = hints(cls)[field.name]
        meaning = next((meta.description for meta in split(annotation)[1] if meta.description), "")
        yield Field(section, field.name, default_of(field), allowed(annotation), meaning)


def default_of(field: msgspec.structs.FieldInfo) -> Any:
    """Return the default of a field; None where it must be set."""
    if field.default is not msgspec.NODEFAULT:
        return field.default
    return None if field.required else field.default_factory()


class Reader:
    """Turns plain tables into sections, and collects all mistakes instead of stopping at the first."""

    def __init__(self) -> None:
        self.wrong: list[tuple[Where, str]] = []

    def refuse(self, where: Where, value: Any, allowed: str, hint: str = "") -> None:
        """Add the mistake that a value is not allowed; credentials in an address are not repeated."""
        if isinstance(value, str):
            value = CREDENTIALS.sub("...@", value)
        self.wrong.append((where, f"{dotted(where)} = {shown(value)} is not allowed; it must be {allowed}{hint}"))

    def only(self, table: dict[str, Any], known: Iterable[str], where: Where) -> dict[str, Any]:
        """Return the known keys of a table; the others are mistakes, with the nearest known key as a hint."""
        known = list(known)
        for name in table:
            if name not in known:
                what = f"unknown key {dotted((*where, name))}{nearest(name, known)} (known: {', '.join(known)})"
                self.wrong.append(((*where, name), what))
        return {name: value for name, value in table.items() if name in known}

    def section(self, cls: type[Section], table: Any, where: Where) -> Any:
        """Return a table as a section. Wrong fields keep their defaults; the mistakes are in `wrong`."""
        required = [field.name for field in msgspec.structs.fields(cls) if field.required]
        known = hints(cls)
        values: dict[str, Any] = {}
        if isinstance(table, dict):
            for name, value in self.only(table, known, where).items():
                before = len(self.wrong)
                read = self.value(known[name], value, (*where, name))
                if len(self.wrong) == before:
                    values[name] = read
            for name in required:
                if name not in table:
                    self.wrong.append((where, f"{dotted(where)}: {name} is missing; it must be {allowed(known[name])}"))
        else:
            self.refuse(where, table, f"a table: [{dotted(where)}]")
        return cls(**values) if set(required) <= set(values) else None

    def value(self, annotation: Any, value: Any, where: Where) -> Any:
        """Convert a value to the type of its field."""
        base, _ = split(annotation)
        if issubclass_of(base, Section):
            return self.section(base, value, where)
        if get_origin(base) is tuple and isinstance(value, list):
            inner = get_args(base)[0]
            return tuple(self.value(inner, item, (*where, index)) for index, item in enumerate(value))
        if get_origin(base) is dict and isinstance(value, dict):
            name, inner = get_args(base)
            for key in value:
                if not fits(name, key):
                    self.wrong.append(((*where, key), f"the name {shown(key)} in {dotted(where)} must be {allowed(name)}"))
            return {key: self.value(inner, item, (*where, key)) for key, item in value.items()}
        if not fits(annotation, value):
            words = get_args(base) if get_origin(base) is Literal else ()
            self.refuse(where, value, allowed(annotation), nearest(value, words) if isinstance(value, str) else "")
            return None
        return msgspec.convert(value, annotation)


def fits(annotation: Any, value: Any) -> bool:
    """Return whether a single value has the type and is in the range. Infinity and NaN, which TOML allows, never are."""
    if isinstance(value, float) and not math.isfinite(value):
        return False
    try:
        msgspec.convert(value, annotation)
    except msgspec.ValidationError:
        return False
    return True
