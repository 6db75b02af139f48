"""TOML with line numbers: `tomllib` reads the values, a small scanner finds the line that each of them stands on."""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_left
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from swerve.core.errors import SwerveError

#: Where a value lies: keys of tables and places in arrays, from the root.
Where = tuple[str | int, ...]

BARE = re.compile(r"[A-Za-z0-9_-]+")
BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
SPACE = re.compile(r"[ \t]*")
#: Texts of three quotes first; in a text of double quotes a backslash takes the next character with it.
TEXT = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}(?!")' + r"|'''.*?'{3,5}(?!')" + r'|"(?:\\.|[^"\\\n])*"' + r"|'[^'\n]*'",
    re.DOTALL,
)
PLAIN = re.compile(r"[^,\]}#\n]*")
AT_LINE = re.compile(r" \(at line (\d+), column (\d+)\)$")


class Trouble(NamedTuple):
    """One mistake: what it is, and the line if it has one."""

    message: str
    line: int | None = None
    key: str = ""


class ConfigError(SwerveError):
    """A configuration that cannot be used: all its mistakes, in the order of their lines."""

    def __init__(self, name: str, troubles: Iterable[Trouble]) -> None:
        self.name = name
        self.troubles = sorted(troubles, key=lambda one: (one.line is None, one.line or 0))
        super().__init__("\n".join(self.lines()))

    def lines(self) -> list[str]:
        """`swerve.toml:12: …`, one line for each mistake."""
        return [one.message if one.line is None else f"{self.name}:{one.line}: {one.message}" for one in self.troubles]


class Document(NamedTuple):
    """The values of a TOML file, and the line of each key, table and element."""

    name: str
    table: dict[str, Any]
    lines: dict[Where, int]

    def line(self, where: Where) -> int | None:
        """The line of a value, or of the innermost thing around it that has one."""
        for length in range(len(where), 0, -1):
            if where[:length] in self.lines:
                return self.lines[where[:length]]
        return None


def read(path: Path) -> Document:
    """The file as a document, or a `ConfigError` that says why it is none."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise SwerveError(f"the configuration {path} cannot be read: {error.strerror or error}") from None
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(str(path), [Trouble("this is no UTF-8 text; TOML must be", line)]) from None
    return parse(text, str(path))


def parse(text: str, name: str) -> Document:
    """`text` as a document; `name` is what errors call it.

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
    except (RecursionError, ValueError) as error:  # brackets nested too deeply; whole numbers of more than 4300 digits
        raise ConfigError(name, [Trouble(f"this TOML cannot be read: {error}", 1)]) from None


def dotted(where: Where) -> str:
    """A place as people write it.

    >>> dotted(("security", "api_keys", 0, "name"))
    'security.api_keys[0].name'
    """
    out = ""
    for part in where:
        out += f"[{part}]" if isinstance(part, int) else f".{part}" if out else part
    return out


class Scanner:
    """One pass over a text that is known to be TOML, noting on which line each key and element begins."""

    def __init__(self, text: str) -> None:
        self.text = text.replace("\r\n", "\n")
        self.place = 0
        self.newlines = [found.start() for found in re.finditer("\n", self.text)]
        self.lines: dict[Where, int] = {}
        self.elements: dict[Where, int] = {}  # array of tables → how many there are so far

    def scan(self) -> dict[Where, int]:
        base: Where = ()
        self.skip(BLANK)
        while self.place < len(self.text):
            start = self.place
            if self.text.startswith("[[", start):
                self.place += 2
                base = self.element(self.key())
                self.place += 2
                self.note(base, start)
            elif self.text[start] == "[":
                self.place += 1
                base = self.inside((), self.key())
                self.place += 1
                self.note(base, start)
            else:
                self.pair(base)
            self.skip(BLANK)
        return self.lines

    def skip(self, pattern: re.Pattern[str]) -> str:
        """Go past what the pattern matches here; return it."""
        found = pattern.match(self.text, self.place)
        if found is None:
            raise ValueError(f"stuck at character {self.place + 1}")
        self.place = found.end()
        return found.group()

    def note(self, where: Where, start: int) -> None:
        """The line of a place and, where they have none yet, of the tables around it."""
        line = bisect_left(self.newlines, start) + 1
        for length in range(1, len(where) + 1):
            self.lines.setdefault(where[:length], line)

    def key(self) -> list[str]:
        """A key, dotted or not, and the blanks around it."""
        parts = []
        while True:
            self.skip(SPACE)
            quote = self.text[self.place]
            word = self.skip(TEXT if quote in "\"'" else BARE)
            # a quoted key may hold escapes; tomllib knows them all
            parts.append(str(tomllib.loads(f"k = {word}")["k"]) if quote == '"' else word.strip("'"))
            self.skip(SPACE)
            if self.text[self.place] != ".":
                return parts
            self.place += 1

    def inside(self, base: Where, parts: list[str]) -> Where:
        """The place that a key names, seen from a table; an array of tables on the way means its last element."""
        for part in parts:
            base = (*base, part)
            if base in self.elements:
                base = (*base, self.elements[base] - 1)
        return base

    def element(self, parts: list[str]) -> Where:
        """The place of one more element of an array of tables."""
        array = (*self.inside((), parts[:-1]), parts[-1])
        self.elements[array] = self.elements.get(array, 0) + 1
        return (*array, self.elements[array] - 1)

    def pair(self, base: Where) -> None:
        """`key = value`."""
        start = self.place
        where = (*base, *self.key())
        self.place += 1  # the equals sign
        self.note(where, start)
        self.skip(SPACE)
        self.value(where)

    def value(self, where: Where) -> None:
        """A value; places inside arrays and inline tables are noted too."""
        sign = self.text[self.place]
        if sign in "\"'":
            self.skip(TEXT)
        elif sign in "[{":
            self.place += 1
            self.items(where, "]" if sign == "[" else "}")
        else:
            self.skip(PLAIN)

    def items(self, where: Where, closing: str) -> None:
        """What stands between brackets, up to and with the closing one."""
        number = 0
        self.skip(BLANK)
        while self.text[self.place] != closing:
            if closing == "]":
                self.note((*where, number), self.place)
                self.value((*where, number))
                number += 1
            else:
                self.pair(where)
            self.skip(BLANK)
            if self.text[self.place] == ",":
                self.place += 1
                self.skip(BLANK)
        self.place += 1
