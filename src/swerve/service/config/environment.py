"""Settings from the environment: `SWERVE__STORE__URL` is `url` of `[store]`.

Names of sections and fields are written in upper or lower case; names that people choose, as in `[namespaces.shop]`, as they are.
A text is taken as it is; every other value is read as TOML.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple, get_args, get_origin

from swerve.core.errors import nearest
from swerve.core.spec import base_of, field_types
from swerve.service.config.fields import Section, hints, issubclass_of, split
from swerve.service.config.learning import Signals
from swerve.service.config.sections import Config, sections
from swerve.service.config.toml import Where, dotted
from swerve.signals import Senses

PREFIX, JOINT = "SWERVE__", "__"
#: Variables of version 0.1 → those in their place. They are refused: a store that is not found would silently be a new one.
RENAMED = {"SWERVE_STORE": "SWERVE__STORE__URL", "SWERVE_HOST": "SWERVE__SERVER__HOST", "SWERVE_PORT": "SWERVE__SERVER__PORT"}
#: What Kubernetes puts into `SWERVE_PORT` of every pod beside a service with the name `swerve`.
LINKED = "tcp://"
#: Names that mean a setting and are none: one underscore before the section, or the prefix in lower case.
SLIP = re.compile(rf"(?-i:(?!SWERVE__))swerve_{{1,2}}({'|'.join(Config.__struct_fields__)})__(?=\w)", re.IGNORECASE)


class Unknown(Exception):  # noqa: N818 - names what was found
    """A variable that names no setting; the message says which one is near."""


class Given(NamedTuple):
    """What the environment sets: the values by their path, the variable of each, and the mistakes in names."""

    values: dict[Where, Any]
    variables: dict[Where, str]
    unreadable: frozenset[Where]  # values that are not TOML, kept as texts so that their field refuses them
    wrong: list[str]


def variable_of(*path: str) -> str:
    """Return the name of the variable of a setting.

    >>> variable_of("store", "url")
    'SWERVE__STORE__URL'
    """
    return PREFIX + JOINT.join(path).upper()


def variables() -> Iterator[str]:
    """Yield the variable of each field of each section."""
    for name, cls in sections().items():
        for field in members(cls):
            yield variable_of(name, field)
    yield variable_of("namespaces")


def members(cls: type[Section]) -> dict[str, Any]:
    """Return the annotation of each field of a section as it is in a file."""
    found = hints(cls)
    if cls is Signals:  # the fields of `Senses` are beside its own
        del found["tuning"]
        found |= {name: base_of(kind)[0] for name, kind in field_types(Senses).items()}
    return found


def setting(variable: str) -> tuple[Where, Any]:
    """Return the path of the setting that a variable names, and its annotation. Raises `Unknown`."""
    annotation: Any = Config
    path: list[str] = []
    for part in variable.removeprefix(PREFIX).split(JOINT):
        base = split(annotation)[0]
        if issubclass_of(base, Section):
            known = members(base)
            if part.lower() not in known:
                names = {*variables(), *(PREFIX + JOINT.join([*map(str.upper, path), name.upper()]) for name in known)}
                raise Unknown(f"unknown variable {variable}{nearest(variable.upper(), sorted(names))}")
            annotation, part = known[part.lower()], part.lower()
        elif get_origin(base) is dict and part:
            annotation = get_args(base)[1]
        else:
            whole = PREFIX + JOINT.join(path).upper()
            raise Unknown(f"unknown variable {variable}; {whole} sets {dotted(tuple(path))} as a whole, as TOML")
        path.append(part)
    return tuple(path), annotation


def is_text(annotation: Any) -> bool:
    """Return whether a setting takes a text: any, or one of some words."""
    base = split(annotation)[0]
    return base is str or (get_origin(base) is Literal and all(isinstance(word, str) for word in get_args(base)))


def toml_value(text: str) -> Any:
    """Return a TOML value. Raises `ValueError` for what is none, and for what is more than one.

    >>> toml_value("[1, 2]"), toml_value("{a = true}")
    ([1, 2], {'a': True})
    """
    try:
        found = tomllib.loads(f"value = {text}")
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if found.keys() != {"value"}:
        raise ValueError("it is more than one value")
    return found["value"]


def given(environ: Mapping[str, str]) -> Given:
    """Return what an environment sets; a table as a whole comes before what is inside it."""
    out = Given({}, {}, frozenset(), [])
    unreadable: set[Where] = set()
    for old, new in RENAMED.items():
        if environ.get(old) and not environ[old].startswith(LINKED):
            out.wrong.append(f"{old} is not used any more; set {new}")
    found: list[tuple[Where, Any, str]] = []
    for variable in sorted(environ):
        if slipped := SLIP.match(variable):
            meant = variable.upper().replace(slipped[0].upper(), f"{PREFIX}{slipped[1].upper()}{JOINT}", 1)
            out.wrong.append(f"{variable} sets nothing; {meant} does")
        elif variable.startswith(PREFIX):
            try:
                found.append((*setting(variable), variable))
            except Unknown as unknown:
                out.wrong.append(str(unknown))
    for where, annotation, variable in sorted(found, key=lambda one: len(one[0])):
        if where in out.variables:
            out.wrong.append(f"{out.variables[where]} and {variable} set the same: {dotted(where)}")
        text: Any = environ[variable]
        if not is_text(annotation):
            try:
                text = toml_value(text)
            except ValueError:
                unreadable.add(where)
        out.values[where], out.variables[where] = text, variable
    return out._replace(unreadable=frozenset(unreadable))


def put(table: dict[str, Any], where: Where, value: Any) -> None:
    """Set a value in nested tables. Where the file has something else than a table on the way, that is refused later."""
    *outer, last = where
    for name in outer:
        inner = table.get(str(name), {})
        if not isinstance(inner, dict):
            return
        table[str(name)] = dict(inner)  # the tables of the document stay as they were read
        table = table[str(name)]
    table[str(last)] = value
