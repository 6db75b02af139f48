"""Specs: hyper-parameters as plain data, checked when made and packed into one record for compiled code.

A spec is a frozen dataclass whose fields are numbers, other specs, or tables of numbers. Compiled code never sees the object. It
reads `pack(spec)`, an array of one record with the same field names and nesting. The type of the record carries a marker of the
class, and verbs dispatch on that marker, so that a new value of a hyper-parameter does not compile anything.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import typing
from collections.abc import Callable, Iterator
from typing import Annotated, Any, ClassVar, dataclass_transform, get_args, get_origin

import numpy as np

from swerve.core.errors import FieldError, SpecError, nearest
from swerve.core.verbs import MARKERS


@dataclasses.dataclass(frozen=True)
class Range:
    """The numbers that a field may have; `low` and `high` are excluded when `open_low` and `open_high` are set."""

    low: float = -math.inf
    high: float = math.inf
    open_low: bool = False
    open_high: bool = False

    def __contains__(self, value: float) -> bool:
        above = value > self.low if self.open_low else value >= self.low
        below = value < self.high if self.open_high else value <= self.high
        return above and below

    def __str__(self) -> str:
        if self.high == math.inf:
            return f"{'>' if self.open_low else '≥'} {self.low:g}"
        return f"in {'(' if self.open_low else '['}{self.low:g}, {self.high:g}{')' if self.open_high else ']'}"


@dataclasses.dataclass(frozen=True)
class Choice:
    """The words that a field may have. Compiled code reads the index of the word in this list."""

    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"one of {', '.join(self.words)}"


LARGEST = 2**63 - 1  # of a signed 64-bit word

Positive = Annotated[float, Range(0.0, open_low=True)]
NonNegative = Annotated[float, Range(0.0)]
Probability = Annotated[float, Range(0.0, 1.0)]
Gap = Annotated[float, Range(0.0, 1.0, open_low=True, open_high=True)]
Count = Annotated[int, Range(0)]
Natural = Annotated[int, Range(1)]


@dataclass_transform(frozen_default=True)
class Spec:
    """Base of every policy, classifier and environment: subclass it, name the fields, give each a range and a default.

    >>> class Example(Spec):
    ...     rate: Positive = 0.5
    >>> Example(2).rate
    2.0
    >>> Example(-1)
    Traceback (most recent call last):
    swerve.core.errors.SpecError: Example: rate = -1.0 is not allowed; rate must be > 0
    """

    marker: ClassVar[str]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own = "__init__" in vars(cls)  # a class with its own __init__ checks its own arguments
        dataclasses.dataclass(frozen=True, repr=False)(cls)
        if not own:
            cls.__init__ = checked(cls, cls.__init__)  # type: ignore[method-assign]
        # a class that is defined again (a notebook cell run twice) is a different class: compiled code must not mix them up
        name = f"{cls.__module__}.{cls.__qualname__}"
        cls.marker = name if name not in MARKERS else f"{name}#{sum(known.partition('#')[0] == name for known in MARKERS) + 1}"
        MARKERS[cls.marker] = cls

    def __post_init__(self) -> None:
        for name, annotation in field_types(type(self)).items():
            object.__setattr__(self, name, coerced(type(self).__name__, name, annotation, getattr(self, name)))
        self.check()

    def check(self) -> None:
        """Refuse combinations of fields that no single range excludes, with `refuse`."""

    def ordered(self, *names: str) -> None:
        """Refuse a range, given as two fields NAME_low and NAME_high, whose low end is above its high end."""
        for name in names:
            low, high = getattr(self, f"{name}_low"), getattr(self, f"{name}_high")
            if low > high:
                self.refuse(f"{name}_low", f"≤ {name}_high = {high}")

    def refuse(self, field: str, allowed: str) -> typing.NoReturn:
        """Raise the one-line error for `field`, with its value and the allowed values."""
        raise SpecError(type(self).__name__, field, getattr(self, field), allowed)

    def __repr__(self) -> str:
        shown = [
            f"{f.name}={getattr(self, f.name)!r}"
            for f in dataclasses.fields(self)  # type: ignore[arg-type]
            if f.default is dataclasses.MISSING or getattr(self, f.name) != f.default
        ]
        return f"{type(self).__name__}({', '.join(shown)})"


def checked(cls: type, make: Callable[..., None]) -> Callable[..., None]:
    """Return `make`, the `__init__` of a spec class, with one-line errors for unknown, surplus and missing fields."""

    @functools.wraps(make)
    def init(self: Any, *args: Any, **named: Any) -> None:
        owner = cls.__name__
        fields = [field for field in dataclasses.fields(cls) if field.init]
        names = [field.name for field in fields]
        for name in named:
            if name not in names:
                raise FieldError(owner, name, f"unknown parameter {name!r}{nearest(name, names)}", names)
        if len(args) > len(names):
            raise FieldError(owner, "", f"{len(args)} values without a name are too many", names)
        for index, field in enumerate(fields):
            if index < len(args) and field.name in named:
                raise FieldError(owner, field.name, f"{field.name} is given twice", names)
            optional = field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
            if index >= len(args) and field.name not in named and not optional:
                raise FieldError(owner, field.name, f"{field.name} is missing", names)
        make(self, *args, **named)

    return init


_FIELD_TYPES: dict[type, dict[str, Any]] = {}


def field_types(cls: type) -> dict[str, Any]:
    """Return the annotation of each field, with its ranges, in order of definition."""
    if cls not in _FIELD_TYPES:
        hints = typing.get_type_hints(cls, include_extras=True)
        _FIELD_TYPES[cls] = {f.name: hints[f.name] for f in dataclasses.fields(cls)}
    return _FIELD_TYPES[cls]


def base_of(annotation: Any) -> tuple[Any, Range | Choice | None]:
    """Return the bare type of an annotation, and the range or choice that it allows, if any."""
    if get_origin(annotation) is Annotated:
        base, *extras = get_args(annotation)
        return base, next((e for e in extras if isinstance(e, Range | Choice)), None)
    return annotation, None


def coerced(owner: str, name: str, annotation: Any, value: Any) -> Any:
    """Return `value` as the field's type, or raise a one-line error that names the field, the value and the allowed values."""
    base, allowed = base_of(annotation)
    if base is bool:
        if not isinstance(value, bool | np.bool_):
            raise SpecError(owner, name, value, "true or false")
        return bool(value)
    if base is int:
        number = not isinstance(value, bool) and isinstance(value, int | float | np.integer | np.floating)
        if not number or not (isinstance(value, int) or math.isfinite(value)) or value != int(value):
            raise SpecError(owner, name, value, f"a whole number {allowed or ''}".strip())
        value = int(value)
        if not -LARGEST - 1 <= value <= LARGEST:  # compiled code reads 64-bit words
            raise SpecError(owner, name, value, f"{f'{allowed} and ' if allowed else ''}at most 2^63 − 1 in size")
    elif base is float:
        if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
            raise SpecError(owner, name, value, f"a number {allowed or ''}".strip())
        try:
            real = float(value)
        except OverflowError:  # a whole number beyond the largest float
            real = math.inf
        if math.isnan(real) or (math.isinf(real) and (allowed is not None or isinstance(value, int))):
            raise SpecError(owner, name, value, f"a finite number {allowed or ''}".strip())
        value = real
    elif base is str:
        if isinstance(allowed, Choice) and value not in allowed.words:
            raise SpecError(owner, name, value, str(allowed))
        return str(value)
    elif isinstance(base, type) and issubclass(base, Spec):
        if not isinstance(value, base):
            raise SpecError(owner, name, value, f"a {base.__name__}" if base is not Spec else "a policy, classifier or environment")
        return value
    else:  # a table of numbers, or a value that the class checks itself
        return value
    if isinstance(allowed, Range) and value not in allowed:
        raise SpecError(owner, name, value, str(allowed))
    return value


