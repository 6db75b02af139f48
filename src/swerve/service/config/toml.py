"""TOML with line numbers: `tomllib` reads the values, a small scanner finds their lines."""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_left
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from swerve.core.errors import SwerveError

#: Path of a value from the root: keys of tables and indices of arrays.
Where = tuple[str | int, ...]

BARE = re.compile(r"[A-Za-z0-9_-]+")
BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
SPACE = re.compile(r"[ \t]*")
#: Strings; those in three quotes are tried first. In double quotes a backslash escapes the next character.
TEXT = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}(?!")' + r"|'''.*?'{3,5}(?!')" + r'|"(?:\\.|[^"\\\n])*"' + r"|'[^'\n]*'",
    re.DOTALL,
)
PLAIN = re.compile(r"[^,\]}#\n]*")
AT_LINE = re.compile(r" \(at line (\d+), column (\d+)\)$")


class Trouble(NamedTuple):
    """One mistake: its message, and its line and key where it has them."""

    message: str
    line: int | None = None
    key: str = ""


class ConfigError(SwerveError):
    """A configuration with mistakes, in the order of their lines."""

    def __init__(self, name: str, troubles: Iterable[Trouble]) -> None:
        self.name = name
        self.troubles = sorted(troubles, key=lambda one: (one.line is None, one.line or 0))
        super().__init__("\n".join(self.lines()))

    def lines(self) -> list[str]:
        """Return one line for each mistake: `swerve.toml:12: …`."""
        return [one.message if one.line is None else f"{self.name}:{one.line}: {one.message}" for one in self.troubles]


class Document(NamedTuple):
    """The values of a TOML file, and the line of each key, table and array element."""

    name: str
    table: dict[str, Any]
    lines: dict[Where, int]

    def line(self, where: Where) -> int | None:
        """Return the line of a value, or of the innermost table or array around it that has one."""
        for length in range(len(where), 0, -1):
            if where[:length] in self.lines:
                return self.lines[where[:length]]
        return None


def read(path: Path) -> Document:
    """Read a TOML file; raises `ConfigError` when it is not valid TOML."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise SwerveError(f"the configuration {path} cannot be read: {error.strerror or error}") from None
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(str(path), [Trouble("this is not UTF-8; TOML must be", line)]) from None
    return parse(text, str(path))


def parse(text: str, name: str) -> Document:
    """Parse a text; `name` is its name in errors.

    >>> parse("[policy]\\narms = 3", "swerve.toml").line(("policy", "arms"))
    2
    >>> parse("[policy]\\narms = =", "swerve.toml")
    Traceback (most recent call last):
    swerve.service.config.toml.ConfigError: swerve.toml:2: Invalid value (column 8)
    """
    try:
        table = tomllib.loads(text)
        return Document(name, table, Scanner(text).scan())
    except tomllib.TOMLDecodeError as error:
        message = str(error)
        found = AT_LINE.search(message)
        if found:
            trouble = Trouble(f"{message[: found.start()]} (column {found.group(2)})", int(found.group(1)))
        else:  # "(at end of document)"
            trouble = Trouble(message, text.count("\n") + (0 if text.endswith("\n") else 1))
        raise ConfigError(name, [trouble]) from None
    except (RecursionError, ValueError) as error:  # too deeply nested brackets; integers of more than 4300 digits
        raise ConfigError(name, [Trouble(f"this TOML cannot be read: {error}", 1)]) from None


def dotted(where: Where) -> str:
    """Return a path in dotted form.

    >>> dotted(("security", "api_keys", 0, "name"))
    'security.api_keys[0].name'
    """
    out = ""
    for part in where:
        out += f"[{part}]" if isinstance(part, int) else f".{part}" if out else part
    return out


class Scanner:
    """Finds the line of each key and element in one pass over a text that is known to be TOML."""

    def __init__(self, text: str) -> None:
        self.text = text.replace("\r\n", "\n")
        self.offset = 0
        self.newlines = [found.start() for found in re.finditer("\n", self.text)]
        self.lines: dict[Where, int] = {}
        self.elements: dict[Where, int] = {}  # array of tables → number of its elements so far

    def scan(self) -> dict[Where, int]:
        base: Where = ()
        self.skip(BLANK)
        while self.offset < len(self.text):
            start = self.offset
            if self.text.startswith("[[", start):
                self.offset += 2
                base = self.element(self.key())
                self.offset += 2
                self.note(base, start)
            elif self.text[start] == "[":
                self.offset += 1
                base = self.inside((), self.key())
                self.offset += 1
                self.note(base, start)
            else:
                self.pair(base)
            self.skip(BLANK)
        return self.lines

    def skip(self, pattern: re.Pattern[str]) -> str:
        """Advance past the match of a pattern at the current offset, and return it."""
        found = pattern.match(self.text, self.offset)
        if found is None:
            raise ValueError(f"stuck at character {self.offset + 1}")
        self.offset = found.end()
        return found.group()

    def note(self, where: Where, start: int) -> None:
        """Set the line of a path and, where they have none yet, of the tables around it."""
        line = bisect_left(self.newlines, start) + 1
        for length in range(1, len(where) + 1):
            self.lines.setdefault(where[:length], line)

    def key(self) -> list[str]:
        """Read a key, dotted or not, and the blanks around it."""
        parts = []
        while True:
            self.skip(SPACE)
            quote = self.text[self.offset]
            word = self.skip(TEXT if quote in "\"'" else BARE)
            # A quoted key may hold escapes; tomllib decodes them.
            parts.append(str(tomllib.loads(f"k = {word}")["k"]) if quote == '"' else word.strip("'"))
            self.skip(SPACE)
            if self.text[self.offset] != ".":
                return parts
            self.offset += 1

    def inside(self, base: Where, parts: list[str]) -> Where:
        """Return the path of a key relative to a table. An array of tables on the way stands for its last element."""
        for part in parts:
            base = (*base, part)
            if base in self.elements:
                base = (*base, self.elements[base] - 1)
        return base

    def element(self, parts: list[str]) -> Where:
        """Return the path of the next element of an array of tables."""
        array = (*self.inside((), parts[:-1]), parts[-1])
        self.elements[array] = self.elements.get(array, 0) + 1
        return (*array, self.elements[array] - 1)

    def pair(self, base: Where) -> None:
        """Read `key = value`."""
        start = self.offset
        where = (*base, *self.key())
        self.offset += 1  # the equals sign
        self.note(where, start)
        self.skip(SPACE)
        self.value(where)

    def value(self, where: Where) -> None:
        """Read a value, and set the lines inside arrays and inline tables."""
        sign = self.text[self.offset]
        if sign in "\"'":
            self.skip(TEXT)
        elif sign in "[{":
            self.offset += 1
            self.items(where, "]" if sign == "[" else "}")
        else:
            self.skip(PLAIN)

    def items(self, where: Where, closing: str) -> None:
        """Read the content of brackets, the closing one included."""
        number = 0
        self.skip(BLANK)
        while self.text[self.offset] != closing:
            if closing == "]":
                self.note((*where, number), self.offset)
                self.value((*where, number))
                number += 1
            else:
                self.pair(where)
            self.skip(BLANK)
            if self.text[self.offset] == ",":
                self.offset += 1
                self.skip(BLANK)
        self.offset += 1
