"""Explanations of decoder errors: which field is wrong, what was sent, what is allowed.

msgspec names neither the missing field's path nor the allowed values, and it writes `[...]` for the keys of an object. `explained`
finds the value in the request and describes the field from the type that it is decoded into.
"""

from __future__ import annotations

import functools
import re
from typing import Any, NamedTuple

import msgspec
from msgspec import inspect

from swerve.core.errors import nearest

#: Characters of a sent value that an error message repeats: enough to recognise it.
MOST_SHOWN = 60
#: Bytes of a body in which the wrong value is looked for: more would hold the event loop for milliseconds. In a larger body the
#: message has the value's type only.
MOST_SEARCHED = 65_536

#: One step of a msgspec path: `.field`, `[index]` or `[...]` (some key of an object).
STEP = re.compile(r"\.(?P<field>\w+)|\[(?P<index>\d+)\]|\[\.\.\.\]")
MISSING = re.compile(r"Object missing required field `(.*)`$", re.DOTALL)
UNKNOWN = re.compile(r"Object contains unknown field `(.*)`$", re.DOTALL)

_raw_list = msgspec.json.Decoder(list[msgspec.Raw])
_raw_object = msgspec.json.Decoder(dict[str, msgspec.Raw])
_number = msgspec.json.Decoder(float)


class Explained(NamedTuple):
    """An error for the caller. `field` is the path of the wrong field, None when the body as a whole is wrong."""

    message: str
    field: str | None


def explained(trouble: msgspec.ValidationError, shape: Any, body: bytes, inside: str = "") -> Explained:
    """Explain why `body` does not decode into the type `shape`. `inside` is the path of `body` within the request.

    >>> body = b'{"id": 3}'
    >>> shape = msgspec.defstruct("Thing", [("id", str)])
    >>> try:
    ...     msgspec.json.decode(body, type=shape)
    ... except msgspec.ValidationError as trouble:
    ...     print(explained(trouble, shape, body).message)
    id is 3; it must be a string
    """
    complaint, _, where = str(trouble).partition(" - at `$")
    kind, path = _type_of(shape), inside
    sent: Any = body if len(body) <= MOST_SEARCHED else None
    for step in STEP.finditer(where):
        if step["field"] is not None:
            kind = _fields_of(kind)[step["field"]]
            sent = (_read(_raw_object, sent) or {}).get(step["field"])
            path = _joined(path, step["field"])
        elif step["index"] is not None:
            kind = _part_of(kind, inspect.ListType).item_type
            entries, index = _read(_raw_list, sent) or [], int(step["index"])
            sent = entries[index] if index < len(entries) else None
            path = f"{path}[{index}]"
        else:
            kind = _part_of(kind, inspect.DictType).value_type
            wrong = [(key, raw) for key, raw in (_read(_raw_object, sent) or {}).items() if _read(_number, raw) is None]
            key, sent = wrong[0] if wrong else ("", None)
            path = _joined(path, _clipped(key)) if key else path
    if found := MISSING.match(complaint):
        field = _joined(path, found[1])
        return Explained(f"{field} is missing; it must be {_allowed(_fields_of(kind)[found[1]])}", field)
    if found := UNKNOWN.match(complaint):
        field, known = _joined(path, _clipped(found[1])), list(_fields_of(kind))
        listed = f"the known ones are {', '.join(known)}" if known else "no field is allowed"
        return Explained(f"{field} is not a known field; {listed}{nearest(found[1], known)}", field)
    return Explained(f"{path or 'the body'} is {_shown(sent, complaint)}; it must be {_allowed(kind)}", path or None)


@functools.cache
def _type_of(shape: Any) -> inspect.Type:
    """Return msgspec's description of a type. There is one for each decoder, and it takes long to make."""
    return inspect.type_info(shape)


def _read(decoder: msgspec.json.Decoder[Any], raw: Any) -> Any:
    """Decode `raw`, or return None where that is not possible: the body may go on with something that is not JSON."""
    try:
        return None if raw is None else decoder.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _clipped(text: str) -> str:
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]} …"


def _shown(sent: Any, complaint: str) -> str:
    """Describe the sent value: scalars as the JSON that was sent, lists and objects by their type."""
    if sent is None:  # the value could not be found: msgspec has at least its type
        return f"of type {complaint.rpartition('got ')[2].strip('`')}" if "got " in complaint else "out of range"
    text = bytes(sent).decode(errors="replace").strip()
    if text[:1] in ("{", "["):
        return "an object" if text[0] == "{" else "a list"
    return _clipped(text)


def _plain(kind: inspect.Type) -> inspect.Type:
    """Return the type without its annotations; for a field that is decoded later (`msgspec.Raw`), the type it is decoded into."""
    while isinstance(kind, inspect.Metadata):
        later = (kind.extra or {}).get("decoded_as")
        kind = _type_of(later) if later is not None else kind.type
    return kind


def _part_of(kind: inspect.Type, wanted: type[Any]) -> Any:
    """Return the member of a union that is a `wanted`."""
    kind = _plain(kind)
    members = kind.types if isinstance(kind, inspect.UnionType) else (kind,)
    return next(member for member in map(_plain, members) if isinstance(member, wanted))


def _fields_of(kind: inspect.Type) -> dict[str, inspect.Type]:
    return {field.encode_name: field.type for field in _part_of(kind, inspect.StructType).fields}


def _allowed(kind: inspect.Type) -> str:
    """Describe the values that a type allows."""
    described = (isinstance(kind, inspect.Metadata) and (kind.extra_json_schema or {}).get("description")) or ""
    kind = _plain(kind)
    if isinstance(kind, inspect.UnionType):
        words = [_allowed(member) for member in kind.types if not isinstance(member, inspect.NoneType)]
        return _listed(words) + (", or null" if len(words) < len(kind.types) else "")
    text = _described(kind)
    return f"{text} ({described.rstrip('.')})" if described else text


def _described(kind: inspect.Type) -> str:
    match kind:
        case inspect.StrType():
            return "a string"
        case inspect.DateTimeType():
            return "a date and time"
        case inspect.FloatType() | inspect.IntType():
            number = "a whole number" if isinstance(kind, inspect.IntType) else "a finite number"
            return number if kind.ge is None else f"{number} from {kind.ge:.0f} to {kind.le:.0f}"
        case inspect.LiteralType():
            return _listed(sorted(map(str, kind.values)))
        case inspect.ListType():
            return (
                "a list"
                if isinstance(kind.item_type, inspect.RawType)
                else f"a list in which each entry is {_allowed(kind.item_type)}"
            )
        case inspect.DictType():
            value = _allowed(kind.value_type).replace(", or null", " or null")  # the comma is for the object itself
            return f"an object in which each value is {value}"
        case inspect.StructType():
            names = [field.encode_name for field in kind.fields]
            return f"an object with the field{'s'[: len(names) > 1]} {', '.join(names)}" if names else "an empty object"
        case _:
            return "any JSON value"


def _listed(words: list[str]) -> str:
    """
    >>> _listed(["a", "b", "c"])
    'a, b or c'
    """
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
