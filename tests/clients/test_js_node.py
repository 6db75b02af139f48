"""The client for JavaScript in Node, against the real service; its size, its methods and its package."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

from clients.keyed import CONFIG, JS, KEY
from clients.nodejs import needs_node, node
from service.running import running

from swerve.version import __version__

#: Bytes of the client, minified and gzipped.
MOST_BYTES = 3000


def slimmed(source: str) -> str:
    """Return a source without its comments and indents. A real minifier also shortens names, so it ends below this."""
    without = re.sub(r"/\*\*.*?\*/", "", source, flags=re.S)
    lines = (line.strip() for line in without.splitlines())
    return "\n".join(line for line in lines if line and not line.startswith("//"))


@needs_node
def test_it_works_in_node_against_the_real_service(tmp_path: Path):
    with running(tmp_path, CONFIG) as service:
        url = f"http://127.0.0.1:{service.port}"
        said = node("--test", "test/swerve.test.mjs", cwd=JS, SWERVE_URL=url, SWERVE_KEY=KEY.text).stdout
    assert re.search(r"^# pass 4$", said, re.M) and re.search(r"^# (fail|skipped) 0$", said, re.M), said


@needs_node
def test_it_is_small(tmp_path: Path):
    source = (JS / "swerve.js").read_text(encoding="utf-8")
    small = tmp_path / "small.mjs"
    small.write_text(slimmed(source), encoding="utf-8")
    show = "const all = await import(process.argv[1]); console.log(Object.keys(all).sort().join())"
    names = {node("--input-type=module", "-e", show, str(path), cwd=tmp_path).stdout for path in (small, JS / "swerve.js")}
    assert names == {"Swerve,SwerveError\n"}  # what is measured is the same program
    assert len(gzip.compress(small.read_bytes(), 9)) < MOST_BYTES


@needs_node
def test_every_method_has_its_types():
    show = "import { Swerve } from './swerve.js'; console.log(Object.getOwnPropertyNames(Swerve.prototype).join())"
    methods = node("--input-type=module", "-e", show, cwd=JS).stdout.strip().split(",")
    types = (JS / "swerve.d.ts").read_text(encoding="utf-8").split("export declare class Swerve {")[1]
    public = [name for name in methods if not name.startswith("_")]
    assert public == ["constructor", "rank", "feedback", "beacon", "watch"]
    assert re.findall(r"^    (\w+)\(", types, re.M) == public


def test_the_package_needs_nothing_to_run_and_its_lock_has_no_address():
    package, lock = (json.loads((JS / name).read_text(encoding="utf-8")) for name in ("package.json", "package-lock.json"))
    assert package["name"] == "swerve-client"
    assert not {"dependencies", "peerDependencies", "optionalDependencies", "bundleDependencies"} & package.keys()
    compiler = package["devDependencies"]
    assert compiler.keys() == {"typescript"} and re.fullmatch(r"\d+\.\d+\.\d+", compiler["typescript"])
    assert lock["packages"][""]["devDependencies"] == compiler and lock["packages"].keys() == {"", "node_modules/typescript"}
    locked = lock["packages"]["node_modules/typescript"]
    assert locked["version"] == compiler["typescript"] and locked["dev"] and locked["integrity"].startswith("sha512-")
    assert "resolved" not in json.dumps(lock) and "://" not in json.dumps(lock)
    assert (JS / ".npmrc").read_text(encoding="utf-8") == "omit-lockfile-registry-resolved=true\n"  # so that it stays so
    ours = re.sub(r"\.dev(\d+)$", r"-dev.\1", __version__)  # npm wants semantic versions
    assert package["version"] == lock["version"] == lock["packages"][""]["version"] == ours
    for name in package["files"]:
        assert (JS / name).is_file()
