"""The client for JavaScript is written in TypeScript: what is committed is what its source compiles to, and its types hold."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from clients.keyed import JS
from clients.nodejs import NODE, called, needs_node, node

pytestmark = needs_node
#: What the compiler makes of the source, committed so that a clone needs no compiler.
COMPILED = ("swerve.js", "swerve.d.ts")
PROGRAMS = ("page", "server")


@pytest.fixture(scope="module")
def tsc(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The compiler of the lock file: that of `npm ci` in the folder of the client, else installed for these tests alone."""
    lock = json.loads((JS / "package-lock.json").read_text(encoding="utf-8"))
    wanted = lock["packages"]["node_modules/typescript"]["version"]
    installed = JS / "node_modules" / "typescript"
    if installed.is_dir() and json.loads((installed / "package.json").read_text(encoding="utf-8"))["version"] == wanted:
        return str(installed / "bin" / "tsc")
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is not installed (tools/system-packages npm), and TypeScript is not in clients/js/node_modules")
    folder = tmp_path_factory.mktemp("typescript")
    quickly = ("--fetch-retries=0", "--fetch-timeout=20000")
    if called(npm, "view", f"typescript@{wanted}", "version", *quickly, cwd=folder).returncode != 0:
        pytest.skip(f"npm reaches no registry that has typescript {wanted}, and it is not in clients/js/node_modules")
    for name in ("package.json", "package-lock.json", ".npmrc"):
        shutil.copy(JS / name, folder)
    done = called(npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return str(folder / "node_modules" / "typescript" / "bin" / "tsc")


def test_what_is_committed_is_what_the_source_compiles_to(tsc: str, tmp_path: Path):
    node(tsc, "--project", str(JS), "--outDir", str(tmp_path), cwd=tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == set(COMPILED)
    for name in COMPILED:
        made, committed = ((folder / name).read_text(encoding="utf-8") for folder in (tmp_path, JS))
        assert made == committed, f"clients/js/{name} is not what src/ compiles to: npm ci && npm run build, in clients/js"


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_that_uses_it_compiles(tsc: str, program: str):
    """A page with the types of a browser, a server without them; an `@ts-expect-error` before a right line fails too."""
    assert NODE is not None
    done = called(NODE, tsc, "--project", f"test/types/{program}", "--pretty", "false", cwd=JS)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_wrong_use_does_not_compile_for_the_reason_named(tsc: str, program: str, tmp_path: Path):
    copy = tmp_path / "js"
    shutil.copytree(JS, copy, ignore=shutil.ignore_patterns("node_modules"))
    source = copy / "test" / "types" / program / "use.ts"
    text = source.read_text(encoding="utf-8")
    wanted = [
        (number + 1, found[1])
        for number, line in enumerate(text.splitlines(), 1)
        if (found := re.search(r"// @ts-expect-error (TS\d+): ", line))
    ]
    assert len(wanted) == text.count("\n// @ts-expect-error") + text.count("\n  // @ts-expect-error") > 5
    source.write_text(text.replace("@ts-expect-error", ""), encoding="utf-8")
    assert NODE is not None
    done = called(NODE, tsc, "--project", f"test/types/{program}", "--pretty", "false", cwd=copy)
    refused = re.findall(r"^(\S+)\((\d+),\d+\): error (TS\d+): ", done.stdout, re.M)
    assert done.returncode != 0
    assert {name for name, _, _ in refused} == {f"test/types/{program}/use.ts"}
    assert sorted({(int(line), code) for _, line, code in refused}) == wanted


def test_source_and_programs_are_compiled_strictly():
    for folder in (JS, *(JS / "test" / "types" / program for program in PROGRAMS)):
        options = json.loads((folder / "tsconfig.json").read_text(encoding="utf-8"))["compilerOptions"]
        assert options["strict"] is True and options["types"] == []
    source = (JS / "src" / "swerve.ts").read_text(encoding="utf-8")
    assert not re.search(r"@ts-|\bany\b", source)  # no way around the types