def packed(annotation: Any, value: Any) -> Any:
    """Return a field's value as compiled code reads it: words as numbers, tables as arrays."""
    allowed = base_of(annotation)[1]
    if isinstance(allowed, Choice):
        return allowed.words.index(value)
    if isinstance(value, tuple):
        table = np.asarray(value)
        return table.astype(np.int64 if table.dtype.kind in "iub" else np.float64)
    return value


def params_dtype(spec: Spec) -> np.dtype[Any]:
    """Return the record type of `pack(spec)`: one field per number, nested records for nested specs, and the marker last."""
    fields: list[tuple[Any, ...]] = []
    for name, annotation in field_types(type(spec)).items():
        value = packed(annotation, getattr(spec, name))
        if isinstance(value, Spec):
            fields.append((name, params_dtype(value)))
        elif isinstance(value, np.ndarray):
            fields.append((name, value.dtype, value.shape))
        elif isinstance(value, int | float):
            fields.append((name, "f8" if isinstance(value, float) else "i8"))
        elif not isinstance(value, str):  # a text, such as the name of a file, is for Python alone
            raise TypeError(f"{type(spec).__name__}.{name} = {value!r} cannot be packed for compiled code")
    fields.append((type(spec).marker, "i8"))
    return record_dtype(fields)


