"""`swerve check`: every kind of class, every kind of mistake, and what cannot be checked."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from swerve.cli import app
from swerve.core.errors import SwerveError

pytestmark = pytest.mark.usefixtures("uncompiled")

HEAD = """
from swerve import Spec, Thompson, UCB1, Rectangle, Traffic
from swerve.core.contract import evict, merge, predict, reward, select, show
from swerve.core.rng import draw
from swerve.core.spec import Positive
from swerve.core.tables import has
from swerve.environments.worlds import context, world
from swerve.detectors import GLR
"""


@pytest.fixture
def check(tmp_path, request):
    """A function that checks a file with this source, and returns the exit status and the rows."""

    def run(source):
        name = re.sub(r"\W", "_", request.node.name)
        path = tmp_path / f"{name}.py"
        path.write_text(HEAD + source, encoding="utf-8")
        done = CliRunner().invoke(app, ["check", str(path), "--json", "-"])
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        found = json.loads(done.stdout)
        assert found["holds"] == (done.exit_code == 0)
        return {row["check"]: row["reason"] for row in found["checks"] if not row["holds"]}, found["checks"]

    return run


def test_a_right_file_holds_and_every_class_is_named(tmp_path):
    path = tmp_path / "right.py"
    path.write_text(
        HEAD + "class Plainest(UCB1):\n    pass\n\nclass Boxed(Rectangle):\n    pass\n\nclass Helper(Spec):\n    pass\n"
    )
    done = CliRunner().invoke(app, ["check", str(path)])
    assert done.exit_code == 0, done.output
    assert "Plainest(), policy" in done.output
    assert "Boxed(), classifier" in done.output
    assert "Helper" not in done.output
    assert re.search(r"(\d+) of \1 checks hold", done.output)


def test_detectors_and_environments_are_checked(check):
    wrong, rows = check(
        "class Watching(GLR):\n    pass\n\nclass Roads(Traffic):\n    queries: int = 2\n    impressions: int = 400\n"
    )
    assert wrong == {}
    assert {row["kind"] for row in rows} == {"detector", "environment"}


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (
            "class Deaf(UCB1):\n    pass\n\n@select.register(Deaf)\ndef _(spec, row, pool, available, now):\n    return 0\n",
            "is not on offer",
        ),
        (
            "SEEN = [0]\n\nclass Outside(UCB1):\n    pass\n\n@select.register(Outside)\n"
            "def _(spec, row, pool, available, now):\n    SEEN[0] += 1\n    arm = SEEN[0] % row.plays.shape[0]\n"
            "    while not has(available, arm):\n        arm = (arm + 1) % row.plays.shape[0]\n    return arm\n",
            "something is kept outside of the record",
        ),
        (
            "class Sticky(UCB1):\n    pass\n\n@evict.register(Sticky)\ndef _(spec, row, arm):\n    pass\n",
            "an evicted arm still has",
        ),
        (
            "class Half(Spec):\n    pass\n\n@select.register(Half)\ndef _(spec, row, pool, available, now):\n    return 0\n",
            "these are not registered: begin(spec, row, word), restart(spec, row)",
        ),
        (
            "class Forgetful(Rectangle):\n    pass\n\n@merge.register(Forgetful)\ndef _(spec, pool, delta):\n    return 0\n",
            "is positive right after it was called harmless",
        ),
        (
            "class Odd(Traffic):\n    queries: int = 2\n    impressions: int = 400\n\n@context.register(Odd)\n"
            "def _(spec, scene, cursor, event, x):\n    x[0] = 0.5\n",
            "a feature of the context is not written",
        ),
        (
            "class Crashing(UCB1):\n    pass\n\n@show.register(Crashing)\ndef _(spec, row, arm, now):\n    row.nowhere = 1\n",
            "AttributeError: a record has no field 'nowhere'",
        ),
    ],
    ids=["offer", "state outside", "evict", "verbs", "merge", "context", "error"],
)
def test_a_mistake_fails_with_its_reason(check, source, said):
    wrong, _ = check(source)
    assert any(said in reason for reason in wrong.values()), wrong


@pytest.mark.compiled
def test_compiled_code_that_differs_is_found(check):
    """Whole numbers of compiled code have 64 bits."""
    wrong, _ = check(
        "class Wraps(UCB1):\n    pass\n\n@select.register(Wraps)\ndef _(spec, row, pool, available, now):\n"
        "    for arm in range(row.plays.shape[0]):\n        if has(available, arm) and arm * 4611686018427387904 * 4 != 0:\n"
        "            return arm\n    for arm in range(row.plays.shape[0]):\n        if has(available, arm):\n"
        "            return arm\n"
        "    return -1\n"
    )
    assert "compiled and interpreted differ" in wrong["compiled and interpreted give the same bytes"]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("x = 1\n", r"has nothing to check: it defines no spec, and none of it is a policy \(select\)"),
        ("class Alone(Spec):\n    pass\n", "it defines Alone, and none"),
        ("class Needy(UCB1):\n    much: Positive\n", "TypeError: non-default argument 'much' follows default argument"),
        (
            "class Wanting(Spec):\n    much: Positive\n\n@select.register(Wanting)\n"
            "def _(spec, row, pool, available, now):\n    return 0\n",
            r"Wanting cannot be made \(.*much is missing.*\); give it defaults, or a class method `examples`",
        ),
        (
            "class Mistaken(UCB1):\n    @classmethod\n    def examples(cls):\n        return cls()\n",
            r"Mistaken.examples\(\) = Mistaken\(\) is not allowed; it must be a list of specs",
        ),
        (
            "class Short(UCB1):\n    pass\n\n@select.register(Short)\ndef _(spec, row):\n    return 0\n",
            r"TypeError: Short.select takes \(spec, row\); it is called as select\(spec, row, pool, available, now\)",
        ),
    ],
    ids=["nothing", "no kind", "python", "arguments", "examples", "arity"],
)
def test_what_cannot_be_checked_is_one_line(check, source, message):
    with pytest.raises(SwerveError, match=message):
        check(source)


def test_examples_of_a_class_are_taken(check):
    _, rows = check(
        "class Parted(UCB1):\n    @classmethod\n    def examples(cls):\n        return [cls(alpha=1.0), cls(alpha=2.0)]\n\n"
        "    @staticmethod\n    def contexts(dice):\n        return [0.1, 0.2]\n"
    )
    assert {row["spec"] for row in rows} == {"Parted(alpha=1.0)", "Parted(alpha=2.0)"}


def test_the_file_of_the_docs_holds(tmp_path):
    page = Path(__file__).parents[2] / "docs" / "extending.md"
    path = tmp_path / "my_algorithms.py"
    path.write_text(
        "\n\n".join(re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.S | re.M)), encoding="utf-8"
    )
    done = CliRunner().invoke(app, ["check", str(path)])
    assert done.exit_code == 0, done.output
    for name in ("EpsilonGreedy()", "Cooling()", "Threshold()", "Sceptic(bandit=UCB1())"):
        assert f"{name}, " in done.output
