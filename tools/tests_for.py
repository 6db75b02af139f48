"""Print the test files for one source file: `python tools/tests_for.py src/swerve/core/engine.py`.

These are the tests that import its module, directly, by a name that a package exports, or through a helper of the tests; the tests
of the same name; and those that its docstring names. If there are none, the tests of its package.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
#: The folders of packages, and the tests of a package that is one of its own.
SOURCES = (ROOT / "src", ROOT / "clients" / "python" / "src")
TESTS = {"swerve_client": "client"}


def module_of(source: Path) -> str:
    """Return the dotted name of a source file."""
    path = source.resolve()
    (folder,) = (folder for folder in SOURCES if path.is_relative_to(folder))
    return ".".join(path.relative_to(folder).with_suffix("").parts).removesuffix(".__init__")


def imported(path: Path) -> set[str]:
    """Return every module, and every name of a module, that a file imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def exports() -> dict[str, str]:
    """Return the module behind every name that a package exports: swerve.policies.Swerve → swerve.policies.swerve.policy."""
    found: dict[str, str] = {}
    for init in (init for folder in SOURCES for init in folder.rglob("__init__.py")):
        package = module_of(init)
        for node in ast.walk(ast.parse(init.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                found |= {f"{package}.{alias.asname or alias.name}": f"{node.module}.{alias.name}" for alias in node.names}
    return found


def reached(path: Path, known: dict[str, str], seen: set[Path]) -> set[str]:
    """Return the names that a test imports, through helpers and exports too."""
    seen.add(path)
    names = imported(path)
    if "swerve" in names:  # used as swerve.Name
        names |= {f"swerve.{name}" for name in re.findall(r"\bswerve\.(\w+)", path.read_text(encoding="utf-8"))}
    for name in list(names):
        while name in known and known[name] not in names:
            name = known[name]
            names |= {name, name.rpartition(".")[0]}
        helper = (ROOT / "tests" / name.replace(".", "/")).with_suffix(".py")
        if helper.is_file() and helper not in seen:
            names |= reached(helper, known, seen)
    return names


def tests_for(source: Path) -> list[Path]:
    """Return the test files for a source file."""
    module, known = module_of(source), exports()
    tests = sorted(path for path in (ROOT / "tests").rglob("test_*.py"))
    held = [path for path in tests if module in reached(path, known, set())]
    top, _, rest = module.partition(".")
    package = ROOT / "tests" / TESTS.get(top, rest.partition(".")[0])
    held += [path for path in package.glob(f"test_{source.stem}*.py") if path not in held]
    named = re.findall(r"tests/[\w/]+\.py", ast.get_docstring(ast.parse(source.read_text(encoding="utf-8"))) or "")
    held += [path for name in named if (path := ROOT / name).exists() and path not in held]
    return held or [path for path in tests if package in path.parents]


def main() -> int:
    if len(sys.argv) != 2 or not (source := Path(sys.argv[1])).is_file():
        print("name a source file: make test-for FILE=src/swerve/core/engine.py", file=sys.stderr)
        return 2
    for path in tests_for(source):
        print(path.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
