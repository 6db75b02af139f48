"""Print the test files for one source file: `python tools/tests_for.py src/swerve/core/engine.py`.

These are the tests that import its module or that its docstring names; if there are none, the tests of its package.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def module_of(source: Path) -> str:
    """Return the dotted name of a source file."""
    return ".".join(source.resolve().relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__")


def imported(path: Path) -> set[str]:
    """Return every module, and every name of a module, that a file imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def tests_for(source: Path) -> list[Path]:
    """Return the test files for a source file."""
    module = module_of(source)
    tests = sorted(path for path in (ROOT / "tests").rglob("test_*.py"))
    held = [path for path in tests if module in imported(path)]
    named = re.findall(r"tests/[\w/]+\.py", ast.get_docstring(ast.parse(source.read_text(encoding="utf-8"))) or "")
    held += [path for name in named if (path := ROOT / name).exists() and path not in held]
    if held:
        return held
    folder = ROOT / "tests" / module.split(".")[1]
    return [path for path in tests if folder in path.parents]


def main() -> int:
    if len(sys.argv) != 2 or not (source := Path(sys.argv[1])).is_file():
        print("name a source file: make test-for FILE=src/swerve/core/engine.py", file=sys.stderr)
        return 2
    for path in tests_for(source):
        print(path.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
