"""Specs as text: `bwc(length=500)` or `BWC(Testable(UCB1(alpha=2), length=500), Rectangle(margin=0.05))`, parsed without `eval`.

The `repr` of a spec parses back to an equal spec, so that a stored result can name its policy exactly.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

from swerve.core.errors import SwerveError, nearest, shown
from swerve.core.spec import Spec
from swerve.core.verbs import MARKERS, Verb

TOKEN = re.compile(
    r"\s*(?:(?P<number>[-+]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|[-+]?inf)(?![\w])"
    r"|(?P<name>[A-Za-z][\w-]*)"
    r"|(?P<text>'[^']*'|\"[^\"]*\")"
    r"|(?P<sign>[(),=\[\]]))"
)
WORDS = {"true": True, "True": True, "false": False, "False": False, "none": None, "None": None}

Recipes = Mapping[str, Callable[..., Spec]]


def spec_classes() -> dict[str, type]:
    """Return every spec class by its name."""
    return {cls.__name__: cls for cls in MARKERS.values()}


def parse(text: str, recipes: Recipes, kind: str = "policy", verb: Verb | None = None) -> Spec:
    """Return the spec that `text` describes; names are those of `recipes` and of all spec classes.

    `verb` is one that every class of this kind has: an unknown name is likened to those alone.

    >>> from swerve import UCB1
    >>> parse("UCB1(alpha=2)", {})
    UCB1(alpha=2.0)
    """
    reader = _Reader(text, recipes, kind, verb)
    try:
        spec = reader.value()
    except RecursionError:
        raise SwerveError(f"{kind} = {shown(text)} cannot be read: its brackets are nested too deeply") from None
    if reader.token[0] != "end":
        reader.fail("nothing more")
    if not isinstance(spec, Spec):
        raise SwerveError(f"{kind} = {text!r} is not allowed; it must be the name of a {kind}, with its parameters in brackets")
    return spec


def call(name: str, maker: Callable[..., Spec], args: list[Any], named: dict[str, Any]) -> Spec:
    """Return `maker(*args, **named)`, with errors that name the parameter."""
    parameters = list(inspect.signature(maker).parameters)
    for key in named:
        if key not in parameters:
            takes = ", ".join(parameters) or "no parameters"
            raise SwerveError(f"{name}: unknown parameter {key!r}{nearest(key, parameters)} ({name} takes {takes})")
    try:
        return maker(*args, **named)
    except TypeError as error:
        raise SwerveError(f"{name}: {str(error).replace('__init__() ', '')}") from None


class _Reader:
    """A parser of one text, token by token."""

    def __init__(self, text: str, recipes: Recipes, kind: str, verb: Verb | None) -> None:
        self.text, self.recipes, self.kind, self.verb = text, recipes, kind, verb
        self.offset = 0
        self.token: tuple[str, str] = ("end", "")
        self.next()

    def next(self) -> None:
        rest = self.text[self.offset :]
        if not rest.strip():
            self.token = ("end", "")
            return
        found = TOKEN.match(rest)
        if not found or not found.lastgroup:
            self.fail("a name, a number, a text in quotes, a bracket or a comma")
            return
        self.token = (found.lastgroup, found.group(found.lastgroup))
        self.offset += found.end()

    def fail(self, wanted: str) -> None:
        raise SwerveError(f"{self.kind} = {shown(self.text)} cannot be read at character {self.offset + 1}; expected {wanted}")

    def take(self, sign: str) -> None:
        if self.token != ("sign", sign):
            self.fail(repr(sign))
        self.next()

    def value(self) -> Any:
        what, word = self.token
        if what == "number":
            self.next()
            plain = word.replace("_", "")
            try:
                return float(plain) if any(c in plain for c in ".eEn") else int(plain)
            except ValueError:  # Python does not parse whole numbers of more than 4300 digits
                self.fail("a number that fits 64 bits")
        if what == "text":
            self.next()
            return word[1:-1]
        if what == "sign" and word in "([":
            return self.tuple(")" if word == "(" else "]")
        if what == "name":
            return self.named_value(word)
        self.fail("a value")
        raise AssertionError

    def tuple(self, closing: str) -> tuple[Any, ...]:
        self.next()
        items: list[Any] = []
        while self.token != ("sign", closing):
            items.append(self.value())
            if self.token != ("sign", closing):
                self.take(",")
        self.next()
        return tuple(items)

    def named_value(self, word: str) -> Any:
        self.next()
        if word in WORDS:
            return WORDS[word]
        classes = spec_classes()
        maker: Any = self.recipes.get(word) or classes.get(word)
        if self.token != ("sign", "(") and maker is None and self.depth > 0:
            return word  # a choice for a field, such as order=zipf
        if maker is None:
            raise SwerveError(self.unknown(word, classes))
        args: list[Any] = []
        named: dict[str, Any] = {}
        if self.token == ("sign", "("):
            self.depth += 1
            self.next()
            while self.token != ("sign", ")"):
                self.argument(args, named)
                if self.token != ("sign", ")"):
                    self.take(",")
            self.next()
            self.depth -= 1
        return call(word, maker, args, named)

    depth = 0

    def unknown(self, word: str, classes: Mapping[str, type]) -> str:
        if self.depth:  # a part, of any kind
            known = [*self.recipes, *classes]
            return f"unknown name {word!r}{nearest(word, known)} (known: {', '.join(known)})"
        verb = self.verb
        fitting = [name for name, cls in classes.items() if verb is None or verb.lookup(cls) is not None]
        said = f"unknown {self.kind} {word!r}{nearest(word, [*self.recipes, *fitting])} (known: {', '.join(self.recipes)}"
        return f"{said}; a class of your own needs its file loaded: docs/extending.md)" if verb is not None else f"{said})"

    def argument(self, args: list[Any], named: dict[str, Any]) -> None:
        what, word = self.token
        if what == "name" and self.text[self.offset :].lstrip().startswith("="):
            self.next()
            self.take("=")
            named[word] = self.value()
        elif named:
            self.fail("a named parameter: those without a name come first")
        else:
            args.append(self.value())
