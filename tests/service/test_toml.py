"""TOML with line numbers: every key, table and element of any file has its line."""

from __future__ import annotations

import tomllib

import pytest
from hypothesis import given, strategies as st

from swerve.core.errors import SwerveError
from swerve.service.config.toml import ConfigError, Trouble, dotted, parse, read

EVERYTHING = '''\
# a comment with [a.header] and key = 1
title = "a # b"  # not [this]
server.port = 80
"quoted \\u0041.key" = 'literal \\'
long = """
[not.a.table]
key = 1 ""\\""
"""
literal = \'\'\'
[[nor.this]]''\'\'\'

[policy]
arms = 3
  [policy.deep . "er er"]   # blanks are allowed
  x = [ 1, [2, 3],   # two on a line
    4,
    { a = 1, b = { c = [5] } },
    "]", ']',
  ]
when = 1979-05-27 07:32:00Z

[[keys]]
name = "a"
[keys.sub]
y = true
[[keys]]
name = "b"
[[keys.sub]]
y = false
[[keys.sub]]
y = inf
'''


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_the_line_of_everything(ending):
    document = parse(EVERYTHING.replace("\n", ending), "f")
    expected = {
        ("title",): 2,
        ("server",): 3,
        ("server", "port"): 3,
        ("quoted A.key",): 4,
        ("long",): 5,
        ("literal",): 9,
        ("policy",): 12,
        ("policy", "arms"): 13,
        ("policy", "deep", "er er", "x"): 15,
        ("policy", "deep", "er er", "x", 1, 1): 15,
        ("policy", "deep", "er er", "x", 2): 16,
        ("policy", "deep", "er er", "x", 3, "b", "c", 0): 17,
        ("policy", "deep", "er er", "x", 5): 18,
        ("policy", "deep", "er er", "when"): 20,
        ("keys", 0): 22,
        ("keys", 0, "name"): 23,
        ("keys", 0, "sub", "y"): 25,
        ("keys", 1): 26,
        ("keys", 1, "sub", 0, "y"): 29,
        ("keys", 1, "sub", 1, "y"): 31,
    }
    assert {where: document.lines.get(where) for where in expected} == expected
    assert set(document.lines) == set(places(document.table))


def places(value, where=()):
    """Return every path of a parsed document: the scanner must have a line for these, and for no others."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, item in items:
        yield (*where, name)
        yield from places(item, (*where, name))


texts = st.text(st.characters(codec="utf-8", exclude_characters="\r", exclude_categories=("Cc", "Cs")), max_size=8)
names = st.sampled_from(["a", "b-1", "c_2", '"d.e"', "'f g'", '"\\u0041"'])


def basic(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


scalars = st.one_of(
    st.integers(-9, 9).map(str),
    st.booleans().map(lambda flag: "true" if flag else "false"),
    texts.map(basic),
    st.sampled_from(["1.5", "nan", "'[x] # = y'", '"""a\n[b]\nc = 1"""', "'''\n#\n'''", '"""""a"""', "1979-05-27"]),
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: "[" + ", # [c]\n".join(items) + "\n]"),
        st.lists(inner, max_size=3).map(lambda items: "[" + ",".join(items) + "]"),
        st.dictionaries(st.sampled_from("xyz"), inner, max_size=2).map(
            lambda table: "{" + ", ".join(f"{key} = {item}" for key, item in table.items()) + "}"
        ),
    ),
    max_leaves=6,
)
statements = st.lists(st.tuples(st.sampled_from(["", "[%s]", "[[%s]]", "# c"]), names, names, values), max_size=8)


@given(statements)
def test_any_document_has_a_line_for_every_place_and_the_key_stands_on_it(parts):
    lines: list[str] = []
    for form, table, key, value in parts:
        if "%s" in form:
            lines.append(form % f"t{len(lines)}.{table}")
        elif form:
            lines.append(form)
        else:
            lines.append(f"k{len(lines)}.{key} = {value}")
    text = "\n".join(lines)
    document = parse(text, "f")
    assert set(document.lines) == set(places(document.table))
    rows = text.split("\n")
    for where, line in document.lines.items():
        top = where[0]
        if len(where) == 1:
            assert rows[line - 1].lstrip("[").startswith(top)


def test_a_place_without_a_line_has_that_of_what_is_around_it():
    document = parse("[a]\n\nb = 1", "f")
    assert document.line(("a", "missing")) == 1
    assert document.line(("nowhere",)) is None


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a = 1\nb = \n", 2, "Invalid value"),
        ("a = 1\na = 2\n", 2, "Cannot overwrite a value"),
        ("[a]\n[a]\n", 2, "Cannot declare"),
        ('a = 1\nb = """x\n', 2, "Unterminated string"),
        ("a = " + "[" * 5000, 1, "cannot be read"),
        ("a = " + "9" * 5000, 1, "cannot be read"),
    ],
)
def test_what_is_no_toml_is_told_with_its_line(text, line, words):
    with pytest.raises(ConfigError, match=words) as caught:
        parse(text, "swerve.toml")
    assert [one.line for one in caught.value.troubles] == [line]
    assert str(caught.value).startswith(f"swerve.toml:{line}: ")


def test_what_is_no_text_is_told_with_its_line(tmp_path):
    (tmp_path / "f.toml").write_bytes(b"a = 1\nb = '\xff'\n")
    with pytest.raises(ConfigError, match=r"f\.toml:2: this is not UTF-8"):
        read(tmp_path / "f.toml")
    with pytest.raises(SwerveError, match="cannot be read: No such file"):
        read(tmp_path / "g.toml")


def test_mistakes_come_in_the_order_of_their_lines():
    error = ConfigError("f", [Trouble("c"), Trouble("b", 10), Trouble("a", 9)])
    assert str(error) == "f:9: a\nf:10: b\nc"


def test_places_in_words():
    assert dotted(("a", 0, "b", 1)) == "a[0].b[1]"
    assert tomllib.loads("a = [{b = [1, 2]}]")["a"][0]["b"][1] == 2
