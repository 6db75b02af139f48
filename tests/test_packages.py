"""The two distributions, `swerve` and `swerve-client`: what they hold, what they need, and that they install and start.

The slow tests install into empty environments, from pip's configured index or folder of wheels; they skip without one.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import urllib.request
import venv
import zipfile
from pathlib import Path

import pytest
from service.running import Running

ROOT = Path(__file__).parent.parent
FOLDERS = {"swerve": ROOT, "swerve_client": ROOT / "clients" / "python"}
#: The most megabytes that `swerve-client` and what it needs take beside pip: 2.3 to 2.6 in 2026, before Python compiles them.
MOST_MB = 15
#: What pip says when it cannot have a package of others; that it finds no fitting one of ours is a defect.
UNAVAILABLE = re.compile(
    r"Could not find a version that satisfies the requirement (?!swerve)\S+|Max retries exceeded|Connection refused"
)


def build(source: Path, into: Path, *targets: str) -> None:
    chosen = [option for target in targets for option in ("-t", target)]
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(into), *chosen]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """The folder with the wheels and sdists of both."""
    folder = tmp_path_factory.mktemp("built")
    for source in FOLDERS.values():
        build(source, folder, "sdist", "wheel")
    return folder


def wheel_of(name: str, folder: Path) -> dict[str, bytes]:
    (path,) = folder.glob(f"{name}-*.whl")
    with zipfile.ZipFile(path) as wheel:
        return {entry: wheel.read(entry) for entry in wheel.namelist()}


def project(name: str) -> dict:
    return tomllib.loads((FOLDERS[name] / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_both_have_one_version_and_need_each_other_in_it():
    import swerve
    import swerve_client

    assert swerve.__version__ == swerve_client.__version__
    extras = project("swerve")["optional-dependencies"]
    for extra in ("client", "service"):
        assert f"swerve-client=={swerve.__version__}" in extras[extra]
    assert {re.split(r"[<>=]", one)[0] for one in project("swerve_client")["dependencies"]} == {"httpx", "msgspec"}


def test_swerve_hands_the_client_on():
    import swerve
    import swerve.client
    import swerve_client

    assert swerve.Client is swerve.client.Client is swerve_client.Client
    assert swerve.AsyncClient is swerve_client.AsyncClient
    names = set(swerve_client.__all__) - {"__version__"}
    assert {name for name in names if getattr(swerve.client, name) is getattr(swerve_client, name)} == names


def alone(source: str, *absent: str) -> subprocess.CompletedProcess[str]:
    """Run a script for which these modules do not exist."""
    blocked = f"import sys; sys.modules.update(dict.fromkeys({absent!r}))\n"
    return subprocess.run([sys.executable, "-c", blocked + source], capture_output=True, text=True, timeout=60, check=False)


def test_the_client_needs_nothing_of_swerve():
    done = alone("import swerve_client; swerve_client.Client().close(); swerve_client.AsyncClient()", "swerve", "numpy", "numba")
    assert done.returncode == 0, done.stderr


def test_the_structures_come_without_httpx():
    """The service imports them, and sends nothing."""
    done = alone("import swerve_client, sys; assert 'httpx' not in {n for n, m in sys.modules.items() if m}", "httpx")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("missing", ["swerve_client", "msgspec"])
def test_a_missing_package_is_named_with_the_extra(missing):
    done = alone("import swerve; swerve.Client", missing)
    assert re.search(rf"needs {missing}, .*pip install 'swerve\[client\]'", done.stderr)


@pytest.mark.parametrize("name", FOLDERS)
def test_a_wheel_has_every_file_of_the_package(name, built):
    tracked = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "src"],
        cwd=FOLDERS[name], capture_output=True, text=True, check=False,
    )  # fmt: skip
    if tracked.returncode:
        pytest.skip("the sources are not in a git repository")
    files = {path.removeprefix("src/") for path in tracked.stdout.split() if (FOLDERS[name] / path).exists()}
    assert f"{name}/py.typed" in files
    wheel = wheel_of(name, built)
    assert {entry for entry in wheel if ".dist-info/" not in entry} == files
    licence = (ROOT / "LICENSE").read_bytes()
    assert [content for entry, content in wheel.items() if entry.endswith("/LICENSE")] == [licence]


@pytest.mark.parametrize("name", FOLDERS)
def test_an_sdist_has_its_own_package_alone_and_builds_the_same_wheel(name, built, tmp_path):
    (path,) = built.glob(f"{name}-*.tar.gz")
    with tarfile.open(path) as sdist:
        sdist.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    assert [folder.name for folder in source.iterdir() if folder.is_dir()] == ["src"]
    assert [folder.name for folder in (source / "src").iterdir()] == [name]
    build(source, tmp_path / "again", "wheel")
    assert wheel_of(name, tmp_path / "again") == wheel_of(name, built)


class Fresh:
    """An environment with one distribution from the built wheels, and what it needs."""

    def __init__(self, folder: Path, wheels: Path, requirement: str) -> None:
        venv.create(folder, with_pip=True, symlinks=True)
        self.bin = folder / "bin"
        (self.packages,) = folder.glob("lib/python*/site-packages")
        self.environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
        before = self.megabytes
        (wheel,) = wheels.glob("swerve_client-*.whl")
        ours = f"{requirement}=={wheel.name.split('-')[1]}"  # a version in development gives way to any released one of an index
        command = [str(self.bin / "python"), "-m", "pip", "install", "--no-compile", "--find-links", str(wheels), ours]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=900, check=False)
        if done.returncode and (why := UNAVAILABLE.search(done.stderr)):
            pytest.skip(f"pip cannot have the packages of {requirement}: {why[0]}")
        assert done.returncode == 0, done.stderr
        self.added = self.megabytes - before

    @property
    def megabytes(self) -> float:
        """The size of the installed packages."""
        return sum(path.stat().st_size for path in self.packages.rglob("*") if path.is_file()) / 1e6

    def names(self) -> set[str]:
        """Return the distributions that are installed."""
        listed = self.run("-m", "pip", "list", "--format=json")
        return {one["name"].lower().replace("_", "-") for one in json.loads(listed)}

    def run(self, *arguments: str) -> str:
        done = subprocess.run(
            [str(self.bin / "python"), "-I", *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def thin(built, tmp_path_factory) -> Fresh:
    return Fresh(tmp_path_factory.mktemp("thin"), built, "swerve-client")


@pytest.fixture(scope="module")
def started(built, tmp_path_factory):
    """The address of a service from an empty environment with `swerve[service]`."""
    fresh = Fresh(tmp_path_factory.mktemp("full"), built, "swerve[service]")
    service = Running(tmp_path_factory.mktemp("served"), command=(str(fresh.bin / "swerve"), "serve", "--port", "0"))
    service.environment = lambda: {**fresh.environment, "PYTHONUNBUFFERED": "1"}  # without the sources of this repository
    try:
        service.start()
        yield f"http://127.0.0.1:{service.port}"
        assert service.stop() == 0
    finally:
        service.kill()


RANK = """
import sys
from swerve_client import Client
with Client(sys.argv[1], timeout=5.0) as client:
    answer = client.rank("storm", ["a", "b"], session="s")
    assert sorted(answer.ranking) == ["a", "b"] and answer.decision and not answer.degraded, answer
    assert client.feedback(answer.decision, "b") is True
    assert client.state("storm").requests == 1
