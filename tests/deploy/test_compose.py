"""compose.yaml: every path, port, command, variable and secret in it exists, and `prepare` makes the keys that it needs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml
from deploy.image import steps
from deploy.settings import known_variables

from swerve.cli import COMMANDS
from swerve.service.config.load import load

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "compose.yaml").read_text()
COMPOSE = yaml.safe_load(TEXT)
OURS = {name: service for name, service in COMPOSE["services"].items() if "build" in service}
#: Fields of a service in the Compose specification that this file may use.
FIELDS = {
    "image", "build", "restart", "read_only", "cap_drop", "security_opt", "stop_grace_period", "command", "environment", "volumes",
    "tmpfs", "ports", "secrets", "extra_hosts", "healthcheck", "depends_on",
}  # fmt: skip
MADE = "deploy/compose/local/"


def prepared(tmp_path: Path) -> Path:
    """Run `prepare` on a copy, with the command of these sources; return its folder."""
    shutil.copytree(ROOT / "deploy" / "compose", tmp_path / "compose", ignore=shutil.ignore_patterns("local*"))
    variables = {**os.environ, "SWERVE": f"{sys.executable} -m swerve", "PYTHONPATH": str(ROOT / "src")}
    subprocess.run([tmp_path / "compose" / "prepare"], env=variables, check=True, capture_output=True, timeout=120)
    return tmp_path / "compose" / "local"


def source_of(volume: str) -> str:
    return volume.split(":")[0]


def test_its_services_have_known_fields_and_real_commands():
    assert set(COMPOSE["services"]) == {"service", "proxy", "prometheus"}
    for name, service in COMPOSE["services"].items():
        assert set(service) <= FIELDS, name
    for service in OURS.values():
        assert service["command"][0] in COMMANDS
        assert service["read_only"] and service["cap_drop"] == ["ALL"]


def test_every_path_volume_and_secret_exists():
    files = [one["file"] for one in COMPOSE["secrets"].values()]
    for service in COMPOSE["services"].values():
        for volume in service["volumes"]:
            source = source_of(volume)
            if source.startswith("./"):
                files.append(source)
            else:
                assert source in COMPOSE["volumes"]
        assert set(service.get("secrets", ())) <= set(COMPOSE["secrets"])
    made = {f"{MADE}{name}" for name in ("swerve.toml", "proxy.key", "prometheus.key")}
    for file in files:
        assert (ROOT / file).is_file() or file.removeprefix("./") in made, file
    for mounted in re.findall(r"/run/secrets/(\w+)", TEXT + (ROOT / "deploy" / "prometheus" / "prometheus.yml").read_text()):
        assert mounted in COMPOSE["secrets"]


def test_what_may_be_written_is_a_volume_of_the_image():
    image = (ROOT / "Dockerfile").read_text()
    store = dict(steps(image))["VOLUME"]
    mounted = {volume.split(":")[1] for volume in COMPOSE["services"]["service"]["volumes"]}
    assert {store, "/var/cache/swerve"} <= mounted
    assert f"sqlite:///{store}/" in COMPOSE["services"]["service"]["environment"]["SWERVE__STORE__URL"]


def test_ports_agree_and_are_published_on_the_loopback_alone():
    exposed = dict(steps((ROOT / "Dockerfile").read_text()))["EXPOSE"].split()
    for service in COMPOSE["services"].values():
        for port in service["ports"]:
            address, _, inside = port.split(":")
            assert address == "127.0.0.1"
            assert inside in [*exposed, "9090"]
    variables = COMPOSE["services"]["service"]["environment"]
    scraped = yaml.safe_load((ROOT / "deploy" / "prometheus" / "prometheus.yml").read_text())["scrape_configs"][0]
    address = f"service:{variables['SWERVE__SERVER__PORT']}"
    assert scraped["static_configs"][0]["targets"] == [address]
    assert COMPOSE["services"]["proxy"]["environment"]["SWERVE__PROXY__SERVICE"] == f"http://{address}"


def test_every_variable_sets_a_field():
    named = [name for service in OURS.values() for name in service["environment"]]
    assert known_variables(" ".join(named)) == set(named)


def fields_of(service: dict[str, Any]) -> dict[str, object]:
    """The fields that the variables of a service set, as `load` takes them."""
    out: dict[str, object] = {}
    for name, value in service["environment"].items():
        if "__" in name:
            plain = re.sub(r"\$\{\w+:-(.*?)\}", r"\1", value)
            out[".".join(name.lower().split("__")[1:])] = int(plain) if plain.isdigit() else plain
    return out


def test_prepare_makes_keys_and_a_configuration_that_both_services_take(tmp_path):
    local = prepared(tmp_path)
    keys = {path.stem: path.read_text() for path in local.glob("*.key")}
    assert set(keys) == {"proxy", "prometheus", "app", "operator"}
    assert all(re.fullmatch(r"swerve_[\w-]{43}", key) for key in keys.values())
    assert len(set(keys.values())) == 4
    assert oct(local.stat().st_mode)[-3:] == "700"
    config = load(local / "swerve.toml")
    assert {key.name: set(key.scopes) for key in config.security.api_keys}["prometheus"] == {"read"}
    for service in OURS.values():
        made = load(local / "swerve.toml", fields_of(service))
        assert "service" in made.server.hosts
    assert made.proxy.upstream.startswith("http")
    again = subprocess.run([local.parent / "prepare"], env={**os.environ, "SWERVE": "false"}, capture_output=True, check=False)
    assert again.returncode == 1  # keys in use are not replaced
    assert {path.stem: path.read_text() for path in local.glob("*.key")} == keys


def test_the_keys_of_prepare_stay_out_of_the_repository_and_of_the_image():
    ignored = subprocess.run(["git", "-C", str(ROOT), "check-ignore", f"{MADE}app.key"], capture_output=True, check=False)
    assert ignored.returncode == 0
    assert "!deploy\n" not in (ROOT / ".dockerignore").read_text()