#: Equal record types are one object: Numba compares dtypes by identity first, which is fast, and field by field otherwise.
_RECORDS: dict[np.dtype[Any], np.dtype[Any]] = {}


class Record(np.void):  # type: ignore[misc]  # NumPy's stubs call it final; `np.record` is made from it too
    """A record whose fields are attributes, as they are in compiled code. NumPy's own, `np.record`, takes three times as long."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except (ValueError, KeyError):  # the second, from a type without fields
            raise AttributeError(f"a record has no field {name!r}; it has {self.dtype.names}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in (self.dtype.names or ()):
            raise AttributeError(f"a record has no field {name!r}; it has {self.dtype.names}")
        self[name] = value


def record_dtype(fields: list[tuple[Any, ...]]) -> np.dtype[Any]:
    """Return an aligned record type whose scalars have the fields as attributes, as compiled records do.

    NumPy's own attributes hide fields of the same name (`mean`, `shape`, `round`, …), so such names are refused.
    """
    for name, *_ in fields:
        if hasattr(Record, name):
            raise TypeError(f"a record cannot have a field {name!r}: NumPy scalars use that name themselves")
    made = np.dtype((Record, np.dtype(filled(np.dtype(fields, align=True)), align=True)))
    return _RECORDS.setdefault(made, made)


def filled(record: np.dtype[Any]) -> list[tuple[Any, ...]]:
    """Return the fields of an aligned record and its gaps as fields: NumPy does not copy gaps, and states are compared by byte."""
    out: list[tuple[Any, ...]] = []
    end = 0
    for name, (field, offset, *_) in (record.fields or {}).items():
        if offset > end:
            out.append((f"gap{end}", "u1", offset - end))
        out.append((name, field))
        end = offset + field.itemsize
    if record.itemsize > end:
        out.append((f"gap{end}", "u1", record.itemsize - end))
    return out


def pack(spec: Spec) -> np.ndarray[Any, np.dtype[Any]]:
    """Return `spec` as an array of one record for compiled code.

    >>> from swerve.bandits import UCB1
    >>> float(pack(UCB1(alpha=2))[0].alpha)
    2.0
    """
    out = np.zeros(1, params_dtype(spec))
    _fill(out[0], spec)
    return out


def _fill(record: Any, spec: Spec) -> None:
    for name, annotation in field_types(type(spec)).items():
        value = packed(annotation, getattr(spec, name))
        if isinstance(value, Spec):
            _fill(record[name], value)
        elif not isinstance(value, str):
            record[name] = value


def walk(spec: Spec) -> Iterator[Spec]:
    """Yield the spec and every spec inside it, outermost first."""
    yield spec
    for name in field_types(type(spec)):
        value = getattr(spec, name)
        if isinstance(value, Spec):
            yield from walk(value)