"""


@pytest.mark.slow
def test_swerve_with_its_service_installs_in_an_empty_environment_and_starts(started):
    with urllib.request.urlopen(f"{started}/healthz", timeout=30) as answer:
        assert json.load(answer)["status"] == "ok"
    body = json.dumps({"query": "jaguar", "candidates": ["a", "b"]}).encode()
    asked = urllib.request.Request(f"{started}/v1/rank", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(asked, timeout=30) as answer:
        assert sorted(json.load(answer)["ranking"]) == ["a", "b"]
    with urllib.request.urlopen(f"{started}/", timeout=30) as page:  # the page is part of the wheel
        assert b"<html" in page.read()


def test_the_client_alone_is_a_few_megabytes(thin):
    names = thin.names()
    assert {"swerve-client", "httpx", "msgspec"} <= names
    assert not names & {"swerve", "numpy", "numba", "llvmlite", "pyarrow", "starlette"}
    assert thin.added < MOST_MB, f"{thin.added:.1f} MB"


@pytest.mark.slow
def test_the_client_alone_ranks_against_a_running_service(thin, started):
    thin.run("-c", RANK, started)
    (example,) = re.findall(
        r"^```python\n(.*?)^```", (FOLDERS["swerve_client"] / "README.md").read_text(encoding="utf-8"), re.S | re.M
    )
    assert "http://127.0.0.1:8350" in example
    timed = example.replace('"http://127.0.0.1:8350"', f"{started!r}, timeout=5.0")
    assert thin.run("-c", timed + "print(sorted(show), answer.degraded)") == "['storm-warning', 'team-page'] False\n"
